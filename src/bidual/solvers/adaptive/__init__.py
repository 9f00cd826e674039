"""Column generation with moving neurons: the default way to train."""

from __future__ import annotations

from contextlib import suppress
from functools import singledispatch

from bidual.closed_form import ConditionError
from bidual.problem import Problem
from bidual.solvers.base import Options, Solution
from bidual.solvers.closed_form import solve_closed_form

__all__ = ["solve_adaptive"]


@singledispatch
def solve_adaptive(problem: Problem, options: Options) -> Solution:
    """Train until the relative gap is at most ``options.tol``; see :mod:`bidual.solvers.adaptive.engine`.

    Where a formula gives the optimum, by that.
    """
    with suppress(ConditionError):
        return solve_closed_form(problem, options)
    from bidual.solvers.adaptive.engine import run  # numba takes a moment to load: only when it is needed

    return run(problem, options)
