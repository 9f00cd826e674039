r"""Rows as training on many of them likes them: centred, in principal axes, of one size.

Weight decay sees only norms of weights, so that a rotation of the features changes nothing; leaving out axes without
variance loses little and saves time in proportion. With rows of root mean square norm :math:`1/c` the column of ones
that carries hidden biases has c times the size of a row: biases are then neither dear nor free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bidual._util.data import validate_data
from bidual._util.typing import Array, FloatArray
from bidual.training.targets import is_dask

#: Rows of one piece.
PIECE = 8192


class PrincipalAxes(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Centre, rotate to principal axes, keep some of them, and scale all by one number.

    Two passes over the rows in pieces: X may be a memory map of any numeric type, or a dask array (the result is then
    one too).

    Parameters
    ----------
    n_components : int or None, default=None
        Axes to keep; None keeps those with variance.
    constant : float, default=0.3
        Size of a column of ones relative to the root mean square norm of the transformed rows.

    Attributes
    ----------
    mean_ : ndarray, shape (d,)
    components_ : ndarray, shape (k, d)
        Orthonormal rows.
    explained_variance_ratio_ : ndarray, shape (k,)
    scale_ : float
        The result is ``(X - mean_) @ components_.T / scale_``.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import PrincipalAxes
    >>> X = np.random.default_rng(0).standard_normal((100, 5)) + 3.0
    >>> Z = PrincipalAxes(n_components=2, constant=0.5).fit_transform(X)
    >>> Z.shape, round(float((Z**2).sum(axis=1).mean()), 3)
    ((100, 2), 4.0)
    """

    mean_: FloatArray
    components_: FloatArray
    explained_variance_ratio_: FloatArray
    scale_: float

    def __init__(self, n_components: int | None = None, *, constant: float = 0.3) -> None:
        self.n_components = n_components
        self.constant = constant

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn mean, axes and scale."""
        if not (isinstance(self.constant, int | float) and 0 < self.constant < np.inf):
            raise ValueError(f"constant must be a positive number, got {self.constant!r}")
        X = self._validate(X, reset=True)
        n, d = X.shape
        k = d if self.n_components is None else self.n_components
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= d:
            raise ValueError(f"n_components must be an integer from 1 to {d}, got {self.n_components!r}")
        sums, gram = np.zeros(d), np.zeros((d, d))
        origin = None
        for rows in _pieces(X):
            # sums of squares about a point among the rows: subtracting large squares would lose digits
            origin = rows.mean(axis=0) if origin is None else origin
            rows -= origin
            sums += rows.sum(axis=0)
            gram += rows.T @ rows
        shift = sums / n
        self.mean_ = origin + shift
        variance, axes = np.linalg.eigh(gram / n - np.outer(shift, shift))
        variance, axes = np.maximum(variance[::-1], 0.0), axes[:, ::-1]
        kept = min(k, max(1, int((variance > 1e-12 * variance[0]).sum())))
        signs = np.where(axes[np.abs(axes).argmax(axis=0), np.arange(d)] >= 0, 1.0, -1.0)  # one of two, always the same
        self.components_ = np.ascontiguousarray((axes * signs).T[:kept])
        self.explained_variance_ratio_ = variance[:kept] / max(float(variance.sum()), np.finfo(float).tiny)
        self.scale_ = float(self.constant * np.sqrt(variance[:kept].sum())) or 1.0
        return self

    def transform(self, X: Any) -> Array:
        """Rows in the axes, in the floating point type of X (single precision for integers)."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float32)
        if is_dask(X):
            k = len(self.components_)
            return X.rechunk({1: -1}).map_blocks(self._rotate, dtype, dtype=dtype, chunks=(X.chunks[0], (k,)))
        result = np.empty((len(X), len(self.components_)), dtype=dtype)
        for i in range(0, len(X), PIECE):
            result[i : i + PIECE] = self._rotate(X[i : i + PIECE], dtype)
        return result

    def _rotate(self, rows: Array, dtype: Any) -> Array:
        return ((rows - self.mean_) @ (self.components_.T / self.scale_)).astype(dtype)

    def _validate(self, X: Any, reset: bool) -> Any:
        if is_dask(X):
            validate_data(self, X[:1].compute(), reset=reset, dtype="numeric")
            return X
        return validate_data(self, X, reset=reset, dtype="numeric")

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def _pieces(X: Any) -> Iterator[FloatArray]:
    """Rows in double precision, some at a time."""
    if is_dask(X):
        for block in X.rechunk({1: -1}).to_delayed().ravel():
            yield np.array(block.compute(), dtype=np.float64)
        return
    for i in range(0, len(X), PIECE):
        yield np.array(X[i : i + PIECE], dtype=np.float64)
