"""A lower bound over all networks from any dual point, as well as it can be had."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual._watch import checkpoint
from bidual.certificates import Bound, lower_bound
from bidual.problem import Problem
from bidual.solvers.base import PROOF_PATTERNS
from bidual.solvers.kinds import cone_bounds, few_of

#: Starts of each family in the search for the most violating neuron.
_EFFORT = 64


@dataclass(frozen=True)
class GlobalBound:
    """A bound and how it was found."""

    bound: Bound
    method: str
    n_patterns: int | None = None


def global_bound(
    problem: Problem, V: FloatArray, random_state: int | np.random.RandomState | None = None
) -> GlobalBound:
    """From ``V``, a point of the dual domain.

    With one output and few activation patterns the dual constraint is maximised over all of them, proven; else its
    value is the largest one that local search has found.
    """
    patterns = few_of(problem, PROOF_PATTERNS) if problem.n_coefficients == 1 else None
    if patterns is not None:
        dual = cone_bounds(problem, patterns).lower_bound(V)
        return GlobalBound(dual, f"all {len(patterns)} activation patterns", len(patterns))
    value = search(problem, V, random_state)
    return GlobalBound(lower_bound(problem, V, value, value), "local search, audited")


@singledispatch
def search(problem: Problem, V: FloatArray, random_state: int | np.random.RandomState | None) -> float:
    """The largest value of the dual constraint at ``V`` that local search finds."""
    from bidual.solvers.adaptive.pricing import Pricer  # numba takes a moment to load: only when it is needed

    pricer = Pricer(problem, np.random.default_rng(check_random_state(random_state).randint(2**31)))
    nothing = np.zeros((0, problem.reduced.shape[1]))
    found = pricer.quick(V, nothing, _EFFORT).joined(pricer.strong(V, nothing, _EFFORT))
    value = max(found.best, pricer.audit(V, found.directions[:_EFFORT], _EFFORT, floor=found.best).best)
    checkpoint()  # a search that was cut short says nothing about the bound
    return value
