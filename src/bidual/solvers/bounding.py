"""A lower bound over all networks from any dual point, as well as it can be had."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray
from bidual.bounds import Bound, cone_bounds, lower_bound
from bidual.problem import Problem
from bidual.solvers.base import PROOF_PATTERNS
from bidual.solvers.steps import Steps


@dataclass(frozen=True)
class GlobalBound:
    """A bound and how it was found."""

    bound: Bound
    method: str
    n_patterns: int | None = None


def global_bound(
    problem: Problem, V: FloatArray, random_state: int | np.random.RandomState | None = None, audit: bool = True
) -> GlobalBound:
    """From ``V``, a point of the dual domain.

    With one output and few activation patterns the dual constraint is maximised over all of them, proven; else its
    value is the largest one that local search has found.
    """
    patterns = problem.atoms.few_cells(PROOF_PATTERNS) if problem.n_coefficients == 1 else None
    if patterns is not None:
        dual = cone_bounds(problem, patterns).lower_bound(V)
        return GlobalBound(dual, f"all {len(patterns)} activation patterns", len(patterns))
    value = Steps.of(problem).search(V, random_state, audit)
    return GlobalBound(lower_bound(problem, V, value, value), "local search, audited" if audit else "local search")
