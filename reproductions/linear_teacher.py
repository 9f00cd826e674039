"""The linear networks of 001 Fig. 2, 3a and 5: data of a random teacher, with exactly white rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproductions.descent import Descent, deep, descend

Array = NDArray[np.float64]


def data(d: int = 20, hidden: int = 50, outputs: int = 5, n: int = 100) -> tuple[Array, Array]:
    """Rows of mean zero with identity covariance (X^T X = n I), and the outputs of a two-layer linear teacher."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d))
    X = np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(n)
    teacher = rng.standard_normal((d, hidden)) @ rng.standard_normal((hidden, outputs)) / np.sqrt(d * hidden)
    return X, X @ teacher + 0.1 * rng.standard_normal((n, outputs))


def trained(widths: list[int], X: Array, Y: Array, beta: float, steps: int, **options: Any) -> Descent:
    """Gradient descent with momentum on a linear network: the better of a usual start and a small one.

    From the usual start deep networks may end at a rank that is too large.
    """
    settings = {"rate": 0.05, "momentum": 0.9, "epochs": steps, "cosine": True, "records": 50, **options}
    gains = (1.0, 0.3) if len(widths) > 3 else (1.0,)
    runs = [descend(deep(widths, relu=False, gain=gain), X, Y, beta=beta, **settings) for gain in gains]
    return min((run for run in runs if np.isfinite(run.objective)), key=lambda run: run.objective)
