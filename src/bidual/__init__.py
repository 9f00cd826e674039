"""ReLU networks trained to proven global optimality."""

from bidual.architectures import BatchNorm, Convolutional, Parallel, TwoLayer
from bidual.arrangements import Patterns, cluster_directions, count_patterns, enumerate_patterns, sample_patterns
from bidual.certificates import Certificate
from bidual.certification import Improved, certify, polish
from bidual.collapse import NeuralCollapse, neural_collapse
from bidual.estimators import (
    ConvexRF,
    DeepReLUClassifier,
    LayerwiseClassifier,
    LayerwiseRegressor,
    LinearConvRegressor,
    LinearNetRegressor,
    NTKRegressor,
    ReLUClassifier,
    ReLUClassifierCV,
    ReLURegressor,
    ReLURegressorCV,
    SplineClassifier,
    SplineRegressor,
)
from bidual.geometry import SpikeFree, is_spike_free
from bidual.models import Model, load
from bidual.networks import (
    BatchNormNetwork,
    ConvolutionalNetwork,
    DeepNetwork,
    GatedNetwork,
    LayerwiseNetwork,
    Network,
    ParallelNetwork,
    TwoLayerNetwork,
)
from bidual.paths import SolutionPath, beta_max, solution_path
from bidual.rank_guarantee import LowRankGuarantee, low_rank, low_rank_guarantee
from bidual.tangent import ntk

__version__ = "0.1.0"

__all__ = [
    "BatchNorm",
    "BatchNormNetwork",
    "Certificate",
    "ConvexRF",
    "Convolutional",
    "ConvolutionalNetwork",
    "DeepNetwork",
    "DeepReLUClassifier",
    "GatedNetwork",
    "Improved",
    "LayerwiseClassifier",
    "LayerwiseNetwork",
    "LayerwiseRegressor",
    "LinearConvRegressor",
    "LinearNetRegressor",
    "LowRankGuarantee",
    "Model",
    "NTKRegressor",
    "Network",
    "NeuralCollapse",
    "Parallel",
    "ParallelNetwork",
    "Patterns",
    "ReLUClassifier",
    "ReLUClassifierCV",
    "ReLURegressor",
    "ReLURegressorCV",
    "SolutionPath",
    "SpikeFree",
    "SplineClassifier",
    "SplineRegressor",
    "TwoLayer",
    "TwoLayerNetwork",
    "beta_max",
    "certify",
    "cluster_directions",
    "count_patterns",
    "enumerate_patterns",
    "is_spike_free",
    "load",
    "low_rank",
    "low_rank_guarantee",
    "neural_collapse",
    "ntk",
    "polish",
    "sample_patterns",
    "solution_path",
]
