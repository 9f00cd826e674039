"""Training on a fixed set of activation patterns: all of them (exact) or a sample."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np

from bidual._typing import FloatArray
from bidual.arrangements import Patterns, enumerate_patterns, patterns_of, sample_patterns
from bidual.certificates import DualBound, certify_patterns
from bidual.losses import ConeForm
from bidual.problem import Neurons, Problem
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.conic import ConicResult, FiniteProgram
from bidual.solvers.interrupt import InterruptFlag
from bidual.solvers.newton_conic import newton
from bidual.solvers.reduce import reduce_neurons

#: Patterns drawn when the user does not say how many.
DEFAULT_PATTERNS = 100

_STATUS = {
    "Solved": "solved",
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
    if options.start is not None:
        patterns = patterns_of(problem.M, np.concatenate([options.start.U, patterns.witnesses]))
    return solve_finite(problem, patterns, options, began)


def solve_finite(problem: Problem, patterns: Patterns, options: Options, began: float | None = None) -> Solution:
    """Solve the convex program on ``patterns`` and certify the result."""
    began = time.perf_counter() if began is None else began
    if problem.reduced.shape[1] == 0:  # nothing but zero rows: there are no neurons to train
        patterns = replace(patterns, active=patterns.active[:0], witnesses=patterns.witnesses[:0], cone_rows=None)
    program = FiniteProgram(problem, patterns)
    program.check_memory()
    if options.verbose:
        signs, C, P, r = program.shape
        print(f"bidual: convex program on {P} patterns, {signs * C * P * r} variables", flush=True)
    form = problem.loss.cone_form(problem.Y, problem.w)
    solve = partial(_solve, program, options, began)
    result = None if form is None else solve(form)
    # Exponential cones may stall far from the optimum; Newton steps only need quadratic programs.
    if result is None or (result.status in ("InsufficientProgress", "AlmostSolved") and problem.loss.smooth):
        result = newton(program, solve, result, tol=min(1e-9, options.tol / 100))
    neurons = reduce_neurons(problem, block_neurons(problem, result))
    bound = _best_bound(program, result, neurons)
    if options.verbose:
        print(f"bidual: {_STATUS.get(result.status, result.status)} after {result.iterations} iterations", flush=True)
    entry = HistoryEntry(time.perf_counter() - began, problem.objective(neurons), bound.value, len(neurons))
    return Solution(
        neurons=neurons,
        bound=bound,
        scope="global" if patterns.complete else "patterns",
        rigorous=patterns.complete,
        method=f"all {len(patterns)} activation patterns"
        if patterns.complete
        else f"{len(patterns)} sampled activation patterns",
        status=_STATUS.get(result.status, result.status),
        n_iter=max(1, result.iterations),
        n_patterns=len(patterns),
        history=[entry],
    )


def block_neurons(problem: Problem, result: ConicResult) -> Neurons:
    """One neuron per non-zero block: weights ``z``, output weight ``+-1`` on the block's output."""
    signs, C, P, _ = result.Z.shape
    U = result.Z.reshape(signs * C * P, -1)
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


def _best_bound(program: FiniteProgram, result: ConicResult, neurons: Neurons) -> DualBound:
    """The better lower bound of two dual points: the solver's multipliers, and the gradient at the network."""
    problem, patterns = program.problem, program.patterns
    loss, centred = problem.loss, problem.fit_intercept
    points = [result.V]
    if loss.smooth:
        points.append(-loss.gradient(problem.outputs(neurons), problem.Y, problem.w))
    bounds = []
    for V in points:
        V = loss.dual_point(V, problem.Y, problem.w, centred=centred)
        bounds.append(certify_patterns(problem, patterns, V, _cone_bounds(program, V, result.cone_multipliers)))
    return max(bounds, key=lambda bound: bound.value)


def _cone_bounds(program: FiniteProgram, V: FloatArray, multipliers: FloatArray) -> FloatArray:
    r""":math:`\|s\,M^T D_i A^T v_c + M^T (2 D_i - I) \lambda\|` with the solver's multipliers, ``(2, C, P)``."""
    signs, C, P, r = program.shape
    gradients = (program.design().T @ V).T.reshape(1, C, r, P)
    both = np.concatenate([gradients, -gradients])
    Q = multipliers.shape[-1]
    normals = program.cone_matrix().T @ np.maximum(multipliers, 0.0).reshape(-1, Q).T
    return program.scale * np.linalg.norm(both + np.asarray(normals).T.reshape(signs, C, r, P), axis=2)
