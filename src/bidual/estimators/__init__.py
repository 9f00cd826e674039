"""scikit-learn estimators."""

from bidual.estimators.classifier import ReLUClassifier
from bidual.estimators.cv import ReLUClassifierCV, ReLURegressorCV
from bidual.estimators.deep_relu import DeepReLUClassifier
from bidual.estimators.linear_net import LinearNetRegressor
from bidual.estimators.regressor import ReLURegressor
from bidual.estimators.spline import SplineClassifier, SplineRegressor

__all__ = [
    "DeepReLUClassifier",
    "LinearNetRegressor",
    "ReLUClassifier",
    "ReLUClassifierCV",
    "ReLURegressor",
    "ReLURegressorCV",
    "SplineClassifier",
    "SplineRegressor",
]
