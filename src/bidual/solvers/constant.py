r"""The network without neurons, and the weight decay from which on it is optimal.

The best constant b has the dual point :math:`V = -\nabla L(1 b^T)`, and by the dual constraint (003 Theorem 6) no
neuron improves on it as soon as

.. math:: \beta \ge \beta_{\max} = \max_{\|u\| \le 1} \| (A^T V)^T (M u)_+ \|_2 .
"""

from __future__ import annotations

import time

import numpy as np

from bidual._typing import FloatArray
from bidual.arrangements import Patterns
from bidual.problem import Problem
from bidual.solvers.adaptive.corrective import fit_intercept
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.bounding import global_bound
from bidual.solvers.conic import FiniteProgram


def solve_constant(problem: Problem, options: Options) -> Solution:
    r"""The network without neurons; the ``oracle_value`` of its bound is :math:`\beta_{\max}`.

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
        rigorous=found.rigorous,
        method=found.method,
        status="the network without neurons",
        n_iter=1,
        n_patterns=found.n_patterns,
        history=[HistoryEntry(time.perf_counter() - began, problem.objective(neurons), found.bound.value, 0)],
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
    N = len(problem.M)
    none = Patterns(np.zeros((0, N), dtype=bool), np.zeros((0, problem.M.shape[1])), complete=False)
    result = FiniteProgram(problem, none).solve(form)
    return result.intercept, result.V
