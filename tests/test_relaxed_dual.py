"""Dual points that suit the relaxation: better than residuals, and never too good to be true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidual import ReLURegressor, certify
from bidual._util.clock import clock
from bidual.atoms import Relu
from bidual.bounds import Bound, lower_bound
from bidual.bounds.oracle import bound_oracle, relaxed_dual
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.solvers import solve_adaptive

from .helpers import gaussian_problem


def proven(problem, V):
    oracle = bound_oracle(problem, V, method="compact")
    return lower_bound(problem, V, oracle.value, oracle.bound).value


@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_relaxed_point_proves_more_than_the_targets(loss, fit_intercept):
    X, y, labels = gaussian_problem(3, 30, 5)
    Y = (labels if get_loss(loss).classification else y)[:, None]
    problem = Problem(Relu(X), Y, np.full(30, 1 / 30), get_loss(loss), 0.05, fit_intercept)
    V = -problem.loss.gradient(np.zeros((30, 1)), Y, problem.w)
    V = problem.loss.dual_point(V, Y, problem.w, centred=fit_intercept)
    better = relaxed_dual(problem, V)
    assert proven(problem, better) > proven(problem, V) + 1e-4 * abs(proven(problem, V))


@pytest.mark.parametrize("seed", range(3))
def test_the_relaxed_bound_stays_below_the_optimum(seed):
    X, y, _ = gaussian_problem(seed, 12, 2)
    exact = ReLURegressor(0.02, method="exact", bias=False, fit_intercept=False).fit(X, y)
    problem = Problem(Relu(X), y[:, None], np.full(12, 1 / 12), get_loss("squared"), 0.02, False)
    V = ((y - exact.predict(X)) / 12)[:, None]
    value = proven(problem, relaxed_dual(problem, V))
    assert proven(problem, V) * (1 - 1e-6) <= value <= exact.objective_
    assert value > 0.5 * exact.objective_


def test_time_is_kept_and_several_outputs_are_refused():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 6)), rng.standard_normal((40, 2))
    problem = Problem(Relu(X), Y[:, :1], np.full(40, 1 / 40), get_loss("squared"), 0.01, False)
    V = relaxed_dual(problem, Y[:, :1] / 40, deadline=clock())
    np.testing.assert_allclose(V, Y[:, :1] / 40, rtol=1e-12)  # there was time for nothing else
    with pytest.raises(ValueError, match="one output"):
        relaxed_dual(Problem(Relu(X), Y, np.full(40, 1 / 40), get_loss("squared"), 0.01, False), Y / 40)


def test_nothing_comes_of_the_zero_point_but_no_error_either():
    X, Y = np.random.default_rng(0).standard_normal((40, 8)), np.ones((40, 1))
    problem = Problem(Relu(X), Y, np.full(40, 1 / 40), get_loss("squared"), 0.01, False)
    assert not relaxed_dual(problem, np.zeros((40, 1))).any()


def test_certify_begins_at_the_network_where_column_generation_found_no_time(monkeypatch):
    X = np.random.default_rng(0).standard_normal((60, 12))
    y = np.abs(X[:, 0]) - X[:, 1]
    est = ReLURegressor(beta=0.05, bias=False, fit_intercept=False, tol=0.1, random_state=0).fit(X, y)
    usual = solve_adaptive

    def no_time(problem, options):
        return replace(usual(problem, options), bound=Bound.nothing(problem))

    monkeypatch.setattr("bidual.certification.search.solve_adaptive", no_time)
    found = certify(est, X, y, beta=0.05, time_limit=1.0, random_state=0)
    assert 0 < found.lower_bound <= est.objective_
