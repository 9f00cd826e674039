"""Image classes in their principal directions: the data of 002 Fig. 5 and Fig. 6."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reproductions.framework import Context

Array = NDArray[np.float64]
#: The sets of 002 Fig. 5.
SETS = ("cifar10", "fashion-mnist")


@dataclass(frozen=True)
class Images:
    """Training and test rows with their labels 0 to 9."""

    X: Array
    y: NDArray[np.int64]
    X_test: Array
    y_test: NDArray[np.int64]


def principal(context: Context, name: str, n: int, n_test: int, d: int | None) -> Images:
    """The first rows of an image set, centred, in the leading ``d`` principal directions of the training rows.

    One scale for all directions: their mean square is one. None keeps all pixels.
    """
    arrays = context.data.load(name)
    X, X_test = (
        arrays[f"X_{part}"][:rows].reshape(-1, arrays["X_train"][0].size) / 255.0
        for part, rows in (("train", n), ("test", n_test))
    )
    centre = X.mean(axis=0)
    X, X_test = X - centre, X_test - centre
    if d is not None:
        _, vectors = np.linalg.eigh(X.T @ X)
        X, X_test = X @ vectors[:, : -d - 1 : -1], X_test @ vectors[:, : -d - 1 : -1]
    scale = float(np.sqrt(np.mean(X**2)))
    y, y_test = (arrays[f"y_{part}"][:rows].astype(np.int64) for part, rows in (("train", n), ("test", n_test)))
    return Images(X / scale, y, X_test / scale, y_test)
