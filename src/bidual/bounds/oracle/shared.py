r"""Several outputs on given activation patterns, by neurons that feed all of them.

For neurons normalised after the ReLU read :math:`k [B_i, 1]` for :math:`A D_i M` (:mod:`bidual.bounds.normalised`).

On the cone :math:`K_i` of pattern i the constraint is :math:`\max \|V^T A D_i M u\|` over unit vectors, the largest
value of a convex function: not a program. For one direction a of the outputs it is, and its value
:math:`g(a) = \max_i \max_{u \in K_i} a^T V^T A D_i M u` (:mod:`bidual.bounds.patterns`) is convex and positively
homogeneous in a. So values at the generators of cones that cover the sphere of output directions
(:class:`~bidual.bounds.oracle.outputs.Cover`) bound all of them, better and better as the cones are halved; spectral
norms, which ignore the cones of the patterns, are a bound as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidual._util.clock import clock
from bidual._util.rounding import gamma
from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped
from bidual.arrangements import Patterns, enumerate_patterns
from bidual.arrangements.cones import nearest_rowwise
from bidual.atoms import Directional
from bidual.bounds import parsing
from bidual.bounds.oracle.outputs import Cover
from bidual.bounds.proof import Proof
from bidual.bounds.rowwise import RowwiseBounds, cone_bounds
from bidual.problem import Problem

#: Cones of outputs are halved as long as the cosine of their longest edge is smaller: beyond, rounding is what is left.
_NARROW = 1.0 - 1e-9
#: From so many patterns on most are ruled out by a compiled loop, once the value of the first few is known.
_COMPILED, _FIRST = 30, 5
#: Share of the largest value known from which on it is worth a look where a value is attained.
_HOPE = 0.8


class OutputBounds:
    """Bounds g(a) on the constraint at ``V`` for single directions of the outputs, over the cones of ``patterns``."""

    def __init__(self, problem: Problem[Directional], patterns: Patterns, V: FloatArray) -> None:
        self._bounds, self._patterns, self._V = cone_bounds(problem, patterns), patterns, V
        self._atoms = problem.atoms
        self._rounding = gamma(V.shape[1] + 8) * problem.atoms.mass(V)  # the weights V a are rounded
        # at least that of V a, for unit vectors
        self._hidden = self._bounds.hidden(V) * (1.0 + gamma(8 + V.shape[1]))
        self.spectral = self._bounds.joint(V)[1]

    def __call__(self, a: FloatArray) -> float:
        r""":math:`\max_i \max_{u \in K_i} a^T V^T A D_i M u` over the unit ball, with rounding."""
        bounds, largest = self._bounds, 0.0
        bounds.start((self._V @ a)[:, None])
        bounds.leave_out(1)
        if len(self._patterns) > _COMPILED and not isinstance(bounds, RowwiseBounds):
            # what a few attain lets a compiled loop rule out most others
            largest = bounds.attained_by(np.argsort(-bounds.values[0, 0], kind="stable")[:_FIRST])
            bounds.tighten(largest)
        return bounds.certain(max(largest, bounds.maximum()), self._hidden) + self._rounding

    def value(self, u: FloatArray) -> float:
        """The constraint at a unit vector, for all outputs."""
        return float(self._atoms.constraint(self._V, u[None])[0])

    def maximiser(self) -> FloatArray:
        """The unit vector (reduced coordinates) at which the value last asked for is attained."""
        bounds = self._bounds
        pattern = int(np.argmax(bounds.values[0, 0]))
        c = bounds.gradients[pattern]
        u = bounds.direction(pattern, nearest_rowwise(c / max(float(np.linalg.norm(c)), 1e-300), bounds.cone(pattern)))
        return np.asarray(u / max(float(np.linalg.norm(u)), 1e-300))


@dataclass(frozen=True)
class SharedProof(Proof):
    """A cover of the output directions; the values at its generators are found again.

    Attributes
    ----------
    axes : ndarray, shape (C, C)
    edges : list of pairs
        See :class:`~bidual.bounds.oracle.outputs.Cover`.
    patterns : Patterns or None
        Those in use; None: all there are.
    every : Patterns or None
        All of them, if they are at hand.
    """

    axes: FloatArray
    edges: list[tuple[int, int]]
    patterns: Patterns | None
    every: Patterns | None = field(default=None, compare=False, repr=False)
    kind = "shared"
    settled = True

    @classmethod
    def of(cls, cover: Cover, patterns: Patterns) -> SharedProof:
        """On these patterns."""
        some, every = (None, patterns) if patterns.complete else (patterns, None)
        return cls(cover.axes, list(cover.edges), some, every)

    def scope(self, problem: Problem) -> str:
        """Networks on these patterns, or all."""
        return "" if self.patterns is None else "patterns"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """From the values at all generators, or from spectral norms."""
        shared = problem.of(Directional)  # type: ignore[type-abstract]
        if shared is None or problem.n_coefficients != problem.n_outputs:
            raise ValueError("a proof of the kind 'shared' is about neurons of one direction that feed all outputs")
        if len(self.axes) != problem.n_outputs:
            raise ValueError(f"the proof is about {len(self.axes)} outputs, there are {problem.n_outputs}")
        patterns = self.patterns or self.every or enumerate_patterns(problem.atoms.relu_inputs)
        if patterns.active.shape[1] != len(problem.atoms.M):
            raise ValueError(
                f"the patterns of the certificate have {patterns.active.shape[1]} rows, these data "
                f"{len(problem.atoms.M)}: give the data it was made for"
            )
        return SharedSearch(shared, patterns, V, Cover(self.axes, self.edges)).bound

    def to_dict(self) -> dict[str, Any]:
        """The cover, and the bits."""
        active = None if self.patterns is None else parsing.pack_bits(self.patterns.active)
        return {"axes": self.axes.tolist(), "edges": [list(edge) for edge in self.edges], "active": active}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SharedProof:
        """Inverse of :meth:`to_dict`."""
        edges = [parsing.integers(edge, "edges") for edge in parsing.entries(data, "edges")]
        if any(len(edge) != 2 or min(edge) < 0 for edge in edges):
            raise ValueError("the certificate is damaged: an edge joins two directions")
        patterns = None
        if parsing.field(data, "active") is not None:
            active = parsing.unpack_bits(data, "active")
            patterns = Patterns(active, np.zeros((len(active), 0)))
        return cls(parsing.array(data, "axes", 2), [(i, j) for i, j in edges], patterns)


class SharedSearch:
    """Output directions are halved where the bound is largest.

    Parameters
    ----------
    problem : Problem
    patterns : Patterns
    V : ndarray, shape (n, C)
        The dual point.
    cover : Cover or None
        To begin with; None: orthants along the principal axes of the weights.

    Attributes
    ----------
    value, u : float, ndarray
        The largest value of the constraint that was found, and where it is attained.
    """

    def __init__(
        self, problem: Problem[Directional], patterns: Patterns, V: FloatArray, cover: Cover | None = None
    ) -> None:
        if cover is None:
            weighted = problem.atoms.spread(V) * problem.atoms.row_norms[:, None]
            cover = Cover(np.linalg.svd(weighted, full_matrices=len(weighted) < V.shape[1])[2])
        self.patterns, self.cover = patterns, cover
        self._at = OutputBounds(problem, patterns, V)
        self._spectral = self._at.spectral
        self._g: list[float] = []
        self.value, self.u = 0.0, np.zeros(problem.atoms.reduced.shape[1])
        for a in cover.directions:
            self._look(a)

    @property
    def _bounds(self) -> FloatArray:
        return self.cover.bounds(np.array(self._g))

    @property
    def bound(self) -> float:
        """What is proven so far."""
        return min(self._spectral, float(self._bounds.max()))

    def run(self, goal: float, deadline: float) -> None:
        """Halve cones until the bound is at most ``goal``, time is up, or there is no hope."""
        while clock() < deadline and len(self.cover.cones):
            bounds = self._bounds
            if min(self._spectral, float(bounds.max())) <= goal or self.value > goal or not np.isfinite(bounds).all():
                return
            cone = self.cover.cones[int(np.argmax(bounds))]
            cosines = self.cover.directions[cone] @ self.cover.directions[cone].T
            i, j = np.unravel_index(int(np.argmin(cosines)), cosines.shape)
            if cosines[i, j] > _NARROW:
                return
            edges = list(self.cover.edges)
            self.cover.halve(int(cone[i]), int(cone[j]))
            try:
                self._look(self.cover.directions[-1])
            except Stopped:  # without what was begun, the rest stands
                self.cover = Cover(self.cover.axes, edges)
                return

    def _look(self, a: FloatArray) -> None:
        """At one more direction of the outputs; where its value is attained, that of all outputs is larger."""
        self._g.append(self._at(a))
        if self._g[-1] > _HOPE * self.value:
            u = self._at.maximiser()
            value = self._at.value(u)
            if value > self.value:
                self.value, self.u = value, u

    def proof(self) -> SharedProof:
        """What proves it."""
        return SharedProof.of(self.cover, self.patterns)
