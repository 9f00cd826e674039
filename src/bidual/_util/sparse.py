"""Sparse rows (scipy): kept where training needs products with them only, made dense elsewhere if memory allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import norm

from bidual._util.memory import require_memory
from bidual._util.typing import Array, FloatArray, IntArray


def is_sparse(X: Any) -> bool:
    """Whether it is a sparse matrix or array of scipy."""
    return bool(sp.issparse(X))


def stored(X: Any) -> Array:
    """The entries that are stored: all of them, unless it is sparse."""
    return np.asarray(X.data if is_sparse(X) else X)


def compressed(X: Any) -> sp.csr_array:
    """Rows in double precision in the one form in which equal ones look equal: sorted, no zeros, nothing twice."""
    rows = sp.csr_array(X, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def dense(X: Any) -> Any:
    """The same as an array; MemoryError, in a sentence, if that is too large. What is not sparse stays what it is."""
    if not is_sparse(X):
        return X
    require_memory(
        8.0 * X.shape[0] * X.shape[1],
        f"a dense copy of the sparse X ({X.shape[0]} x {X.shape[1]})",
        "Sparse rows are kept as they are by architecture='two_layer', activation='relu', method='adaptive' and "
        "beta > 0; or choose columns, or bring them down to few (TruncatedSVD of scikit-learn).",
    )
    return X.toarray()


def lengths(X: Any, axis: int = 1) -> FloatArray:
    """Norms of the rows, or of the columns."""
    return np.asarray(norm(X, axis=axis) if is_sparse(X) else np.linalg.norm(X, axis=axis))


def with_ones(X: Any) -> Any:
    """The same with a last column of ones."""
    ones = np.ones((X.shape[0], 1))
    return sp.hstack([X, sp.csr_array(ones)], format="csr") if is_sparse(X) else np.column_stack([X, ones])


def scaled(X: Any, centre: FloatArray, scale: FloatArray) -> Any:
    """``(X - centre) / scale``; sparse rows cannot be moved and stay sparse."""
    if not is_sparse(X):
        return (X - centre) / scale
    if centre.any():
        raise ValueError("sparse rows cannot be centred: standardise with centre zero, or give a dense X")
    return sp.csr_array((X.data / scale[X.indices], X.indices, X.indptr), shape=X.shape)


def in_single(X: Any, unit: float) -> Any:
    """``X / unit`` in single precision."""
    if is_sparse(X):
        return sp.csr_array(((X.data / unit).astype(np.float32), X.indices, X.indptr), shape=X.shape)
    return np.divide(X, unit, out=np.empty(X.shape, dtype=np.float32), casting="same_kind")


def row_keys(X: sp.csr_array) -> Iterator[FloatArray]:
    """Keys, one after the other, in whose lexicographic order the rows are as those of the dense matrix would be.

    The k-th entry that is stored counts by its sign, its column and its value: of two rows that are equal before it,
    one with a positive entry further to the left is the larger one, with a negative entry the smaller one.
    """
    counts = np.diff(X.indptr)
    for k in range(int(counts.max(initial=0))):
        has = counts > k
        at: IntArray = X.indptr[:-1][has] + k
        sign, column, value = np.zeros(len(counts)), np.zeros(len(counts)), np.zeros(len(counts))
        sign[has], value[has] = np.sign(X.data[at]), X.data[at]
        column[has] = -sign[has] * X.indices[at]
        yield from (sign, column, value)


def deviations(X: sp.csr_array, w: FloatArray) -> FloatArray:
    """Weighted standard deviations of the columns, about their means; one for constant columns. ``w`` sums to one."""
    weighted = sp.csr_array((np.repeat(w, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
    share, mean = np.asarray(weighted.sum(axis=0)), w @ X
    entries = X.copy()
    entries.data = (X.data - mean[X.indices]) ** 2
    variance = w @ entries + np.maximum(1.0 - share, 0.0) * mean**2  # zeros that are not stored deviate by the mean
    tiny = 16 * np.finfo(float).eps * np.abs(mean)
    scale = np.sqrt(variance)
    if not np.isfinite(scale).all():
        raise ValueError("the numbers are too large to standardise: rescale them")
    return np.where(scale <= tiny, 1.0, scale)
