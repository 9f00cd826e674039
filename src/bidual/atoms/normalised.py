"""Neurons that are normalised after the ReLU (000 sec. 6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from bidual._util.typing import FloatArray
from bidual.arrangements import Patterns
from bidual.atoms.abilities import Ability
from bidual.atoms.base import Atoms
from bidual.atoms.neurons import Neurons
from bidual.atoms.white_blocks import WhiteBlocks


@dataclass(frozen=True)
class Normalised(Atoms):
    r"""Neurons that are normalised after the ReLU (000 eq. 19).

    M = [X, k 1], where the last column carries the shift (:math:`k = 1/\sqrt n`). A neuron with weights (q, a)
    computes

    .. math:: k \Big( \|q\| \, \frac{z - 1 w^T z}{(w^T (z - 1 w^T z)^2)^{1/2}} + a 1 \Big), \qquad z = (X q)_+ ,

    the direction of q being the hidden weights, its length the scale :math:`\gamma`. One output only.

    Attributes
    ----------
    w : ndarray, shape (n,)
        Weights of the rows, which sum to one: statistics are weighted.
    """

    w: FloatArray = field(kw_only=True)

    can: ClassVar[frozenset[Ability]] = frozenset({"finite program", "all patterns", "formula"})

    @property
    def relu_inputs(self) -> FloatArray:
        return self.M[:, :-1]

    def hidden(self, U: FloatArray) -> FloatArray:
        z = np.maximum(self.M[:, :-1] @ U[:, :-1].T, 0.0)
        mean, deviation = statistics(z, self.w)
        scale = np.where(deviation > 0, np.linalg.norm(U[:, :-1], axis=1), 0.0) / np.where(
            deviation > 0, deviation, 1.0
        )
        return self.M[:, -1:] * ((z - mean) * scale + U[:, -1])

    def hidden_of(self, neurons: Neurons) -> FloatArray:
        return self.hidden(neurons.U)

    def blocks(self, cells: Patterns) -> WhiteBlocks:
        return WhiteBlocks(self, cells)

    @cached_property
    def largest_hidden(self) -> float:
        r""":math:`k / \sqrt{w_i}`, as :math:`\sum_i w_i h_i^2 \le k^2`."""
        return float(self.M[0, -1] / np.sqrt(self.w.min()))

    def norm_limit(self, V: FloatArray) -> float:
        r""":math:`k (\sum_i v_i^2 / w_i)^{1/2}`: a neuron of unit cost has the weighted norm k at most."""
        size = np.sqrt((V[:, 0] ** 2 / self.w).sum())
        return float(self.M[0, -1] * size * (1.0 + 4 * (len(V) + 4) * np.finfo(float).eps))


def statistics(z: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation of each column; a deviation within rounding of zero is zero."""
    mean = w @ z
    deviation = np.sqrt(w @ (z - mean) ** 2)
    return mean, np.where(deviation > 1e-13 * np.sqrt(w @ z**2), deviation, 0.0)
