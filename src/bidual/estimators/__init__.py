"""scikit-learn estimators."""

from bidual.estimators.classifier import ReLUClassifier
from bidual.estimators.cv import ReLUClassifierCV, ReLURegressorCV
from bidual.estimators.linear_net import LinearNetRegressor
from bidual.estimators.regressor import ReLURegressor

__all__ = ["LinearNetRegressor", "ReLUClassifier", "ReLUClassifierCV", "ReLURegressor", "ReLURegressorCV"]
