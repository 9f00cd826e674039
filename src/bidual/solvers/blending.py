r"""Dual points between the best one and the one that is easiest to prove.

At the optimal dual point :math:`V^*` the relaxation of the dual constraint is loose; at the optimum :math:`V_0` of the
relaxed problem (:func:`~bidual.bounds.oracle.relaxed_dual`) it is tight at once, but the bound is that of
another point. The dual objective is concave and the constraint convex, so that on the way,

.. math:: V_\lambda = (1 - \lambda) V_0 + \lambda V^*,

the bound that can be proven in a given time usually has its maximum inside, the closer to :math:`V^*` the more time
there is. Several :math:`\lambda` are tried in turn, in slices of time; each goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bidual._util.clock import clock
from bidual._util.typing import FloatArray
from bidual.bounds import Bound, lower_bound, sufficient
from bidual.bounds.oracle import SignSearch
from bidual.problem import Problem

#: Share of the time for one slice, and the smallest distance of two points.
SLICE, NEAR = 0.08, 0.04
#: Share of the time for finding the easy point.
EASY = 0.25
#: A point whose own limit is closer than this share of what is missing has little left to give.
ENOUGH = 0.15
#: Slices that a point gets before another one is tried closer to the best.
PATIENCE = 3

#: Is told what a dual point proves; says whether that is enough.
Offer = Callable[[Bound, str], bool]


@dataclass(eq=False)
class _Arm:
    share: float
    search: SignSearch
    value: float = -np.inf
    limit: float = np.inf  # what could be proven there at best
    slices: int = 0

    def done(self, goal: float) -> bool:
        """Whether there is little left to prove at this point."""
        return self.search.exhausted or self.limit - self.value < ENOUGH * (goal - self.value)


class Blend:
    """The points between ``easy`` and ``best``.

    Parameters
    ----------
    problem : Problem
    easy : callable
        Gives the dual point that is easy to prove, when given the moment by which it is wanted.
    best : ndarray, shape (n, 1)
        The best dual point.
    goal : float
        A lower bound with which to be content.
    rtol : float
        Relative accuracy of the dual constraint.
    incumbents : ndarray, shape (k, p)
        Directions to start from.
    """

    def __init__(
        self,
        problem: Problem,
        easy: Callable[[float], FloatArray],
        best: FloatArray,
        goal: float,
        rtol: float,
        incumbents: FloatArray,
    ) -> None:
        self.problem, self.find_easy, self.best = problem, easy, best
        self.goal, self.rtol, self.incumbents = goal, rtol, incumbents
        self.arms: list[_Arm] = []
        self.easy: FloatArray | None = None

    def begin(self, deadline: float, offer: Offer) -> bool:
        """Find the easy point and prove what it proves at once; whether that is enough."""
        now = clock()
        self.easy = self.find_easy(now + EASY * (deadline - now))
        return self._try(0.0, now, offer)

    def run(self, deadline: float, offer: Offer) -> None:
        """Prove as much as possible until then."""
        if self.easy is None and self.begin(deadline, offer):
            return
        piece = SLICE * (deadline - clock())
        if self._try(1.0, clock(), offer):
            return
        following = self._next()
        while following is not None and clock() < deadline:
            if self._try(following, min(deadline, clock() + piece), offer):
                return
            following = self._next()

    def _try(self, share: float, until: float, offer: Offer) -> bool:
        """Go on with a point; whether that is enough."""
        arm = self._arm(share)
        arm.search.run(until)
        told, V = arm.search.told(), arm.search.V
        dual = lower_bound(self.problem, V, told.value, told.bound, told.proof)
        arm.slices += 1
        arm.value, arm.limit = dual.value, lower_bound(self.problem, V, told.value, told.value).value
        return offer(dual, told.method)

    def _arm(self, share: float) -> _Arm:
        for arm in self.arms:
            if arm.share == share:
                return arm
        p = self.problem
        assert self.easy is not None
        V = self.best if share == 1.0 else (1.0 - share) * self.easy + share * self.best
        V = p.loss.dual_point(V, p.Y, p.w, centred=p.fit_intercept)
        arm = _Arm(share, SignSearch(p, V, sufficient(p, V, self.goal), self.rtol, self.incumbents))
        self.arms = sorted([*self.arms, arm], key=lambda arm: arm.share)
        return arm

    def _next(self) -> float | None:
        """Which point to go on with: the best, or one in the middle between a point that is done and an open one."""
        k = max(range(len(self.arms)), key=lambda i: self.arms[i].value)
        best = self.arms[k]
        if not best.done(self.goal):
            below = self.arms[k - 1] if k else best
            if below.done(self.goal) and best.share - below.share > NEAR:
                return 0.5 * (below.share + best.share)
            return best.share
        if k + 1 == len(self.arms):
            return None
        neighbour = self.arms[k + 1]
        still = [arm for arm in self.arms[k + 1 :] if not arm.search.exhausted and arm.limit > best.value]
        if neighbour in still and neighbour.share < 1.0 and neighbour.slices < PATIENCE:
            return neighbour.share
        if neighbour.share - best.share > NEAR:
            return 0.5 * (best.share + neighbour.share)
        return still[0].share if still else None
