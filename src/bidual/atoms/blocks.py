r"""Atoms on cells: where the activation pattern is fixed, what a neuron computes is linear in its weights.

The block of cell i adds :math:`B_i z` to the outputs, for coordinates z in a cone :math:`N_i z \ge 0`, at the cost of
the norm of z. With :math:`D_i` the pattern, ordinary neurons have :math:`B_i = A D_i M` and
:math:`N_i = (2 D_i - I) M` (003 eq. 8).

Matrices are built in bulk, coordinate by coordinate (column ``k P + i`` is coordinate k of block i), so that each
coordinate is one contiguous piece of a sparse matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.arrangements.enumerate import Hyperplanes
from bidual.arrangements.patterns import Cells
from bidual.atoms.neurons import Neurons

if TYPE_CHECKING:
    from bidual.atoms.base import Atoms


class Blocks(ABC):
    """The blocks of some cells.

    Attributes
    ----------
    charged : ndarray of bool, shape (P, size), or None
        Coordinates of each block that its cost counts; None means all of them.
    """

    charged: BoolArray | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Number of blocks, P."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Coordinates of a block."""

    @property
    @abstractmethod
    def n_entries(self) -> int:
        """Rows that the blocks act on, all together: what memory is estimated from."""

    @property
    @abstractmethod
    def cone_pairs(self) -> tuple[IntArray, IntArray]:
        """Blocks and rows of the cone constraints, sorted by block."""

    @abstractmethod
    def design(self) -> sp.csc_array:
        """``[B_1, ..., B_P]``, coordinate-major: ``(n, size P)``."""

    @abstractmethod
    def cone_matrix(self) -> sp.csc_array:
        """The rows of all ``N_i``, ``(Q, size P)``."""

    @abstractmethod
    def neurons(self, Z: FloatArray, intercept: FloatArray) -> Neurons:
        """One neuron for each sign, output and block, with coordinates ``Z (2, C, P, size)``."""


class CellBlocks(Blocks):
    """One block for each cell."""

    cells: Cells

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def n_entries(self) -> int:
        """See :class:`Blocks`."""
        return int(self.cells.active.sum())


class PatternBlocks(CellBlocks):
    """Ordinary neurons on activation patterns, in the coordinates of the row space."""

    cells: Patterns

    def __init__(self, atoms: Atoms, cells: Patterns) -> None:
        self.atoms, self.cells = atoms, cells
        self.rows = atoms.reduced

    @property
    def size(self) -> int:
        """See :class:`Blocks`."""
        return self.rows.shape[1]

    @cached_property
    def cone_pairs(self) -> tuple[IntArray, IntArray]:
        """Facets where the enumeration found them; else one row of every distinct hyperplane."""
        P = len(self.cells)
        if self.cells.cone_rows is not None:
            indptr, indices = self.cells.cone_rows
            return np.repeat(np.arange(P), np.diff(indptr)), indices
        distinct = Hyperplanes(self.rows, self.atoms.row_norms).representatives
        return np.repeat(np.arange(P), len(distinct)), np.tile(distinct, P)

    def design(self) -> sp.csc_array:
        """``[A D_1 M, ..., A D_P M]`` coordinate-major: ``(n, r P)``."""
        active = self.cells.active
        P, N = active.shape
        r = self.rows.shape[1]
        _, row = np.nonzero(active)
        counts = np.concatenate([[0], np.cumsum(active.sum(axis=1))])
        indptr = np.concatenate([counts[:-1] + k * len(row) for k in range(r)] + [[r * len(row)]])
        data = self.rows[row].T.ravel()
        lifted = sp.csc_array((data, np.tile(row, r), indptr), shape=(N, r * P))
        return lifted if self.atoms.A is None else sp.csc_array(self.atoms.A @ lifted)

    def cone_matrix(self) -> sp.csc_array:
        """Rows ``(2 D_i - I) M`` of the cone constraints, ``(Q, r P)``."""
        pattern, row = self.cone_pairs
        P, r = len(self.cells), self.rows.shape[1]
        Q = len(row)
        sign = np.where(self.cells.active[pattern, row], 1.0, -1.0)
        counts = np.concatenate([[0], np.cumsum(np.bincount(pattern, minlength=P))])
        indptr = np.concatenate([counts[:-1] + k * Q for k in range(r)] + [[r * Q]])
        data = (sign[:, None] * self.rows[row]).T.ravel()
        return sp.csc_array((data, np.tile(np.arange(Q), r), indptr), shape=(Q, r * P))

    def neurons(self, Z: FloatArray, intercept: FloatArray) -> Neurons:
        """One neuron per block: weights ``z``, output weight ``+-1`` on the block's output."""
        signs, C, P, r = Z.shape
        U = Z.reshape(signs * C * P, r)
        if self.atoms.reduced is not self.atoms.M:
            U = U @ self.atoms.basis.T
        return self.atoms.neurons(U, block_heads(signs, C, P), intercept)


def block_heads(signs: int, C: int, P: int) -> FloatArray:
    """Output weights ``+-1`` of all blocks, each on its own output."""
    return np.repeat(np.stack([np.eye(C), -np.eye(C)]).reshape(signs * C, C), P, axis=0)
