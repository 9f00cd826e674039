"""Data that floating point can compute with: others are refused at once, before any work."""

from __future__ import annotations

import numpy as np

from bidual._util.sparse import lengths, stored
from bidual._util.typing import Array, FloatArray

#: The largest entry of data must lie between this and its inverse, so that squares of products stay finite,
LARGEST = 1e120
#: and for solvers that take higher powers, of singular values, between this and its inverse.
MODERATE = 1e50
#: Columns this much smaller than the others are lost beside them: training would not end.
LOST = 1e-8


def check_range(at_most: float = LARGEST, **data: Array) -> None:
    """Refuse arrays, given by name, whose largest entry is too large or too small to compute with.

    Raises
    ------
    ValueError
        That names the array and what to do.
    """
    for name, values in data.items():
        check_size(name, float(np.max(np.abs(stored(values)), initial=0.0)), at_most)


def check_size(name: str, largest: float, at_most: float = LARGEST) -> None:
    """Refuse an array for the size of its entries."""
    if largest > at_most or 0 < largest < 1 / at_most:
        raise ValueError(
            f"the largest entry of {name} is {largest:.2g}, and floating point can compute with {1 / at_most:g} to "
            f"{at_most:g}: rescale {name}, for example divide it by this number"
        )


def check_columns(X: FloatArray, unit: float, beta: float) -> None:
    """Refuse columns that are lost beside others although ``beta`` (that of X / unit) is small enough to need them."""
    sizes = lengths(X / unit, axis=0) / np.sqrt(max(X.shape[0], 1))
    needed = (sizes > beta) & (sizes < LOST * sizes.max(initial=0.0))
    if needed.any():
        raise ValueError(
            f"the columns of X differ in size by a factor of {sizes.max() / sizes[needed].min():.0e}, and beta is so "
            "small that both count: standardise the columns (StandardScaler of scikit-learn), or use a larger beta"
        )
