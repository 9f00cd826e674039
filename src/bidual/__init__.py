"""ReLU networks trained to proven global optimality."""

from bidual.architectures import TwoLayer
from bidual.arrangements import Patterns, count_patterns, enumerate_patterns, sample_patterns
from bidual.certificates import Certificate
from bidual.estimators import LinearNetRegressor, ReLUClassifier, ReLUClassifierCV, ReLURegressor, ReLURegressorCV
from bidual.models import Model, load
from bidual.networks import DeepNetwork, GatedNetwork, Network, TwoLayerNetwork
from bidual.paths import SolutionPath, beta_max, solution_path

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "DeepNetwork",
    "GatedNetwork",
    "LinearNetRegressor",
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
    "count_patterns",
    "enumerate_patterns",
    "load",
    "sample_patterns",
    "solution_path",
]
