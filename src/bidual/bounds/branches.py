r"""The dual constraint of branches with the path regulariser (002 eq. 6), over the cells of their activation patterns.

On a cell a branch computes :math:`\sum_t G_t X w_t` with diagonal gates :math:`G_t`, so that the constraint is
:math:`\max c^T z` over the unit ball in a cone, with :math:`c_t = X^T G_t v`: that of ordinary neurons in T r
coordinates.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bidual._util.rounding import gamma, spectral_norm
from bidual._util.typing import FloatArray, IntArray
from bidual.atoms import Branches
from bidual.atoms.branch_cells import LayeredPatterns
from bidual.bounds.patterns import ConeBounds
from bidual.bounds.proof import Proof, proof_by
from bidual.problem import Problem

#: Directions of two outputs on a half circle.
HEADS = 48


class LayeredBounds(ConeBounds):
    """Bounds of the constraint over the cells of branches; see :class:`~bidual.bounds.patterns.ConeBounds`."""

    kind = Branches
    problem: Problem[Branches]
    patterns: LayeredPatterns

    def __init__(self, problem: Problem[Branches], patterns: LayeredPatterns) -> None:
        super().__init__(problem, patterns)

    def proof(self) -> Proof | None:
        """See :meth:`ConeBounds.proof`."""
        return proof_by("layers", self.patterns)

    def limit(self, V: FloatArray) -> float:
        """The upper bound on the constraint at ``V`` over all cells, with slack."""
        return self.lower_bound(V).limit

    def joint(self, V: FloatArray) -> tuple[float, float]:
        """See :meth:`ConeBounds.joint`; the better of two bounds for two outputs."""
        worst = self._spectral(V)
        if self.problem.n_outputs == 2:
            worst = min(worst, self._fan(V))
        return worst, self._upper(worst, V)

    def _spectral(self, V: FloatArray) -> float:
        """Several outputs: spectral norms, cones ignored."""
        gradients = self._pattern_gradients(V)
        return spectral_norm(gradients.swapaxes(0, 1))

    def _fan(self, V: FloatArray) -> float:
        r"""Two outputs: a head is within :math:`\pi / 2k` of one of k directions and their opposites."""
        angles = np.arange(HEADS) * np.pi / HEADS
        self.start(V @ np.stack([np.cos(angles), np.sin(angles)]))
        return self.maximum() / float(np.cos(0.5 * np.pi / HEADS))

    def _pattern_gradients(self, V: FloatArray) -> FloatArray:
        gates, rows = self.patterns.gates, self._rows
        P, n, T = gates.shape
        r, C = rows.shape[1], V.shape[1]
        weighted = (V.T[:, :, None] * rows).transpose(1, 0, 2).reshape(n, C * r)
        flat = gates.transpose(0, 2, 1).reshape(P * T, n) @ weighted
        return np.ascontiguousarray(flat.reshape(P, T, C, r).transpose(2, 0, 1, 3).reshape(C, P, T * r))

    def _upper(self, value: float, V: FloatArray) -> float:
        r"""With what rounding may hide: a branch of unit cost has :math:`\sum_t \|w_t\| \le \sqrt T`."""
        problem, tree = self.problem, self.problem.atoms.tree
        lost = np.zeros(len(problem.atoms.M))
        if problem.atoms.reduced is not problem.atoms.M:
            lost = np.linalg.norm(problem.atoms.M - problem.atoms.reduced @ problem.atoms.basis.T, axis=1)
        size = self._rows.shape[1] * tree.leaves
        relative = 2 * (size + 1) * self.patterns.tol + gamma(16 * (size + 4) + 4 * len(V))
        hidden = np.linalg.norm(V, axis=1) @ (lost + relative * problem.atoms.row_norms)
        return value + float(np.sqrt(tree.leaves) * hidden)

    @cached_property
    def _normals(self) -> tuple[IntArray, FloatArray]:
        cell, _, normals = self.patterns.normals(self._rows)
        counts = np.bincount(cell, minlength=len(self.patterns))
        return np.concatenate([[0], np.cumsum(counts)]), normals
