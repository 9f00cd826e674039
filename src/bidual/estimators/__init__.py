"""scikit-learn estimators."""

from bidual.estimators.classifier import ReLUClassifier
from bidual.estimators.convex_rf import ConvexRF
from bidual.estimators.cv import ReLUClassifierCV, ReLURegressorCV
from bidual.estimators.deep_line import DeepReLURegressor
from bidual.estimators.deep_relu import DeepReLUClassifier
from bidual.estimators.layerwise import LayerwiseClassifier, LayerwiseRegressor
from bidual.estimators.linear_conv import LinearConvRegressor
from bidual.estimators.linear_net import LinearNetRegressor
from bidual.estimators.ntk import NTKRegressor
from bidual.estimators.principal_axes import PrincipalAxes
from bidual.estimators.regressor import ReLURegressor
from bidual.estimators.spline import SplineClassifier, SplineRegressor
from bidual.estimators.table import TableModel, table_model

__all__ = [
    "ConvexRF",
    "DeepReLUClassifier",
    "DeepReLURegressor",
    "LayerwiseClassifier",
    "LayerwiseRegressor",
    "LinearConvRegressor",
    "LinearNetRegressor",
    "NTKRegressor",
    "PrincipalAxes",
    "ReLUClassifier",
    "ReLUClassifierCV",
    "ReLURegressor",
    "ReLURegressorCV",
    "SplineClassifier",
    "SplineRegressor",
    "TableModel",
    "table_model",
]
