r"""The scalar problems that deep networks come down to.

A chain of L balanced layers that multiplies by :math:`s \ge 0` costs :math:`\tfrac L2 s^{2/L}` (001 Lemma 1.1 with
Prop. 3.1), so that one chain is the problem

.. math:: \min_{s \ge 0} \; \varphi(s) + \tfrac{\beta L}{2} s^{2/L}

with a convex :math:`\varphi`. For L > 2 the penalty is concave: there may be two local minima, one of them zero.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.optimize import brentq

from bidual._util.typing import Array, FloatArray
from bidual.losses import Loss

#: A convex function of one variable: value and slope (or a subgradient).
Curve: TypeAlias = Callable[[float], tuple[float, float]]

#: Where a sum was evaluated: s, value and slope of its convex part, value of its concave part.
Point: TypeAlias = tuple[float, float, float, float]

_EPS = float(np.finfo(float).eps)


def along(loss: Loss, ray: FloatArray, Y: FloatArray, w: FloatArray) -> Curve:
    """The loss of outputs ``s * ray`` as a function of s."""

    def curve(s: float) -> tuple[float, float]:
        return loss.value(s * ray, Y, w), float((loss.gradient(s * ray, Y, w) * ray).sum())

    return curve


def chain_cost(s: Array | float, depth: int) -> float:
    r""":math:`\tfrac L2 \sum_j s_j^{2/L}`, the smallest penalty of chains of these strengths."""
    return 0.5 * depth * float(np.sum(np.asarray(s) ** (2.0 / depth)))


def critical_beta(y: Array, depth: int) -> FloatArray:
    r"""The weight decay beyond which :func:`shrink` gives zero.

    .. math:: \beta_c(y) = \frac{y}{L-1} \Big( \frac{L-2}{L-1} y \Big)^{1 - 2/L},

    which is y for L = 2 (001 Remark 2.1). At :math:`\beta_c` the solution jumps from :math:`\frac{L-2}{L-1} y` to zero:
    there both the slope :math:`s - y + \beta s^{2/L-1}` and the difference of the objective to that of zero vanish.
    """
    y = np.asarray(y, dtype=np.float64)
    return y / (depth - 1) * ((depth - 2) / (depth - 1) * y) ** (1.0 - 2.0 / depth)


def shrink(y: FloatArray, beta: float, depth: int) -> FloatArray:
    r"""Global minimisers of :math:`\tfrac12 (y - s)^2 + \tfrac{\beta L}{2} s^{2/L}` over :math:`s \ge 0`, entrywise.

    For L = 2 this is soft thresholding, :math:`(y - \beta)_+`. It is the :math:`t_j^*` that 001 Thm 4.3 leaves open:
    every layer of chain j carries :math:`t_j^* = s^{1/L}`.
    """
    y = np.asarray(y, dtype=np.float64)
    if depth == 2:
        return np.maximum(y - beta, 0.0)
    s = np.where(beta < critical_beta(y, depth), y, 0.0)
    alive = s > 0
    power = 2.0 / depth - 1.0
    for _ in range(100):  # Newton from the right on a convex function: monotone
        t, target = s[alive], y[alive]
        pull = beta * t**power
        step = (t - target + pull) / (1.0 + power * pull / t)
        s[alive] = t - step
        if not (np.abs(step) > 2 * _EPS * target).any():
            break
    return s


@dataclass(frozen=True)
class ScalarMinimum:
    """The minimiser found, its value, and a lower bound on all values."""

    s: float
    value: float
    lower_bound: float


def minimise_chain(curve: Curve, beta: float, depth: int, upper: float, tol: float = 1e-11) -> ScalarMinimum:
    r"""Global minimum of :math:`\varphi(s) + \tfrac{\beta L}2 s^{2/L}` by branch and bound.

    On an interval the convex part lies above its tangents at both ends and the concave part above its chord; the sum
    of these two minorants has its minimum at an end or where the tangents meet, and there the interval is split.

    Parameters
    ----------
    curve : callable
        :math:`\varphi` and its slope.
    beta, depth : float, int
    upper : float
        A minimiser must lie below; see :func:`reach`.
    tol : float
        Largest difference of value and lower bound, relative to the value.
    """

    def evaluate(s: float) -> Point:
        value, slope = curve(s)
        return s, value, slope, beta * chain_cost(s, depth)

    start, end = evaluate(0.0), evaluate(upper)
    points = [start, end]
    queue = [(*_minorant(start, end), start, end)]
    lower = np.inf
    while queue:
        lower, split, left, right = heapq.heappop(queue)
        best = _total(min(points, key=_total))
        if lower >= best - tol * abs(best) or right[0] - left[0] <= 4 * _EPS * right[0]:
            break  # this bound is the smallest of all that are left
        margin = 0.05 * (right[0] - left[0])
        middle = evaluate(min(max(split, left[0] + margin), right[0] - margin))
        points.append(middle)
        for pair in ((left, middle), (middle, right)):
            heapq.heappush(queue, (*_minorant(*pair), *pair))
    best_point = _polish(sorted(points), evaluate, beta, depth)
    value = _total(best_point)
    return ScalarMinimum(best_point[0], value, min(lower, value) - 16 * _EPS * (abs(value) + abs(start[1])))


def _polish(points: list[Point], evaluate: Callable[[float], Point], beta: float, depth: int) -> Point:
    """The best point, moved to the zero of the slope next to it: values alone place it to half the digits only."""
    i = min(range(len(points)), key=lambda k: _total(points[k]))
    if i == 0:
        return points[0]

    def slope(s: float) -> float:
        return evaluate(s)[2] + beta * s ** (2.0 / depth - 1.0)

    low = points[i - 1][0] if points[i - 1][0] > 0 else 0.5 * points[i][0]
    high = points[min(i + 1, len(points) - 1)][0]
    if not slope(low) < 0 < slope(high):
        return points[i]
    return min(points[i], evaluate(float(brentq(slope, low, high, xtol=_EPS * high, rtol=4 * _EPS))), key=_total)


def reach(loss_at_zero: float, beta: float, depth: int) -> float:
    r"""The strength at which a chain costs what zero loses: none of a better network is stronger (losses are >= 0)."""
    with np.errstate(over="ignore"):
        strength = float(np.float64(2.0 * loss_at_zero / (beta * depth)) ** (depth / 2.0))
    if not np.isfinite(strength):
        raise ValueError(f"beta={beta:.3g} is lost beside the loss with {depth} layers: use a larger one")
    return strength


def _total(point: Point) -> float:
    return point[1] + point[3]


def _minorant(left: Point, right: Point) -> tuple[float, float]:
    """Smallest value of tangents plus chord between two points, and where the tangents meet."""
    (a, fa, ga, pa), (b, fb, gb, pb) = left, right
    ends = min(_total(left), _total(right))
    bend = gb - ga
    if not bend > 0 or b <= a:
        return ends, 0.5 * (a + b)
    meet = min(max((fa - fb + gb * b - ga * a) / bend, a), b)
    at = max(fa + ga * (meet - a), fb + gb * (meet - b)) + pa + (pb - pa) * (meet - a) / (b - a)
    return min(ends, at), meet
