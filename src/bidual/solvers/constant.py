r"""The network without neurons, and the weight decay from which on it is optimal.

The best constant b has the dual point :math:`V = -\nabla L(1 b^T)`, and by the dual constraint (003 Theorem 6) no
neuron improves on it as soon as

.. math:: \beta \ge \beta_{\max} = \max_{\|u\| \le 1} \| (A^T V)^T (M u)_+ \|_2 .
"""

from __future__ import annotations

import time

import numpy as np

from bidual._typing import FloatArray
from bidual._watch import INTERRUPTED
from bidual.arrangements import Patterns
from bidual.certificates import Bound, bound_by_norms
from bidual.problem import Problem
from bidual.solvers.adaptive.corrective import fit_intercept
from bidual.solvers.adaptive.smoothing import SmoothedLoss, first_epsilon
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.bounding import global_bound
from bidual.solvers.conic import FiniteProgram


def solve_constant(problem: Problem, options: Options) -> Solution:
    r"""The network without neurons; the ``attained`` value of its bound is :math:`\beta_{\max}`.

    With one output and few activation patterns that is the maximum over all of them, proven; else it is the largest
    value that local search has found. A loss with kinks has many dual points at the best constant, of which the conic
    solver picks one: the value is then an upper bound on the smallest such beta.
    """
    began = time.perf_counter()
    b, V = _best_constant(problem)
    V = problem.loss.dual_point(V, problem.Y, problem.w, centred=problem.fit_intercept)
    found = global_bound(problem, V, options.random_state)
    neurons = problem.no_neurons(problem.M.shape[1], b)
    return Solution(
        neurons=neurons,
        bound=found.bound,
        scope="global",
        method=found.method,
        status="the network without neurons",
        n_iter=1,
        n_patterns=found.n_patterns,
        history=[HistoryEntry(time.perf_counter() - began, problem.objective(neurons), found.bound.value, 0)],
    )


def nothing(problem: Problem, status: str) -> Solution:
    """The network without neurons and a bound by norms: the answer of a run that was stopped before it had another."""
    if not problem.loss.finite:  # beta = 0, and a constant does not fit
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        raise TimeoutError("the time limit was over before there was an exact fit: raise time_limit, or use beta > 0")
    began = time.perf_counter()
    epsilon = first_epsilon(problem)
    loss = SmoothedLoss(problem.loss, epsilon) if epsilon else problem.loss
    b = fit_intercept(problem, loss)
    V = -loss.gradient(np.zeros_like(problem.Y) + b, problem.Y, problem.w)
    V = problem.loss.dual_point(V, problem.Y, problem.w, centred=problem.fit_intercept)
    bound = max(Bound.nothing(problem), bound_by_norms(problem, V), key=lambda b: b.value)
    neurons = problem.no_neurons(problem.M.shape[1], b)
    return Solution(
        neurons=neurons,
        bound=bound,
        scope="global",
        method="norms of rows",
        status=status,
        n_iter=1,
        history=[HistoryEntry(time.perf_counter() - began, problem.objective(neurons), bound.value, 0)],
    )


def _best_constant(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """The best constant output and a dual point there."""
    loss, Y, w = problem.loss, problem.Y, problem.w
    if loss.smooth:
        b = fit_intercept(problem, loss)
        return b, -loss.gradient(np.zeros_like(Y) + b, Y, w)
    form = loss.cone_form(Y, w)
    if form is None:
        raise ValueError(f"beta_max needs a smooth loss or one with a cone form, which {loss!r} is not: give betas")
    n = len(Y)
    alone = Problem(np.zeros((n, 1)), None, Y, w, loss, problem.beta, problem.fit_intercept)  # features do not matter
    none = Patterns(np.zeros((0, n), dtype=bool), np.zeros((0, 1)), complete=False)
    result = FiniteProgram(alone, none).solve(form)
    return result.intercept, result.V
