"""Losses in the interior point method of :mod:`bidual.programs.outputs_corrective`: what the rows add to a step.

A step dA moves the outputs by dF and the gradient from g to g + W dF. A smooth loss knows both. A conjugate that is
quadratic on a box (:class:`~bidual.losses.base.DualBox`) has the slopes of the rows as variables of their own, kept
inside the box: where a loss bends or not then changes little by little, and never by jumps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from bidual._util.typing import FloatArray
from bidual.losses import DualBox
from bidual.losses.base import Loss
from bidual.problem import Problem
from bidual.programs.corrective import longest_step
from bidual.programs.smoothing import smoothed

#: Where slopes start, at the least, from the ends of a box, as a share of its width (of one, if it has none).
_INSIDE = 0.05
#: Halvings of a step on which a smooth loss bends more than at its start.
_HALVINGS = 12


def rows_of(problem: Problem, epsilon: float) -> Rows:
    """The rows of a problem whose loss is smoothed by ``epsilon``."""
    box = problem.loss.dual_box(problem.Y)
    return SmoothRows(problem, smoothed(problem.loss, epsilon)) if box is None else BoxRows(problem, epsilon, box)


class Rows(ABC):
    """The rows of a problem, and their state."""

    #: Products of slacks and multipliers, all to be equal and to vanish.
    products: int = 0

    @abstractmethod
    def begin(self, F: FloatArray, g: FloatArray, mu: float) -> None:
        """Start at these outputs, near this gradient, with products of about ``mu``."""

    @abstractmethod
    def model(self, F: FloatArray, mu: float, second: bool) -> tuple[FloatArray, FloatArray]:
        """Gradient and weights ``(n, C)`` of a step to products ``mu``, with second order terms of the last one."""

    @abstractmethod
    def respond(self, dF: FloatArray) -> None:
        """Take this step of the outputs to be the next."""

    @abstractmethod
    def longest(self) -> float:
        """The longest step, at most one."""

    @abstractmethod
    def advance(self, length: float) -> None:
        """Make so much of the step."""

    @abstractmethod
    def complementarity(self, length: float) -> float:
        """The sum of all products after so much of the step."""

    @abstractmethod
    def slopes(self, F: FloatArray) -> FloatArray:
        """The gradient, ``(n, C)``: minus it is the dual point."""


class SmoothRows(Rows):
    """A smooth loss."""

    def __init__(self, problem: Problem, loss: Loss) -> None:
        self.problem, self.loss = problem, loss

    def begin(self, F: FloatArray, g: FloatArray, mu: float) -> None:
        """Nothing: outputs are all there is."""

    def model(self, F: FloatArray, mu: float, second: bool) -> tuple[FloatArray, FloatArray]:
        self.F, self.g = F, self.slopes(F)
        self.weights = self.loss.curvature(F, self.problem.Y, self.problem.w)
        return self.g, self.weights

    def respond(self, dF: FloatArray) -> None:
        self.dF = dF

    def longest(self) -> float:
        """As long as the quadratic model holds but for a factor of two."""
        p, length = self.problem, 1.0
        value, slope = self.loss.value(self.F, p.Y, p.w), float((self.g * self.dF).sum())
        bend = float((self.weights * self.dF**2).sum())
        for _ in range(_HALVINGS):
            rise = self.loss.value(self.F + length * self.dF, p.Y, p.w) - value
            if rise <= length * (slope + length * bend):
                break
            length *= 0.5
        return length

    def advance(self, length: float) -> None:
        """Nothing."""

    def complementarity(self, length: float) -> float:
        return 0.0

    def slopes(self, F: FloatArray) -> FloatArray:
        return self.loss.gradient(F, self.problem.Y, self.problem.w)


class BoxRows(Rows):
    r"""Slopes u in a box, with multipliers of its two sides.

    :math:`f_i - y_i - (q + \epsilon) u_i - p_i + m_i = 0, \quad w_i p_i (h_i - u_i) = w_i m_i (u_i - l_i) = \mu`.
    """

    def __init__(self, problem: Problem, epsilon: float, box: DualBox) -> None:
        self.targets, box = box.sided(problem.Y)
        self.sides = len(self.targets) // len(problem.Y)
        self.w = np.repeat(problem.w, self.sides)[:, None]
        self.bend = box.curvature + epsilon
        # a side at infinity has slack one and no multiplier
        self.above, self.below = np.isfinite(box.upper), np.isfinite(box.lower)
        self.upper, self.lower = np.where(self.above, box.upper, 0.0), np.where(self.below, box.lower, 0.0)
        self.width = np.where(self.above & self.below, self.upper - self.lower, 1.0)
        self.products = int(self.above.sum() + self.below.sum())

    def begin(self, F: FloatArray, g: FloatArray, mu: float) -> None:
        e = self._residuals(F)
        u = np.repeat(g, self.sides, axis=0) / self.w
        u = np.where(self.below, np.maximum(u, self.lower + _INSIDE * self.width), u)
        self.u = np.where(self.above, np.minimum(u, self.upper - _INSIDE * self.width), u)
        over, under = self._slacks()
        self.p = np.where(self.above, mu / self.w / over + np.maximum(e, 0.0), 0.0)
        self.m = np.where(self.below, mu / self.w / under + np.maximum(-e, 0.0), 0.0)
        self.step = np.zeros_like(u), np.zeros_like(u), np.zeros_like(u)

    def model(self, F: FloatArray, mu: float, second: bool) -> tuple[FloatArray, FloatArray]:
        over, under = self._slacks()
        du, dp, dm = self.step
        self.p_wanted = np.where(self.above, (mu / self.w + second * du * dp) / over, 0.0)
        self.m_wanted = np.where(self.below, (mu / self.w - second * du * dm) / under, 0.0)
        self.give = 1.0 / (self.bend + self.p / over + self.m / under)
        self.rest = self._residuals(F) - self.bend * self.u - self.p_wanted + self.m_wanted
        return self._joined(self.u + self.give * self.rest), self._joined(self.give)

    def respond(self, dF: FloatArray) -> None:
        over, under = self._slacks()
        du = self.give * (np.repeat(dF, self.sides, axis=0) + self.rest)
        dp, dm = self.p_wanted - self.p + self.p / over * du, self.m_wanted - self.m - self.m / under * du
        self.step = du, dp, dm

    def longest(self) -> float:
        (over, under), (du, dp, dm) = self._slacks(), self.step
        above, below = self.above, self.below
        pairs = (over[above], -du[above]), (under[below], du[below]), (self.p[above], dp[above])
        return min(longest_step(x, step) for x, step in (*pairs, (self.m[below], dm[below])))

    def advance(self, length: float) -> None:
        du, dp, dm = self.step
        self.u, self.p, self.m = self.u + length * du, self.p + length * dp, self.m + length * dm

    def complementarity(self, length: float) -> float:
        (over, under), (du, dp, dm) = self._slacks(), self.step
        p, m = self.p + length * dp, self.m + length * dm
        return float((self.w * (p * (over - length * du) + m * (under + length * du))).sum())

    def slopes(self, F: FloatArray) -> FloatArray:
        return self._joined(self.u)

    def _residuals(self, F: FloatArray) -> FloatArray:
        return np.repeat(F, self.sides, axis=0) - self.targets

    def _slacks(self) -> tuple[FloatArray, FloatArray]:
        return np.where(self.above, self.upper - self.u, 1.0), np.where(self.below, self.u - self.lower, 1.0)

    def _joined(self, u: FloatArray) -> FloatArray:
        """Weighted, with both sides of a threshold together."""
        return (self.w * u).reshape(-1, self.sides, u.shape[1]).sum(axis=1)
