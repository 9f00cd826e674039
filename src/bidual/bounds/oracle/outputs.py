r"""Several outputs: the sphere of output directions, covered by cones.

:math:`\|H\| = \max_{\|a\| = 1} a^T H`, and for each direction a the function :math:`a^T G^T (Xu)_+` has one output. Its
maximum :math:`g(a)` over u is convex and positively homogeneous, so that bounds at the generators :math:`a_j` of a cone
bound it on the cone: :math:`g(\sum_j c_j a_j) \le \sum_j c_j g(a_j)`. With one output the cones are the two signs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from bidual._util.clock import clock
from bidual._util.rounding import UNIT, gamma, stretch
from bidual._util.typing import Array, FloatArray, IntArray
from bidual._util.watch import Stopped
from bidual.bounds import parsing
from bidual.bounds.oracle.base import ConstraintProof, DualConstraint
from bidual.bounds.oracle.compact import Side
from bidual.bounds.oracle.signs import SignTree, tree_bound
from bidual.problem import Problem

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
        if self.axes.shape != (C, C) or not np.allclose(self.axes @ self.axes.T, np.eye(C), atol=1e-10, rtol=0.0):
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
        has = (self.cones == i).any(axis=1) & (self.cones == j).any(axis=1)
        if i == j or not has.any():
            raise ValueError(f"there is no edge between the directions {i} and {j}")
        middle = self.directions[i] + self.directions[j]
        size = float(np.linalg.norm(middle))
        cut, new = self.cones[has], len(self.directions)
        self.directions = np.vstack([self.directions, middle / size])
        self.cones = np.vstack([self.cones[~has], np.where(cut == i, new, cut), np.where(cut == j, new, cut)])
        self.edges.append((i, j))

    def bounds(self, g: FloatArray) -> FloatArray:
        r"""Bounds on every cone from those at the directions; a single one if there are too many outputs.

        The cones over the directions as they are in memory cover all there are: halving an edge leaves a complete fan,
        and rounding the new direction moves it by less than the cones' distance from the origin, so that the map
        from the old fan to the new one is of degree one. For :math:`a = \sum_j c_j a_j` in a cone, of norm one, and any
        vector q

        .. math:: \sum_j c_j g_j \le \|q\| + \sum_j c_j \, (g_j - a_j^T q)_+, \qquad
                  \sum_j c_j \le \big( C / (\min_j a_j^T a_j - C \eta) \big)^{1/2},

        no two directions of a cone having a product below :math:`-\eta`. Beyond so many outputs that cones are
        refined, :math:`\|H\| \le \|B H\| (1 - \|B^T B - I\|)^{-1/2}` for the axes B.
        """
        if not np.isfinite(g).all():  # multipliers that are no numbers bound nothing
            return np.full(max(1, len(self.cones)), np.inf)
        C = len(self.axes)
        g, few = np.maximum(g, 0.0), gamma(2 * C + 8)
        if not len(self.cones):
            defect = stretch(self.axes) - 1.0
            length = float(np.linalg.norm(g.reshape(2, -1).max(axis=0))) * (1.0 + few)
            return np.array([length * (1.0 + defect)])  # a defect of 1e-9 at most: twice what the root needs
        corners, heights = self.directions[self.cones], g[self.cones]
        products = np.einsum("kic,kjc->kij", corners, corners)
        a = _multipliers(products, heights)
        a = a + np.maximum(heights - np.einsum("kij,kj->ki", products, a), 0.0)
        q = np.einsum("kj,kjc->kc", a, corners)
        length = np.linalg.norm(q, axis=1)
        short = np.maximum(heights - np.einsum("kic,kc->ki", corners, q), 0.0).max(axis=1)
        sizes = np.einsum("kii->ki", products).min(axis=1) - C * (few - np.minimum(products.min(axis=(1, 2)), 0.0))
        sums = np.sqrt(C / np.maximum(sizes, UNIT))
        return np.asarray((length + sums * (short + 2 * few * (length + heights.max(axis=1)))) * (1.0 + few))


def _multipliers(products: FloatArray, heights: FloatArray) -> FloatArray:
    r"""Of every cone the minimiser of :math:`\tfrac12 a^T K a - h^T a` over :math:`a \ge 0`, K being ``products``.

    Murty's rule (the first entry that is wrong changes sides) ends for positive definite K, after :math:`2^C` steps
    at most, whatever the start. Nothing is proven by it.
    """
    C = heights.shape[1]
    free, eye = heights > 0.0, np.eye(C)
    K, a = products + UNIT * C * eye, np.zeros_like(heights)  # not singular, however narrow the cone
    for _ in range(2**C):
        both = free[:, :, None] & free[:, None, :]
        a = np.linalg.solve(np.where(both, K, eye), np.where(free, heights, 0.0)[:, :, None])[:, :, 0]
        lacking = heights - np.einsum("kij,kj->ki", K, a)
        wrong = np.where(free, a < 0.0, lacking > 2 * C * UNIT * heights.max(axis=1, keepdims=True))
        if not wrong.any():
            break
        free ^= wrong & (np.cumsum(wrong, axis=1) == 1)
    return np.asarray(np.maximum(a, 0.0))


@dataclass(frozen=True)
class RelaxationProof(ConstraintProof):
    """Output directions, for each of them a tree of signs, and multipliers for all leaves."""

    scale: float
    axes: FloatArray
    edges: list[tuple[int, int]]
    rows: list[list[int]]
    multipliers: list[list[Array]]
    group: IntArray
    kind = "relaxation"

    def constraint(self, problem: Problem, V: FloatArray) -> DualConstraint:
        """With the rows taken together as they were."""
        return DualConstraint.at(problem, V, self.group)

    def evaluate(self, constraint: DualConstraint) -> float:
        """The bound from the multipliers of all leaves."""
        if self.axes.shape != (constraint.n_outputs, constraint.n_outputs):
            raise ValueError(f"the proof is about {len(self.axes)} outputs, there are {constraint.n_outputs}")
        cover = Cover(self.axes, self.edges)
        if len(self.rows) != len(cover.directions):
            raise ValueError(f"the proof has {len(self.rows)} trees for {len(cover.directions)} output directions")
        # the weights G a of the rows and their relaxation (Side.of) are rounded
        rounding = gamma(len(self.axes) + 8) * constraint.mass
        g = [
            tree_bound(Side.of(constraint.X, constraint.G @ a, self.scale), rows, multipliers, constraint.basis)
            + rounding
            for a, rows, multipliers in zip(cover.directions, self.rows, self.multipliers, strict=True)
        ]
        return constraint.safe(float(cover.bounds(np.array(g)).max()))

    def to_dict(self) -> dict[str, Any]:
        """Multipliers in single precision, as text: what was proven, was proven with these digits."""
        return {
            "group": self.group.tolist(),
            "scale": self.scale,
            "axes": self.axes.tolist(),
            "edges": [list(edge) for edge in self.edges],
            "rows": self.rows,
            "sizes": [[len(x) for x in leaves] for leaves in self.multipliers],
            "multipliers": [parsing.pack(np.concatenate(leaves)) for leaves in self.multipliers],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RelaxationProof:
        """Inverse of :meth:`to_dict`."""
        scale = parsing.number(data, "scale")
        if not scale > 0:
            raise ValueError(f"the certificate is damaged: the scale of its multipliers is {scale}, not positive")
        edges = [parsing.integers(edge, "edges") for edge in parsing.entries(data, "edges")]
        rows = [parsing.integers(tree, "rows") for tree in parsing.entries(data, "rows")]
        sizes = [parsing.integers(tree, "sizes") for tree in parsing.entries(data, "sizes")]
        packed = [parsing.unpack(tree, "multipliers") for tree in parsing.entries(data, "multipliers")]
        if any(len(edge) != 2 or min(edge) < 0 for edge in edges):
            raise ValueError("the certificate is damaged: an edge joins two directions")
        if not len(rows) == len(sizes) == len(packed) or any(
            min(size, default=-1) < 0 or sum(size) != len(x) for size, x in zip(sizes, packed, strict=False)
        ):
            raise ValueError("the certificate is damaged: multipliers and trees do not fit together")
        return cls(
            scale,
            parsing.array(data, "axes", 2),
            [(i, j) for i, j in edges],
            rows,
            [np.split(x, np.cumsum(size)[:-1]) for x, size in zip(packed, sizes, strict=True)],
            np.array(parsing.integers(parsing.field(data, "group"), "group"), dtype=np.int64),
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
        few = len(weighted) < constraint.n_outputs  # then the rows alone do not span the outputs
        self.cover = Cover(np.linalg.svd(weighted, full_matrices=few)[2] if constraint.n_outputs > 1 else np.eye(1))
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
            [tree.multipliers(self.constraint.basis) for tree in self.trees],
            self.constraint.group,
        )

    def run(self, deadline: float, branch: bool = True) -> None:
        """Refine until the goal or the deadline is reached or nothing is left to refine."""
        while self.bound > self.goal and clock() < deadline:
            edges, trees = list(self.cover.edges), len(self.trees)
            try:
                if not (self._halve_outputs() or (branch and self._halve_inputs())):
                    break
            except Stopped:  # without what was begun, the rest stands
                self.cover = Cover(self.cover.axes, edges)
                del self.trees[trees:]
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
