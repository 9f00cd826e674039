"""Ours."""

from __future__ import annotations

import time
import warnings

import numpy as np
from problems import Problem, planted
from sklearn.exceptions import ConvergenceWarning

from bidual import ReLURegressor
from bidual.estimators.base import ACTIVATIONS
from bidual.solvers import METHODS

from .common import Trace
from .gated import gates

#: Method of the estimator that is measured.
METHOD = "adaptive"
TOL = 1e-3
#: What the estimator calls gated ReLU.
GATED = "gated"


def available(method: str) -> bool:
    """Whether this version of the library has the method."""
    return method in METHODS


def _estimator(beta: float, method: str, seed: int, limit: float | None) -> ReLURegressor:
    return ReLURegressor(
        beta=beta,
        method=method,
        bias=False,
        fit_intercept=False,
        tol=TOL,
        time_limit=limit,
        prove=False,
        random_state=seed,
    )


def warm_up(method: str) -> float:
    """Seconds to load or compile all kernels: paid once per machine, not part of any measurement."""
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        for n, d in ((60, 3),) if method == "exact" else ((60, 3), (120, 12)):
            X, y = planted(n, d, seed=1)
            _estimator(0.01, method, 0, 10.0).fit(X, y)
    return time.perf_counter() - began


class Ours:
    """``ReLURegressor`` with one of its methods; the trace is its ``history_``."""

    def __init__(self, method: str = METHOD) -> None:
        self.method = method

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """Train; the last point is what the caller holds after ``fit``, at the time ``fit`` returned."""
        est = _estimator(problem.beta, self.method, seed, limit)
        began = time.perf_counter()
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            est.fit(problem.X, problem.y)
        elapsed = time.perf_counter() - began
        trace = Trace(neurons=est.n_neurons_)
        for entry in est.history_[:-1]:
            trace.add(entry.elapsed, entry.objective)
        trace.add(elapsed, est.network_.objective(problem.X, problem.y, beta=problem.beta))
        certificate = est.certificate_
        trace.extra = {
            "gap": est.likely_gap_,
            "lower_bound": est.likely_bound_,
            "scope": certificate.scope,
            # when fit returned, its gap audited; earlier gaps are only those of the loop
            "seconds_to_gap": elapsed if est.likely_gap_ <= TOL and certificate.scope == "global" else np.inf,
        }
        return trace


class OursGated:
    """The gated ReLU of the library on given gates, as soon as it has one."""

    def __init__(self, n_gates: int) -> None:
        self.n_gates = n_gates

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """Train; without gated ReLU in this version the trace is empty and says so."""
        if GATED not in ACTIVATIONS:
            return Trace(note="gated ReLU is not in this version of the library")
        est = _estimator(problem.beta, "sampled", seed, limit).set_params(activation=GATED, n_patterns=self.n_gates)
        if "gates" not in est.get_params():
            return Trace(note="this version of the library does not take the gates of others")
        est.set_params(gates=gates(problem, seed, self.n_gates).T)
        return self._fit(est, problem)

    @staticmethod
    def _fit(est: ReLURegressor, problem: Problem) -> Trace:
        began = time.perf_counter()
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            est.fit(problem.X, problem.y)
        trace = Trace(neurons=est.n_neurons_, extra={"gap": est.likely_gap_})
        for entry in est.history_[:-1]:
            trace.add(entry.elapsed, entry.objective)
        trace.add(time.perf_counter() - began, est.objective_)
        return trace
