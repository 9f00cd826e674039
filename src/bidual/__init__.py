"""ReLU networks trained to proven global optimality."""

from bidual.architectures import TwoLayer
from bidual.arrangements import Patterns, count_patterns, enumerate_patterns, sample_patterns
from bidual.certificates import Certificate
from bidual.estimators import ReLUClassifier, ReLURegressor
from bidual.models import Model, load
from bidual.networks import GatedNetwork, Network, TwoLayerNetwork

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "GatedNetwork",
    "Model",
    "Network",
    "Patterns",
    "ReLUClassifier",
    "ReLURegressor",
    "TwoLayer",
    "TwoLayerNetwork",
    "count_patterns",
    "enumerate_patterns",
    "load",
    "sample_patterns",
]
