r"""Ordinary neurons: :math:`A (M u)_+` (003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms.abilities import Ability
from bidual.atoms.directional import Directional
from bidual.atoms.neurons import Neurons


@dataclass(frozen=True)
class Relu(Directional):
    r"""Neurons that compute :math:`A (M u)_+` at the cost :math:`\|u\| \|\alpha\|`, which the oracles know."""

    can: ClassVar[frozenset[Ability]] = frozenset(
        {"ordinary neurons", "plain oracle", "finite program", "shared neurons", "all patterns", "formula", "gates"}
    )

    def hidden(self, U: FloatArray) -> FloatArray:
        """``A (M U^T)_+``: what neurons with weights ``U (m, p)`` compute, ``(n, m)``."""
        return self.pool(np.maximum(self.M @ U.T, 0.0))

    def preactivations(self, U: FloatArray) -> FloatArray:
        return self.reduced @ U.T

    @property
    def charged(self) -> int:
        """How many of the coordinates of :attr:`reduced`, the first ones, a neuron costs the norm of."""
        return int(self.reduced.shape[1])

    def settled(self, neurons: Neurons) -> Neurons:
        """The same network on the rows, without freedoms that cost nothing: there are none."""
        return neurons

    def activations(self, U: FloatArray) -> FloatArray:
        return np.maximum(self.preactivations(U), 0.0)

    def norm_limit(self, V: FloatArray) -> float:
        """See :meth:`Atoms.masked_limit`."""
        return self.masked_limit(V)
