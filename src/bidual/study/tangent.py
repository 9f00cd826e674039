"""The neural tangent kernel of two-layer ReLU networks: what infinitely wide ones do when they hardly move."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from bidual._util.typing import Array, FloatArray


def ntk(X: Array, Y: Array | None = None, *, bias: bool = False) -> FloatArray:
    r"""The neural tangent kernel of a two-layer ReLU network (004 sec. 7).

    For :math:`f(x) = \sqrt{2/m} \sum_j \alpha_j (u_j^T x)_+` with standard normal weights, as m grows,

    .. math:: K(x, x') = E \, \nabla f(x)^T \nabla f(x') = \|x\| \|x'\| \, \kappa\Big(\frac{x^T x'}{\|x\| \|x'\|}\Big),
              \qquad \kappa(c) = c \, \kappa_0(c) + \kappa_1(c),

    .. math:: \kappa_0(c) = \frac{\pi - \arccos c}{\pi}, \qquad
              \kappa_1(c) = \frac{c \, (\pi - \arccos c) + \sqrt{1 - c^2}}{\pi} .

    Parameters
    ----------
    X : array of shape (n, d), or (d,) with the other alike
    Y : array of shape (k, d) or None
        None is X.
    bias : bool, default=False
        Hidden biases, standard normal as well: x becomes :math:`(x, 1)`.

    Returns
    -------
    ndarray, shape (n, k), or a number for two vectors
        As a callable it is a kernel of :class:`sklearn.kernel_ridge.KernelRidge` and of Gaussian process tools, which
        ask for the kernel of two vectors.

    Notes
    -----
    Without a bias the kernel is homogeneous: on one-dimensional data it has rank two (it is :math:`2 |x x'|` for equal
    signs and zero for others), and its functions have their only kink at zero. The smooth curves of 004 Fig. 8 are
    those of the kernel with biases.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ntk
    >>> ntk(np.array([[1.0], [2.0], [-1.0]])).round(12).tolist()
    [[2.0, 4.0, 0.0], [4.0, 8.0, 0.0], [0.0, 0.0, 2.0]]
    """
    X = np.asarray(X, dtype=np.float64)
    Y = X if Y is None else np.asarray(Y, dtype=np.float64)
    if X.ndim not in (1, 2) or X.ndim != Y.ndim or X.shape[-1] != Y.shape[-1]:
        raise ValueError(f"X (n, d) and Y (k, d) must agree in d, got shapes {X.shape} and {Y.shape}")
    if X.ndim == 1:
        return ntk(X[None], Y[None], bias=bias)[0, 0]
    if bias:
        X, Y = (np.column_stack([Z, np.ones(len(Z))]) for Z in (X, Y))
    a, b = np.linalg.norm(X, axis=1), np.linalg.norm(Y, axis=1)
    U, V = X / np.where(a > 0, a, 1.0)[:, None], Y / np.where(b > 0, b, 1.0)[:, None]
    # Not the arccos of a product: near one it has half the digits, and equal rows would not look equal.
    angle = 2.0 * np.arctan2(cdist(U, V), cdist(U, -V))
    return np.outer(a, b) * (2.0 * np.cos(angle) * (np.pi - angle) + np.sin(angle)) / np.pi
