"""Training on a fixed set of activation patterns: all of them (exact) or a sample."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial, singledispatch

import numpy as np

from bidual._typing import FloatArray, IntArray
from bidual.arrangements import Patterns, enumerate_patterns, few_patterns, patterns_of, sample_patterns
from bidual.certificates import ConeBounds, DualBound, relative_gap
from bidual.certificates.oracle import PatternProof, Proof
from bidual.certificates.rowwise import RowwiseBounds
from bidual.losses import ConeForm
from bidual.problem import HeadProblem, Neurons, Problem
from bidual.progress import closed, note
from bidual.solvers import cone_generation
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.conic import ConicResult, FiniteProgram
from bidual.solvers.interrupt import InterruptFlag
from bidual.solvers.newton_conic import newton
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.several import solve_several

#: Patterns drawn when the user does not say how many.
DEFAULT_PATTERNS = 100
#: Up to this many patterns are solved in one program; of more, a working set is.
DIRECT = 150
#: Patterns that may enter the working set in one round.
BATCH = 100
#: Share of the time limit for the conic solver; the rest is for the bounds over the cones.
_SHARE = 0.9
#: Statuses of the conic solver after which another round makes no sense.
STOPPED = ("MaxTime", "CallbackTerminated", "MaxIterations")
#: Rounds of column generation after which it gives up (never seen).
MAX_ROUNDS = 200

STATUS = {
    "Solved": "solved to the accuracy of the conic solver",
    "AlmostSolved": "solved to a reduced accuracy",
    "MaxIterations": "stopped at max_iter",
    "MaxTime": "stopped at time_limit",
    "InsufficientProgress": "stopped: no further progress in floating point",
    "CallbackTerminated": "interrupted",
}


@singledispatch
def finite_program(problem: Problem, patterns: Patterns) -> FiniteProgram:
    """The convex program of a problem of this kind on ``patterns``."""
    return FiniteProgram(problem, patterns)


@finite_program.register
def _(problem: HeadProblem, patterns: Patterns) -> FiniteProgram:
    raise ValueError(
        "output weights for every position leave no finite program on patterns: use method='adaptive' (or 'exact', "
        "which proves its result), beta > 0, or pooling='sum' or 'average'"
    )


@singledispatch
def cone_bounds(problem: Problem, patterns: Patterns) -> ConeBounds:
    """The bounds that go with it."""
    many = patterns.cone_rows is None and problem.reduced.shape[0] > 4 * problem.reduced.shape[1]
    return (RowwiseBounds if many else ConeBounds)(problem, patterns)


@singledispatch
def every_pattern(problem: Problem) -> Patterns:
    """All activation patterns of a problem of this kind."""
    return enumerate_patterns(problem.relu_inputs)


@singledispatch
def few_of(problem: Problem, limit: int) -> Patterns | None:
    """All of them if they are at most so many, else None."""
    return few_patterns(problem.relu_inputs, limit)


@singledispatch
def some_patterns(problem: Problem, options: Options) -> Patterns:
    """The patterns given, or random ones, and those of a network to start from."""
    inputs = problem.relu_inputs
    directions = [np.zeros((0, inputs.shape[1]))]
    if isinstance(options.start, Neurons):
        directions.append(options.start.U[:, : inputs.shape[1]])
    if options.gates is not None:
        directions.append(options.gates.witnesses)
    if options.gates is None or options.n_patterns is not None:
        count = DEFAULT_PATTERNS if options.n_patterns is None else options.n_patterns
        directions.append(sample_patterns(inputs, count, options.random_state).witnesses)
    return patterns_of(inputs, np.concatenate(directions))


@singledispatch
def pattern_proof(problem: Problem) -> Proof | None:
    """The proof by all patterns that a certificate can keep for one output of a problem of this kind."""
    return PatternProof() if problem.plain else None


def solve_exact(problem: Problem, options: Options) -> Solution:
    """Enumerate every activation pattern and solve the convex program of 003 eq. 8: the global optimum.

    With several outputs there is no such program (000 Theorem 2.3); see :mod:`bidual.solvers.several`.
    """
    if problem.n_coefficients > 1 and problem.loss.finite:
        return solve_several(problem, options)
    began = time.perf_counter()
    return solve_finite(problem, every_pattern(problem), options, began)


def solve_sampled(problem: Problem, options: Options) -> Solution:
    """Solve the convex program on the patterns given, or random ones (003 Remark 3.2), and those of a start."""
    began = time.perf_counter()
    return solve_finite(problem, some_patterns(problem, options), options, began)


def solve_finite(problem: Problem, patterns: Patterns, options: Options, began: float | None = None) -> Solution:
    """Solve the convex program on ``patterns`` and certify the result.

    Few patterns go to the conic solver at once. Of many, only a working set does: the dual point prices all of
    them, those that violate its constraint enter, those without weight leave, until the gap over all patterns is
    closed. Patterns of many rows are left to :mod:`bidual.solvers.cone_generation`.
    """
    began = time.perf_counter() if began is None else began
    if problem.reduced.shape[1] == 0:  # nothing but zero rows: there are no neurons to train
        patterns = replace(patterns.take(np.arange(0)), complete=patterns.complete)
    history: list[HistoryEntry] = []
    best = DualBound(-np.inf, np.zeros_like(problem.Y), np.nan, np.nan)
    generated: Neurons | None = None
    if cone_generation.suits(problem, patterns, options.tol):
        found = cone_generation.generate(problem, patterns, options, began)
        writable = cone_generation.entries(problem, patterns) <= cone_generation.LARGEST
        if found.status != cone_generation.STALLED or not writable:
            neurons = reduce_neurons(problem, found.neurons)
            return _solution(problem, patterns, neurons, found.bound, found.status, found.history, began)
        history, best, generated = found.history, found.bound, found.neurons  # the cones are written down after all
    target = 1e-2 * options.tol
    direct = len(patterns) <= DIRECT or not problem.loss.finite  # an exact fit may need any of them
    working = np.arange(len(patterns) if direct else 0)
    bounds = cone_bounds(problem, patterns)
    n_iter = 0
    for _ in range(MAX_ROUNDS):
        program = finite_program(problem, patterns.take(working))
        program.check_memory()
        result = solve_program(program, options, began)
        neurons = program.neurons(result)
        V = dual_point(problem, result.V)
        known = np.full((2, problem.n_outputs, len(patterns)), np.inf)
        known[:, :, working] = program.known_bounds(V, result)
        bound = bounds.lower_bound(V, known)
        best = max(best, bound, key=lambda b: b.value)
        objective = problem.objective(neurons)
        n_iter += max(1, result.iterations)
        used = program.costs(result.Z).max(axis=(0, 1))
        n_used = int((used > 1e-6 * used.max(initial=0.0)).sum())
        history.append(HistoryEntry(time.perf_counter() - began, objective, best.value, n_used))
        if options.verbose:
            gap = relative_gap(objective, best.value)
            note(
                f"{history[-1].elapsed:8.2f} s  {len(working):6d} of {len(patterns)} patterns  "
                f"objective {objective:.8g}  gap {gap:.1e}",
                closed(gap, target),
            )
        if relative_gap(objective, best.value) <= target or result.status in STOPPED:
            break
        if direct:
            break
        violating = bounds.values.max(axis=(0, 1)) > problem.beta * (1 + 1e-9)
        violating[working] = False
        if not violating.any():
            break
        kept = working[used > 1e-8 * used.max(initial=0.0)]
        working = np.concatenate([kept, _select(bounds.values.max(axis=(0, 1)), np.flatnonzero(violating))])
    if generated is not None and problem.objective(generated) < problem.objective(neurons):
        neurons = generated  # the conic solver was stopped early
    neurons = _repair(problem, reduce_neurons(problem, _repair(problem, neurons)))
    if problem.loss.smooth:
        V = dual_point(problem, -problem.loss.gradient(problem.outputs(neurons), problem.Y, problem.w))
        best = max(best, bounds.lower_bound(V), key=lambda b: b.value)
    return _solution(problem, patterns, neurons, best, STATUS.get(result.status, result.status), history, began, n_iter)


def _solution(
    problem: Problem,
    patterns: Patterns,
    neurons: Neurons,
    best: DualBound,
    status: str,
    history: list[HistoryEntry],
    began: float,
    n_iter: int | None = None,
) -> Solution:
    """The solution on ``patterns``; without ``n_iter``, every entry of the history is an iteration."""
    last = HistoryEntry(time.perf_counter() - began, problem.objective(neurons), best.value, len(neurons))
    proof = pattern_proof(problem) if patterns.complete and problem.n_coefficients == 1 else None
    return Solution(
        neurons=neurons,
        bound=best,
        scope="global" if patterns.complete else "patterns",
        rigorous=patterns.complete and best.proven,
        method=f"{'all' if patterns.complete else 'sampled:'} {len(patterns)} activation patterns",
        status=status,
        n_iter=len(history) if n_iter is None else n_iter,
        n_patterns=len(patterns),
        history=[*history[:-1], last],
        proof=None if proof is None else (best.V, proof),
    )


def solve_program(program: FiniteProgram, options: Options, began: float) -> ConicResult:
    """By one cone program where the loss has that form, else, or if that stalls, by Newton steps."""
    loss = program.problem.loss
    form = loss.cone_form(program.problem.Y, program.problem.w)
    solve = partial(_solve, program, options, began)
    result = None if form is None else solve(form)
    # Exponential cones may stall far from the optimum; Newton steps only need quadratic programs.
    if result is None or (result.status in ("InsufficientProgress", "AlmostSolved") and loss.smooth):
        result = newton(program, solve, result, tol=min(1e-9, options.tol / 100))
    return result


def _repair(problem: Problem, neurons: Neurons) -> Neurons:
    """For a loss that is an indicator: meet its constraints to rounding by a small change of the output weights.

    The conic solver meets them up to its tolerance only. The change is the smallest one relative to the weights, and
    is not made if it costs more than that.
    """
    if problem.loss.finite or not len(neurons):
        return neurons
    F = problem.outputs(neurons)
    wanted = problem.loss.nearest_outputs(F, problem.Y) - F
    size = np.linalg.norm(neurons.alpha, axis=1)
    hidden = problem.hidden_of(neurons) * size
    change, *_ = np.linalg.lstsq(hidden, wanted, rcond=1e-10)
    repaired = replace(neurons, alpha=neurons.alpha + size[:, None] * change)
    return repaired if repaired.costs.sum() <= (1 + 1e-5) * neurons.costs.sum() else neurons


def _select(values: FloatArray, candidates: IntArray) -> IntArray:
    """Patterns to add: half of them the worst violators, half spread over the others, which are less alike."""
    ranked = candidates[np.argsort(-values[candidates], kind="stable")]
    half = BATCH // 2
    rest = ranked[half:]
    return np.concatenate([ranked[:half], rest[:: max(1, len(rest) // half)][:half]])


def _solve(program: FiniteProgram, options: Options, began: float, form: ConeForm) -> ConicResult:
    left = None if options.time_limit is None else _SHARE * options.time_limit - (time.perf_counter() - began)
    with InterruptFlag() as interrupt:
        return program.solve(
            form,
            tol=min(1e-9, options.tol / 100),
            max_iter=options.max_iter,
            time_limit=left,
            verbose=options.verbose,
            stop=interrupt.is_set,
        )


def dual_point(problem: Problem, V: FloatArray) -> FloatArray:
    """V moved into the domain of the dual."""
    return problem.loss.dual_point(V, problem.Y, problem.w, centred=problem.fit_intercept)
