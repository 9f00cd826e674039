"""What neurons compute on the rows of the data, one file for each kind."""

from bidual.atoms.base import Atoms
from bidual.atoms.blocks import Blocks
from bidual.atoms.branches import Branches
from bidual.atoms.directional import Directional
from bidual.atoms.free_bias import FreeBias
from bidual.atoms.heads import Heads
from bidual.atoms.linear import Chains, Linear, LinearFilters
from bidual.atoms.neurons import FreeNeurons, GatedNeurons, Neurons, SubNetworks
from bidual.atoms.normalised import Normalised
from bidual.atoms.relu import Relu
from bidual.atoms.sparse import SparseRelu

__all__ = [
    "Atoms",
    "Blocks",
    "Branches",
    "Chains",
    "Directional",
    "FreeBias",
    "FreeNeurons",
    "GatedNeurons",
    "Heads",
    "Linear",
    "LinearFilters",
    "Neurons",
    "Normalised",
    "Relu",
    "SparseRelu",
    "SubNetworks",
]
