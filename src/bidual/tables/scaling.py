"""Columns of mean zero and deviation one."""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray


def standardisation(X: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation of the columns; constant columns are centred exactly and keep their scale.

    ``w`` sums to one; rows of weight zero have no influence.
    """
    X, w = X[w > 0], w[w > 0]
    constant = np.ptp(X, axis=0) == 0
    centre = np.where(constant, X[0], w @ X)
    with np.errstate(over="ignore"):
        scale = np.sqrt(w @ (X - centre) ** 2)
    if not np.isfinite(scale).all():
        raise ValueError("the numbers are too large to standardise: rescale them")
    return centre, np.where(constant | (scale == 0), 1.0, scale)
