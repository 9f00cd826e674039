"""ReLU networks trained to proven global optimality."""

from bidual.architectures import BatchNorm, TwoLayer
from bidual.arrangements import Patterns, count_patterns, enumerate_patterns, sample_patterns
from bidual.certificates import Certificate
from bidual.certification import Improved, certify, polish
from bidual.collapse import NeuralCollapse, neural_collapse
from bidual.estimators import (
    DeepReLUClassifier,
    LinearNetRegressor,
    ReLUClassifier,
    ReLUClassifierCV,
    ReLURegressor,
    ReLURegressorCV,
    SplineClassifier,
    SplineRegressor,
)
from bidual.models import Model, load
from bidual.networks import BatchNormNetwork, DeepNetwork, GatedNetwork, Network, TwoLayerNetwork
from bidual.paths import SolutionPath, beta_max, solution_path

__version__ = "0.1.0"

__all__ = [
    "BatchNorm",
    "BatchNormNetwork",
    "Certificate",
    "DeepNetwork",
    "DeepReLUClassifier",
    "GatedNetwork",
    "Improved",
    "LinearNetRegressor",
    "Model",
    "Network",
    "NeuralCollapse",
    "Patterns",
    "ReLUClassifier",
    "ReLUClassifierCV",
    "ReLURegressor",
    "ReLURegressorCV",
    "SolutionPath",
    "SplineClassifier",
    "SplineRegressor",
    "TwoLayer",
    "TwoLayerNetwork",
    "beta_max",
    "certify",
    "count_patterns",
    "enumerate_patterns",
    "load",
    "neural_collapse",
    "polish",
    "sample_patterns",
    "solution_path",
]
