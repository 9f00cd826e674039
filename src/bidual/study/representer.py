r"""Neurons as combinations of the data (004 Lemma 2.8, Cor. 2.1).

An optimal neuron maximises :math:`\pm v^T (Mu)_+`, so that it is a combination of the rows it is active on, and of
those on its kink:

.. math:: u = \sum_{i \in S} c_i m_i, \qquad S = \{i : m_i^T u \ge 0\} .

Rows on which it is inactive do not pull. Where a bias is a regularised weight (the rows are :math:`m_i = (x_i, 1)`)
this holds for (u, b). Where the bias is free, :math:`\sum_i c_i = 0`, which makes it the differences
:math:`\sum_i c_i (x_i - x_k)` of Cor. 2.1, and some row k lies on the kink, :math:`b = -x_k^T u`.

The corollary prints the entries of the direction v for the weights of this combination. That is the case with one row
on the kink only (d = 1); in d dimensions up to d rows lie there, with weights of their own (the multipliers of
Lemma 2.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import Array, BoolArray, FloatArray, IntArray
from bidual.models import as_network
from bidual.networks import TwoLayerNetwork

#: Pre-activations this small, relative to the row and the neuron, count as zero.
ZERO = 1e-6


@dataclass(frozen=True)
class Representers:
    """Neurons as combinations of rows.

    Attributes
    ----------
    coefficients : ndarray, shape (m, n)
        The smallest ones, for neurons of norm one; zero off ``support``.
    support : ndarray of bool, shape (m, n)
        Rows that the neuron is active on, or that lie on its kink.
    residuals : ndarray, shape (m,)
        Norm of what the combination misses, for a neuron of norm one: zero for an optimal one.
    kinks : ndarray of int, shape (m,)
        The row nearest to the kink of each neuron.
    kink_residuals : ndarray, shape (m,)
        Its distance from the kink, relative to the largest row.
    """

    coefficients: FloatArray
    support: BoolArray
    residuals: FloatArray
    kinks: IntArray
    kink_residuals: FloatArray


def representers(model: Any, X: Array, *, free_bias: bool = False, zero: float = ZERO) -> Representers:
    """Write the hidden weights of a two-layer network as combinations of the training rows.

    Parameters
    ----------
    model : network
        Anything :func:`bidual.certify` takes: a network, a fitted estimator, a torch module, ...
    X : array of shape (n, d)
        The data it was trained on.
    free_bias : bool, default=False
        Whether the hidden biases are free of weight decay: then the weights are a combination of differences of rows.
        Otherwise the bias is a weight like any other (or absent).
    zero : float, default=1e-6
        Rows within this distance of the kink, relative to their norm, lie on it.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> from bidual.study.representer import representers
    >>> X, y = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]), np.array([0.0, 1.0, -1.0])
    >>> est = ReLURegressor(beta=0.01, method="exact").fit(X, y)
    >>> bool(representers(est, X).residuals.max() < 1e-5)
    True
    """
    network = as_network(model)
    if not isinstance(network, TwoLayerNetwork):
        raise ValueError(f"representers are about two-layer ReLU networks, not {type(network).__name__}")
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != network.n_inputs:
        raise ValueError(f"the network has {network.n_inputs} inputs, X has shape {X.shape}")
    W, b = network.hidden_weights, network.bias_vector
    Z = X @ W.T + b  # (n, m)
    M = X if network.hidden_bias is None else np.column_stack([X, np.ones(len(X))])
    U = W if free_bias or network.hidden_bias is None else np.column_stack([W, b])
    # a free bias makes its row of the combination an equation: the coefficients sum to zero
    target = np.column_stack([W, np.zeros(len(W))]) if free_bias and network.hidden_bias is not None else U
    lengths, sizes = np.linalg.norm(M, axis=1), np.linalg.norm(np.column_stack([W, b]), axis=1)
    support = (Z + zero * np.outer(lengths, sizes) >= 0).T
    norms = np.linalg.norm(U, axis=1)
    norms = np.where(norms > 0, norms, 1.0)
    coefficients = np.zeros((len(U), len(X)))
    for j, rows in enumerate(support):
        coefficients[j, rows] = np.linalg.lstsq(M[rows].T, target[j] / norms[j], rcond=None)[0] if rows.any() else 0.0
    residuals = np.linalg.norm(coefficients @ M - target / norms[:, None], axis=1)
    distance = np.abs(Z) / np.where(sizes > 0, sizes, 1.0) / max(float(lengths.max(initial=0.0)), 1e-300)
    kinks = np.argmin(distance, axis=0) if len(X) else np.zeros(len(U), dtype=np.int64)
    return Representers(coefficients, support, residuals, kinks, distance[kinks, np.arange(len(U))])
