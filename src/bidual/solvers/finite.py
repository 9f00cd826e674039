"""Training on a fixed set of activation patterns: all of them (exact) or a sample."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray, IntArray
from bidual._util.watch import Stopped, checkpoint, current, watching
from bidual.arrangements import Patterns
from bidual.arrangements.patterns import Cells
from bidual.atoms import Neurons
from bidual.bounds import Bound, ConeBounds, bound_by_norms, cone_bounds
from bidual.bounds.proof import NormProof
from bidual.bounds.rowwise import RowwiseBounds
from bidual.losses import ConeForm
from bidual.problem import Problem
from bidual.programs.conic import ConicFailure, ConicProgram, ConicResult, FiniteProgram
from bidual.programs.newton_conic import newton
from bidual.solvers import cone_generation
from bidual.solvers.base import Options, Solution
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.run import Log, Run, Status
from bidual.solvers.steps import Steps, solve_adaptive

#: Patterns drawn when the user does not say how many.
DEFAULT_PATTERNS = 100
#: Up to this many patterns are solved in one program; of more, a working set is.
DIRECT = 150
#: Patterns that may enter the working set in one round.
BATCH = 100
#: Share of the time limit for the conic solver; the rest is for the bounds over the cones.
_SHARE = 0.9
#: Ends of the conic solver after which another round makes no sense.
STOPPED = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.MAX_ITER)
#: Rounds of column generation after which it gives up (never seen).
MAX_ROUNDS = 200
#: Gap to end with, and accuracy of the conic solver, both in units of ``tol``: a program costs the same to any
#: accuracy; and the accuracy that is always asked for.
_TARGET, _ACCURACY, _FINE = 1e-2, 1e-2, 1e-9
#: Share of the largest block below which one counts as unused: in reports, and, more cautiously, to leave the program.
_UNUSED, _LEAVES = 1e-6, 1e-8
#: What rounding may add to a constraint: less is no violation.
_ROUNDING = 1e-9
#: Singular values below this share are rounding when residuals are repaired, and what that may cost, relatively.
_RANK, _REPAIR = 1e-10, 1e-5
#: Gap of neurons that move freely, in units of ``tol``: the bound over all patterns is from their dual point.
_FREE = 0.3


def solve_exact(problem: Problem, options: Options) -> Solution:
    """Enumerate every activation pattern and solve the convex program of 003 eq. 8: the global optimum.

    With several outputs there is no such program (000 Theorem 2.3); see :meth:`Steps.several`.
    """
    if problem.n_coefficients > 1 and (problem.loss.finite or "shared neurons" in problem.atoms.can):
        return Steps.of(problem).several(options)
    return solve_separate(problem, options)


def solve_separate(problem: Problem, options: Options) -> Solution:
    """The program on all patterns; of several outputs, each neuron feeds one."""
    run = Run.empty(problem, options)
    with watching(options.time_limit):
        patterns = problem.atoms.cells()
    return _solved(run, patterns, exact=True)


def solve_sampled(problem: Problem, options: Options) -> Solution:
    """Solve the convex program on the patterns given, or random ones (003 Remark 3.2), and those of a start."""
    run = Run.empty(problem, options)
    with watching(options.time_limit):
        patterns = some_cells(problem, options)
    return _solved(run, patterns)


def some_cells(problem: Problem, options: Options) -> Cells:
    """The cells given, or random ones, and those of a network to start from."""
    drawn = DEFAULT_PATTERNS if options.n_patterns is None else options.n_patterns
    return problem.atoms.some_cells(
        0 if options.gates is not None and options.n_patterns is None else drawn,
        options.random_state,
        options.start if isinstance(options.start, Neurons) else None,
        options.gates,
    )


def solve_finite(problem: Problem, patterns: Cells, options: Options, began: float | None = None) -> Solution:
    """Solve the convex program on ``patterns`` and certify the result."""
    run = Run.empty(problem, options, began)
    return _solved(run, patterns)


def _solved(run: Run, patterns: Cells, *, exact: bool = False) -> Solution:
    """The solution on ``patterns``; if it is to be ``exact``, neurons may move where the conic solver falls short."""
    problem = run.problem
    if problem.atoms.reduced.shape[1] == 0:  # nothing but zero rows: there are no neurons to train
        patterns = patterns.take(np.arange(0), complete=patterns.complete)
    _minimise(run, patterns)
    if exact and not run.closed and run.status not in STOPPED:
        _move(run, patterns)
    everywhere = patterns.complete or isinstance(run.bound.proof, NormProof)  # norms speak of all networks
    return run.solution(
        f"{'all' if patterns.complete else 'sampled:'} {len(patterns)} activation patterns",
        scope="global" if everywhere else "patterns" if problem.n_outputs == 1 else "patterns, separate",
        n_patterns=len(patterns),
    )


def _minimise(run: Run, patterns: Cells) -> None:
    """Solve the program on ``patterns``; leaves the network, its bound, and a history up to the line about them.

    Patterns of many rows are left to :mod:`bidual.solvers.cone_generation`; where that stalls, the cones are written
    down after all.
    """
    problem = run.problem
    if isinstance(patterns, Patterns) and cone_generation.suits(problem, patterns, run.options.tol):
        cone_generation.generate(run, patterns)
        writable = cone_generation.entries(problem, patterns) <= tuning().written_entries
        if run.status != Status.STALLED or not writable:
            run.adopt(reduce_neurons(problem, run.neurons, merging=False))
            run.bound = _proven(RowwiseBounds(problem, patterns), run.bound)
            del run.history[-1:]
            return
    bounds = cone_bounds(problem, patterns)
    _generate(run, patterns, bounds)
    # merged neurons may leave patterns that are a sample
    neurons = reduce_neurons(problem, repair(problem, run.neurons), merging=patterns.complete)
    run.adopt(repair(problem, neurons))
    run.bound = _proven(bounds, run.bound)
    if problem.loss.smooth:
        V = problem.dual_point(-problem.loss.gradient(problem.outputs(run.neurons), problem.Y, problem.w))
        with suppress(Stopped):
            run.bound = _better(run.bound, bounds.lower_bound(V))
    del run.history[-1:]


def _generate(run: Run, patterns: Cells, bounds: ConeBounds) -> None:
    """The program itself. Few patterns go to the conic solver at once.

    Of many, only a working set does: the dual point prices all of them, those that violate its constraint enter,
    those without weight leave, until the gap over all patterns is closed.
    """
    problem = run.problem
    direct = len(patterns) <= DIRECT or not problem.loss.finite  # an exact fit may need any of them
    working = np.arange(len(patterns) if direct else 0)
    run.n_iter = 0
    with run.going():
        for _ in range(MAX_ROUNDS):
            checkpoint()
            program = FiniteProgram(problem, problem.atoms.blocks(patterns.take(working)))
            result = solve_program(program, run)
            run.status = result.status
            run.n_iter += max(1, result.iterations)
            run.offer(program.neurons(result), ties=True)  # a program that was stopped may have a worse one
            V = problem.dual_point(result.V)
            known = np.full((2, problem.n_outputs, len(patterns)), np.inf)
            known[:, :, working] = program.known_bounds(V, result)
            run.bounded(bounds.own(V, known))
            used = program.costs(result.Z).max(axis=(0, 1))
            largest = used.max(initial=0.0)
            run.note(int((used > _UNUSED * largest).sum()), size=f"{len(working):6d} of {len(patterns)} patterns")
            if run.gap <= _TARGET * run.options.tol or result.status in STOPPED or direct:
                return
            worst = bounds.values.max(axis=(0, 1))
            violating = worst > problem.beta * (1 + _ROUNDING)
            violating[working] = False
            if not violating.any():
                return
            kept = working[used > _LEAVES * largest]
            working = np.concatenate([kept, _select(worst, np.flatnonzero(violating))])
    if not (run.n_iter or run.history):  # there is no network
        raise Stopped(run.status)


def _move(run: Run, patterns: Cells) -> None:
    """A better solution where rounding has kept the conic solver from one: rows so close that the cones between them
    are thinner than its tolerance. Neurons that move freely know no cones, and the bound is again over all patterns.
    """
    problem, options, limit = run.problem, run.options, run.options.time_limit
    left = None if limit is None else limit - run.elapsed
    if not ("plain oracle" in problem.atoms.can and problem.loss.finite) or (left is not None and left <= 0):
        return
    run.note()
    free = replace(options, tol=_FREE * options.tol, time_limit=left, audit=False, start=run.neurons)
    found = solve_adaptive(problem, free)
    assert isinstance(found.neurons, Neurons)
    run.offer(found.neurons)
    with suppress(Stopped):
        run.bound = _better(run.bound, cone_bounds(problem, patterns).lower_bound(found.bound.V))
    run.status, run.n_iter = found.status, run.n_iter + found.n_iter


def _better(own: Bound, found: Bound) -> Bound:
    """The larger one of two bounds that are proven, or else the one that is."""
    return max(own, found, key=lambda b: (b.proven, b.value))


def _proven(bounds: ConeBounds, best: Bound) -> Bound:
    """As a bound on all networks on the patterns; by norms if there is no time for more."""
    try:
        return bounds.proven(best)
    except Stopped:
        return bound_by_norms(bounds.problem, best.V)


def solve_program(program: ConicProgram, log: Log) -> ConicResult:
    """By one cone program where the loss has that form, else, or if that stalls, by Newton steps."""
    program.check_memory()  # the conic solver would end the process
    loss = program.problem.loss
    form = loss.cone_form(program.problem.Y, program.problem.w)
    solve = partial(_solve, program, log)
    result = None
    if form is not None:
        try:
            result = solve(form)
        except ConicFailure:
            if not loss.smooth:
                raise
    # Exponential cones may stall far from the optimum; Newton steps only need quadratic programs.
    if result is None or (result.status in (Status.STALLED, Status.ROUGHLY) and loss.smooth):
        result = newton(program, solve, result, tol=min(_FINE, _ACCURACY * log.options.tol))
    return result


def repair(problem: Problem, neurons: Neurons) -> Neurons:
    """For a loss that is an indicator: meet its constraints to rounding by a small change of the output weights.

    The conic solver meets them up to its tolerance only. The change is the smallest one relative to the weights, and
    is not made if it costs more than that.
    """
    if problem.loss.finite or not len(neurons):
        return neurons
    F = problem.outputs(neurons)
    wanted = problem.loss.nearest_outputs(F, problem.Y) - F
    size = np.linalg.norm(neurons.alpha, axis=1)
    hidden = problem.atoms.hidden_of(neurons) * size
    change, *_ = np.linalg.lstsq(hidden, wanted, rcond=_RANK)
    repaired = replace(neurons, alpha=neurons.alpha + size[:, None] * change)
    return repaired if repaired.costs.sum() <= (1 + _REPAIR) * neurons.costs.sum() else neurons


def _select(values: FloatArray, candidates: IntArray) -> IntArray:
    """Patterns to add: half of them the worst violators, half spread over the others, which are less alike."""
    ranked = candidates[np.argsort(-values[candidates], kind="stable")]
    half = BATCH // 2
    rest = ranked[half:]
    return np.concatenate([ranked[:half], rest[:: max(1, len(rest) // half)][:half]])


def _solve(program: ConicProgram, log: Log, form: ConeForm) -> ConicResult:
    options, watch = log.options, current()
    left = watch.left
    if options.time_limit is not None:
        left = min(left, _SHARE * options.time_limit - log.elapsed)
    return program.solve(
        form,
        tol=min(_FINE, _ACCURACY * options.tol),
        max_iter=options.max_iter,
        time_limit=None if left == np.inf else left,
        verbose=options.verbose,
        stop=lambda: watch.interrupted,
    )
