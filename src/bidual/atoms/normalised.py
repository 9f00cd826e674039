"""Neurons that are normalised after the ReLU (000 sec. 6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag

from bidual._util.rounding import gamma, spectral_norm
from bidual._util.typing import FloatArray
from bidual.arrangements import Patterns
from bidual.atoms.abilities import Ability
from bidual.atoms.directional import Directional
from bidual.atoms.relu import Relu
from bidual.atoms.white_blocks import WhiteBlocks


@dataclass(frozen=True)
class Normalised(Directional):
    r"""Neurons that are normalised after the ReLU (000 eq. 19).

    M = [X, k 1], where the last column carries the shift (:math:`k = 1/\sqrt n`). A neuron with weights (q, a)
    computes

    .. math:: k \Big( \|q\| \, \frac{z - 1 w^T z}{(w^T (z - 1 w^T z)^2)^{1/2}} + a 1 \Big), \qquad z = (X q)_+ ,

    the direction of q being the hidden weights, its length the scale :math:`\gamma`. (k = 1 where the normalisation is
    by standard deviations.)

    At one direction the best scale and shift are had at once: :math:`V^T \phi = k [V^T \hat z, V^T 1] (\gamma, a)^T`
    for the standardised :math:`\hat z`, two columns whose spectral norm is the dual constraint there.

    Attributes
    ----------
    w : ndarray, shape (n,)
        Weights of the rows, which sum to one: statistics are weighted.
    """

    w: FloatArray = field(kw_only=True)

    can: ClassVar[frozenset[Ability]] = frozenset({"finite program", "all patterns", "formula", "shared neurons"})

    @property
    def relu_inputs(self) -> FloatArray:
        return self.M[:, :-1]

    @cached_property
    def plain(self) -> Relu:
        """The same neurons without the normalisation."""
        return Relu(self.relu_inputs)

    @property
    def k(self) -> float:
        """The factor k: what a shift of one adds to the outputs."""
        return float(self.M[0, -1])

    @cached_property
    def basis(self) -> FloatArray:
        """Directions in the row space of X, and the shift, which is no part of it even if a column of X is constant."""
        return block_diag(self.plain.basis, 1.0)

    def activations(self, U: FloatArray) -> FloatArray:
        return self.hidden(U @ self.basis.T)

    def preactivations(self, U: FloatArray) -> FloatArray:
        q = U[:, :-1]
        lengths = np.linalg.norm(q, axis=1, keepdims=True)
        return self.plain.reduced @ (q / np.where(lengths > 0, lengths, 1.0)).T

    def hidden(self, U: FloatArray) -> FloatArray:
        z = np.maximum(self.M[:, :-1] @ U[:, :-1].T, 0.0)
        mean, deviation = statistics(z, self.w)
        scale = np.where(deviation > 0, np.linalg.norm(U[:, :-1], axis=1), 0.0) / np.where(
            deviation > 0, deviation, 1.0
        )
        return self.M[:, -1:] * ((z - mean) * scale + U[:, -1])

    def blocks(self, cells: Patterns) -> WhiteBlocks:
        return WhiteBlocks(self, cells)

    @cached_property
    def largest_hidden(self) -> float:
        r""":math:`k / \sqrt{w_i}`, as :math:`\sum_i w_i h_i^2 \le k^2`."""
        return float(self.k / np.sqrt(self.w.min()))

    def mass(self, V: FloatArray) -> float:
        r""":math:`k \|\mathrm{diag}(w)^{-1/2} V\|_F`: no neuron of unit cost makes more of a change of V."""
        return float(self.k * np.sqrt((V**2 / self.w[:, None]).sum()))

    def norm_limit(self, V: FloatArray) -> float:
        r""":math:`k \|\mathrm{diag}(w)^{-1/2} V\|_2`: a neuron of unit cost has the weighted norm k at most."""
        size = spectral_norm(V / np.sqrt(self.w)[:, None])
        return self.k * size * (1.0 + gamma(8)) + gamma(V.shape[1] + 8) * self.mass(V)


def statistics(z: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation of each column; a deviation within rounding of zero is zero."""
    mean = w @ z
    deviation = np.sqrt(w @ (z - mean) ** 2)
    return mean, np.where(deviation > 1e-13 * np.sqrt(w @ z**2), deviation, 0.0)
