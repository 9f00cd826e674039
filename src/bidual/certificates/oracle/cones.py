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
from bidual.certificates.oracle.base import DualConstraint, Proof, threads

#: Cones looked at by one call of the kernel, and calls of one round (which do not know of each other).
_BUDGET, _PIECES = 1000, 4
#: Cones kept open at most; beyond, each is followed to its end at once.
_OPEN = 200_000
#: A round halves the cones with a bound above this share of the largest, or half-way to the goal if that is nearer.
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
        self._first, self.value = self.u, self.constraint.value(self.u)

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
        chosen = order[self.bounds[order] >= threshold][: _PIECES * _BUDGET // 2]
        pieces = [chosen[k::_PIECES] for k in range(_PIECES)]

        def search(piece: IntArray) -> tuple[FloatArray, IntArray, FloatArray, float, int, float, FloatArray]:
            room, r = _BUDGET + 64 + len(piece), self.constraint.rank
            cones, sides, bounds, u = (
                np.empty((room, r, r)),
                np.empty(room, dtype=np.int64),
                np.empty(room),
                np.zeros(r),
            )
            n, floor, value, looked = _cone_kernels.search_cones(
                self.constraint.X, self._tol, self._weights, self.generators[piece], self.sides[piece],
                self.bounds[piece], threshold, goal, _BUDGET, cones, sides, bounds, u,
            )  # fmt: skip
            return cones[:n], sides[:n], bounds[:n], floor, looked, value, u

        found = list(threads().map(search, pieces))
        rest = np.ones(len(self.bounds), dtype=bool)
        rest[chosen] = False
        for *_, floor, looked, value, u in found:
            self.looked += looked
            self.floor = max(self.floor, floor)
            if value > self.value:
                self._improve(u)
        done = rest & (self.bounds <= goal)
        self.floor = max(self.floor, float(self.bounds[done].max(initial=0.0)))
        rest &= ~done
        self.generators = np.concatenate([self.generators[rest], *(f[0] for f in found)])
        self.sides = np.concatenate([self.sides[rest], *(f[1] for f in found)])
        self.bounds = np.concatenate([self.bounds[rest], *(f[2] for f in found)])

    def _improve(self, u: FloatArray) -> None:
        u = self.constraint.ascend(u)
        value = self.constraint.value(u)
        if value > self.value:
            self.u, self.value = u, value

    def run(self, deadline: float = np.inf, rounds: float = np.inf) -> None:
        """Take steps until the goal is reached, nothing is open, time is up or so many rounds are over."""
        while len(self.bounds) and self.bound > self.goal and self.rounds < rounds:
            if self.rounds and time.perf_counter() >= deadline:
                break
            self.step()

    def proof(self) -> ConeProof:
        """The rounds so far."""
        return ConeProof(self.rounds, self.target, self.rtol, self.constraint.basis @ self._first)


@dataclass(frozen=True)
class ConeProof(Proof):
    """A search over cones, to be run again: its leaves would fill more memory than the search takes time.

    Attributes
    ----------
    rounds : int
    target, rtol : float
    start : ndarray, shape (p,)
        The direction that the search started from, in the coordinates of M.
    """

    rounds: int
    target: float
    rtol: float
    start: FloatArray
    kind = "cones"

    def evaluate(self, constraint: DualConstraint) -> float:
        """The bound after as many rounds."""
        search = ConeSearch(constraint, self.target, self.rtol, constraint.basis.T @ self.start)
        search.run(rounds=self.rounds)
        return constraint.safe(search.bound)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        target = self.target if np.isfinite(self.target) else None
        return {"rounds": self.rounds, "target": target, "rtol": self.rtol, "start": self.start.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ConeProof:
        """Inverse of :meth:`to_dict`."""
        start = np.array(data["start"], dtype=np.float64)
        target = -np.inf if data["target"] is None else float(data["target"])
        return cls(int(data["rounds"]), target, float(data["rtol"]), start)
