"""Column generation with moving neurons: the default way to train."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import singledispatch

from bidual.closed_form import ConditionError
from bidual.problem import Problem
from bidual.progress import note
from bidual.solvers.base import Options, Solution
from bidual.solvers.closed_form import solve_closed_form

__all__ = ["solve_adaptive"]


@singledispatch
def solve_adaptive(problem: Problem, options: Options) -> Solution:
    """Train until the relative gap is at most ``options.tol``; see :mod:`bidual.solvers.adaptive.engine`.

    Where a formula gives the optimum, by that.
    """
    with suppress(ConditionError):
        formula = solve_closed_form(problem, options)
        if options.max_neurons is None or len(formula.neurons) <= options.max_neurons:
            return formula
    began = time.perf_counter()
    from bidual.solvers.adaptive.engine import run  # numba takes a moment to load: only when it is needed
    from bidual.solvers.adaptive.many_rows import run_many_rows, suits

    loading = time.perf_counter() - began
    if options.verbose and loading > 1.0:
        note(f"{loading:.1f} s to load or compile the kernels, once, not counted below")
    if problem.loss.smooth and suits(problem):
        return run_many_rows(problem, options)
    return run(problem, options)
