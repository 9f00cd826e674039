"""ReLU networks trained to proven global optimality."""

from bidual.architectures import BatchNorm, TwoLayer
from bidual.arrangements import Patterns, count_patterns, enumerate_patterns, sample_patterns
from bidual.certificates import Certificate
from bidual.certification import Improved, certify, polish
from bidual.estimators import ReLUClassifier, ReLUClassifierCV, ReLURegressor, ReLURegressorCV
from bidual.models import Model, load
from bidual.networks import BatchNormNetwork, GatedNetwork, Network, TwoLayerNetwork
from bidual.paths import SolutionPath, beta_max, solution_path

__version__ = "0.1.0"

__all__ = [
    "BatchNorm",
    "BatchNormNetwork",
    "Certificate",
    "GatedNetwork",
    "Improved",
    "Model",
    "Network",
    "Patterns",
    "ReLUClassifier",
    "ReLUClassifierCV",
    "ReLURegressor",
    "ReLURegressorCV",
    "SolutionPath",
    "TwoLayer",
    "TwoLayerNetwork",
    "beta_max",
    "certify",
    "count_patterns",
    "enumerate_patterns",
    "load",
    "polish",
    "sample_patterns",
    "solution_path",
]
