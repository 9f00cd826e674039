r"""Data on a line: one column, or rows :math:`x_i = o + c_i a` of any dimension (004 Cor. 3.4).

With free hidden biases a neuron :math:`(u^T x + b)_+` sees :math:`c_i \, u^T a` and a bias that takes up
:math:`u^T o`; only the part of u along a acts, and any other part costs without acting. Training is thus
one-dimensional in the coordinates :math:`c_i \|a\|`, for a line through the origin or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray
from bidual.closed_form.rank_one import rank_one_factor

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Line:
    """A line: ``origin + c * direction``, with a unit direction."""

    origin: FloatArray
    direction: FloatArray

    def coordinates(self, X: FloatArray) -> FloatArray:
        """Coordinates c of the projections of rows."""
        return X[:, 0].copy() if X.shape[1] == 1 else (X - self.origin) @ self.direction

    def distances(self, X: FloatArray) -> FloatArray:
        """Distances of rows from the line, rounding included."""
        if X.shape[1] == 1:
            return np.zeros(len(X))
        away = X - self.origin - self.coordinates(X)[:, None] * self.direction
        return np.linalg.norm(away, axis=1) + 4 * _EPS * np.linalg.norm(X, axis=1)


def on_a_line(X: FloatArray) -> bool:
    """Whether :func:`find_line` finds one."""
    try:
        find_line(X)
    except ValueError:
        return False
    return True


def find_line(X: FloatArray) -> Line:
    """The line that the rows of X lie on.

    Raises
    ------
    ValueError
        If there is none, naming the estimators for such data.
    """
    d = X.shape[1]
    if d == 1:
        return Line(np.zeros(1), np.ones(1))
    origin = X.mean(axis=0)
    away = X - origin
    # rows that differ by rounding only are one point
    if np.abs(away).max() <= 8 * _EPS * np.abs(X).max():
        return Line(origin, np.eye(d)[0])
    try:
        _, direction = rank_one_factor(away, signed=True)
    except ValueError:
        S = np.linalg.svd(away, compute_uv=False)
        raise ValueError(
            f"splines are for one-dimensional data: X must have one column, or rows that all lie on one line; its {d} "
            f"columns do not (singular values after centring: {S[0]:.3g}, {S[1]:.3g}, ...). Use ReLURegressor or "
            "ReLUClassifier, which take any X"
        ) from None
    if direction[np.argmax(np.abs(direction))] < 0:
        direction = -direction
    return Line(origin, direction)
