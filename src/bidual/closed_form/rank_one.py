r"""Deep ReLU networks on rank-one data :math:`X = c a_0^T` (001 Thm 4.1, 4.2, Prop. 4.1, 4.2, Cor. 4.1, 4.2).

With :math:`c \ge 0` every neuron of every layer is a multiple of c on the data, so that without biases the outputs are
:math:`F = \hat x \, s q^T` with :math:`\hat x = c \|a_0\|`, a strength s at the cost :math:`\tfrac L2 s^{2/L}` and a
unit vector q: one chain, in closed form, at any depth and for several outputs. This holds for dense networks too. (For
c of both signs and L > 2 the two sides share layers, and 001's formula does not apply.)

A free bias in the last hidden layer makes branches ramps :math:`\kappa (\pm(\hat x - t))_+` at the cost
:math:`\tfrac L2 |\kappa|^{2/L}`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from bidual._typing import FloatArray
from bidual.certificates import Certificate
from bidual.closed_form.certify import certificate_of
from bidual.closed_form.layers import aligned_layers
from bidual.closed_form.scalar import ScalarMinimum, along, chain_cost, minimise_chain, reach
from bidual.losses import Loss, Squared
from bidual.networks import DeepNetwork, normalise_weights

_EPS = float(np.finfo(float).eps)


def rank_one_factor(X: FloatArray, *, signed: bool = False) -> tuple[FloatArray, FloatArray]:
    r"""Coordinates :math:`\hat x = c \|a_0\|` and the direction :math:`a_0 / \|a_0\|` of rank-one rows.

    Raises
    ------
    ValueError
        If the rows do not have rank one or, unless ``signed``, do not all lie on one side of the origin.
    """
    _, S, Vt = np.linalg.svd(X, full_matrices=False)
    if not S[0] > 0 or (len(S) > 1 and S[1] > 1e-9 * S[0]):
        raise ValueError(f"X must have rank one; its largest singular values are {S[:2]}")
    a = Vt[0] if (X @ Vt[0]).sum() >= 0 else -Vt[0]
    x = X @ a
    if not signed and x.min() < -1e-9 * np.abs(x).max():
        raise ValueError(
            "the rows must be non-negative multiples of one vector; here some are negative: shift them to one side"
        )
    return (x if signed else np.maximum(x, 0.0)), a


def train_rank_one(
    X: FloatArray,
    Y: FloatArray,
    *,
    beta: float,
    depth: int = 3,
    loss: Loss | None = None,
    sample_weight: FloatArray | None = None,
    widths: Sequence[int] | None = None,
) -> tuple[DeepNetwork, Certificate]:
    """The globally optimal deep ReLU network without biases on rows :math:`c_i a_0`, c >= 0 (001 Thm 4.1, Prop. 4.2).

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Non-negative multiples of one row.
    Y : ndarray, shape (n, C)
        Encoded targets.
    beta : float
        Weight decay of the mean loss; 0 asks for the smallest penalty of an exact fit, 001 eq. 19.
    depth : int
        L, at least 2.
    loss : Loss or None
        None is the squared loss. Any other is for one output.
    sample_weight : ndarray, shape (n,), or None
    widths : sequence of L - 1 ints or None
        See :func:`bidual.closed_form.layers.aligned_layers`.
    """
    began = time.perf_counter()
    loss = Squared() if loss is None else loss
    x, a = rank_one_factor(X)
    w = normalise_weights(sample_weight, len(X))
    if type(loss) is Squared:  # the best direction is the same at every strength
        steepest = (w * x) @ Y
        size = float(np.linalg.norm(steepest))
        candidates = [steepest / size if size > 0 else np.eye(Y.shape[1])[0]]
    elif Y.shape[1] == 1:
        candidates = [np.ones(1), -np.ones(1)]
    else:
        raise ValueError(f"rank-one data with several outputs are solved for the squared loss only, not {loss.name!r}")
    if beta == 0:
        best, q = _exact_fit(x, Y, w, candidates[0], depth), candidates[0]
        proven = best.lower_bound
    else:
        solved = []
        for q in candidates:
            curve = along(loss, x[:, None] * q, Y, w)
            solved.append((minimise_chain(curve, beta, depth, reach(curve(0.0)[0], beta, depth)), q))
        best, q = min(solved, key=lambda pair: pair[0].value)
        proven = min(point.lower_bound for point, _ in solved)
    network = DeepNetwork(aligned_layers(a[:, None], np.array([best.s]), q[None, :], depth, widths))
    objective = network.penalty()
    if beta > 0:
        objective = loss.value(network.forward(X), Y, w) + beta * objective
    method = "closed form: rank-one rows, one chain"
    return network, certificate_of(objective, proven, beta=beta, loss=loss.name, method=method, began=began)


def _exact_fit(x: FloatArray, Y: FloatArray, w: FloatArray, q: FloatArray, depth: int) -> ScalarMinimum:
    s = float(((w * x) @ Y) @ q) / float(w @ x**2)
    if np.abs(s * x[:, None] * q - Y).max() > 1e-9 * np.abs(Y).max():
        raise ValueError("beta=0 asks for an exact fit, but without biases only multiples of c can be fitted")
    cost = chain_cost(s, depth)
    return ScalarMinimum(s, cost, cost * (1.0 - 64 * _EPS))


def interpolate_spline(X: FloatArray, y: FloatArray, *, depth: int = 2) -> tuple[DeepNetwork, Certificate]:
    r"""The linear spline through rank-one (one-dimensional) data as a deep ReLU network (001 Thm 4.2, Cor. 4.1, 4.2).

    Biases of the last hidden layer and of the output are free, and the penalty is to be smallest subject to an exact
    fit. With slopes :math:`m_0, m_1, \ldots` between neighbouring points and :math:`\delta_i = m_i - m_{i-1}`, the
    change at a point may be split into a ramp to the right and one to the left,
    :math:`\delta_i = (\delta_i - l_i) + l_i`; the line that is left has slope :math:`m_0 + \sum_i l_i`. For L = 2 the
    smallest penalty is

    .. math:: \sum_i |\delta_i| + \mathrm{dist}\Big(0, \Big[m_0 + \sum_i \min(\delta_i, 0), \;
              m_0 + \sum_i \max(\delta_i, 0)\Big]\Big) =: V_2.

    (001 has no output bias; but a ramp that starts far to the left is a constant at no cost.) For L > 2, Cor. 4.2 does
    *not* hold as printed: two changes of one sign at neighbouring points cost :math:`|\delta_1|^{2/L} +
    |\delta_2|^{2/L}`, one kink between the points fits the same data for :math:`|\delta_1 + \delta_2|^{2/L}`, which is
    less. The certificate then has the bound :math:`\tfrac L2 V_2^{2/L}`, which no network can beat.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Rank-one rows (of both signs if L = 2), or one column.
    y : ndarray, shape (n,)
    depth : int
        L, at least 2.
    """
    began = time.perf_counter()
    x, a = rank_one_factor(X, signed=depth == 2)
    x, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    if np.abs(y[first][inverse] - y).max() > 1e-9 * np.abs(y).max():
        raise ValueError("equal rows have different targets: nothing can fit both")
    y = y[first]
    slopes = np.diff(y) / np.diff(x)
    delta = np.diff(slopes)
    m_0 = slopes[0] if len(slopes) else 0.0
    left, line = _left_ramps(delta, m_0)
    kappa = np.concatenate([[line], delta - left, left])
    start = np.concatenate([x[:1], x[1:-1], x[1:-1]])
    side = np.repeat([1.0, 1.0, -1.0], [1, len(delta), len(delta)])
    kept = np.abs(kappa) > 4 * _EPS * np.abs(slopes).max(initial=0.0)
    if not kept.any():
        kept[0] = True
    kappa, start, side = kappa[kept], start[kept], side[kept]

    layers = aligned_layers(np.tile(a[:, None], len(kappa)), np.abs(kappa), np.sign(kappa)[:, None], depth)
    layers[-2] = layers[-2] * side if kappa.any() else layers[-2]
    last_bias = -side * start * np.abs(kappa) ** ((depth - 1) / depth)
    ramps = np.maximum(side * (x[:, None] - start), 0.0) @ kappa
    network = DeepNetwork(layers, [None] * (depth - 2) + [last_bias, y[:1] - ramps[:1]])
    two = float(np.abs(delta).sum()) + max(m_0 + np.minimum(delta, 0).sum(), -m_0 - np.maximum(delta, 0).sum(), 0.0)
    method = "closed form: variation of the slope" if depth == 2 else "linear spline; bound of the slope's variation"
    proven = chain_cost(two, depth) * (1.0 - 64 * _EPS)
    return network, certificate_of(network.penalty(), proven, beta=0.0, loss="squared", method=method, began=began)


def _left_ramps(delta: FloatArray, m_0: float) -> tuple[FloatArray, float]:
    """How much of every change of slope to put into ramps to the left, so that as little as possible of the line is
    left over: whole changes in their order, and a part of the last one.
    """
    left = np.zeros_like(delta)
    line = m_0
    for i in np.flatnonzero(delta * m_0 < 0):
        left[i] = np.sign(delta[i]) * min(abs(delta[i]), abs(line))
        line += left[i]
    return left, line
