r"""From a dual point and a bound on its constraint to a lower bound.

For any V with :math:`\max_u \|V^T A (Mu)_+\| \le G` over the unit ball, every
:math:`c \in [0, \beta / G]` makes cV feasible, and :math:`-L^*(-cV)` bounds the optimum from below.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from bidual._util.rounding import gamma
from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped
from bidual.bounds.proof import NormProof, Proof, UnfinishedProof
from bidual.losses import Loss
from bidual.problem import Problem


@dataclass(frozen=True)
class Bound:
    """A lower bound with the dual point it comes from; proven exactly when it carries a proof.

    Attributes
    ----------
    value : float
        The bound.
    V : ndarray, shape (n, C)
        The dual point at which the constraint was looked at.
    attained, limit : float
        Largest constraint value found at V, and what is taken for its upper bound.
    proof : Proof or None
        Why the constraint is at most ``limit``; None: because a search has found no more.
    scale : float
        The multiple of V whose dual objective is the value: at most beta over the limit.
    """

    value: float
    V: FloatArray
    attained: float
    limit: float
    proof: Proof | None = None
    scale: float = 1.0

    @property
    def proven(self) -> bool:
        """Whether the bound holds beyond doubt."""
        return self.proof is not None

    def settle(self, problem: Problem) -> Bound:
        """The bound as its proof gives it when it is evaluated again: what a certificate may claim.

        Without time for that it stays as it is, and cannot be stored.
        """
        if self.proof is None or not self.proof.stored or self.proof.settled:
            return self
        try:
            limit = self.proof.bound(problem, self.V)
        except Stopped:
            return replace(self, proof=UnfinishedProof())
        return lower_bound(problem, self.V, self.attained, limit, self.proof)

    @property
    def feasible(self) -> FloatArray:
        """The feasible dual point."""
        return self.scale * self.V

    def loosened(self, beta: float, extra: float) -> Bound:
        r"""The same if the constraint at V may be larger than its limit by ``extra``.

        Then V counts less, :math:`c' = \min(c, \beta / (G + e))`, and as the dual value D is concave along the ray
        and not negative at zero (losses are not), :math:`D(c' V) \ge (c' / c) D(c V)`.
        """
        largest = self.scale * (self.limit + extra)
        if largest <= beta or self.value <= 0:
            return replace(self, limit=self.limit + extra)
        return replace(
            self, limit=self.limit + extra, value=self.value * beta / largest, scale=self.scale * beta / largest
        )

    def fitting(self, loss: Loss, F: FloatArray, Y: FloatArray) -> Bound:
        r"""Of an indicator: the same for all networks that come as close to their targets as the outputs ``F``.

        With residuals R they cost :math:`\langle c V, Y + R \rangle` at least.
        """
        if loss.finite:
            return self
        return replace(self, value=self.value - float(np.abs(self.feasible * (F - loss.nearest_outputs(F, Y))).sum()))

    @classmethod
    def nothing(cls, problem: Problem, proof: Proof | None = None) -> Bound:
        """The bound of the dual point zero, the least loss there can be; by norms if there is no other ``proof``."""
        V = np.zeros_like(problem.Y)
        return cls(problem.dual_value(V), V, 0.0, 0.0, NormProof() if proof is None else proof)


class DirectProof(Proof):
    """A proof of a lower bound that rests on more than one dual point, or on more than its constraint."""

    settled = True

    @abstractmethod
    def lower_bound(self, problem: Problem, V: FloatArray) -> Bound:
        """The lower bound, given the dual point that the evidence holds."""


def lower_bound(problem: Problem, V: FloatArray, attained: float, limit: float, proof: Proof | None = None) -> Bound:
    """The best lower bound along the ray of ``V``, given an upper bound on its dual constraint.

    ``V`` must come from :meth:`bidual.losses.Loss.dual_point`.
    """
    centring = Centring.of(problem, V)
    limit = limit + centring.moved * problem.atoms.largest_hidden
    # Below what rounding hides a limit tells nothing. Multiples of V are rounded, and so is beta in its units.
    visible = max(limit, np.finfo(float).eps * problem.atoms.mass(V))
    c_max = min(problem.beta / visible, 1e300) * (1.0 - gamma(8)) if visible > 0 else 1.0

    def value(c: float) -> float:
        return certain_value(problem, c * V, centring.scaled(c))

    best = float(best_scale(value, float(c_max)))
    return Bound(value(best), V, attained, limit, proof, best)


@dataclass(frozen=True)
class Centring:
    r"""What it takes to make :math:`1^T V`, which a free intercept asks to be zero, exactly zero.

    Rows of the sign in excess shrink by the fraction t, which no domain forbids. Of a coupled loss, probability moves
    from overfull classes to others.

    Attributes
    ----------
    moved : float
        By how much rows of V change, in sum.
    fraction : float
        t; zero for a coupled loss.
    outputs : int
        Number of outputs of a coupled loss, else zero.
    """

    moved: float = 0.0
    fraction: float = 0.0
    outputs: int = 0

    @classmethod
    def of(cls, problem: Problem, V: FloatArray) -> Centring:
        """For the dual point ``V`` of a problem."""
        if not problem.fit_intercept:
            return cls()
        rest = np.array([math.fsum(column) for column in V.T])
        moved = float(np.abs(rest).sum())
        if problem.loss.coupled:
            return cls(2.0 * moved, outputs=V.shape[1])
        excess = np.maximum(np.sign(rest) * V, 0.0).sum(axis=0)
        return cls(moved, float((np.abs(rest) / np.maximum(excess, np.finfo(float).tiny)).max(initial=0.0)))

    def scaled(self, c: float) -> Centring:
        """For c times the dual point."""
        return replace(self, moved=c * self.moved)

    def cost(self, terms: float) -> float:
        r"""What this may take from a dual value with so large terms.

        A convex conjugate falls along the way to zero by its slope at most, which ``terms`` includes. Probability
        :math:`\delta` that moves changes :math:`p \log p` by :math:`\delta (1 + |\log \delta|)` at most.
        """
        log = 1.0 - math.log(self.moved) if 0 < self.moved < 1 else 1.0
        return self.fraction * terms + self.outputs * self.moved * log


def certain_value(problem: Problem, V: FloatArray, centring: Centring) -> float:
    """The dual value at ``V``, made to sum up to zero if need be, without what rounding may have added."""
    value = problem.dual_value(V)
    if not np.isfinite(value):
        return value
    terms = rounding_terms(problem.loss, V, problem.Y, problem.w)
    return value - rounding(terms, len(V)) - centring.cost(terms)


def bound_by_norms(problem: Problem, V: FloatArray) -> Bound:
    """The lower bound that costs nothing: the dual constraint bounded by norms."""
    limit = problem.atoms.norm_limit(V)
    return lower_bound(problem, V, 0.0, limit, NormProof())


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
    low = float((np.linalg.norm(problem.atoms.spread(V), axis=1) * problem.atoms.row_norms).max(initial=0.0)) * 1e-3
    if low <= 0 or not reaches(low):
        return None
    high = low
    while reaches(2.0 * high) and high < 1e300:
        high *= 2.0
    low, high = high, 2.0 * high
    for _ in range(20):  # to a millionth
        middle = 0.5 * (low + high)
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low


def rounding_terms(loss: Loss, V: FloatArray, Y: FloatArray, w: FloatArray) -> float:
    """The size of all terms summed up in the dual value; those of parts of the rows add up."""
    sizes = loss.row_sizes(-V / w[:, None], Y)
    return float(w @ np.where(np.isfinite(sizes), sizes, 0.0))


def rounding(terms: float, n: int) -> float:
    """What floating point may have added to a dual value of ``n`` rows with so large terms, summed in any order."""
    return (8 + n) * float(np.finfo(float).eps) * terms
