"""ReLU networks trained to proven global optimality."""

from bidual.architectures import BatchNorm, Parallel, TwoLayer
from bidual.arrangements import Patterns, count_patterns, enumerate_patterns, sample_patterns
from bidual.certificates import Certificate
from bidual.certification import Improved, certify, polish
from bidual.collapse import NeuralCollapse, neural_collapse
from bidual.estimators import (
    DeepReLUClassifier,
    LayerwiseClassifier,
    LayerwiseRegressor,
    LinearNetRegressor,
    ReLUClassifier,
    ReLUClassifierCV,
    ReLURegressor,
    ReLURegressorCV,
)
from bidual.low_rank import LowRankGuarantee, low_rank, low_rank_guarantee
from bidual.models import Model, load
from bidual.networks import (
    BatchNormNetwork,
    DeepNetwork,
    GatedNetwork,
    LayerwiseNetwork,
    Network,
    ParallelNetwork,
    TwoLayerNetwork,
)
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
    "LayerwiseClassifier",
    "LayerwiseNetwork",
    "LayerwiseRegressor",
    "LinearNetRegressor",
    "LowRankGuarantee",
    "Model",
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
    "TwoLayer",
    "TwoLayerNetwork",
    "beta_max",
    "certify",
    "count_patterns",
    "enumerate_patterns",
    "load",
    "low_rank",
    "low_rank_guarantee",
    "neural_collapse",
    "polish",
    "sample_patterns",
    "solution_path",
]
