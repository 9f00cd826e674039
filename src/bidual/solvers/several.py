"""Several outputs, with a proof: a neuron feeds all of them at once, which no finite program on patterns describes."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import singledispatch

from bidual._watch import watching
from bidual.problem import Problem
from bidual.solvers.adaptive import solve_adaptive
from bidual.solvers.base import Options, Solution
from bidual.solvers.proving import proven


@singledispatch
def solve_several(problem: Problem, options: Options) -> Solution:
    """Column generation, and then a search over cones of directions that proves its bound."""
    began = time.perf_counter()
    limit = options.time_limit
    half = replace(options, tol=0.3 * options.tol, audit=False, time_limit=None if limit is None else 0.5 * limit)
    with watching(limit):
        found = solve_adaptive(problem, half)
        # the last digits may take branch and bound forever
        now = time.perf_counter()
        deadline = now + max(5.0, 2.0 * (now - began)) if limit is None else began + limit
        bound, method = proven(problem, found, options.tol, deadline)
    last = replace(found.history[-1], elapsed=time.perf_counter() - began, likely_bound=bound.value)
    return replace(found, bound=bound, method=method, history=[*found.history, last])
