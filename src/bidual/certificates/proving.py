"""From a dual point to a proven lower bound."""

from __future__ import annotations

import numpy as np

from bidual._typing import FloatArray
from bidual.certificates.dual import DualBound, lower_bound, sufficient
from bidual.certificates.oracle import OracleBound, bound_oracle
from bidual.problem import Neurons, Problem


def prove(
    problem: Problem, V: FloatArray, neurons: Neurons, tol: float, deadline: float = np.inf
) -> tuple[DualBound, OracleBound]:
    """A proven lower bound from the dual point ``V``, and its proof; no sharper than a gap of ``tol`` asks for."""
    V = problem.loss.dual_point(V, problem.Y, problem.w, centred=problem.fit_intercept)
    target = sufficient(problem, V, (1.0 - tol) * problem.objective(neurons))
    incumbent = neurons.U if len(neurons) else None
    oracle = bound_oracle(problem, V, target=target, rtol=0.1 * tol, deadline=deadline, incumbent=incumbent)
    return lower_bound(problem, V, oracle.value, oracle.bound), oracle
