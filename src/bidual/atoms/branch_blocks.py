"""Branches on their cells (002 Theorem 1)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bidual._util.typing import FloatArray, IntArray
from bidual.atoms.blocks import CellBlocks, block_heads
from bidual.atoms.branch_cells import LayeredPatterns
from bidual.atoms.neurons import SubNetworks

if TYPE_CHECKING:
    from bidual.atoms.branches import Branches


class BranchBlocks(CellBlocks):
    r"""The blocks :math:`\sum_t G_{it} M z_{it}` of 002 eq. 21, in the reduced coordinates of the leaves.

    The factor :math:`1 / \sqrt{m_2}` of the paper is in M (:class:`bidual.Parallel`). The signs of 002 eq. 8, which the
    printed effective matrix leaves out, are in the gates :math:`G_{it}`.
    """

    cells: LayeredPatterns

    def __init__(self, atoms: Branches, cells: LayeredPatterns) -> None:
        self.atoms, self.cells = atoms, cells
        self.rows = atoms.reduced

    @property
    def size(self) -> int:
        """Coordinates of all leaves."""
        return self.rows.shape[1] * self.atoms.tree.leaves

    @cached_property
    def _normals(self) -> tuple[IntArray, IntArray, FloatArray]:
        return self.cells.normals(self.rows)

    @property
    def cone_pairs(self) -> tuple[IntArray, IntArray]:
        """Cells and rows of the cone constraints."""
        return self._normals[:2]

    def design(self) -> sp.csc_array:
        """``[G_i1 M, ..., G_iT M]`` of all cells, coordinate-major: ``(n, T r P)``."""
        P, n, T = self.cells.gates.shape
        r = self.rows.shape[1]
        columns = np.einsum("pnt,nk->tkpn", self.cells.gates, self.rows, optimize=True)
        return sp.csc_array(columns.reshape(T * r * P, n).T)

    def cone_matrix(self) -> sp.csc_array:
        """Inward normals of the cones, ``(Q, T r P)``."""
        cell, _, normals = self._normals
        q, k = np.nonzero(normals)
        P, size = len(self), normals.shape[1]
        return sp.csc_array((normals[q, k], (q, k * P + cell[q])), shape=(len(cell), size * P))

    def neurons(self, Z: FloatArray, intercept: FloatArray) -> SubNetworks:
        """One branch per block: leaves ``Z``, output weight ``+-1`` on the block's output."""
        signs, C, P, size = Z.shape
        T, p = self.atoms.tree.leaves, self.atoms.M.shape[1]
        leaves = Z.reshape(signs * C * P * T, size // T) @ self.atoms.basis.T
        return SubNetworks(
            leaves.reshape(signs * C * P, T * p),
            block_heads(signs, C, P),
            intercept,
            np.tile(self.cells.signs, (signs * C, 1)),
        )
