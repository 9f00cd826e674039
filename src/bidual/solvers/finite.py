"""Training on a fixed set of activation patterns: all of them (exact) or a sample."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial, singledispatch

import numpy as np

from bidual._typing import FloatArray, IntArray
from bidual._watch import INTERRUPTED, TIME_LIMIT, Stopped, current, watching
from bidual.arrangements import Patterns, patterns_of, sample_patterns
from bidual.certificates import Bound, ConeBounds, bound_by_norms, relative_gap
from bidual.certificates.rowwise import RowwiseBounds
from bidual.losses import ConeForm
from bidual.problem import Neurons, Problem
from bidual.progress import closed, note
from bidual.solvers import cone_generation
from bidual.solvers.adaptive import solve_adaptive
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.conic import ConicResult, FiniteProgram
from bidual.solvers.kinds import cone_bounds, every_pattern, finite_program
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
    "MaxTime": TIME_LIMIT,
    "InsufficientProgress": "stopped: no further progress in floating point",
    "CallbackTerminated": INTERRUPTED,
}


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


def solve_exact(problem: Problem, options: Options) -> Solution:
    """Enumerate every activation pattern and solve the convex program of 003 eq. 8: the global optimum.

    With several outputs there is no such program (000 Theorem 2.3); see :mod:`bidual.solvers.several`.
    """
    if problem.n_coefficients > 1 and problem.loss.finite:
        return solve_several(problem, options)
    began = time.perf_counter()
    with watching(options.time_limit):
        patterns = every_pattern(problem)
    solution = solve_finite(problem, patterns, options, began)
    assert isinstance(solution.neurons, Neurons)
    stopped = solution.status in {STATUS[word] for word in STOPPED}
    missed = relative_gap(solution.history[-1].objective, solution.bound.value) > options.tol
    return _moved(problem, patterns, solution, options, began) if missed and not stopped else solution


def _moved(problem: Problem, patterns: Patterns, solution: Solution, options: Options, began: float) -> Solution:
    """A better solution where rounding has kept the conic solver from one: rows so close that the cones between them
    are thinner than its tolerance. Neurons that move freely know no cones, and the bound is again over all patterns.
    """
    if not (problem.plain and problem.loss.finite):
        return solution
    limit = None if options.time_limit is None else options.time_limit - (time.perf_counter() - began)
    if limit is not None and limit <= 0:
        return solution
    free = replace(options, tol=0.3 * options.tol, time_limit=limit, audit=False, start=solution.neurons)
    found = solve_adaptive(problem, free)
    assert isinstance(solution.neurons, Neurons)
    assert isinstance(found.neurons, Neurons)
    bound = solution.bound
    with suppress(Stopped):
        more = cone_bounds(problem, patterns).lower_bound(found.bound.V)
        bound = max(bound, more, key=lambda b: (b.proven, b.value))
    neurons = min(solution.neurons, found.neurons, key=problem.objective)
    last = HistoryEntry(time.perf_counter() - began, problem.objective(neurons), bound.value, len(neurons))
    return replace(
        solution,
        neurons=neurons,
        bound=bound,
        status=found.status,
        n_iter=solution.n_iter + found.n_iter,
        history=[*solution.history, last],
    )


def solve_sampled(problem: Problem, options: Options) -> Solution:
    """Solve the convex program on the patterns given, or random ones (003 Remark 3.2), and those of a start."""
    began = time.perf_counter()
    with watching(options.time_limit):
        patterns = some_patterns(problem, options)
    return solve_finite(problem, patterns, options, began)


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
    best = Bound.nothing(problem)
    neurons: Neurons | None = None
    if cone_generation.suits(problem, patterns, options.tol):
        generated = cone_generation.generate(problem, patterns, options, began)
        writable = cone_generation.entries(problem, patterns) <= cone_generation.LARGEST
        if generated.status != cone_generation.STALLED or not writable:
            neurons = reduce_neurons(problem, generated.neurons, merging=False)
            bound = _proven(RowwiseBounds(problem, patterns), generated.bound)
            return _solution(problem, patterns, neurons, bound, generated.status, generated.history, began)
        # the cones are written down after all
        history, best, neurons = generated.history, generated.bound, generated.neurons
    target = 1e-2 * options.tol
    direct = len(patterns) <= DIRECT or not problem.loss.finite  # an exact fit may need any of them
    working = np.arange(len(patterns) if direct else 0)
    lowest = np.inf if neurons is None else problem.objective(neurons)
    left = None if options.time_limit is None else options.time_limit - (time.perf_counter() - began)
    n_iter = 0
    with watching(left) as watch:
        bounds = cone_bounds(problem, patterns)
        status = "stopped: too many rounds"
        try:
            for _ in range(MAX_ROUNDS):
                watch.check()
                program = finite_program(problem, patterns.take(working))
                result = solve_program(program, options, began)
                status = STATUS.get(result.status, result.status)
                n_iter += max(1, result.iterations)
                found, objective = program.neurons(result), problem.objective(program.neurons(result))
                if neurons is None or not objective > lowest:  # a program that was stopped may have a worse one
                    neurons, lowest = found, objective
                V = dual_point(problem, result.V)
                known = np.full((2, problem.n_outputs, len(patterns)), np.inf)
                known[:, :, working] = program.known_bounds(V, result)
                best = max(best, bounds.own(V, known), key=lambda b: b.value)
                used = program.costs(result.Z).max(axis=(0, 1))
                n_used = int((used > 1e-6 * used.max(initial=0.0)).sum())
                history.append(HistoryEntry(time.perf_counter() - began, lowest, best.value, n_used))
                gap = relative_gap(lowest, best.value)
                if options.verbose:
                    note(
                        f"{history[-1].elapsed:8.2f} s  {len(working):6d} of {len(patterns)} patterns  "
                        f"objective {lowest:.8g}  gap {gap:.1e}",
                        closed(gap, target),
                    )
                if gap <= target or result.status in STOPPED or direct:
                    break
                worst = bounds.values.max(axis=(0, 1))
                violating = worst > problem.beta * (1 + 1e-9)
                violating[working] = False
                if not violating.any():
                    break
                kept = working[used > 1e-8 * used.max(initial=0.0)]
                working = np.concatenate([kept, _select(worst, np.flatnonzero(violating))])
        except Stopped as stopped:
            status = str(stopped)
    if neurons is None:
        raise Stopped(status)
    # merged neurons may leave patterns that are a sample
    neurons = _repair(problem, reduce_neurons(problem, _repair(problem, neurons), merging=patterns.complete))
    best = _proven(bounds, best)
    if problem.loss.smooth:
        V = dual_point(problem, -problem.loss.gradient(problem.outputs(neurons), problem.Y, problem.w))
        with suppress(Stopped):
            best = max(best, bounds.lower_bound(V), key=lambda b: (b.proven, b.value))
    return _solution(problem, patterns, neurons, best, status, history, began, max(1, n_iter))


def _proven(bounds: ConeBounds, best: Bound) -> Bound:
    """As a bound on all networks on the patterns; by norms if there is no time for more."""
    try:
        return bounds.proven(best)
    except Stopped:
        return bound_by_norms(bounds.problem, best.V)


def _solution(
    problem: Problem,
    patterns: Patterns,
    neurons: Neurons,
    best: Bound,
    status: str,
    history: list[HistoryEntry],
    began: float,
    n_iter: int | None = None,
) -> Solution:
    """The solution on ``patterns``; without ``n_iter``, every entry of the history is an iteration."""
    last = HistoryEntry(time.perf_counter() - began, problem.objective(neurons), best.value, len(neurons))
    return Solution(
        neurons=neurons,
        bound=best,
        scope="global" if patterns.complete else "patterns" if problem.n_outputs == 1 else "patterns, separate",
        method=f"{'all' if patterns.complete else 'sampled:'} {len(patterns)} activation patterns",
        status=status,
        n_iter=max(1, len(history)) if n_iter is None else n_iter,
        n_patterns=len(patterns),
        history=[*history[:-1], last],
    )


def solve_program(program: FiniteProgram, options: Options, began: float) -> ConicResult:
    """By one cone program where the loss has that form, else, or if that stalls, by Newton steps."""
    program.check_memory()  # the conic solver would end the process
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
    watch = current()
    left = watch.left
    if options.time_limit is not None:
        left = min(left, _SHARE * options.time_limit - (time.perf_counter() - began))
    return program.solve(
        form,
        tol=min(1e-9, options.tol / 100),
        max_iter=options.max_iter,
        time_limit=None if left == np.inf else left,
        verbose=options.verbose,
        stop=lambda: watch.interrupted,
    )


def dual_point(problem: Problem, V: FloatArray) -> FloatArray:
    """V moved into the domain of the dual."""
    return problem.loss.dual_point(V, problem.Y, problem.w, centred=problem.fit_intercept)
