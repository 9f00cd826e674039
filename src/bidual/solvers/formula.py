"""Training by a formula, where there is one."""

from __future__ import annotations

from bidual.problem import Problem
from bidual.solvers.base import Options, Solution
from bidual.solvers.run import Run, Status
from bidual.solvers.steps import Steps


def solve_closed_form(problem: Problem, options: Options) -> Solution:
    """The global optimum by a formula; :class:`~bidual.closed_form.ConditionError` where none holds."""
    run = Run.empty(problem, options)
    found = Steps.of(problem).formula()
    run.bound, run.status = found.bound, Status.FORMULA
    return run.solution(f"closed form, {found.theorem}", found.neurons)
