"""Gates that cut through the data."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from bidual._util.typing import Array, FloatArray

#: Shares of rows between which a gate is open.
RANGE = (0.1, 0.9)


def quantile_gates(
    X: Array, n_gates: int, random_state: int | np.random.RandomState | None = None, bias: bool = True
) -> FloatArray:
    r"""Gaussian directions, each open for a share of the rows drawn evenly from 10 to 90 %.

    :math:`1[g^T x \ge t]` with t halfway between two rows. Without ``bias`` the gates pass through the origin.

    Parameters
    ----------
    X : array of shape (n, d)
        All rows, or a sample of them.
    n_gates : int
    random_state : int, RandomState or None
    bias : bool, default=True
        Whether the gates, ``(P, d + 1)`` then, have biases.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import quantile_gates
    >>> X = np.arange(20.0).reshape(10, 2) + 100.0  # all on one side of most planes through the origin
    >>> gates = quantile_gates(X, 50, random_state=0)
    >>> opened = (X @ gates[:, :2].T + gates[:, 2] >= 0).mean(axis=0)
    >>> bool(opened.min() >= 0.1 and opened.max() <= 0.9)
    True
    """
    rng = check_random_state(random_state)
    X = np.asarray(X, dtype=np.float64)
    directions = rng.standard_normal((n_gates, X.shape[1]))
    if not bias:
        return directions
    margins = np.sort(X @ directions.T, axis=0)
    closed = np.clip((rng.uniform(*RANGE, n_gates) * len(X)).astype(np.int64), 0, len(X) - 1)
    above = margins[closed, np.arange(n_gates)]
    below = margins[np.maximum(closed - 1, 0), np.arange(n_gates)]
    return np.column_stack([directions, -0.5 * (above + below)])
