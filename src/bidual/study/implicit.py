r"""What gradient descent does to the singular directions of the data (000 sec. 4).

A network with batch normalisation and its whitened form (000 eq. 16: weights :math:`q = \Sigma V^T w` on the features
U) have the same optima, but a gradient step moves q in the first :math:`\Sigma^2` times as far as in the second
(Theorem 4.1): gradient descent on the network itself learns the leading directions first.
"""

from __future__ import annotations

import numpy as np

from bidual._util.typing import Array, FloatArray


def singular_directions(X: Array) -> tuple[FloatArray, FloatArray]:
    """Singular values (decreasing) of the centred data and their right singular vectors, the columns of ``(d, r)``."""
    X = np.asarray(X, dtype=np.float64)
    _, sigma, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return sigma, Vt.T


def singular_similarity(weights: Array, initial: Array, X: Array | None = None) -> FloatArray:
    r"""How far the hidden weights have moved along each singular direction of the data (000 eq. 21).

    .. math:: d_i = \frac{(v_i^T W)(v_i^T W')^T}{\|v_i^T W\| \, \|v_i^T W'\|}

    is one where they have not, and falls as they do.

    Parameters
    ----------
    weights, initial : array of shape (m, d)
        Hidden weights now and at the start, one neuron in each row.
    X : array of shape (n, d) or None
        The training data. None is for the whitened model (000 eq. 16), whose inputs are the singular directions
        themselves, in order.

    Returns
    -------
    ndarray, shape (min(n, d),) or (d,)
        One cosine for each direction, that of the largest singular value first; zero where a projection vanishes.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.study.implicit import singular_similarity
    >>> singular_similarity([[1.0, 2.0], [0.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]]).round(3).tolist()
    [0.707, 1.0]
    """
    W, W0 = np.asarray(weights, dtype=np.float64), np.asarray(initial, dtype=np.float64)
    if W.shape != W0.shape or W.ndim != 2:
        raise ValueError(f"weights and initial must be matrices of one shape, got {W.shape} and {W0.shape}")
    if X is not None:
        V = singular_directions(X)[1]
        if len(V) != W.shape[1]:
            raise ValueError(f"the weights take {W.shape[1]} inputs, X has {len(V)} columns")
        W, W0 = W @ V, W0 @ V
    norms = np.linalg.norm(W, axis=0) * np.linalg.norm(W0, axis=0)
    return (W * W0).sum(axis=0) / np.where(norms > 0, norms, 1.0)
