r"""The compact bound with branching on the signs of rows.

The unit ball is halved by the hyperplane of a row whose :math:`|t_i|` the relaxation overestimates most; in each half
the row is linear and its known sign gives cuts. The leaves of the resulting tree, each with its multipliers, prove the
bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from bidual._util.cores import threads
from bidual._util.typing import Array, FloatArray
from bidual.bounds.oracle.compact import STAGES, Relaxed, Side, inherit, prove, relax

#: Steps of the minimisation in a half, which starts from the multipliers of the whole.
_STEPS = 30
#: Less smoothing than usual, where nothing else helps.
_FINE = ((1e-4, 3e-4), (1e-6, 3e-6))


@dataclass(eq=False)
class Node:
    """A part of the ball: a leaf with its multipliers, or two halves."""

    side: Side
    relaxed: Relaxed
    row: int = -1
    halves: tuple[Node, ...] = ()

    @property
    def leaves(self) -> Iterator[Node]:
        """The leaves below, from left to right."""
        if not self.halves:
            yield self
        for half in self.halves:
            yield from half.leaves


class SignTree:
    """A tree over the unit ball for one function.

    Parameters
    ----------
    side : Side
    enough : float
        A bound with which to be content.
    """

    def __init__(self, side: Side, enough: float) -> None:
        self.root = Node(side, relax(side, enough=enough))
        self._count = count()
        self._open: list[tuple[float, int, Node]] = []
        self._push(self.root)

    def _push(self, node: Node) -> None:
        heapq.heappush(self._open, (-node.relaxed.bound, next(self._count), node))

    @property
    def worst(self) -> Node:
        """The leaf with the largest bound."""
        return self._open[0][2]

    @property
    def bound(self) -> float:
        """What the leaves prove."""
        return max(self.worst.relaxed.bound, 0.0)

    def branch(self, enough: float) -> FloatArray | None:
        """Halve the worst leaf; the maximiser of the relaxation in the worse half.

        A leaf without a row to branch on is relaxed more carefully. None says that nothing helps any more.
        """
        node = self.worst
        x, doubt = node.relaxed.x.astype(np.float64), node.relaxed.doubt(node.side)
        row = int(np.argmax(doubt))
        if doubt[row] <= 0.0:
            again = relax(node.side, x, _FINE, enough, 300, 1e-8)
            if again.bound > node.relaxed.bound * (1.0 - 1e-6):
                return None
            heapq.heappop(self._open)
            node.relaxed = again
            self._push(node)
            return again.u
        x = inherit(node.side, x, row)

        def solve(sign: int) -> Node:
            side = node.side.where(row, sign)
            relaxed = relax(side, x, STAGES[-1:], enough, _STEPS)
            if relaxed.bound > node.relaxed.bound:  # a bad start, or the smoothing hides the difference
                relaxed = min(relaxed, relax(side, None, (*STAGES, *_FINE), enough), key=lambda r: r.bound)
            return Node(side, relaxed)

        halves = tuple(threads().map(solve, (1, -1)))
        worse = max(halves, key=lambda half: half.relaxed.bound).relaxed
        if worse.bound > node.relaxed.bound:  # a leaf must not be replaced by something worse
            return None
        node.row, node.halves = row, halves
        heapq.heappop(self._open)
        for half in halves:
            self._push(half)
        return worse.u

    def rows(self) -> list[int]:
        """The rows at which nodes are halved, from the root down and left to right; -1 for leaves."""

        def walk(node: Node) -> Iterator[int]:
            yield node.row
            for half in node.halves:
                yield from walk(half)

        return list(walk(self.root))

    def multipliers(self, basis: FloatArray) -> list[Array]:
        """Those of the leaves, in the order of :meth:`rows`, with vectors in the coordinates of ``basis.T``."""
        return [embed(leaf.relaxed.x, len(leaf.side.fixed), basis) for leaf in self.root.leaves]


def tree_bound(side: Side, rows: list[int], multipliers: list[Array], basis: FloatArray) -> float:
    """The bound that a tree proves, the largest of its leaves; the vectors y are in the coordinates of ``basis.T``."""
    waiting, worst, leaf = [side], 0.0, 0
    for row in rows:
        if not waiting:
            raise ValueError("the tree has more nodes than it needs")
        part = waiting.pop()
        if row >= 0:
            if row >= len(part.w) or part.signs[row]:
                raise ValueError(f"the tree does not belong to these data: it halves at row {row}")
            waiting += [part.where(row, -1), part.where(row, 1)]
            continue
        if leaf == len(multipliers):
            raise ValueError("the tree has more leaves than multipliers")
        worst = max(worst, prove(part, project(multipliers[leaf], len(part.fixed), basis)))
        leaf += 1
    if waiting or leaf < len(multipliers):
        raise ValueError("the tree is not complete")
    return worst


def project(x: Array, n_cuts: int, basis: FloatArray) -> Array:
    """Multipliers with the vectors y of the cuts in the columns of ``basis (p, r)``, from the coordinates in front."""
    p = len(basis)
    if len(x) < n_cuts * p:
        raise ValueError(f"{len(x)} multipliers do not belong to this problem, which has {n_cuts} cuts")
    at = len(x) - n_cuts * p
    y = x[at:].astype(np.float64).reshape(n_cuts, p) @ basis
    return np.concatenate([x[:at].astype(np.float64), y.ravel()])


def embed(x: Array, n_cuts: int, basis: FloatArray) -> Array:
    """Inverse of :func:`project`, in single precision."""
    at = len(x) - n_cuts * basis.shape[1]
    y = x[at:].astype(np.float64).reshape(n_cuts, basis.shape[1]) @ basis.T
    return np.concatenate([x[:at], y.ravel()]).astype(np.float32)
