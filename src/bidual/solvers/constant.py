r"""The network without neurons, and the weight decay from which on it is optimal.

The best constant b has the dual point :math:`V = -\nabla L(1 b^T)`, and by the dual constraint (003 Theorem 6) no
neuron improves on it as soon as

.. math:: \beta \ge \beta_{\max} = \max_{\|u\| \le 1} \| (A^T V)^T (M u)_+ \|_2 .
"""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray
from bidual.arrangements import Patterns
from bidual.atoms import Relu
from bidual.bounds import bound_by_norms
from bidual.problem import Problem
from bidual.programs.conic import FiniteProgram
from bidual.programs.corrective import fit_intercept
from bidual.programs.smoothing import first_epsilon, smoothed
from bidual.solvers.base import Options, Solution
from bidual.solvers.bounding import global_bound
from bidual.solvers.proving import NORMS
from bidual.solvers.run import Run, Status


def solve_constant(problem: Problem, options: Options) -> Solution:
    r"""The network without neurons; the ``attained`` value of its bound is :math:`\beta_{\max}`.

    With one output and few activation patterns that is the maximum over all of them, proven; else it is the largest
    value that local search has found. A loss with kinks has many dual points at the best constant, of which the conic
    solver picks one: the value is then an upper bound on the smallest such beta.
    """
    run = Run.empty(problem, options)
    b, V = _best_constant(problem)
    found = global_bound(problem, problem.dual_point(V), options.random_state, options.audit)
    run.bound, run.status = found.bound, Status.CONSTANT
    return run.solution(found.method, problem.atoms.none(problem.atoms.M.shape[1], b), n_patterns=found.n_patterns)


def nothing(problem: Problem, status: str) -> Solution:
    """The network without neurons and a bound by norms: the answer of a run that was stopped before it had another.

    Of a run for an exact fit (beta = 0), only if that network fits.
    """
    run = Run.empty(problem, Options())
    run.status = status
    if problem.loss.finite:
        loss = smoothed(problem.loss, first_epsilon(problem))
        b = fit_intercept(problem, loss)
        V = problem.dual_point(-loss.gradient(np.zeros_like(problem.Y) + b, problem.Y, problem.w))
    elif not problem.Y.any():
        b, V = np.zeros(problem.n_outputs), np.zeros_like(problem.Y)
    elif status == Status.INTERRUPTED:
        raise KeyboardInterrupt
    else:
        raise TimeoutError("the time limit was over before there was an exact fit: raise time_limit, or use beta > 0")
    run.bounded(bound_by_norms(problem, V))
    return run.solution(NORMS, problem.atoms.none(problem.atoms.M.shape[1], b))


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
    alone = Problem(Relu(np.zeros((n, 1))), Y, w, loss, problem.beta, problem.fit_intercept)  # features do not matter
    none = Patterns(np.zeros((0, n), dtype=bool), np.zeros((0, 1)), complete=False)
    result = FiniteProgram(alone, alone.atoms.blocks(none)).solve(form)
    return result.intercept, result.V
