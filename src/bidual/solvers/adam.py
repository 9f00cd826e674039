"""Adam, for the starts of solvers: arrays are changed in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.losses import Loss

#: Memory of the means of gradients and of their squares; what keeps a quotient finite.
FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


def adam_step(
    x: Sequence[Array],
    gradients: Sequence[Array],
    means: Sequence[Array],
    squares: Sequence[Array],
    rate: float,
    k: int,
    epsilon: float = EPSILON,
) -> None:
    """Step number k >= 1 of all arrays of ``x``, with the running means of their gradients."""
    for v, g, m, s in zip(x, gradients, means, squares, strict=True):
        one = v.dtype.type
        m += one(1 - FIRST) * (g - m)
        s += one(1 - SECOND) * (g * g - s)
        size = np.sqrt(s * one(1 / (1 - SECOND**k))) + one(epsilon)
        v -= one(rate / (1 - FIRST**k)) * m / size


def relu_gradients(
    x: Sequence[Array], loss: Loss, rows: Array, Y: FloatArray, w: FloatArray, beta: float, free: bool
) -> tuple[Array, Array, Array]:
    r"""Of :math:`L((X U^T)_+ A + 1 b^T) + \frac\beta2 (\|U\|_F^2 + \|A\|_F^2)` by ``x = (U, A, b)``, in its precision.

    ``free`` says whether b may move.
    """
    U, A, b = x
    one = U.dtype.type
    H = np.maximum(rows @ U.T, 0)
    V = loss.gradient((H @ A + b).astype(np.float64), Y, w).astype(U.dtype)
    back = (V @ A.T) * (H > 0)
    return back.T @ rows + one(beta) * U, H.T @ V + one(beta) * A, V.sum(axis=0) * one(free)
