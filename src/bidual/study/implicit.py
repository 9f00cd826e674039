r"""What gradient descent does to the singular directions of the data (000 sec. 4).

A network with batch normalisation and its whitened form (000 eq. 16: weights :math:`q = \Sigma V^T w` on the features
U) have the same optima, but a gradient step moves q in the first :math:`\Sigma^2` times as far as in the second
(Theorem 4.1): gradient descent on the network itself learns the leading directions first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.networks import BatchNormNetwork

#: Singular values of the centred data below this share of the largest one are zero.
ZERO = 1e-12


@dataclass(frozen=True)
class WhitenedForm:
    r"""The whitened form of networks with batch normalisation before the ReLU (000 eq. 16, Lemma 4.1).

    With the SVD of the centred rows, :math:`X - 1 \mu^T = U \Sigma V^T`, and :math:`q_j = \Sigma V^T w_j`, it is

    .. math:: \sum_j \Big( \frac{U q_j}{\|q_j\|} \gamma_j + \frac{1}{\sqrt n} \sigma_j \Big)_+ \alpha_j^T :

    one with the weights q on the inputs U, whose columns are orthonormal and centred. Both have the same outputs on the
    rows and the same weight decay, but gradient descent takes other steps on them (:meth:`step`).

    Attributes
    ----------
    U : ndarray, shape (n, r)
    sigma : ndarray, shape (r,)
    V : ndarray, shape (d, r)
    mean : ndarray, shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> from bidual.study.implicit import WhitenedForm
    >>> X, y = np.random.default_rng(0).standard_normal((6, 2)), np.arange(6.0)
    >>> form = WhitenedForm.of(X)
    >>> network = ReLURegressor(beta=0.01, architecture="batch_norm").fit(X, y).network_
    >>> bool(np.allclose(form.network(network).predict(form.U), network.predict(X)))
    True
    """

    U: FloatArray
    sigma: FloatArray
    V: FloatArray
    mean: FloatArray

    @classmethod
    def of(cls, X: Array) -> WhitenedForm:
        """That of training rows ``X (n, d)``."""
        X = np.asarray(X, dtype=np.float64)
        mean = X.mean(axis=0)
        U, sigma, Vt = np.linalg.svd(X - mean, full_matrices=False)
        r = int((sigma > ZERO * sigma.max(initial=0.0)).sum())
        if not r:
            raise ValueError("X has no two rows that differ: there is nothing to normalise")
        return cls(U[:, :r], sigma[:r], Vt[:r].T, mean)

    def features(self, X: Array) -> FloatArray:
        """The inputs of the whitened form for any rows: U for those of training."""
        return (np.asarray(X, dtype=np.float64) - self.mean) @ self.V / self.sigma

    def weights(self, hidden_weights: Array) -> FloatArray:
        r"""The :math:`q_j = \Sigma V^T w_j` of hidden weights, one neuron in each row."""
        return np.asarray(hidden_weights, dtype=np.float64) @ self.V * self.sigma

    def hidden_weights(self, Q: Array) -> FloatArray:
        r"""Hidden weights in the row space of the centred data that have these q: :math:`w_j = V \Sigma^{-1} q_j`."""
        return np.asarray(Q, dtype=np.float64) / self.sigma @ self.V.T

    def network(self, network: BatchNormNetwork) -> BatchNormNetwork:
        """The network on the inputs U that computes on them what ``network`` computes on the training rows."""
        if network.position != "before":
            raise ValueError("the whitened form is that of networks with batch normalisation before the ReLU")
        return BatchNormNetwork(
            hidden_weights=self.weights(network.hidden_weights),
            output_weights=network.output_weights,
            gamma=network.gamma,
            shift=network.shift,
            mean=network.mean - network.hidden_weights @ self.mean - network.bias_vector,
            norm=network.norm,
            n_samples=network.n_samples,
            intercept=network.intercept,
        )

    def step(self, gradient: Array) -> FloatArray:
        r"""The step of gradient descent on the network, in the space of q, for that on its whitened form (000 eq. 17).

        .. math:: \Delta_{v2, j} = \Sigma^2 \, \Delta_{v2b, j} :

        leading singular directions are learned faster. (Theorem 4.1, for equal outputs; the normalisation makes
        :math:`\partial L / \partial w_j = V \Sigma \, \partial L / \partial q_j`, and w maps to q by
        :math:`\Sigma V^T`.)
        """
        return np.asarray(gradient, dtype=np.float64) * self.sigma**2


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
