r"""Several outputs on given activation patterns: neurons of these patterns that feed all outputs.

The program over atoms :math:`A D_i M u \alpha^T`, u in the cone of pattern i, is solved by column generation over the
directions u (:mod:`bidual.solvers.shared`), from those of the program in which every neuron feeds one output. Prices
are maxima of :math:`\|V^T A D_i M u\|` over the cones: over all their faces where these are few, else by alternating
ascents: the best u for an output direction a is a projection onto the cone, the best a for u is
:math:`V^T A D_i M u`. What is proven is a bound for networks on these patterns
(:class:`bidual.bounds.oracle.SharedProof`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint, watching
from bidual.arrangements import Patterns
from bidual.arrangements.cones import TOL, nearest_rowwise
from bidual.arrangements.faces import few_faces
from bidual.arrangements.patterns import Cells
from bidual.atoms import Directional, Neurons, Relu
from bidual.bounds import cone_bounds
from bidual.problem import Problem
from bidual.solvers.base import Options, Solution
from bidual.solvers.finite import repair, solve_finite, some_cells
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.run import Status
from bidual.solvers.shared import FACES, SIZE, SharedRun, every_face, finished

#: Output directions from which an ascent in a cone starts: this many singular vectors, both ways (with two of eight, an
#: optimum 2e-4 lower was missed), and random ones.
_VECTORS, _RANDOM = 8, 4
#: Directions at hand in a cone from which one starts: the best ones.
_KNOWN = 16
#: Steps of an ascent, and the relative gain at which it ends.
_STEPS, _GAIN = 30, 1e-9
#: Share of the limit that a spectral norm has at least for a cone to be looked into.
_ROUNDING = 1e-9


class PatternRun(SharedRun):
    """Rounds on given patterns."""

    patterns: Patterns

    def __init__(self, problem: Problem[Directional], options: Options, patterns: Patterns, began: float) -> None:
        super().__init__(problem, options, self.look, began)
        self.patterns, self.scope = patterns, "global" if patterns.complete else "patterns"
        self.cones = cone_bounds(problem, patterns)
        inputs = problem.atoms.relu_inputs
        self._sizes = np.linalg.norm(inputs, axis=1)[:, None]
        relu = problem.of(Relu)
        faces = None if relu is None else few_faces(problem.atoms.reduced, FACES)
        self._every = None if relu is None or faces is None else every_face(relu, faces)

    def look(self, V: FloatArray) -> FloatArray:
        """Directions in the cones where the constraint is large: the maximisers on all faces, or ends of ascents."""
        if self._every is not None:
            found = self._every(V)
            return found[self.inside(found).any(axis=1)]
        return np.concatenate([self.directions, *self.ascents(V)])

    def inside(self, U: FloatArray) -> FloatArray:
        """Which of the directions are in which closed cones, ``(k, P)``."""
        heights = (self.problem.atoms.preactivations(U) / np.where(self._sizes > 0, self._sizes, 1.0)).T
        active = self.patterns.active
        conflicts = (heights > TOL).astype(float) @ ~active.T + (heights < -TOL).astype(float) @ active.T
        return np.asarray(conflicts == 0)

    def ascents(self, V: FloatArray) -> list[FloatArray]:
        """The ends of ascents in all cones in which a violation is possible."""
        B = self.cones.pieces(V)  # (P, C, r)
        left, sizes, _ = np.linalg.svd(B, full_matrices=False)
        held, heads = self.inside(self.directions), self.problem.atoms.activations(self.directions).T
        heads, ends = heads @ self.problem.atoms.spread(V), []
        for i in np.flatnonzero(sizes[:, :1].max(axis=1, initial=0.0) > self.problem.beta * (1.0 + _ROUNDING)):
            checkpoint()
            vectors = left[i, :, :_VECTORS].T
            known = heads[held[:, i]]
            known = known[np.argsort(-np.linalg.norm(known, axis=1), kind="stable")[:_KNOWN]]
            random = self.rng.standard_normal((_RANDOM, B.shape[1]))
            starts, normals = np.concatenate([vectors, -vectors, known, random]), self.cones.cone(int(i))
            found = (self._ascend(B[i], normals, a) for a in starts)
            ends.append(np.array([self.cones.direction(int(i), z) for z in found]))
        return ends

    @staticmethod
    def _ascend(B: FloatArray, normals: FloatArray, a: FloatArray) -> FloatArray:
        r"""A maximiser of :math:`\|B u\|` over unit vectors in a cone, by turns with the output direction a."""
        u, before = np.zeros(B.shape[1]), 0.0
        for _ in range(_STEPS):
            c = a @ B
            size = float(np.linalg.norm(c))
            nearest = nearest_rowwise(c / size, normals) if size > 0 else c
            length = float(np.linalg.norm(nearest))
            if length <= TOL:  # nothing in the cone points that way
                break
            u = nearest / length
            a = B @ u
            value = float(np.linalg.norm(a))
            if value <= before * (1.0 + _GAIN):
                break
            before = value
        return u

    def prove(self) -> bool:
        """As of all networks, if a proof is wanted at all."""
        if self.options.prove is not False:
            return super().prove()
        if self.gap <= self.options.tol:
            self.status = Status.CONVERGED
        return True

    def slimmed(self) -> Neurons:
        """The best network with fewer neurons, none of which leaves its cone."""
        return repair(self.problem, reduce_neurons(self.problem, self.neurons, merging=False))


def solve_sampled_several(problem: Problem[Directional], options: Options) -> Solution:
    """Train neurons of given or random patterns that feed all outputs."""
    return _solve_several(problem, options, lambda: some_cells(problem, options))


def solve_all_patterns(
    problem: Problem[Directional], options: Options, train: Callable[[Options], Solution]
) -> Solution:
    """Train on all activation patterns, to a proven gap, from what ``train`` finds; an exact fit from one output each.

    Several outputs share their neurons.
    """
    return _solve_several(problem, options, problem.atoms.cells, train if problem.loss.finite else None)


def _solve_several(
    problem: Problem[Directional],
    options: Options,
    cells: Callable[[], Cells],
    train: Callable[[Options], Solution] | None = None,
) -> Solution:
    began, limit = clock(), options.time_limit
    with watching(limit), threadpool_limits(1, user_api="blas"):
        patterns = cells()
        assert isinstance(patterns, Patterns)
        half = replace(options, time_limit=None if limit is None else 0.5 * limit)
        first = solve_finite(problem, patterns, half, began) if train is None else train(half)
        assert isinstance(first.neurons, Neurons)
        run = PatternRun(problem, options, patterns, began)
        run.history, run.status, run.n_iter = list(first.history), first.status, first.n_iter
        run.offer(first.neurons)
        run.take(first.neurons.U @ problem.atoms.basis)
        if first.directions is not None:
            run.take(first.directions @ problem.atoms.basis)
        with run.going():
            run.take(run.price(first.bound.V))
            run.generate(SIZE // max(problem.Y.size * problem.n_coefficients, 1))
        if run.status not in (Status.CONVERGED, Status.UNPROVEN):
            status = run.status
            with run.going():
                run.prove()
            run.status = status if run.status != Status.CONVERGED else run.status
        return finished(run)
