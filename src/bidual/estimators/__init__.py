"""scikit-learn estimators."""

from bidual.estimators.classifier import ReLUClassifier
from bidual.estimators.regressor import ReLURegressor

__all__ = ["ReLUClassifier", "ReLURegressor"]
