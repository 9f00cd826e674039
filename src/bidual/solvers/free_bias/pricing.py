r"""Which neuron with a free bias violates the dual constraint most.

.. math:: g(V) = \max_{\|u\| \le 1, \, b} \|V^T (X u + b 1)_+\|

is looked for with the search for ordinary neurons, on the rows :math:`(x_i, s)` at a price s of the bias so high that
it hardly costs anything (:meth:`bidual.atoms.FreeBias.ordinary`): there neurons are polished to exact local maxima.
Their biases are then moved to the best kink: for fixed u the values at all kinks are two cumulative sums.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import FreeBias
from bidual.atoms.free_bias import CONSTANT
from bidual.problem import Problem
from bidual.solvers.engine.candidates import Candidates, unit_rows
from bidual.solvers.engine.pricing import Pricer

#: The price of a bias in units of the largest row: polished directions are off by its square.
PRICE = 100.0
#: Weights of a direction below which an ascent has led to a constant: kinks at rows have .7 of its length at least.
_SLANTED = 0.1
#: Entries of all values at kinks in memory at a time.
_KINK_ENTRIES = 2_000_000


class FreePricer(Pricer):
    """Local search for neurons with free biases; directions are unit vectors (u, b / k), values are for unit u."""

    def __init__(self, problem: Problem[FreeBias], rng: np.random.Generator) -> None:
        super().__init__(problem, rng)
        self.k = float(self.X[0, -1])
        self._dear = np.ones(self.rank)
        self._dear[-1] = 1.0 / PRICE

    @cached_property
    def XT(self) -> FloatArray:
        """Columns of the rows at the high price."""
        return np.ascontiguousarray((self.X / self._dear).T)

    def polish(self, V: FloatArray, U: FloatArray, A: FloatArray | None = None, floor: float = 0.0) -> Candidates:
        """See :meth:`Pricer.polish`; then the best biases."""
        G = self.problem.atoms.spread(V)
        if A is None:
            U = unit_rows(U)
            A = np.ones((len(U), G.shape[1])) if G.shape[1] > 1 else self._signs(G, U)
        starts = self.at_kinks(G, U, A if G.shape[1] == 1 else None)
        dear = starts.directions * self._dear
        found = super().polish(V, dear / np.linalg.norm(dear, axis=1, keepdims=True), starts.outputs, floor)
        back = unit_rows(found.directions / self._dear)
        return self.at_kinks(G, back, found.outputs if G.shape[1] == 1 else None)

    def ascend(
        self, V: FloatArray, U: FloatArray, steps: int, near: bool = False, rows: FloatArray | None = None
    ) -> Candidates:
        """See :meth:`Pricer.ascend`; values are for unit weights."""
        climbed = super().ascend(V, U, steps, near, rows)
        lengths = np.linalg.norm(climbed.directions[:, :-1], axis=1)
        alive = lengths > _SLANTED
        some = climbed.take(alive)
        some = Candidates(some.directions, some.outputs, some.values / lengths[alive])
        return some.joined(Candidates.none(self.rank, climbed.outputs.shape[1]))

    def valued(self, G: FloatArray, U: FloatArray) -> Candidates:
        """With the best biases."""
        return self.at_kinks(G, U, None)

    def at_kinks(self, G: FloatArray, U: FloatArray, A: FloatArray | None) -> Candidates:
        r"""The weights of ``U`` with their best biases, of positive values, best first.

        Biases :math:`b = -x_i^T u`: with the rows in the order of falling :math:`z_i = x_i^T u` the values are
        :math:`\sum_{j \le i} g_j z_j - z_i \sum_{j \le i} g_j`. ``A`` are the signs of one output; None: the best
        output directions.
        """
        found = Candidates.none(self.rank, G.shape[1])
        lengths = np.linalg.norm(U[:, :-1], axis=1)
        alive = lengths > CONSTANT * np.linalg.norm(U, axis=1)
        W = U[alive, :-1] / lengths[alive, None]
        A = None if A is None else A[alive]
        size = max(1, _KINK_ENTRIES // max(1, G.size))
        for start in range(0, len(W), size):
            w = W[start : start + size]
            Z = self.X[:, :-1] @ w.T
            order = np.argsort(-Z, axis=0)
            Z = np.take_along_axis(Z, order, axis=0)
            ranked = G[order]  # (N, m, C)
            sums = np.cumsum(ranked * Z[:, :, None], axis=0) - Z[:, :, None] * np.cumsum(ranked, axis=0)
            values = np.linalg.norm(sums, axis=2) if A is None else sums[:, :, 0] * A[start : start + size, 0]
            each = np.arange(len(w))
            best = values.argmax(axis=0)
            top, H = values[best, each], sums[best, each]
            outputs = H / np.maximum(np.linalg.norm(H, axis=1), 1e-300)[:, None]
            full = np.column_stack([w, -Z[best, each] / self.k])
            kept = top > 0
            full = full[kept] / np.linalg.norm(full[kept], axis=1, keepdims=True)
            found = found.joined(Candidates(full, outputs[kept], top[kept]))
        return found
