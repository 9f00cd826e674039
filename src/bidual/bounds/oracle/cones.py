r"""Branch and bound over simplicial cones of directions, for small rank.

The directions are covered by the :math:`2^r` orthants of the principal axes of the data. On a cone most rows have one
sign and the function is linear in them; the others are bounded by chords (rows that raise the function) and by
tangents (rows that lower it), which leaves a linear function of the coordinates :math:`a \ge 0` of
:math:`u = \sum_k a_k w_k`, whose maximum over :math:`\|u\| \le 1` is :math:`\min \|q\|` over :math:`w_k^T q \ge h_k`:
every feasible q proves a bound. Cones whose bound is too large are halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bidual._util.clock import clock
from bidual._util.cores import threads
from bidual._util.rounding import gamma
from bidual._util.typing import FloatArray, IntArray
from bidual._util.watch import current
from bidual.bounds import parsing
from bidual.bounds.oracle.base import ConstraintProof, DualConstraint

#: Cones looked at by one call of the kernel, and calls of one round (which do not know of each other).
_BUDGET, _PIECES = 1000, 4
#: Cones kept open at most; beyond, each is followed to its end at once.
_OPEN = 200_000
#: A round halves the cones with a bound above this share of the largest, or half-way to the goal if that is nearer.
_PACE = 0.5
#: Rank up to which the orthants can be counted.
RANKS = 12
#: A search that confirms another one may look at so many times as many cones; and at this many at most, some minutes.
_PATIENCE, _MOST = 10, 100_000_000
#: Bounds that differ by less, relatively, differ by rounding.
_SAME = 1e-12


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
        from bidual.bounds.oracle import _cone_kernels

        G, r = self.constraint.G, self.constraint.rank
        self._weights = np.stack([G, -G]) if G.shape[1] == 1 else G[None]
        self._tol = _cone_kernels.AMBIGUOUS * self.constraint.row_norms
        orthants = np.array(list(product([1.0, -1.0], repeat=r)))[:, :, None] * np.eye(r)
        n_sides = len(self._weights)
        self.generators: FloatArray = np.tile(orthants, (n_sides, 1, 1))
        self.sides: IntArray = np.repeat(np.arange(n_sides), len(orthants))
        self.levels: IntArray = np.zeros(len(self.sides), dtype=np.int64)
        self.bounds: FloatArray = np.full(len(self.sides), np.inf)
        self.value = self.constraint.value(self.u)

    @property
    def bound(self) -> float:
        """The largest bound of all cones, as computed."""
        return max(self.floor, float(self.bounds.max(initial=0.0)))

    @property
    def goal(self) -> float:
        """Bounds below this are good enough."""
        return max(self.target, (1.0 + self.rtol) * self.value)

    def step(self) -> None:
        """Look into the cones with the largest bounds."""
        from bidual.bounds.oracle import _cone_kernels

        self.rounds += 1
        goal, bound = self.goal, self.bound
        # First the bounds of all orthants, then all that are above some share of the way to the goal.
        threshold = bound
        if np.isfinite(bound):
            threshold = goal if len(self.bounds) >= _OPEN else max(goal, bound * max(_PACE, (goal / bound) ** 0.5))
        order = np.argsort(-self.bounds, kind="stable")
        chosen = order[self.bounds[order] >= threshold][: _PIECES * _BUDGET // 2]
        pieces = [chosen[k::_PIECES] for k in range(_PIECES)]

        def search(piece: IntArray) -> tuple[FloatArray, IntArray, IntArray, FloatArray, float, int, float, FloatArray]:
            room, r = _BUDGET + 64 + len(piece), self.constraint.rank
            several = None if self.constraint.n_outputs == 1 else True
            cones, bounds, u = np.empty((room, r, r)), np.empty(room), np.zeros(r)
            sides, levels = np.empty((2, room), dtype=np.int64)
            n, floor, value, looked = _cone_kernels.search_cones(
                self.constraint.X, self._tol, self._weights, self.generators[piece], self.sides[piece],
                self.levels[piece], self.bounds[piece], threshold, goal, _BUDGET, several,
                cones, sides, levels, bounds, u,
            )  # fmt: skip
            return cones[:n], sides[:n], levels[:n], bounds[:n], floor, looked, value, u

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
        self.levels = np.concatenate([self.levels[rest], *(f[2] for f in found)])
        self.bounds = np.concatenate([self.bounds[rest], *(f[3] for f in found)])

    def _improve(self, u: FloatArray) -> None:
        u = self.constraint.ascend(u)
        value = self.constraint.value(u)
        if value > self.value:
            self.u, self.value = u, value

    def run(self, deadline: float = np.inf) -> None:
        """Take steps until the goal is reached, nothing is open or time is up."""
        watch = current()
        while len(self.bounds) and self.bound > self.goal:
            if self.rounds and (watch.late() or clock() >= deadline):
                break
            self.step()

    def proof(self) -> ConeProof:
        """That no cone has a larger value than the bound so far."""
        return ConeProof(self.bound, self.looked)


def safe_bound(constraint: DualConstraint, bound: float) -> float:
    r"""The bound on the constraint that follows from the largest computed one of all cones, rounding included.

    Let S be the constraint's mass, :math:`w_k` the generators of a cone as they are in memory.

    - The heights :math:`h_k` are sums of at most N + 3 d + C products, of T (d products each) and of sums over
      settled rows: off by :math:`\gamma_{4 (N + 3 d + C + 16)} S`, shares :math:`\theta` and three sweeps included.
    - With :math:`q = \sum_k r_k w_k`, the function is at most :math:`\|q\| + \sum_k c_k (h_k - w_k^T q)_+`. No
      product of generators is below :math:`-\eta = -2 \cdot` ``TILT``, so that :math:`\sum_k c_k \le 1.1 \sqrt d`
      and :math:`r_k \le 1.1 \|q\|`; what the shortfall loses, as computed, is at most
      :math:`(\gamma_{5d + 20} + \eta) d \, \|q\|` beyond the rounding of the heights.
    - Spectral norms are off by :math:`\gamma_{40 d (C + d + 8)}` of themselves.
    - A cone's halves cover it up to rounding of the new generator: a point :math:`\sum_k a_k w_k` of norm one is
      within :math:`5 u` of one in a half, and the function's slope is S: :math:`\gamma_{10 D} S` after D halvings.
    """
    from bidual.bounds.oracle._cone_kernels import DEEPEST, TILT

    (N, d), C = constraint.X.shape, constraint.n_outputs
    relative = 1.5 * d**1.5 * (gamma(5 * d + 20) + 2 * TILT) + gamma(40 * d * (C + d + 8))
    # heights appear once in the shortfall of every generator
    units = 1.5 * np.sqrt(d) * 4 * (N + 3 * d + C + 16) + 10 * DEEPEST
    return constraint.safe(bound * (1.0 + relative), units)


@dataclass(frozen=True)
class ConeProof(ConstraintProof):
    """A search over cones, to be made again: its leaves would fill more memory than the search takes time.

    Attributes
    ----------
    limit : float
        What no cone exceeds, before slack.
    cones : int
        How many cones were looked at.
    """

    limit: float
    cones: int
    kind = "cones"
    settled = True

    def evaluate(self, constraint: DualConstraint) -> float:
        """The limit with slack, if a search confirms it; infinity if it refutes it, or takes far longer than it did.

        The cones may be others than those of the first search, because the principal axes of the data are known up to
        their signs only (and up to rotations, where they are equally long).
        """
        if constraint.rank > RANKS or self.cones > _MOST:
            raise ValueError(
                f"refused: would take too long ({self.cones} cones in {constraint.rank} dimensions; up to {_MOST} in "
                f"{RANKS} are looked at again)"
            )
        search = ConeSearch(constraint, self.limit, 0.0, np.zeros(constraint.rank))
        enough = self.limit * (1.0 + _SAME)
        while len(search.bounds) and search.bound > enough:
            if search.value > enough or search.looked > _PATIENCE * self.cones + _PIECES * _BUDGET:
                return np.inf
            search.step()
        return safe_bound(constraint, max(self.limit, search.bound))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"limit": self.limit, "cones": self.cones}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ConeProof:
        """Inverse of :meth:`to_dict`."""
        limit = parsing.number(data, "limit")
        if limit < 0:
            raise ValueError(f"the certificate is damaged: no cone has a bound of {limit}")
        return cls(limit, parsing.integer(data, "cones"))
