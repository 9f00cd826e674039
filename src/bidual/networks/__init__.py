"""Network objects, their files, and conversions."""

from bidual.networks.base import FORMAT_VERSION, Network
from bidual.networks.batch_norm import BatchNormNetwork
from bidual.networks.convert import (
    from_arrays,
    from_joblib,
    from_onnx,
    from_sklearn,
    from_torch,
    from_torch_file,
)
from bidual.networks.convolutional import ConvolutionalNetwork
from bidual.networks.deep import DeepNetwork
from bidual.networks.gated import GatedNetwork
from bidual.networks.layerwise import LayerwiseNetwork
from bidual.networks.leaky import LeakyReLUNetwork
from bidual.networks.parallel import ParallelNetwork
from bidual.networks.standardised import StandardisedNetwork
from bidual.networks.two_layer import TwoLayerNetwork

__all__ = [
    "FORMAT_VERSION",
    "BatchNormNetwork",
    "ConvolutionalNetwork",
    "DeepNetwork",
    "GatedNetwork",
    "LayerwiseNetwork",
    "LeakyReLUNetwork",
    "Network",
    "ParallelNetwork",
    "StandardisedNetwork",
    "TwoLayerNetwork",
    "from_arrays",
    "from_joblib",
    "from_onnx",
    "from_sklearn",
    "from_torch",
    "from_torch_file",
]
