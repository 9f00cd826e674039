r"""Several outputs on given activation patterns: neurons of these patterns that feed all outputs.

The program over atoms :math:`A D_i M u \alpha^T`, u in the cone of pattern i, is solved by column generation over the
directions u (:mod:`bidual.solvers.shared`), from those of the program in which every neuron feeds one output. Prices
are maxima of :math:`\|V^T A D_i M u\|` over the cones: over all their faces where these are few, else by alternating
ascents: the best u for an output direction a is a projection onto the cone, the best a for u is
:math:`V^T A D_i M u`. What is proven is a bound for networks on these patterns
(:class:`bidual.bounds.oracle.SharedProof`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint, watching
from bidual.arrangements import Patterns
from bidual.arrangements.cones import TOL, nearest_rowwise
from bidual.arrangements.faces import few_faces
from bidual.atoms import Neurons, Relu
from bidual.bounds.patterns import pattern_gradients
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
    scope = "patterns"

    def __init__(self, problem: Problem[Relu], options: Options, patterns: Patterns, began: float) -> None:
        super().__init__(problem, options, self.look, began)
        self.patterns = patterns
        rows, sizes = problem.atoms.reduced, problem.atoms.row_norms
        self._units = rows / np.where(sizes > 0, sizes, 1.0)[:, None]
        faces = few_faces(rows, FACES)
        self._every = None if faces is None else every_face(problem, faces)

    def look(self, V: FloatArray) -> FloatArray:
        """Directions in the cones where the constraint is large: the maximisers on all faces, or ends of ascents."""
        if self._every is not None:
            found = self._every(V)
            return found[self.inside(found).any(axis=1)]
        return np.concatenate([self.directions, *self.ascents(V)])

    def inside(self, U: FloatArray) -> FloatArray:
        """Which of the directions are in which closed cones, ``(k, P)``."""
        heights, active = U @ self._units.T, self.patterns.active
        conflicts = (heights > TOL).astype(float) @ ~active.T + (heights < -TOL).astype(float) @ active.T
        return np.asarray(conflicts == 0)

    def ascents(self, V: FloatArray) -> list[FloatArray]:
        """The ends of ascents in all cones in which a violation is possible."""
        B = pattern_gradients(self.problem, self.patterns, V).swapaxes(0, 1)  # (P, C, r)
        left, sizes, _ = np.linalg.svd(B, full_matrices=False)
        held = self.inside(self.directions)
        ends = []
        for i in np.flatnonzero(sizes[:, :1].max(axis=1, initial=0.0) > self.problem.beta * (1.0 + _ROUNDING)):
            checkpoint()
            vectors = left[i, :, :_VECTORS].T
            known = self.directions[held[:, i]] @ B[i].T
            known = known[np.argsort(-np.linalg.norm(known, axis=1), kind="stable")[:_KNOWN]]
            random = self.rng.standard_normal((_RANDOM, B.shape[1]))
            starts = np.concatenate([vectors, -vectors, known, random])
            normals = np.where(self.patterns.active[i], 1.0, -1.0)[:, None] * self._units
            ends.append(np.array([self._ascend(B[i], normals, a) for a in starts]))
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


def solve_sampled_several(problem: Problem[Relu], options: Options) -> Solution:
    """Train neurons of given or random patterns that feed all outputs."""
    began, limit = clock(), options.time_limit
    with watching(limit), threadpool_limits(1, user_api="blas"):
        patterns = some_cells(problem, options)
        assert isinstance(patterns, Patterns)
        half = replace(options, time_limit=None if limit is None else 0.5 * limit)
        separate = solve_finite(problem, patterns, half, began)
        assert isinstance(separate.neurons, Neurons)
        run = PatternRun(problem, options, patterns, began)
        run.history, run.status, run.n_iter = list(separate.history), separate.status, separate.n_iter
        run.offer(separate.neurons)
        run.take(separate.neurons.U @ problem.atoms.basis)
        with run.going():
            run.take(run.price(separate.bound.V))
            run.generate(SIZE // max(problem.Y.size * problem.n_coefficients, 1))
        if run.status not in (Status.CONVERGED, Status.UNPROVEN):
            status = run.status
            with run.going():
                run.prove()
            run.status = status if run.status != Status.CONVERGED else run.status
        return finished(run)
