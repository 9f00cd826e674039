r"""Activation patterns: the cells into which the rows of a matrix cut the space of weights.

The hyperplanes :math:`\{u : x_i^T u = 0\}` divide :math:`R^d` into open cones. On each of them
:math:`D = \mathrm{diag}(1[Xu \ge 0])` is constant, so that :math:`(Xu)_+ = D X u` is linear (003
sec. 3). Directions on a boundary belong to the closure of a neighbouring cell with the same values, so
the open cells are all that a program needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Protocol, Self

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from bidual._util.tuning import tuning
from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual._util.watch import checkpoint

#: Rows of a Gram matrix between two looks at the clock, and of that of a wide matrix, whose rows are long.
_ROWS, _LONG_ROWS = 4096, 256
#: Deviation from orthonormal rows after one Cholesky factor that a second one mends to rounding.
_MENDED = 1e-3


def count_patterns(n: int, rank: int) -> int:
    r"""Number of activation patterns of ``n`` rows of a given rank in general position.

    .. math:: P = 2 \sum_{k=0}^{r-1} \binom{n-1}{k}

    an upper bound for any other data (003 eq. 17). Zero rows do not count; neither do parallel ones.

    Examples
    --------
    >>> from bidual import count_patterns
    >>> count_patterns(5, 2)
    10
    """
    if n < 0 or rank < 0:
        raise ValueError(f"n and rank must not be negative, got n={n}, rank={rank}")
    if n == 0 or rank == 0:
        return 1
    return 2 * sum(comb(n - 1, k) for k in range(min(rank, n)))


class Cells(Protocol):
    """Sets of weights on which what a neuron computes is linear."""

    @property
    def active(self) -> BoolArray:
        """Rows on which it is not zero, ``(P, n)``."""

    @property
    def complete(self) -> bool:
        """Whether these are all the cells there are."""

    @property
    def tol(self) -> float:
        """Angle below which the enumeration took hyperplanes for equal."""

    def __len__(self) -> int: ...

    def take(self, index: IntArray, *, complete: bool = False) -> Self:
        """Some of the cells, which are ``complete`` if no others count."""


@dataclass(frozen=True)
class Patterns:
    """A set of activation patterns of one matrix with ``n`` rows and ``d`` columns.

    Attributes
    ----------
    active : ndarray of bool, shape (P, n)
        Row i is the diagonal of ``D_i``. Zero rows of the matrix count as active.
    witnesses : ndarray, shape (P, d)
        A unit direction inside each cell: ``active[i] == (X @ witnesses[i] >= 0)``.
    complete : bool
        Whether these are all the patterns of the matrix.
    cone_rows : tuple of ndarray or None
        ``(indptr, indices)``: rows ``indices[indptr[i]:indptr[i+1]]`` alone describe the cone of pattern
        i (its facets). None means every row is needed, or that nobody has looked.
    tol : float
        Angle below which the enumeration took hyperplanes for equal.
    """

    active: BoolArray
    witnesses: FloatArray
    complete: bool = False
    cone_rows: tuple[IntArray, IntArray] | None = None
    tol: float = 0.0

    def __len__(self) -> int:
        return len(self.active)

    def __repr__(self) -> str:
        kind = "all" if self.complete else "some"
        return f"Patterns({kind} {len(self)} of {self.active.shape[1]} rows)"

    def take(self, index: IntArray, *, complete: bool = False) -> Patterns:
        """Some of the patterns, which are ``complete`` if no others count."""
        cone_rows = None
        if self.cone_rows is not None:
            indptr, indices = self.cone_rows
            counts = np.diff(indptr)[index]
            starts = np.concatenate([[0], np.cumsum(counts)])
            within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
            cone_rows = (starts, indices[np.repeat(indptr[index], counts) + within])
        return Patterns(self.active[index], self.witnesses[index], complete, cone_rows, self.tol)

    def rows_of(self, i: int) -> IntArray:
        """Rows that describe the cone of pattern ``i``."""
        if self.cone_rows is None:
            return np.arange(self.active.shape[1])
        indptr, indices = self.cone_rows
        return indices[indptr[i] : indptr[i + 1]]


def unique_rows(active: BoolArray) -> tuple[IntArray, IntArray]:
    """Index of the first occurrence of each distinct row, in order of appearance, and the inverse map."""
    if active.shape[1] == 0:
        return np.zeros(min(1, len(active)), dtype=np.int64), np.zeros(len(active), dtype=np.int64)
    packed = np.ascontiguousarray(np.packbits(active, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def row_space(X: FloatArray) -> FloatArray:
    """Orthonormal basis ``(d, r)`` of the row space of ``X``: the identity if the rank is full.

    Penalties see only the norm of a weight vector and ``X`` sees only its part in the row space, so
    that training may be done in these ``r`` coordinates (003 A.2).
    """
    return span_of(X.shape, *row_axes(X[X.any(axis=1)]))


def span_of(shape: tuple[int, ...], s: FloatArray, Vt: FloatArray) -> FloatArray:
    """The row space of a matrix of this ``shape`` with these singular values and right singular vectors."""
    rank = int((s > s.max(initial=0.0) * max(shape) * np.finfo(float).eps).sum())
    return np.eye(shape[1]) if rank == shape[1] else np.ascontiguousarray(Vt[:rank].T)


def row_axes(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Singular values of ``X`` and its right singular vectors, as rows; of tall matrices without the left ones."""
    small: FloatArray = np.asarray(np.linalg.qr(X, mode="r")) if len(X) > 2 * X.shape[1] else X
    _, s, Vt = np.linalg.svd(small, full_matrices=False)
    return s, Vt


def dear(shape: tuple[int, ...]) -> bool:
    """Whether a factorisation of a matrix of this shape would be a long time in which nothing can be stopped."""
    return bool(max(shape) * min(shape) ** 2 > tuning().dear_factors)


def wide_space(X: FloatArray) -> FloatArray | None:
    r"""Orthonormal basis ``(d, n)`` of the row space of a wide matrix, with looks at the clock on the way.

    :math:`X X^T = L L^T` makes :math:`Q = L^{-1} X` orthonormal up to rounding times the squared condition number, and
    the same once more mends that. None if the rows are so nearly dependent that it does not.
    """
    Q = X
    for _ in range(2):
        gram: FloatArray = np.empty((len(Q), len(Q)))
        for i in range(0, len(Q), _LONG_ROWS):
            checkpoint()
            gram[i : i + _LONG_ROWS] = Q[i : i + _LONG_ROWS] @ Q.T
        if Q is not X and not np.abs(gram - np.eye(len(Q))).max() <= _MENDED:
            return None
        try:
            L = cholesky(gram, lower=True, check_finite=False)
        except LinAlgError:
            return None
        made: FloatArray = np.empty_like(Q)
        for i in range(0, Q.shape[1], _LONG_ROWS):
            checkpoint()
            made[:, i : i + _LONG_ROWS] = solve_triangular(L, Q[:, i : i + _LONG_ROWS], lower=True, check_finite=False)
        Q = made
    return np.ascontiguousarray(Q.T)


def rough_axes(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""As :func:`row_axes`, of a tall matrix and in little time.

    From the eigenvalues of :math:`X^T X`, whose rounding hides singular values below :math:`\sqrt\epsilon` of the
    largest: these are zero here. Of very many columns, each is taken for an axis.
    """
    n, p = X.shape
    if p > tuning().broad_columns:
        norms = np.linalg.norm(X, axis=0)
        order = np.argsort(-norms, kind="stable")
        return norms[order], np.eye(p)[order]
    gram: FloatArray = np.zeros((p, p))
    for i in range(0, n, _ROWS):
        checkpoint()
        rows = X[i : i + _ROWS]
        gram += rows.T @ rows
    checkpoint()
    squares, vectors = np.linalg.eigh(gram)
    hidden = squares <= max(n, p) * np.finfo(float).eps * squares[-1]
    return np.sqrt(np.where(hidden, 0.0, squares))[::-1], np.ascontiguousarray(vectors[:, ::-1].T)
