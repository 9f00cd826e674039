"""Network objects, their files, and conversions."""

from bidual.networks.base import FORMAT_VERSION, Network, normalise_weights
from bidual.networks.convert import from_sklearn, from_torch
from bidual.networks.deep import DeepNetwork
from bidual.networks.gated import GatedNetwork
from bidual.networks.two_layer import TwoLayerNetwork

__all__ = [
    "FORMAT_VERSION",
    "DeepNetwork",
    "GatedNetwork",
    "Network",
    "TwoLayerNetwork",
    "from_sklearn",
    "from_torch",
    "normalise_weights",
]
