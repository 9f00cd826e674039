r"""Branch and bound over simplicial cones of directions, for small rank.

The directions are covered by the :math:`2^r` orthants of the principal axes of the data. On a cone most rows have one
sign and the function is linear in them; the others are bounded by chords (rows that raise the function) and by
tangents (rows that lower it), which leaves a linear function of the coordinates :math:`a \ge 0` of
:math:`u = \sum_k a_k w_k`, whose maximum over :math:`\|u\| \le 1` is :math:`\min \|q\|` over :math:`w_k^T q \ge h_k`:
every feasible q proves a bound. Cones whose bound is too large are halved.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bidual._typing import FloatArray, IntArray
from bidual.certificates.oracle.base import DualConstraint, Proof

#: Cones looked at by one call of the kernel.
_BUDGET = 2000
#: Cones kept open at most; beyond, each is followed to its end at once.
_OPEN = 200_000
_PACE = 0.5


@dataclass
class ConeSearch:
    """The state of a search: open cones with their bounds, the best direction found.

    It proceeds in rounds that depend on nothing but the state, so that the same number of rounds leads to the same
    bound again.
    """

    constraint: DualConstraint
    target: float
    rtol: float
    u: FloatArray
    rounds: int = 0
    looked: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        from bidual.certificates.oracle import _cone_kernels

        G, r = self.constraint.G, self.constraint.rank
        self._weights = np.stack([G, -G]) if G.shape[1] == 1 else G[None]
        self._tol = _cone_kernels.AMBIGUOUS * self.constraint.row_norms
        orthants = np.array(list(product([1.0, -1.0], repeat=r)))[:, :, None] * np.eye(r)
        n_sides = len(self._weights)
        self.generators: FloatArray = np.tile(orthants, (n_sides, 1, 1))
        self.sides: IntArray = np.repeat(np.arange(n_sides), len(orthants))
        self.bounds: FloatArray = np.full(len(self.sides), np.inf)
        self.value = self.constraint.value(self.u)

    @property
    def bound(self) -> float:
        """The largest bound of all cones."""
        return max(self.floor, float(self.bounds.max(initial=0.0)))

    @property
    def goal(self) -> float:
        """Bounds below this are good enough."""
        return max(self.target, (1.0 + self.rtol) * self.value)

    def step(self) -> None:
        """Look into the cones with the largest bounds."""
        from bidual.certificates.oracle import _cone_kernels

        self.rounds += 1
        goal, bound = self.goal, self.bound
        # First the bounds of all orthants, then all that are above some share of the way to the goal.
        threshold = bound
        if np.isfinite(bound):
            threshold = goal if len(self.bounds) >= _OPEN else max(goal, bound * max(_PACE, (goal / bound) ** 0.5))
        order = np.argsort(-self.bounds, kind="stable")
        chosen = order[self.bounds[order] >= threshold][: _BUDGET // 2]
        room = _BUDGET + 64 + len(chosen)
        r = self.constraint.rank
        out = np.empty((room, r, r)), np.empty(room, dtype=np.int64), np.empty(room)
        u = np.zeros(r)
        n, floor, value, looked = _cone_kernels.search_cones(
            self.constraint.X, self._tol, self._weights, self.generators[chosen], self.sides[chosen],
            self.bounds[chosen], threshold, goal, _BUDGET, *out, u,
        )  # fmt: skip
        self.looked += looked
        self.floor = max(self.floor, floor)
        if value > self.value:
            value = self.constraint.value(u)
            if value > self.value:
                self.value, self.u = value, u / np.linalg.norm(u)
        rest = np.ones(len(self.bounds), dtype=bool)
        rest[chosen] = False
        done = rest & (self.bounds <= self.goal)
        self.floor = max(self.floor, float(self.bounds[done].max(initial=0.0)))
        rest &= ~done
        self.generators = np.concatenate([self.generators[rest], out[0][:n]])
        self.sides = np.concatenate([self.sides[rest], out[1][:n]])
        self.bounds = np.concatenate([self.bounds[rest], out[2][:n]])

    def run(self, deadline: float = np.inf, rounds: float = np.inf) -> None:
        """Take steps until the goal is reached, nothing is open, time is up or so many rounds are over."""
        while len(self.bounds) and self.bound > self.goal and self.rounds < rounds:
            if self.rounds and time.perf_counter() >= deadline:
                break
            self.step()
