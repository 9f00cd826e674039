r"""Neurons with free biases (004 eq. 1-4): :math:`(X u + b 1)_+` at the cost :math:`\|u\| \|\alpha\|`.

A network with such neurons has a free intercept, whether it is written down or not: a neuron without weights is a
constant and costs nothing. So :math:`1^T V = 0`, and for fixed u the sum :math:`V^T (X u + b 1)_+` is a piecewise
linear function of b with kinks where :math:`b = -x_i^T u`: it is zero below all of them and constant above. Its norm
is convex between two kinks, hence largest at one,

.. math:: \max_{\|u\| \le 1, \, b} \|V^T (X u + b 1)_+\| = \max_i \max_{\|u\| \le 1} \|V^T ((X - 1 x_i^T) u)_+\| ,

so that only neurons with a kink at a row matter. Their biases are :math:`|b| \le R \|u\|` with
:math:`R = \max_i \|x_i\|`, small if the rows have their mean at zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bidual._util.rounding import gamma
from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.atoms.abilities import Ability
from bidual.atoms.blocks import PatternBlocks
from bidual.atoms.neurons import FreeNeurons, Neurons
from bidual.atoms.relu import Relu

#: Neurons with weights this small beside their biases are constants.
CONSTANT = 1e-12


@dataclass(frozen=True)
class FreeBias(Relu):
    r"""Neurons :math:`(M u)_+` with M = [X, k 1] whose last weight costs nothing; rows are not pooled."""

    can: ClassVar[frozenset[Ability]] = frozenset({"finite program", "all patterns", "free biases"})

    # ---- coordinates: the bias is one of its own -----------------------------------------------

    @cached_property
    def _weights(self) -> Relu:
        """Neurons without biases."""
        return Relu(self.M[:, :-1])

    @cached_property
    def basis(self) -> FloatArray:
        return _beside(self._weights.basis)

    @cached_property
    def axes(self) -> tuple[FloatArray, FloatArray]:
        s, Vt = self._weights.axes
        return np.append(s, np.linalg.norm(self.M[:, -1])), _beside(Vt)

    @property
    def charged(self) -> int:
        return int(self.reduced.shape[1]) - 1

    # ---- neurons -------------------------------------------------------------------------------

    def neurons(self, U: FloatArray, alpha: FloatArray, intercept: FloatArray) -> FreeNeurons:
        return FreeNeurons(U, alpha, intercept)

    def settled(self, neurons: Neurons) -> Neurons:
        """The same network on the rows with the smallest biases: what neurons are on every row, the intercept takes.

        Neurons without weights, up to rounding, are gone.
        """
        rows = self.M if neurons.U.shape[1] == self.M.shape[1] else self.reduced
        least = np.maximum((rows @ neurons.U.T).min(axis=0, initial=np.inf), 0.0)
        U = neurons.U.copy()
        U[:, -1] -= least / self.M[0, -1]
        weighty = neurons.lengths > CONSTANT * np.linalg.norm(neurons.U, axis=1)
        return self.neurons(U, neurons.alpha, neurons.intercept + least @ neurons.alpha).take(weighty)

    def blocks(self, cells: Patterns) -> FreeBlocks:
        return FreeBlocks(self, cells)

    # ---- the dual constraint: that of neurons with a kink at a row -----------------------------

    @cached_property
    def radius(self) -> float:
        r""":math:`R = \max_i \|x_i\|`, not rounded down."""
        return float(self._weights.row_norms.max(initial=0.0)) * (1.0 + gamma(self.M.shape[1] + 2))

    def ordinary(self, price: float) -> tuple[Relu, float]:
        r"""Ordinary neurons that contain these, :math:`M_s = [X, s 1]`, and the factor :math:`(1 + R^2 / s^2)^{1/2}`.

        A neuron with a kink at a row has :math:`\|(u, b / s)\| \le (1 + R^2 / s^2)^{1/2} \|u\|`, so that the factor
        times their dual constraint is a bound on the one of free biases; and no neuron of theirs costs less than it
        does here. The larger the price s of a bias, the sharper both are.
        """
        rows = np.column_stack([self._weights.M, np.full(len(self.M), price)])
        return Relu(rows), float(np.hypot(1.0, self.radius / price)) * (1.0 + gamma(4))

    @cached_property
    def largest_hidden(self) -> float:
        """Of neurons with a kink at a row."""
        return 2.0 * self.radius

    def norm_limit(self, V: FloatArray) -> float:
        """That of ordinary neurons with the column of M for the bias."""
        ordinary, factor = self.ordinary(float(self.M[0, -1]))
        return factor * ordinary.norm_limit(V)


class FreeBlocks(PatternBlocks):
    """Neurons with free biases on patterns.

    On the pattern in which all rows are active any weights have biases that fit, and the intercept takes what they add:
    this block has no bias, and no cone.
    """

    def __init__(self, atoms: FreeBias, cells: Patterns) -> None:
        super().__init__(atoms, cells)
        self.atoms: FreeBias = atoms
        self.linear: BoolArray = np.asarray(cells.active.all(axis=1))
        self.charged = np.ones((len(cells), self.size), dtype=bool)
        self.charged[:, -1] = False

    @cached_property
    def cone_pairs(self) -> tuple[IntArray, IntArray]:
        """Those of the other patterns."""
        pattern, row = super().cone_pairs
        kept = np.flatnonzero(~self.linear[pattern])
        return pattern[kept], row[kept]

    def design(self) -> sp.csc_array:
        """Without the biases of the linear blocks."""
        design = super().design()
        kept = np.concatenate([np.ones((self.size - 1) * len(self)), ~self.linear])
        return sp.csc_array(design @ sp.diags_array(kept))

    def neurons(self, Z: FloatArray, intercept: FloatArray) -> Neurons:
        """One neuron for each sign, output and block, those of linear blocks with the smallest biases."""
        Z = Z.copy()
        Z[:, :, self.linear, -1] = 0.0
        neurons = super().neurons(Z, intercept)
        linear = np.tile(self.linear, Z.shape[0] * Z.shape[1])
        least = np.where(linear, (self.atoms.M @ neurons.U.T).min(axis=0, initial=0.0), 0.0) / self.atoms.M[0, -1]
        U = neurons.U.copy()
        U[:, -1] -= least
        moved = (self.atoms.M[0, -1] * least) @ neurons.alpha
        return self.atoms.settled(self.atoms.neurons(U, neurons.alpha, intercept + moved))


def _beside(matrix: FloatArray) -> FloatArray:
    """With one more coordinate, that of the bias."""
    p, r = matrix.shape
    return np.block([[matrix, np.zeros((p, 1))], [np.zeros((1, r)), np.ones((1, 1))]])
