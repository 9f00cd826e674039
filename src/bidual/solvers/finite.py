"""Training on a fixed set of activation patterns: all of them (exact) or a sample."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np

from bidual._typing import FloatArray, IntArray
from bidual.arrangements import Patterns, enumerate_patterns, patterns_of, sample_patterns
from bidual.certificates import ConeBounds, DualBound, relative_gap
from bidual.losses import ConeForm
from bidual.problem import Neurons, Problem
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.conic import ConicResult, FiniteProgram
from bidual.solvers.interrupt import InterruptFlag
from bidual.solvers.newton_conic import newton
from bidual.solvers.reduce import reduce_neurons

#: Patterns drawn when the user does not say how many.
DEFAULT_PATTERNS = 100
#: Up to this many patterns are solved in one program; of more, a working set is.
DIRECT = 150
#: Patterns that may enter the working set in one round.
BATCH = 100
#: Statuses of the conic solver after which another round makes no sense.
STOPPED = ("MaxTime", "CallbackTerminated", "MaxIterations")
#: Rounds of column generation after which it gives up (never seen).
MAX_ROUNDS = 200

_STATUS = {
    "Solved": "solved to the accuracy of the conic solver",
    "AlmostSolved": "solved to a reduced accuracy",
    "MaxIterations": "stopped at max_iter",
    "MaxTime": "stopped at time_limit",
    "InsufficientProgress": "stopped: no further progress in floating point",
    "CallbackTerminated": "interrupted",
}


def solve_exact(problem: Problem, options: Options) -> Solution:
    """Enumerate every activation pattern and solve the convex program of 003 eq. 8: the global optimum."""
    began = time.perf_counter()
    patterns = enumerate_patterns(problem.M)
    return solve_finite(problem, patterns, options, began)


def solve_sampled(problem: Problem, options: Options) -> Solution:
    """Solve the convex program on random patterns (003 Remark 3.2), and those of a network to start from."""
    began = time.perf_counter()
    count = DEFAULT_PATTERNS if options.n_patterns is None else options.n_patterns
    patterns = sample_patterns(problem.M, count, options.random_state)
    if isinstance(options.start, Neurons):
        patterns = patterns_of(problem.M, np.concatenate([options.start.U, patterns.witnesses]))
    return solve_finite(problem, patterns, options, began)


def solve_finite(problem: Problem, patterns: Patterns, options: Options, began: float | None = None) -> Solution:
    """Solve the convex program on ``patterns`` and certify the result.

    Few patterns go to the conic solver at once. Of many, only a working set does: the dual point prices all of
    them, those that violate its constraint enter, those without weight leave, until the gap over all patterns is
    closed.
    """
    began = time.perf_counter() if began is None else began
    if problem.reduced.shape[1] == 0:  # nothing but zero rows: there are no neurons to train
        patterns = replace(patterns, active=patterns.active[:0], witnesses=patterns.witnesses[:0], cone_rows=None)
    target = 1e-2 * options.tol
    direct = len(patterns) <= DIRECT or not problem.loss.finite  # an exact fit may need any of them
    working = np.arange(len(patterns) if direct else 0)
    bounds = ConeBounds(problem, patterns)
    history: list[HistoryEntry] = []
    best = DualBound(-np.inf, np.zeros_like(problem.Y), np.nan, np.nan)
    n_iter = 0
    for _ in range(MAX_ROUNDS):
        program = FiniteProgram(problem, patterns.take(working))
        program.check_memory()
        result = _solve_program(program, options, began)
        neurons = block_neurons(problem, result)
        V = _dual_point(problem, result.V)
        bound = bounds.lower_bound(V, _known_bounds(program, V, result, working, patterns))
        best = max(best, bound, key=lambda b: b.value)
        objective = problem.objective(neurons)
        n_iter += max(1, result.iterations)
        used = np.linalg.norm(result.Z, axis=-1).max(axis=(0, 1))
        n_used = int((used > 1e-6 * used.max(initial=0.0)).sum())
        history.append(HistoryEntry(time.perf_counter() - began, objective, best.value, n_used))
        if options.verbose:
            print(
                f"bidual: {history[-1].elapsed:8.2f} s  {len(working):6d} of {len(patterns)} patterns  "
                f"objective {objective:.8g}  gap {relative_gap(objective, best.value):.1e}",
                flush=True,
            )
        if direct or relative_gap(objective, best.value) <= target or result.status in STOPPED:
            break
        violating = bounds.values.max(axis=(0, 1)) > problem.beta * (1 + 1e-9)
        violating[working] = False
        if not violating.any():
            break
        kept = working[used > 1e-8 * used.max(initial=0.0)]
        working = np.concatenate([kept, _select(bounds.values.max(axis=(0, 1)), np.flatnonzero(violating))])
    neurons = _repair(problem, reduce_neurons(problem, _repair(problem, neurons)))
    if problem.loss.smooth:
        V = _dual_point(problem, -problem.loss.gradient(problem.outputs(neurons), problem.Y, problem.w))
        best = max(best, bounds.lower_bound(V), key=lambda b: b.value)
    history[-1] = HistoryEntry(time.perf_counter() - began, problem.objective(neurons), best.value, len(neurons))
    return Solution(
        neurons=neurons,
        bound=best,
        scope="global" if patterns.complete else "patterns",
        rigorous=patterns.complete,
        method=f"{'all' if patterns.complete else 'sampled:'} {len(patterns)} activation patterns",
        status=_STATUS.get(result.status, result.status),
        n_iter=n_iter,
        n_patterns=len(patterns),
        history=history,
    )


def _solve_program(program: FiniteProgram, options: Options, began: float) -> ConicResult:
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
    hidden = problem.hidden(neurons.U) * size
    change, *_ = np.linalg.lstsq(hidden, wanted, rcond=1e-10)
    repaired = replace(neurons, alpha=neurons.alpha + size[:, None] * change)
    return repaired if repaired.costs.sum() <= (1 + 1e-5) * neurons.costs.sum() else neurons


def _select(values: FloatArray, candidates: IntArray) -> IntArray:
    """Patterns to add: half of them the worst violators, half spread over the others, which are less alike."""
    ranked = candidates[np.argsort(-values[candidates], kind="stable")]
    half = BATCH // 2
    rest = ranked[half:]
    return np.concatenate([ranked[:half], rest[:: max(1, len(rest) // half)][:half]])


def block_neurons(problem: Problem, result: ConicResult) -> Neurons:
    """One neuron per non-zero block: weights ``z``, output weight ``+-1`` on the block's output."""
    signs, C, P, r = result.Z.shape
    U = result.Z.reshape(signs * C * P, r)
    if problem.reduced is not problem.M:
        U = U @ problem.basis.T
    heads = np.stack([np.eye(C), -np.eye(C)]).reshape(signs * C, C)
    return Neurons(U, np.repeat(heads, P, axis=0), result.intercept)


def _solve(program: FiniteProgram, options: Options, began: float, form: ConeForm) -> ConicResult:
    left = None if options.time_limit is None else options.time_limit - (time.perf_counter() - began)
    with InterruptFlag() as interrupt:
        return program.solve(
            form,
            tol=min(1e-9, options.tol / 100),
            max_iter=options.max_iter,
            time_limit=left,
            verbose=options.verbose,
            stop=interrupt.is_set,
        )


def _dual_point(problem: Problem, V: FloatArray) -> FloatArray:
    return problem.loss.dual_point(V, problem.Y, problem.w, centred=problem.fit_intercept)


def _known_bounds(
    program: FiniteProgram, V: FloatArray, result: ConicResult, working: IntArray, patterns: Patterns
) -> FloatArray:
    r"""Bounds :math:`\|s\,M^T D_i A^T v_c + M^T (2 D_i - I) \lambda\|` with the solver's multipliers.

    Shape ``(2, C, P)``; infinite for patterns outside the working set.
    """
    signs, C, P, r = program.shape
    known = np.full((signs, C, len(patterns)), np.inf)
    gradients = (program.design().T @ V).T.reshape(1, C, r, P)
    multipliers = np.maximum(result.cone_multipliers, 0.0).reshape(signs * C, -1)
    normals = np.asarray(program.cone_matrix().T @ multipliers.T).T.reshape(signs, C, r, P)
    known[:, :, working] = np.linalg.norm(np.concatenate([gradients, -gradients]) + normals, axis=2)
    return known
