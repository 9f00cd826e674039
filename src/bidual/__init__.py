"""ReLU networks trained to proven global optimality."""

from bidual._util.version import __version__ as __version__
from bidual.architectures import BatchNorm, Convolutional, LeakyReLU, Parallel, TwoLayer
from bidual.arrangements import Patterns, cluster_directions, count_patterns, enumerate_patterns, sample_patterns
from bidual.bounds import Certificate
from bidual.certification import Improved, certify, polish
from bidual.certification.callback import CertifyCallback, certify_callback
from bidual.estimators import (
    ConvexRF,
    DeepReLUClassifier,
    DeepReLURegressor,
    LayerwiseClassifier,
    LayerwiseRegressor,
    LinearConvRegressor,
    LinearNetRegressor,
    NTKRegressor,
    PrincipalAxes,
    ReLUClassifier,
    ReLUClassifierCV,
    ReLURegressor,
    ReLURegressorCV,
    SplineClassifier,
    SplineRegressor,
    TableModel,
    table_model,
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
from bidual.solvers.blocks.gates import quantile_gates
from bidual.study.collapse import NeuralCollapse, neural_collapse
from bidual.study.rank_guarantee import LowRankGuarantee, low_rank, low_rank_guarantee
from bidual.study.tangent import ntk
from bidual.tables import TableEncoder, read_table
from bidual.training.paths import SolutionPath, beta_max, solution_path

__all__ = [
    "BatchNorm",
    "BatchNormNetwork",
    "Certificate",
    "CertifyCallback",
    "ConvexRF",
    "Convolutional",
    "ConvolutionalNetwork",
    "DeepNetwork",
    "DeepReLUClassifier",
    "DeepReLURegressor",
    "GatedNetwork",
    "Improved",
    "LayerwiseClassifier",
    "LayerwiseNetwork",
    "LayerwiseRegressor",
    "LeakyReLU",
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
    "PrincipalAxes",
    "ReLUClassifier",
    "ReLUClassifierCV",
    "ReLURegressor",
    "ReLURegressorCV",
    "SolutionPath",
    "SpikeFree",
    "SplineClassifier",
    "SplineRegressor",
    "TableEncoder",
    "TableModel",
    "TwoLayer",
    "TwoLayerNetwork",
    "beta_max",
    "certify",
    "certify_callback",
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
    "quantile_gates",
    "read_table",
    "sample_patterns",
    "solution_path",
    "table_model",
]
