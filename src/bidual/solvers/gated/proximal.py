r"""One proximal step of the gated program, by semismooth Newton on its dual.

The step from :math:`(W^k, b^k)` minimises

.. math:: L(KW + 1b^T) + \beta \sum_i \|W_i\|_F + \frac{1}{2\sigma} \|W - W^k\|^2
          + \frac{1}{2\sigma\rho} \|b - b^k\|^2 .

Its dual is smooth in :math:`V = -\nabla L(F)`, and is minimised over F, so that V never leaves the domain of the
conjugate:

.. math:: \varphi(F) = \langle \nabla L(F), F \rangle - L(F) + \frac{1}{2\sigma} (\|W(F)\|^2 - \|W^k\|^2)
          + \frac{1}{2\sigma\rho} (\|b(F)\|^2 - \|b^k\|^2),

with :math:`W(F) = \mathrm{prox}(W^k + \sigma K^T V)` and :math:`b(F) = b^k + \sigma\rho\, V^T 1`. Its gradient is
:math:`H(F) R(F)`, :math:`R = F - K W(F) - 1 b(F)^T`. The primal value of W(F), b(F) plus :math:`\varphi` is the gap of
the step. This is the augmented Lagrangian method on the dual of the group lasso, whose steps converge at a rate that
improves with sigma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bidual._util.typing import FloatArray
from bidual.problem import Problem
from bidual.programs.gated.design import GatedDesign
from bidual.solvers.gated.newton import newton_direction
from bidual.solvers.gated.prox import Prox

#: Newton steps in one proximal step.
MAX_NEWTON = 30
#: Gap of the step in units of what it moved: such steps still converge as fast as exact ones.
INEXACT = 0.1
#: Share of the promised decrease that is enough, up to rounding of this size, and the length below which there is none.
ENOUGH, ROUNDING, SHORTEST = 1e-4, 1e-14, 1e-5


@dataclass(frozen=True)
class Point:
    """Weights of the working set with their outputs.

    Attributes
    ----------
    W : ndarray, shape (S, r, C)
    intercept : ndarray, shape (C,)
    F : ndarray, shape (n, C)
        Where V is the gradient of the loss; near the outputs of the weights.
    objective : float
        Of the weights.
    """

    W: FloatArray
    intercept: FloatArray
    F: FloatArray
    objective: float
    n_newton: int = 0
    converged: bool = True


class _Dual:
    """Everything at one F."""

    def __init__(self, step: ProximalStep, F: FloatArray) -> None:
        problem = step.problem
        self.F = F
        gradient = problem.loss.gradient(F, problem.Y, problem.w)
        self.prox = Prox.at(step.start.W - step.sigma * step.design.correlations(gradient), step.sigma * step.beta)
        self.intercept = step.start.intercept - step.sigma * step.rho * gradient.sum(axis=0)
        self.phi = float((gradient * F).sum()) - problem.loss_value(F)
        self.phi += (float(self.prox.norms @ self.prox.norms) - step.start_norm) / (2 * step.sigma)
        if step.rho:
            change = self.intercept @ self.intercept - step.start.intercept @ step.start.intercept
            self.phi += float(change) / (2 * step.sigma * step.rho)


class ProximalStep:
    """The step from ``start``.

    Parameters
    ----------
    problem : Problem
    beta : float
        Penalty, which may be larger than the problem's.
    design : GatedDesign
        The working set.
    start : Point
    sigma : float
        Length of the step.
    rho : float
        Length for the intercept, in units of sigma; zero if there is none.
    dtype : type
        Precision of the factors in the Newton steps.
    """

    def __init__(
        self, problem: Problem, beta: float, design: GatedDesign, start: Point, sigma: float, rho: float, dtype: type
    ) -> None:
        self.problem = problem
        self.beta = beta
        self.design = design
        self.start = start
        self.sigma = sigma
        self.rho = rho
        self.dtype = dtype
        self.start_norm = float((start.W**2).sum())

    def solve(self, tol: float, stop: Callable[[], bool]) -> Point:
        """Newton until the gap of the step is a tenth of what it moved, or below ``tol``."""
        dual = _Dual(self, self.start.F)
        for count in range(MAX_NEWTON + 1):
            point, outputs, moved = self._primal(dual, count)
            gap = point.objective + moved + dual.phi
            if gap <= max(INEXACT * moved, tol):
                return point
            if count == MAX_NEWTON or stop():
                break
            R = dual.F - outputs
            direction = newton_direction(
                self.problem, self.design, dual.prox, dual.F, R, self.sigma, self.rho, self.dtype
            )
            improved = self._search(dual, direction, self._slope(dual.F, R, direction))
            if improved is None:  # no decrease in floating point
                break
            dual = improved
        return replace(point, converged=False)

    def _primal(self, dual: _Dual, count: int) -> tuple[Point, FloatArray, float]:
        """The weights at ``dual``, their outputs, and the cost of having moved."""
        W, active = dual.prox.value, dual.prox.active
        outputs = self.design.take(active).outputs(W[active]) + dual.intercept
        objective = self.problem.loss_value(outputs) + self.beta * float(dual.prox.norms.sum())
        moved = float(((W - self.start.W) ** 2).sum()) / (2 * self.sigma)
        if self.rho:
            moved += float(((dual.intercept - self.start.intercept) ** 2).sum()) / (2 * self.sigma * self.rho)
        return Point(W, dual.intercept, dual.F, objective, count), outputs, moved

    def _slope(self, F: FloatArray, R: FloatArray, direction: FloatArray) -> float:
        """Derivative of the dual objective: ``<H R, direction>``."""
        loss, Y, w = self.problem.loss, self.problem.Y, self.problem.w
        if not loss.coupled:
            return float((loss.curvature(F, Y, w) * R * direction).sum())
        return float(w @ np.einsum("na,nab,nb->n", R, loss.row_hessians(F, Y), direction))

    def _search(self, dual: _Dual, direction: FloatArray, slope: float) -> _Dual | None:
        """Halve the step until the dual objective falls."""
        rounding = ROUNDING * abs(dual.phi)
        length = 1.0
        while length > SHORTEST:
            trial = _Dual(self, dual.F + length * direction)
            if trial.phi <= dual.phi + ENOUGH * length * slope + rounding:
                return trial
            length /= 2
        return None
