r"""Deep ReLU networks on rank-one data :math:`X = c a_0^T` (001 Thm 4.1, 4.2, Prop. 4.1, 4.2, Cor. 4.1, 4.2).

With :math:`c \ge 0` every neuron of every layer is a multiple of c on the data, so that without biases the outputs are
:math:`F = \hat x \, s q^T` with :math:`\hat x = c \|a_0\|`, a strength s at the cost :math:`\tfrac L2 s^{2/L}` and a
unit vector q: one chain, in closed form, at any depth and for several outputs. This holds for dense networks too. (For
c of both signs and L > 2 the two sides share layers, and 001's formula does not apply.)

With a free bias in the last hidden layer its neurons are ramps :math:`\kappa (\pm(\hat x - t))_+`, and the network is a
linear spline: :func:`interpolate_spline`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bidual._util.clock import clock
from bidual._util.data import normalise_weights
from bidual._util.ranges import MODERATE, check_range
from bidual._util.typing import FloatArray
from bidual.bounds import ByFormula, Certificate
from bidual.closed_form.layers import aligned_layers
from bidual.closed_form.scalar import ScalarMinimum, along, chain_cost, minimise_chain, reach
from bidual.losses import Loss, Squared
from bidual.networks import DeepNetwork

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


def distances(X: FloatArray, x: FloatArray, a: FloatArray) -> FloatArray:
    r"""How far rows are from :math:`\hat x a^T`, at most: exactly zero for one column, else with rounding.

    A network without hidden biases, or with them in the last hidden layer, whose layers have the product R of norms is
    R-Lipschitz: it can tell rows from their multiples of a by R times this. For tiny beta that is not little.
    """
    off = np.linalg.norm(X - x[:, None] * a, axis=1)
    return off if X.shape[1] == 1 else off * (1.0 + 8 * _EPS) + 8 * X.shape[1] * _EPS * np.linalg.norm(X, axis=1)


def _gain(
    loss: Loss, X: FloatArray, Y: FloatArray, w: FloatArray, off: FloatArray, steep: float, value: float
) -> float:
    r"""What R-Lipschitz networks no worse than ``value`` may gain from rows that are off their line, R = ``steep``.

    The loss of the outputs on the line is larger by at most :math:`\delta (\sqrt{2 L} + \delta / 2)` with
    :math:`\delta^2 = \sum_i w_i R^2 e_i^2`, if it is squared, and by the largest slope that a convex loss has between
    the largest outputs, :math:`\pm R \|x_i\|`, otherwise.
    """
    if not off.any():
        return 0.0
    if type(loss) is Squared:
        change = steep * float(np.sqrt(w @ off**2))
        return change * (float(np.sqrt(2.0 * value)) + 0.5 * change) * (1.0 + 1e-12)
    most = (steep * (np.linalg.norm(X, axis=1) + off))[:, None]
    slopes = np.maximum(*(np.abs(loss.row_gradients(side * most, Y)) for side in (1.0, -1.0)))[:, 0]
    return float(steep * ((w * slopes) @ off)) * (1.0 + 1e-12)


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
    began = clock()
    check_range(MODERATE, X=X, y=Y)
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
        best, q = _exact_fit(X, x, Y, w, candidates[0], depth), candidates[0]
        proven = best.lower_bound
    else:
        solved = []
        for q in candidates:
            curve = along(loss, x[:, None] * q, Y, w)
            solved.append((minimise_chain(curve, beta, depth, reach(curve(0.0)[0], beta, depth)), q))
        best, q = min(solved, key=lambda pair: pair[0].value)
        proven = min(point.lower_bound for point, _ in solved)
        steep = reach(best.value, beta, depth) * (1.0 + 64 * depth * _EPS)
        gain = _gain(loss, X, Y, w, distances(X, x, a), steep, best.value)
        proven = max(0.0, proven - gain) if np.isfinite(gain) else 0.0
    network = DeepNetwork(aligned_layers(a[:, None], np.array([best.s]), q[None, :], depth, widths))
    objective = network.penalty()
    if beta > 0:
        objective = loss.value(network.forward(X), Y, w) + beta * objective
    method = "closed form: rank-one rows, one chain"
    return network, Certificate.of(
        objective, ByFormula(proven), scope="global", beta=beta, loss=loss.name, method=method, began=began
    )


def _exact_fit(X: FloatArray, x: FloatArray, Y: FloatArray, w: FloatArray, q: FloatArray, depth: int) -> ScalarMinimum:
    r"""The chain through the targets; no network is cheaper, as its layers multiply by at least
    :math:`\max_i \|y_i\| / \|x_i\|`.
    """
    s = float(((w * x) @ Y) @ q) / float(w @ x**2)
    if np.abs(s * x[:, None] * q - Y).max() > 1e-9 * np.abs(Y).max():
        raise ValueError("beta=0 asks for an exact fit, but without biases only multiples of c can be fitted")
    sizes, lengths = np.linalg.norm(Y, axis=1), np.linalg.norm(X, axis=1)
    least = float((sizes[lengths > 0] / lengths[lengths > 0]).max(initial=0.0))
    # the fit is one up to a tolerance: its own cost may be less than that of an exact one
    return ScalarMinimum(s, chain_cost(s, depth), chain_cost(min(least, s), depth) * (1.0 - (64 + X.shape[1]) * _EPS))


def interpolate_spline(X: FloatArray, y: FloatArray, *, depth: int = 2) -> tuple[DeepNetwork, Certificate]:
    r"""The linear spline through rank-one (one-dimensional) data as a deep ReLU network (001 Thm 4.2, Cor. 4.1, 4.2).

    Biases of the last hidden layer and of the output are free, and the penalty is to be smallest subject to an exact
    fit. With slopes :math:`m_0, m_1, \ldots` between neighbouring points and :math:`\delta_i = m_i - m_{i-1}`, the
    change at a point may be split into a ramp to the right and one to the left,
    :math:`\delta_i = (\delta_i - l_i) + l_i`; the line that is left has slope :math:`m_0 + \sum_i l_i`. The smallest
    sum of the strengths :math:`|\kappa_j|` of all ramps is

    .. math:: V = \sum_i |\delta_i| + \mathrm{dist}\Big(0, \Big[m_0 + \sum_i \min(\delta_i, 0), \;
              m_0 + \sum_i \max(\delta_i, 0)\Big]\Big),

    and the smallest penalty of *any* network is :math:`\tfrac L2 V^{2/L}`: if the first L - 2 layers multiply by at
    most :math:`\tau`, they cost :math:`\tfrac{L-2}2 \tau^{2/(L-2)}` and the ramps another :math:`V / \tau`. All ramps
    share these layers here, one chain of strength :math:`V^{1/L}` in each.

    001 has no output bias, but a ramp that starts far to the left is a constant at no cost. And 001 has parallel
    branches: there the linear spline is *not* optimal for L > 2, against Cor. 4.2 as printed. Two changes of one sign
    at neighbouring points cost :math:`\tfrac L2 (|\delta_1|^{2/L} + |\delta_2|^{2/L})` in branches of their own; one
    kink between the points fits the same data for :math:`\tfrac L2 |\delta_1 + \delta_2|^{2/L}`, which is less.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Rank-one rows (of both signs if L = 2), or one column.
    y : ndarray, shape (n,)
    depth : int
        L, at least 2.
    """
    began = clock()
    x, a = rank_one_factor(X, signed=depth == 2)
    away = distances(X, x, a)
    x, row, inverse = np.unique(x, return_index=True, return_inverse=True)
    if np.abs(y[row][inverse] - y).max() > 1e-9 * np.abs(y).max():
        raise ValueError("equal rows have different targets: nothing can fit both")
    y = y[row]
    slopes = np.diff(y) / np.diff(x)
    delta = np.diff(slopes)
    m_0 = slopes[0] if len(slopes) else 0.0
    left, line = left_ramps(delta, m_0)
    kappa = np.concatenate([[line], delta - left, left])
    start = np.concatenate([x[:1], x[1:-1], x[1:-1]])
    side = np.repeat([1.0, 1.0, -1.0], [1, len(delta), len(delta)])
    kept = np.abs(kappa) > 4 * _EPS * np.abs(slopes).max(initial=0.0)
    if not kept.any():
        kept[0] = True
    kappa, start, side = kappa[kept], start[kept], side[kept]

    total = float(np.abs(kappa).sum())
    t = total ** (1.0 / depth)
    tau = t ** (depth - 2)
    root = np.sqrt(np.abs(kappa) / tau) if total > 0 else np.zeros_like(kappa)
    ramps = (side * root)[None, :]
    layers = [a[:, None] @ ramps] if depth == 2 else [a[:, None] * t, *[np.full((1, 1), t)] * (depth - 3), ramps]
    first = np.maximum(side * (x[0] - start), 0.0) @ kappa
    biases = [*[None] * (depth - 2), -side * start * tau * root, y[:1] - first]
    network = DeepNetwork([*layers, (np.sign(kappa) * root)[:, None]], biases)
    least = float(np.abs(delta).sum()) + max(m_0 + np.minimum(delta, 0).sum(), -m_0 - np.maximum(delta, 0).sum(), 0.0)
    # On the line a network computes the spline only up to its Lipschitz constant, at most the total, times the
    # distances from it; these change slopes by ``blur`` times the total in all, so that total * (1 + blur) >= least.
    off = np.zeros_like(x)
    np.maximum.at(off, inverse.ravel(), away)
    blur = 5.0 * float(((off[1:] + off[:-1]) / np.diff(x)).sum())
    proven = chain_cost(least / (1.0 + blur), depth) * (1.0 - (64 + len(x)) * _EPS)
    method = "closed form: variation of the slope"
    return network, Certificate.of(
        network.penalty(), ByFormula(proven), scope="global", beta=0.0, loss="squared", method=method, began=began
    )


def left_ramps(delta: FloatArray, m_0: float) -> tuple[FloatArray, float]:
    """How much of every change of slope to put into ramps to the left, so that as little as possible of the line is
    left over: whole changes in their order, and a part of the last one.
    """
    left = np.zeros_like(delta)
    line = m_0
    for i in np.flatnonzero(delta * m_0 < 0):
        left[i] = np.sign(delta[i]) * min(abs(delta[i]), abs(line))
        line += left[i]
    return left, line
