"""Column generation with moving neurons: the default way to train."""

from __future__ import annotations

from bidual.problem import Problem
from bidual.solvers.base import Options, Solution

__all__ = ["solve_adaptive"]


def solve_adaptive(problem: Problem, options: Options) -> Solution:
    """Train until the relative gap is at most ``options.tol``; see :mod:`bidual.solvers.adaptive.engine`."""
    from bidual.solvers.adaptive.engine import run  # numba takes a moment to load: only when it is needed

    return run(problem, options)
