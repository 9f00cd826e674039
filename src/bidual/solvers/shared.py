r"""Several outputs, to a proven gap: column generation over hidden directions that all outputs share.

Each round finds the best output weights of the directions at hand (:class:`bidual.programs.shared.SharedProgram`),
prices the dual point, and takes up *every* direction found at which :math:`\|V^T A (Mu)_+\| > \beta`. When the search
finds too little to keep the gap open, the constraint is bounded by branch and bound; what that finds enters as well,
until the gap is proven.

Of few rows of small rank the search is over all faces of all cells (:mod:`bidual.arrangements.faces`) and misses
nothing; of others it starts from what the engine has trained and goes on from many starts. An exact fit (beta = 0) is
the same program with an indicator for a loss: the rays of all cells fit whatever can be fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.typing import FloatArray, IntArray
from bidual._util.watch import Stopped, checkpoint, current, watching
from bidual.arrangements import Patterns
from bidual.arrangements.faces import Faces, few_faces
from bidual.atoms import Directional, Neurons, Relu
from bidual.bounds import Bound, bound_by_norms, lower_bound, relative_gap, sufficient
from bidual.bounds.oracle import OracleBound, SharedSearch, bound_oracle
from bidual.problem import Problem
from bidual.programs.conic import ConicFailure, ConicResult
from bidual.programs.corrective import merged
from bidual.programs.shared import SharedProgram
from bidual.solvers.base import PROOF_PATTERNS, Options, Solution
from bidual.solvers.finite import STOPPED, repair, solve_program
from bidual.solvers.proving import NORMS
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.run import Run, Status

#: Up to so many faces all of them are looked at: some milliseconds a round.
FACES = 20_000
#: Gap of the search, in units of the tolerance, from which on a proof is tried, and what is asked of the proof.
_TRY, _PROVEN = 0.5, 0.9
#: Accuracy of branch and bound, in units of the tolerance.
_FINE = 0.1
#: What rounding may add to a constraint: less is no violation.
_ROUNDING = 1e-9
#: Directions that may enter in a round, no two of which are nearer than this times the gap; and this near is the same:
#: at the end they crowd at the optimum, and with columns of other sizes kinks are as near. Where that is too near for
#: the conic solver, these are tried in turn.
_ENTER, _APART, _SAME, _ALIKE = 60, 2.0, 1e-7, (1e-6, 1e-5, 1e-4)
#: Directions stay as long as the constraint at them is this close to its limit; all of them do where the objective has
#: fallen by less than this, in units of the tolerance.
_STAYS, _PROGRESS = 0.9, 0.01
#: Share of the largest cost below which the conic solver has only not made it zero.
_UNUSED = 1e-8
#: What merging nearly parallel neurons may cost, in units of the tolerance.
_MERGING = 0.01
#: Seconds of branch and bound where nobody limits them, at least, and relative to what came before.
_PATIENCE, _AS_LONG = 5.0, 2.0
#: Seconds after which branch and bound is asked first what it has found, and how much longer each time.
_MOMENT, _LONGER = 0.5, 4.0

#: Tolerance of what the rounds start from, in units of that of the gap: the proof takes its share.
_FIRST = 0.3
#: Starts of each family of a search where faces are many.
_EFFORT = 64
#: Entries of a program up to which one is solved in every round, seconds each.
SIZE = 20_000_000

#: Up to this rank branch and bound is over hidden directions first; and over those of up to so many outputs.
_SMALL_RANK, _OUTPUTS = 3, 5

#: Unit directions (reduced coordinates) worth a look at a dual point.
Search: TypeAlias = Callable[[FloatArray], FloatArray]


class SharedRun(Run):
    """Rounds of :class:`SharedProgram`, pricing and proofs; the directions at hand are in reduced coordinates."""

    problem: Problem[Directional]
    #: Of which networks the bounds by search speak.
    scope: str = "global"

    def __init__(
        self, problem: Problem[Directional], options: Options, search: Search | None = None, began: float | None = None
    ) -> None:
        nothing = problem.atoms.none(problem.atoms.M.shape[1], np.zeros(problem.n_outputs))
        super().__init__(problem, options, nothing, np.inf, began)
        self.search: Search = search or (lambda V: self.directions)
        self.directions: FloatArray = np.zeros((0, problem.atoms.reduced.shape[1]))
        self.patterns: Patterns | None = None
        self.missed: FloatArray = self.directions
        self.by = "local search"
        self.proven: Bound = bound_by_norms(problem, self.bound.V)
        self.how = NORMS

    @property
    def proven_gap(self) -> float:
        """Relative gap of the best network and the best proven bound."""
        return relative_gap(self.objective, self.proven.value)

    def values(self, V: FloatArray, U: FloatArray) -> FloatArray:
        r""":math:`\|V^T A (M u)_+\|` at unit directions."""
        return self.problem.atoms.constraint(V, U)

    def take(self, U: FloatArray) -> None:
        """More directions at hand, none of them twice."""
        size = np.linalg.norm(U, axis=1, keepdims=True)
        U = np.concatenate([self.directions, (U / np.where(size > 0, size, 1.0))[size[:, 0] > 0]])
        self.directions = different(U, _SAME)

    def generate(self, most: float = np.inf) -> None:
        """Rounds, until the gap is proven or there are too many directions; :attr:`status` says how they ended."""
        if self.gap <= _TRY * self.options.tol and self.prove():
            return
        for _ in range(self.options.max_iter):
            checkpoint()
            self.take(self.missed)
            self.missed = self.directions[:0]
            if len(self.directions) > most:
                return
            self.n_iter += 1
            before = self.objective
            try:
                program, result = self.solved()
            except ConicFailure:
                if not np.isfinite(self.objective):
                    raise
                self.status = Status.STALLED
                return
            neurons = program.neurons(result)
            neurons = repair(self.problem, replace(neurons, U=neurons.U @ self.problem.atoms.basis.T))
            self.offer(neurons)
            V = self.problem.dual_point(result.V)
            missing = self.price(V)
            self.note(len(neurons))
            if result.status in STOPPED:
                self.status = result.status
                return
            if self.gap <= _TRY * self.options.tol and self.prove():
                return
            if self.objective < before * (1.0 - _PROGRESS * self.options.tol):  # else what leaves comes back
                costs = program.costs(result.Z)
                used = costs > _UNUSED * costs.max(initial=0.0)
                self.directions = self.directions[used | (self.values(V, self.directions) > _STAYS * self.problem.beta)]
            known = len(self.directions)
            self.take(np.concatenate([self.missed, missing]))
            if len(self.directions) == known:
                self.status = Status.STALLED
                return

    def solved(self) -> tuple[SharedProgram, ConicResult]:
        """The program on the directions at hand; where they crowd too much for the solver, on fewer of them."""
        for near in _ALIKE:
            program = SharedProgram(self.problem, self.directions)
            with suppress(ConicFailure):
                return program, solve_program(program, self)
            self.directions = different(self.directions, near)
        program = SharedProgram(self.problem, self.directions)
        return program, solve_program(program, self)

    def price(self, V: FloatArray) -> FloatArray:
        """Bound the optimum from ``V`` by what the search finds; all directions that violate the constraint there."""
        found = self.search(V)
        values = self.values(V, found)
        largest = float(values.max(initial=0.0))
        self.bounded(lower_bound(self.problem, V, largest, largest))
        order = np.argsort(-values, kind="stable")
        violators = found[order[values[order] > self.problem.beta * (1.0 + _ROUNDING)]]
        return different(violators, _APART * min(1.0, self.gap))[:_ENTER]

    def prove(self) -> bool:
        """Bound the constraint at the best dual point by branch and bound; whether nothing is left to do.

        What it finds that the search has missed becomes :attr:`missed`. As that tends to happen soon, it is asked after
        a moment first.
        """
        problem, tol, V = self.problem, self.options.tol, self.bound.V
        last = min(current().deadline, clock() + max(_PATIENCE, _AS_LONG * self.elapsed))
        target = sufficient(problem, V, (1.0 - _PROVEN * tol) * self.objective)
        for told in self.branch_and_bound(V, target, last):
            bound = lower_bound(problem, V, told.value, told.bound, told.proof)
            if bound.value > self.proven.value:
                self.proven, self.how = bound, told.method
            if self.proven_gap <= tol:
                self.status = Status.CONVERGED
                return True
            if told.value > self.bound.attained * (1.0 + _ROUNDING):
                self.bound = lower_bound(problem, V, told.value, told.value)
                self.missed = told.witness[None] @ problem.atoms.basis
                return False
        self.status = Status.UNPROVEN
        return True

    def branch_and_bound(self, V: FloatArray, target: float | None, last: float) -> Iterator[OracleBound]:
        """What is proven of the constraint at ``V``, after ever longer moments, until the moment ``last``.

        Over hidden directions if their rank is small, and, if there are few activation patterns, over directions of the
        outputs on these, which are more for each of them, but see kinks of the constraint as sharp as they are.
        """
        cells, small = self.patterns, self.problem.atoms.reduced.shape[1] <= _SMALL_RANK
        if self.scope == "global" and "plain oracle" in self.problem.atoms.can and (small or cells is None):
            yield from self._over_directions(V, target, last)
        if cells is not None:
            yield from self._over_outputs(cells, V, target, last)

    def _over_directions(self, V: FloatArray, target: float | None, last: float) -> Iterator[OracleBound]:
        problem, moment, rtol = self.problem, _MOMENT, _FINE * self.options.tol
        known = self.directions @ problem.atoms.basis.T if len(self.directions) else None
        while True:
            until = min(last, clock() + moment)
            yield bound_oracle(problem, V, target=target, rtol=rtol, deadline=until, incumbent=known)
            if not until <= clock() < last:
                return
            moment *= _LONGER

    def _over_outputs(
        self, patterns: Patterns, V: FloatArray, target: float | None, last: float
    ) -> Iterator[OracleBound]:
        attained = self.bound.attained
        goal = max(-np.inf if target is None else target, (1.0 + _FINE * self.options.tol) * attained)
        search = SharedSearch(self.problem, patterns, V)
        search.run(goal, last)
        # a direction of the search is in its cone up to rounding, which is much where cones are thin
        value = min(max(attained, float(self.values(V, search.u[None])[0])), search.bound)
        kind = "all" if patterns.complete else "these"
        how = f"{len(search.cover.directions)} directions of outputs on {kind} {len(patterns)} activation patterns"
        yield OracleBound(value, search.bound, self.problem.atoms.basis @ search.u, how, search.proof())

    def slimmed(self) -> Neurons:
        """The best network with fewer neurons, at a cost that no gap shows."""
        problem, neurons = self.problem, self.neurons.balanced()
        if problem.loss.finite and len(neurons) and not current().late():
            size = np.linalg.norm(neurons.alpha, axis=1, keepdims=True)
            units = replace(neurons, U=neurons.U @ problem.atoms.basis * size, alpha=neurons.alpha / size)
            few = merged(problem, units, _MERGING * self.options.tol * self.objective)
            neurons = replace(few, U=few.U @ problem.atoms.basis.T)
        return repair(problem, reduce_neurons(problem, neurons, _MERGING * self.options.tol))


def different(U: FloatArray, distance: float) -> FloatArray:
    """Directions without those that are nearer than this to an earlier one."""
    return U[apart(U, distance)]


def apart(U: FloatArray, distance: float) -> IntArray:
    """Which directions are not nearer than this to an earlier one."""
    if len(U) < 2:
        return np.arange(len(U))
    pairs = cKDTree(U).query_pairs(distance, output_type="ndarray")
    return np.delete(np.arange(len(U)), pairs.max(axis=1))


def every_face(problem: Problem[Relu], faces: list[Faces]) -> Search:
    """The maximisers of the constraint inside of all faces: none is missed."""
    X = problem.atoms.reduced

    def search(V: FloatArray) -> FloatArray:
        G = problem.atoms.spread(V)
        return np.concatenate([np.zeros((0, X.shape[1])), *(level.maximisers(X, G) for level in faces)])

    return search


def few_enough(problem: Problem[Relu]) -> Patterns | None:
    """All activation patterns, if branch and bound over directions of the outputs can be hoped to end on them."""
    if problem.n_outputs > _OUTPUTS or problem.n_coefficients != problem.n_outputs:
        return None
    patterns = problem.atoms.few_cells(PROOF_PATTERNS)
    return patterns if isinstance(patterns, Patterns) else None


def many_starts(problem: Problem[Relu], run: SharedRun) -> Search:
    """Ascents from the neurons at hand and from many other starts."""
    from bidual.solvers.engine.pricing import Pricer  # numba takes a moment to load: only when it is needed

    pricer = Pricer(problem, run.rng)

    def search(V: FloatArray) -> FloatArray:
        found = pricer.quick(V, run.directions, _EFFORT)
        for more in (pricer.strong, pricer.audit):
            found = found.joined(more(V, run.directions, _EFFORT, found.best))
        checkpoint()  # a search that was cut short says nothing about the bound
        return np.concatenate([found.directions, run.directions])

    return search


def solve_several(problem: Problem[Relu], options: Options, train: Callable[[Options], Solution]) -> Solution:
    """Train to a proven gap; where faces are many, from what ``train`` finds in half of the time."""
    began = clock()
    with watching(options.time_limit):
        faces = few_faces(problem.atoms.reduced, FACES)
        if faces is not None:
            try:
                return solve_on_faces(problem, faces, options, began)
            except ConicFailure:  # what is trained otherwise is there to go on from
                if not problem.loss.finite:
                    raise
        limit = options.time_limit
        half = replace(options, tol=_FIRST * options.tol, time_limit=None if limit is None else 0.5 * limit)
        found = train(half)
        assert isinstance(found.neurons, Neurons)
        run = SharedRun(problem, options, began=began)
        run.search, run.patterns = many_starts(problem, run), few_enough(problem)
        run.history, run.status, run.n_iter = list(found.history), found.status, found.n_iter
        run.offer(found.neurons)
        run.bounded(found.bound)
        if found.bound.proven and found.scope == "global":
            run.proven, run.how = found.bound, found.method
        run.take(found.neurons.U @ problem.atoms.basis)
        if found.directions is not None:
            run.take(found.directions @ problem.atoms.basis)
        # the last digits may take branch and bound forever
        seconds = max(_PATIENCE, _AS_LONG * run.elapsed) if limit is None else limit - run.elapsed
        with watching(seconds), run.going(), threadpool_limits(1, user_api="blas"):
            run.generate(SIZE // max(problem.Y.size * problem.n_coefficients, 1))
        return finished(run)


def solve_on_faces(
    problem: Problem[Relu], faces: list[Faces], options: Options, began: float | None = None
) -> Solution:
    """Train to a proven gap, by all faces; the rays, what all cells are spanned by, are there from the start."""
    run = SharedRun(problem, options, every_face(problem, faces), began)
    run.patterns, run.by = few_enough(problem), f"the faces of all cells, {sum(map(len, faces))}"
    if faces:
        run.take(faces[-1].bases[:, :, 0])
    with run.going(), threadpool_limits(1, user_api="blas"):
        run.generate()
    return finished(run)


def finished(run: SharedRun) -> Solution:
    """What a run has found, with what it has proven."""
    if not np.isfinite(run.objective):
        raise Stopped(run.status)
    neurons = run.neurons
    with suppress(Stopped):
        neurons = run.slimmed()
    proof, beside = run.proven.proof, None
    assert proof is not None
    scope = proof.scope(run.problem) or "global"
    # a bound by search beside a proof, which may speak of more networks
    if run.proven_gap > run.options.tol and run.bound.value > run.proven.value and scope in (run.scope, "global"):
        beside, scope = (run.proven, run.how), run.scope
    else:
        run.bound, run.by = run.proven, run.how
    directions = run.directions @ run.problem.atoms.basis.T
    n_patterns = None if run.scope == "global" or run.patterns is None else len(run.patterns)
    return run.solution(run.by, neurons, scope=scope, directions=directions, n_patterns=n_patterns, proven=beside)
