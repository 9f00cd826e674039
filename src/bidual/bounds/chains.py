r"""Lower bounds for linear networks of more than two layers, from several dual points.

Every dual point V bounds the loss of a map W from below by a line in its nuclear norm,
:math:`L(XW) \ge D(V) - \|X^T V\|_2 \|W\|_*`, and L layers for W cost at least
:math:`\tfrac L2 \sum_j \sigma_j^{2/L} \ge \tfrac L2 \|W\|_*^{2/L}` (001 Prop. 3.1, Thm 3.4; the power is subadditive).
So no network is better than

.. math:: \min_{t \ge 0} \; \max_k \big( D(V_k) - \|X^T V_k\|_2 \, t \big) + \tfrac{\beta L}2 t^{2/L}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import Chains
from bidual.bounds import parsing
from bidual.bounds.dual import Bound, Centring, DirectProof, certain_value
from bidual.problem import Problem

_EPS = float(np.finfo(float).eps)
#: Most dual points: all pairs of their lines are looked at.
MOST = 100


def lowest(values: FloatArray, slopes: FloatArray, cost: float, power: float, end: float) -> tuple[float, float]:
    r"""A lower bound on :math:`\max_k (v_k - g_k t) + c \, t^p`, p <= 1, over t from 0 to ``end``, and where it is.

    Between two points the sum of one line and a concave function is least at one of them, wherever the points are: they
    are those where lines meet.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = ((values[:, None] - values) / (slopes[:, None] - slopes)).ravel()
    t = np.unique(np.concatenate([[0.0, end], meet[(meet > 0) & (meet < end)]]))
    lines, concave = values[:, None] - slopes[:, None] * t, cost * t**power
    rounding = 16 * _EPS * (np.abs(values)[:, None] + slopes[:, None] * t + concave)
    at = lines + concave - rounding  # (K, m)
    pieces = np.minimum(at[:, :-1], at[:, 1:])
    best = pieces.argmax(axis=0)
    i = int(pieces[best, np.arange(len(t) - 1)].argmin())
    k = best[i]
    return float(pieces[k, i]), float(t[i] if at[k, i] <= at[k, i + 1] else t[i + 1])


def tangent(problem: Problem, W: FloatArray, scale: float) -> tuple[float, float]:
    """Value and slope of the line that ``scale`` times the residual of the map ``W (d, C)`` is as a dual point."""
    R = problem.Y - problem.atoms.M @ W
    R = R - problem.w @ R if problem.fit_intercept else R
    V = problem.dual_point(problem.w[:, None] * R)
    centring = Centring.of(problem, V)
    slope = problem.atoms.norm_limit(V) + centring.moved * problem.atoms.largest_hidden
    return certain_value(problem, scale * V, centring.scaled(scale)), scale * slope * (1.0 + 8 * _EPS)


def zero_loss(problem: Problem) -> float:
    """The loss of the network that is zero, but for its intercept."""
    mean = problem.w @ problem.Y if problem.fit_intercept else 0.0
    return problem.loss_value(np.zeros_like(problem.Y) + mean)


def chain_bound(problem: Problem[Chains], lines: list[tuple[float, float]]) -> tuple[float, float]:
    """The lower bound by these lines, and the nuclear norm at which it is least."""
    L, zero = problem.atoms.depth, zero_loss(problem)
    cost = 0.5 * L * problem.beta
    with np.errstate(over="ignore"):  # a network beyond costs more than zero loses
        end = float(np.float64(zero / cost) ** (L / 2.0)) * (1.0 + 64 * L * _EPS)
    if not lines or not 0 < end < np.inf:  # no loss is below zero
        return 0.0, 0.0
    values, slopes = np.array(lines).T
    value, t = lowest(values, slopes, cost, 2.0 / L, end)
    return min(value, zero * (1.0 - 4 * (len(problem.Y) + 8) * _EPS)), t


@dataclass(frozen=True, eq=False)
class ChainProof(DirectProof):
    """Maps whose residuals are the dual points, and multiples of these.

    Attributes
    ----------
    maps : ndarray, shape (K, d, C)
    scales : ndarray, shape (K,)
    """

    kind = "chains"

    maps: FloatArray
    scales: FloatArray

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The constraint at V itself."""
        return problem.atoms.norm_limit(V)

    def lower_bound(self, problem: Problem, V: FloatArray) -> Bound:
        """What all dual points prove together."""
        chains = problem.of(Chains)
        shape = (problem.atoms.M.shape[1], problem.n_outputs)
        if chains is None or self.maps.shape != (len(self.scales), *shape):
            raise ValueError("a proof of the kind 'chains' is about linear networks of more than two layers")
        if len(self.scales) > MOST or not (self.scales >= 0).all():
            raise ValueError(f"a proof of the kind 'chains' has at most {MOST} dual points, and no negative multiples")
        lines = [tangent(problem, W, float(c)) for W, c in zip(self.maps, self.scales, strict=True)]
        return Bound(max(0.0, chain_bound(chains, lines)[0]), V, 0.0, self.bound(problem, V), self, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists."""
        return {"maps": self.maps.tolist(), "scales": self.scales.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ChainProof:
        """Inverse of :meth:`to_dict`."""
        return cls(parsing.array(data, "maps", 3), parsing.array(data, "scales", 1))
