"""The convex program of branches on fixed cells (002 Theorem 1)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from bidual._typing import FloatArray, IntArray
from bidual.arrangements.layered import LayeredPatterns
from bidual.problem import ParallelProblem, SubNetworks
from bidual.solvers.conic import ConicResult, FiniteProgram


class LayeredProgram(FiniteProgram):
    r"""The convex program 002 eq. 21 on some cells, in the reduced coordinates of the leaves.

    .. math:: \min \; L\Big(\sum_{i, \pm} \pm \sum_t G_{it} M z_{it}^\pm + 1 b\Big) + \beta \sum_{i, \pm} \|Z_i^\pm\|_F
              \quad \text{s.t.} \quad Z_i^\pm \text{ in the cone of cell } i .

    The factor :math:`1 / \sqrt{m_2}` of the paper is in M (:class:`bidual.Parallel`). The signs of 002 eq. 8, which the
    printed effective matrix leaves out, are in the gates :math:`G_{it}`.
    """

    problem: ParallelProblem
    patterns: LayeredPatterns  # type: ignore[assignment]

    def __init__(self, problem: ParallelProblem, patterns: LayeredPatterns) -> None:
        super().__init__(problem, patterns)  # type: ignore[arg-type]

    @cached_property
    def _normals(self) -> tuple[IntArray, IntArray, FloatArray]:
        return self.patterns.normals(self.rows)

    @property
    def cone_pairs(self) -> tuple[IntArray, IntArray]:
        """Cells and rows of the cone constraints."""
        return self._normals[:2]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the block weights: signs, outputs, cells, coordinates of all leaves."""
        return 2, self.problem.n_outputs, len(self.patterns), self.rows.shape[1] * self.problem.tree.leaves

    def design(self) -> sp.csc_array:
        """``[G_i1 M, ..., G_iT M]`` of all cells, coordinate-major: ``(n, T r P)``."""
        P, n, T = self.patterns.gates.shape
        r = self.rows.shape[1]
        columns = np.einsum("pnt,nk->tkpn", self.patterns.gates, self.rows, optimize=True)
        return sp.csc_array(columns.reshape(T * r * P, n).T)

    def cone_matrix(self) -> sp.csc_array:
        """Inward normals of the cones, ``(Q, T r P)``."""
        cell, _, normals = self._normals
        q, k = np.nonzero(normals)
        P, size = len(self.patterns), normals.shape[1]
        return sp.csc_array((normals[q, k], (q, k * P + cell[q])), shape=(len(cell), size * P))

    def neurons(self, result: ConicResult) -> SubNetworks:
        """One branch per block: leaves ``Z``, output weight ``+-1`` on the block's output."""
        signs, C, P, size = result.Z.shape
        T, p = self.problem.tree.leaves, self.problem.M.shape[1]
        leaves = result.Z.reshape(signs * C * P * T, size // T) @ self.problem.basis.T
        heads = np.stack([np.eye(C), -np.eye(C)]).reshape(signs * C, C)
        return SubNetworks(
            leaves.reshape(signs * C * P, T * p),
            np.repeat(heads, P, axis=0),
            result.intercept,
            np.tile(self.patterns.signs, (signs * C, 1)),
        )
