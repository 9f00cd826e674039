r"""Neurons that are normalised after the ReLU, on activation patterns (000 Theorem 6.1).

On pattern i with centring P, :math:`(I - 1 w^T) D_i X q = k B_i s` with
:math:`B_i^T \mathrm{diag}(w) B_i = I` and :math:`s = \Sigma_i V_i^T q`, from the SVD
:math:`\mathrm{diag}(\sqrt w)(I - 1 w^T) D_i X / k = Q_i \Sigma_i V_i^T`. A neuron :math:`k (B_i s + a 1)` costs
:math:`\|(s, a)\|`: an ordinary neuron with the white features :math:`k [B_i, 1]`.

Directions t in the null space of :math:`(I - 1 w^T) D_i X` cost nothing but help to stay in the cone
:math:`(2 D_i - I) X (V_i \Sigma_i^{-1} s + N_i t) \ge 0`. (The program printed in 000 eq. 20 has t = 0, which excludes,
for example, the neuron of its Theorem 6.2.)
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bidual._util.exact_rank import exact_rank, nearly_dependent
from bidual._util.memory import require_memory
from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.atoms.blocks import CellBlocks, PatternBlocks, block_heads
from bidual.atoms.neurons import Neurons

if TYPE_CHECKING:
    from bidual.atoms.normalised import Normalised

#: Singular values this small, relative to the inputs of the ReLU, are zero.
NULL = 1e-11


class WhiteBlocks(CellBlocks):
    r"""White coordinates of the patterns: each block has coordinates (s, t, a), padded to r + 1.

    Parameters
    ----------
    atoms : Normalised
    cells : Patterns
        Of ``atoms.relu_inputs``.

    Attributes
    ----------
    plain : Relu
        The neurons without the normalisation, whose reduced coordinates are those of q.
    B : ndarray, shape (P, n, r)
        The :math:`B_i`, zero in the coordinates t.
    E : ndarray, shape (P, r, r)
        From (s, t) to q: columns :math:`V_i \Sigma_i^{-1}` and :math:`N_i`.
    charged : ndarray of bool, shape (P, r + 1)
        Which coordinates cost: s and a.
    smallest : ndarray, shape (P,)
        The smallest singular value that is not zero.
    """

    charged: BoolArray
    cells: Patterns

    def __init__(self, atoms: Normalised, cells: Patterns) -> None:
        self.atoms, self.cells = atoms, cells
        self.plain, self.k = atoms.plain, atoms.k
        rows, root = self.plain.reduced, np.sqrt(atoms.w)[:, None]
        require_memory(
            40.0 * len(cells) * rows.size,  # five arrays of this size at a time
            f"batch normalisation after the ReLU on {len(cells):,} activation patterns of {len(rows):,} rows",
            "Use a smaller n_patterns, method='adaptive', or fewer rows or columns",
        )
        T = cells.active[:, :, None] * rows
        T = root * (T - np.einsum("n,pnk->pk", atoms.w, T)[:, None, :]) / self.k
        Q, sigma, Vt = np.linalg.svd(T, full_matrices=False)
        live = sigma > NULL * np.linalg.norm(root * rows / self.k)
        self.B = np.where(live[:, None, :], Q / root, 0.0)
        self.E = Vt.swapaxes(1, 2) / np.where(live, sigma, 1.0)[:, None, :]
        self.charged = np.column_stack([live, np.ones(len(live), dtype=bool)])
        self.smallest = np.where(live, sigma, np.inf).min(axis=1)

    @cached_property
    def complete(self) -> bool:
        """Whether rounding hides no pattern and no direction of any: normalised, it would be like any other."""
        X, r = self.atoms.relu_inputs, self.charged[:, :-1].sum(axis=1)
        if self.cells.complete and nearly_dependent(X, self.cells.tol):
            return False
        for k, (active, rank) in enumerate(zip(self.cells.active, r, strict=True)):
            if rank < min(active.sum() - active.all(), X.shape[1]):
                # active rows can be made constant only if there are no others
                rows = np.column_stack([X, np.ones(len(X))]) if active.all() else X[active]
                if exact_rank(rows) - active.all() != rank:
                    return False
            if not (self.cells.complete or active.all()) and rank < self.size - 1:
                seen = self.normals(np.full(len(X), k), np.arange(len(X)))[:, ~self.charged[k, :-1]]
                if exact_rank(X[~seen.any(axis=1)]) != rank:  # a row that seems not to see t does
                    return False
        return True

    def normals(self, pattern: IntArray, row: IntArray) -> FloatArray:
        """Inward unit normals of the cones in the coordinates (s, t), for pairs of a pattern and a row."""
        sign = np.where(self.cells.active[pattern, row], 1.0, -1.0)[:, None]
        normals = sign * np.einsum("bk,bkj->bj", self.plain.reduced[row], self.E[pattern])
        # Active rows do not see t.
        normals[np.abs(normals) <= NULL * np.linalg.norm(normals, axis=1, keepdims=True)] = 0.0
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        return normals / np.where(lengths > 0, lengths, 1.0)

    @property
    def size(self) -> int:
        """Coordinates (s, t, a)."""
        return self.E.shape[1] + 1

    @cached_property
    def cone_pairs(self) -> tuple[IntArray, IntArray]:
        """Those of the ReLU's inputs."""
        return PatternBlocks(self.plain, self.cells).cone_pairs

    def design(self) -> sp.csc_array:
        """``k [B_i, 1]`` of all patterns, coordinate-major: ``(n, (r + 1) P)``."""
        P, n, r = self.B.shape
        columns = np.concatenate([self.B.transpose(2, 0, 1).reshape(r * P, n), np.ones((P, n))])
        return sp.csc_array(self.k * columns.T)

    def cone_matrix(self) -> sp.csc_array:
        """Inward normals of the cones, ``(Q, (r + 1) P)``."""
        pattern, row = self.cone_pairs
        normals = self.normals(pattern, row)
        Q, r = normals.shape
        P = len(self)
        columns = np.arange(r) * P + pattern[:, None]
        rows = np.repeat(np.arange(Q), r)
        return sp.csc_array((normals.ravel(), (rows, columns.ravel())), shape=(Q, (r + 1) * P))

    def neurons(self, Z: FloatArray, intercept: FloatArray) -> Neurons:
        """One neuron per sign, output and block: the direction of q with length ``norm(s)``, and the shift a."""
        signs, C, P, _ = Z.shape
        U = self.direction(np.arange(P), Z) @ self.atoms.basis.T
        return Neurons(U.reshape(signs * C * P, U.shape[-1]), block_heads(signs, C, P), intercept)

    def direction(self, pattern: IntArray | int, z: FloatArray) -> FloatArray:
        """Directions, in the reduced coordinates of the atoms, from coordinates ``z (..., r + 1)`` on patterns."""
        q = (self.E[pattern] @ z[..., :-1, None])[..., 0]
        gamma = np.linalg.norm(z[..., :-1] * self.charged[pattern, :-1], axis=-1, keepdims=True)
        lengths = np.linalg.norm(q, axis=-1, keepdims=True)
        return np.concatenate([q * gamma / np.where(lengths > 0, lengths, 1.0), z[..., -1:]], axis=-1)
