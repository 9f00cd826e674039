"""Columns of mean zero and deviation one."""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray

#: Deviations below this many units of the last digit of the mean are rounding: such a column is constant.
_CONSTANT = 16 * float(np.finfo(float).eps)


def standardisation(X: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation of the columns; constant columns are centred exactly and keep their scale.

    ``w`` sums to one; rows of weight zero have no influence. Of tensors the last axis holds the columns.
    """
    X, w = X[w > 0], w[w > 0]
    if X.ndim > 2:
        w = np.repeat(w, np.prod(X.shape[1:-1], dtype=int))
        X, w = X.reshape(-1, X.shape[-1]), w / w.sum()
    constant = np.ptp(X, axis=0) <= _CONSTANT * np.abs(X).max(axis=0)
    centre = np.where(constant, X[0], w @ X)
    with np.errstate(over="ignore"):
        scale = np.sqrt(w @ (X - centre) ** 2)
    if not np.isfinite(scale).all():
        raise ValueError("the numbers are too large to standardise: rescale them")
    return centre, np.where(constant | (scale == 0), 1.0, scale)
