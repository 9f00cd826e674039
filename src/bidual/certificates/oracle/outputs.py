r"""Several outputs: the sphere of output directions, covered by cones.

:math:`\|H\| = \max_{\|a\| = 1} a^T H`, and for each direction a the function :math:`a^T G^T (Xu)_+` has one output. Its
maximum :math:`g(a)` over u is convex and positively homogeneous, so that bounds at the generators :math:`a_j` of a cone
bound it on the cone: :math:`g(\sum_j c_j a_j) \le \sum_j c_j g(a_j)`. With one output the cones are the two signs.
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from bidual._typing import Array, FloatArray, IntArray
from bidual.certificates.oracle.base import DualConstraint, Proof
from bidual.certificates.oracle.compact import Side
from bidual.certificates.oracle.signs import SignTree, tree_bound

#: Up to so many outputs the cones are refined; beyond, the axes bound the norm.
_REFINED = 5
#: Directions with less than this share of the best value are not improved.
_HOPE = 0.8
#: Cones of outputs are halved as long as the cosine of their longest edge is smaller.
_NARROW = 0.93


@dataclass
class Cover:
    """Simplicial cones over the sphere of output directions, all made from the orthants by halving edges.

    Attributes
    ----------
    axes : ndarray, shape (C, C)
        Orthonormal rows; the first directions are these and their opposites.
    edges : list of pairs
        The edges halved, in order, by the numbers of the directions at their ends.
    """

    axes: FloatArray
    edges: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        C = len(self.axes)
        if not np.allclose(self.axes @ self.axes.T, np.eye(C), atol=1e-10, rtol=0.0):
            raise ValueError("the axes of the outputs are not orthonormal")
        self.directions: FloatArray = np.vstack([self.axes, -self.axes])
        self.cones: IntArray = np.zeros((0, C), dtype=np.int64)
        if C <= _REFINED:
            self.cones = np.arange(C) + C * np.array(list(product([0, 1], repeat=C)))
        edges, self.edges = self.edges, []
        for i, j in edges:
            self.halve(i, j)

    def halve(self, i: int, j: int) -> None:
        """Halve the edge between directions i and j in all cones that have it."""
        middle = self.directions[i] + self.directions[j]
        size = float(np.linalg.norm(middle))
        has = (self.cones == i).any(axis=1) & (self.cones == j).any(axis=1)
        if not has.any():
            raise ValueError(f"there is no edge between the directions {i} and {j}")
        cut, new = self.cones[has], len(self.directions)
        self.directions = np.vstack([self.directions, middle / size])
        self.cones = np.vstack([self.cones[~has], np.where(cut == i, new, cut), np.where(cut == j, new, cut)])
        self.edges.append((i, j))

    def bounds(self, g: FloatArray) -> FloatArray:
        """Bounds on every cone from those at the directions; a single one if there are too many outputs."""
        from bidual.certificates.oracle._conic_kernels import conic_bounds

        g = np.maximum(g, 0.0)
        if not len(self.cones):
            return np.array([float(np.linalg.norm(g.reshape(2, -1).max(axis=0)))])
        return np.asarray(conic_bounds(self.directions[self.cones], g[self.cones]))


@dataclass(frozen=True)
class RelaxationProof(Proof):
    """Output directions, for each of them a tree of signs, and multipliers for all leaves."""

    scale: float
    axes: FloatArray
    edges: list[tuple[int, int]]
    rows: list[list[int]]
    multipliers: list[list[Array]]
    kind = "relaxation"

    def evaluate(self, constraint: DualConstraint) -> float:
        """The bound from the multipliers of all leaves."""
        cover = Cover(self.axes, self.edges)
        if len(self.rows) != len(cover.directions):
            raise ValueError(f"the proof has {len(self.rows)} trees for {len(cover.directions)} output directions")
        g = [
            tree_bound(Side.of(constraint.X, constraint.G @ a, self.scale), rows, multipliers)
            for a, rows, multipliers in zip(cover.directions, self.rows, self.multipliers, strict=True)
        ]
        return constraint.safe(float(cover.bounds(np.array(g)).max()))

    def to_dict(self) -> dict[str, Any]:
        """Multipliers in single precision, as text: what was proven, was proven with these digits."""

        def text(leaves: list[Array]) -> str:
            return base64.b64encode(np.concatenate(leaves).astype("<f4").tobytes()).decode()

        return {
            "scale": self.scale,
            "axes": self.axes.tolist(),
            "edges": [list(edge) for edge in self.edges],
            "rows": self.rows,
            "sizes": [[len(x) for x in leaves] for leaves in self.multipliers],
            "multipliers": [text(leaves) for leaves in self.multipliers],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RelaxationProof:
        """Inverse of :meth:`to_dict`."""

        def leaves(text: str, sizes: list[int]) -> list[Array]:
            return np.split(np.frombuffer(base64.b64decode(text), "<f4"), np.cumsum(sizes)[:-1])

        return cls(
            float(data["scale"]),
            np.array(data["axes"], dtype=np.float64),
            [(int(i), int(j)) for i, j in data["edges"]],
            data["rows"],
            [leaves(text, sizes) for text, sizes in zip(data["multipliers"], data["sizes"], strict=True)],
        )


class RelaxationSearch:
    """The compact bound for enough output directions, with as much branching as time allows.

    Parameters
    ----------
    constraint : DualConstraint
    u : ndarray, shape (r,)
        The best direction known.
    target, rtol : float
        Stop when the bound is below the target, or that close to the best value found.
    """

    def __init__(self, constraint: DualConstraint, u: FloatArray, target: float, rtol: float) -> None:
        self.constraint, self.target, self.rtol = constraint, target, rtol
        self.u, self.value = u, constraint.value(u)
        self.scale = self.value or float(np.linalg.norm(constraint.G, axis=1) @ constraint.row_norms) or 1.0
        weighted = constraint.G * constraint.row_norms[:, None]
        self.cover = Cover(np.linalg.svd(weighted, full_matrices=False)[2] if constraint.n_outputs > 1 else np.eye(1))
        self.trees: list[SignTree] = []
        self._plant()

    @property
    def goal(self) -> float:
        """Bounds below this are good enough."""
        return max(self.target, (1.0 + self.rtol) * self.value)

    @property
    def bound(self) -> float:
        """What is proven so far."""
        return float(self._bounds().max())

    def proof(self) -> RelaxationProof:
        """What proves it."""
        return RelaxationProof(
            self.scale,
            self.cover.axes,
            list(self.cover.edges),
            [tree.rows() for tree in self.trees],
            [tree.multipliers() for tree in self.trees],
        )

    def run(self, deadline: float, branch: bool = True) -> None:
        """Refine until the goal or the deadline is reached or nothing is left to refine."""
        while self.bound > self.goal and time.perf_counter() < deadline:
            if not (self._halve_outputs() or (branch and self._halve_inputs())):
                break

    def _bounds(self) -> FloatArray:
        return self.cover.bounds(np.array([tree.bound for tree in self.trees]))

    def _plant(self) -> None:
        """A tree for each direction that has none."""
        X, G = self.constraint.X, self.constraint.G
        enough = self.goal if self.constraint.n_outputs == 1 else 0.0
        for a in self.cover.directions[len(self.trees) :]:
            self.trees.append(SignTree(Side.of(X, G @ a, self.scale), enough))
            self._look(self.trees[-1].root.relaxed.u)

    def _look(self, u: FloatArray) -> None:
        """Try to improve on the best direction from ``u``, if it is worth a try."""
        if self.constraint.value(u) < _HOPE * self.value:
            return
        u = self.constraint.ascend(u, 15)
        value = self.constraint.value(u)
        if value > self.value:
            self.u, self.value = u, value

    def _halve_outputs(self) -> bool:
        """Halve the longest edge of the worst cone of outputs, unless it is short."""
        if not len(self.cover.cones) or self.constraint.n_outputs == 1:
            return False
        cone = self.cover.cones[int(np.argmax(self._bounds()))]
        cosines = self.cover.directions[cone] @ self.cover.directions[cone].T
        i, j = np.unravel_index(int(np.argmin(cosines)), cosines.shape)
        if cosines[i, j] > _NARROW:
            return False
        self.cover.halve(int(cone[i]), int(cone[j]))
        self._plant()
        return True

    def _halve_inputs(self) -> bool:
        """Branch in the tree of the worst direction of the worst cone of outputs."""
        if not len(self.cover.cones):
            return False
        cone = self.cover.cones[int(np.argmax(self._bounds()))]
        tree = max((self.trees[k] for k in cone), key=lambda tree: tree.bound)
        u = tree.branch(self.goal if self.constraint.n_outputs == 1 else 0.0)
        if u is None:
            return False
        self._look(u)
        return True
