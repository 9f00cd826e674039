"""What each kind of problem brings along: its patterns, its program on them, its bounds over their cones."""

from __future__ import annotations

from functools import singledispatch

from bidual.arrangements import Patterns, enumerate_patterns, few_patterns
from bidual.certificates import ConeBounds
from bidual.certificates.rowwise import RowwiseBounds
from bidual.problem import Problem
from bidual.solvers.conic import FiniteProgram


@singledispatch
def finite_program(problem: Problem, patterns: Patterns) -> FiniteProgram:
    """The convex program of a problem of this kind on ``patterns``."""
    return FiniteProgram(problem, patterns)


@singledispatch
def cone_bounds(problem: Problem, patterns: Patterns) -> ConeBounds:
    """The bounds that go with it."""
    many = patterns.cone_rows is None and problem.reduced.shape[0] > 4 * problem.reduced.shape[1]
    return (RowwiseBounds if many else ConeBounds)(problem, patterns)


@singledispatch
def every_pattern(problem: Problem) -> Patterns:
    """All activation patterns of a problem of this kind."""
    return enumerate_patterns(problem.relu_inputs)


@singledispatch
def few_of(problem: Problem, limit: int) -> Patterns | None:
    """All of them if they are at most so many, else None."""
    return few_patterns(problem.relu_inputs, limit)
