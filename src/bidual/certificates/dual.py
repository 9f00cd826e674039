r"""From a dual point and a bound on its constraint to a lower bound.

For any V with :math:`\max_u \|V^T A (Mu)_+\| \le G` over the unit ball, every
:math:`c \in [0, \beta / G]` makes cV feasible, and :math:`-L^*(-cV)` bounds the optimum from below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from bidual._typing import FloatArray
from bidual.losses import Loss
from bidual.problem import Problem


@dataclass(frozen=True)
class DualBound:
    """A lower bound with its dual point.

    Attributes
    ----------
    value : float
    V : ndarray, shape (n, C)
        The feasible dual point (scaled).
    oracle_value, oracle_bound : float
        Largest constraint value found, and its upper bound, before scaling.
    proven : bool
        Whether the upper bound is one beyond doubt.
    """

    value: float
    V: FloatArray
    oracle_value: float
    oracle_bound: float
    proven: bool = True


def lower_bound(problem: Problem, V: FloatArray, oracle_value: float, oracle_bound: float) -> DualBound:
    """The best lower bound along the ray of ``V``, given an upper bound on its dual constraint.

    ``V`` must come from :meth:`bidual.losses.Loss.dual_point`.
    """
    # A constraint value lost in rounding sets no limit: then V itself is feasible.
    floor = np.finfo(float).eps * float(np.linalg.norm(problem.spread(V), axis=1) @ problem.row_norms)
    c_max = problem.beta / oracle_bound if oracle_bound > floor else 1.0

    def value(c: float) -> float:
        return problem.dual_value(c * V) - _rounding(problem, c * V) if c > 0 else problem.dual_value(0.0 * V)

    best = best_scale(value, c_max)
    return DualBound(value(best), best * V, oracle_value, oracle_bound)


def best_scale(value: Callable[[float], float], c_max: float) -> float:
    """The c in ``[0, c_max]`` where the concave dual objective along a ray, ``value``, is largest."""
    # Some domains are cones (V may grow), the others are only sure to hold the segment from 0 to V.
    if not np.isfinite(value(c_max)):
        c_max = min(c_max, 1.0)
    candidates = [0.0, min(1.0, c_max), c_max]
    if value(c_max) > value((1.0 - 1e-6) * c_max):  # concave and still rising at the edge: no need to search
        return c_max
    for low, high in ((0.0, min(1.0, c_max)), (1.0, c_max)):  # the sum is concave, but c_max may be astronomical
        if low < high:
            search = minimize_scalar(
                lambda c: -max(value(c), -1e300), bounds=(low, high), method="bounded", options={"xatol": 1e-12 * high}
            )
            candidates.append(float(search.x))
    return max(candidates, key=value)


def sufficient(problem: Problem, V: FloatArray, goal: float) -> float | None:
    """The largest bound on the dual constraint at ``V`` with which its lower bound still reaches ``goal``."""

    def reaches(g: float) -> bool:
        return lower_bound(problem, V, g, g).value >= goal

    # g is at least this: the value at the best single row
    low = float((np.linalg.norm(problem.spread(V), axis=1) * problem.row_norms).max(initial=0.0)) * 1e-3
    if low <= 0 or not reaches(low):
        return None
    high = low
    while reaches(2.0 * high) and high < 1e300:
        high *= 2.0
    low, high = high, 2.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low


def _rounding(problem: Problem, V: FloatArray) -> float:
    """What floating point may have added to the dual value: a few units of all terms summed up."""
    return rounding(rounding_terms(problem.loss, V, problem.Y, problem.w), problem.loss.coupled)


def rounding_terms(loss: Loss, V: FloatArray, Y: FloatArray, w: FloatArray) -> float:
    """The size of all terms summed up in the dual value; those of parts of the rows add up."""
    rows = loss.row_conjugates(-V / w[:, None], Y)
    if not np.isfinite(rows).all():
        return 0.0
    return float(w @ np.abs(rows) + np.abs(V * Y).sum() + ((V / w[:, None]) * V).sum())


def rounding(terms: float, coupled: bool) -> float:
    """What floating point may have added to a dual value with so large terms."""
    # A coupled loss has its domain on a simplex, which floating point meets only to a few units.
    return 8 * float(np.finfo(float).eps) * (terms + 8 * coupled)
