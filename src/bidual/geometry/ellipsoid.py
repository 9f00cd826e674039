r"""The rectified ellipsoid :math:`Q_X = \{(Xu)_+ : \|u\| \le 1\}` and its polar (004 sec. 2.2, 2.3).

The dual of training asks for v in :math:`\beta (Q_X^\circ \cap -Q_X^\circ)` with
:math:`Q_X^\circ = \{v : v^T z \le 1 \; \forall z \in Q_X\}` (004 eq. 12; eq. 8 prints :math:`-v \in Q_X`
for the second).
"""

from __future__ import annotations

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.arrangements import enumerate_patterns
from bidual.geometry.simplex import project_on_cone


def rectify_ellipsoid(X: Array, directions: Array) -> FloatArray:
    """Points :math:`(Xu)_+` for the unit vectors u along ``directions (k, d)``: ``(k, n)``."""
    X, U = np.asarray(X, dtype=np.float64), np.asarray(directions, dtype=np.float64)
    return np.maximum(U @ X.T, 0.0) / np.linalg.norm(U, axis=1, keepdims=True)


def support_function(X: Array, V: Array) -> FloatArray:
    r"""The support function :math:`\max_{\|u\| \le 1} v^T (Xu)_+` of the rectified ellipsoid, for all rows v of ``V``.

    Exact: the maximum over the cones of all activation patterns, on each of which it is the length of a projection.

    Parameters
    ----------
    X : array of shape (n, d)
        Few rows: all activation patterns are enumerated.
    V : array of shape (k, n)

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.geometry import support_function
    >>> support_function(np.eye(2), np.array([[3.0, 4.0], [3.0, -4.0], [-1.0, -1.0]])).tolist()
    [5.0, 3.0, 0.0]
    """
    X, V = np.asarray(X, dtype=np.float64), np.atleast_2d(np.asarray(V, dtype=np.float64))
    if X.ndim != 2 or V.shape[1] != len(X):
        raise ValueError(f"the rows of V must have one entry for each row of X, got {V.shape} and {X.shape}")
    best = np.zeros(len(V))
    for active in enumerate_patterns(X, max_patterns=100_000).active:
        sign = np.where(active, 1.0, -1.0)
        best = np.maximum(best, project_on_cone(-sign[:, None] * X, (V * active) @ X).distances)
    rounding = 1e-13 * np.abs(V) @ np.linalg.norm(X, axis=1)
    return np.where(best > rounding, best, 0.0)
