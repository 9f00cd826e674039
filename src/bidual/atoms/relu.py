r"""Ordinary neurons: :math:`A (M u)_+` (003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms.abilities import Ability
from bidual.atoms.base import Atoms
from bidual.atoms.columns import Columns
from bidual.atoms.neurons import Neurons


@dataclass(frozen=True)
class Relu(Atoms):
    r"""Neurons that compute :math:`A (M u)_+` at the cost :math:`\|u\| \|\alpha\|`, which the oracles know."""

    can: ClassVar[frozenset[Ability]] = frozenset(
        {"ordinary neurons", "plain oracle", "finite program", "all patterns", "formula", "gates"}
    )

    def hidden(self, U: FloatArray) -> FloatArray:
        """``A (M U^T)_+``: what neurons with weights ``U (m, p)`` compute, ``(n, m)``."""
        return self.pool(np.maximum(self.M @ U.T, 0.0))

    @property
    def charged(self) -> int:
        """How many of the coordinates of :attr:`reduced`, the first ones, a neuron costs the norm of."""
        return int(self.reduced.shape[1])

    def settled(self, neurons: Neurons) -> Neurons:
        """The same network on the rows, without freedoms that cost nothing: there are none."""
        return neurons

    def hidden_of(self, neurons: Neurons) -> FloatArray:
        """What these neurons compute, ``(n, m)``."""
        return self.hidden(neurons.U)

    def columns(self, neurons: Neurons) -> Columns:
        return Columns(self.pool(np.maximum(self.reduced @ neurons.U.T, 0.0)), neurons.alpha)

    def stacked(self, activations: FloatArray) -> FloatArray:
        """What the output weights of neurons, one row under the other, are multiplied with."""
        return self.pool(activations)

    def combine(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        """Outputs ``(n, C)`` of neurons with ``activations (N, m)``, without the intercept."""
        return self.pool(activations) @ alpha

    def contributions(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        """What each neuron adds to the outputs, ``(n, C, m)``."""
        return self.pool(activations)[:, None, :] * alpha.T

    def norm_limit(self, V: FloatArray) -> float:
        """See :meth:`Atoms.masked_limit`."""
        return self.masked_limit(V)
