"""Dual points that suit the relaxation: better than residuals, and never too good to be true."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from bidual import ReLURegressor, certify
from bidual._util.clock import clock
from bidual.atoms import Relu
from bidual.bounds import Bound, lower_bound
from bidual.bounds.oracle import bound_oracle, relaxed_dual
from bidual.bounds.oracle.interior import ENOUGH, RelaxedTraining, affordable
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


@pytest.fixture
def by_columns(monkeypatch):
    """Column generation, as for problems whose Newton systems are too large."""
    monkeypatch.setattr("bidual.bounds.oracle.joint.affordable", lambda problem, seconds: False)


def test_by_columns_nothing_comes_of_the_zero_point_but_no_error_either(by_columns):
    X, Y = np.random.default_rng(0).standard_normal((40, 8)), np.ones((40, 1))
    problem = Problem(Relu(X), Y, np.full(40, 1 / 40), get_loss("squared"), 0.01, False)
    assert not relaxed_dual(problem, np.zeros((40, 1))).any()


def pooled(seed, n=15, each=3, p=4):
    """Samples of some rows each, one of them zero, of both signs."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((n * each, p))
    M[7] = 0.0
    A = sp.csr_array((rng.choice([-1.0, 0.5], n * each), (np.arange(n * each) // each, np.arange(n * each))))
    return Relu(M, A), rng.standard_normal((n, 1))


@pytest.mark.parametrize(("case", "loss"), [("plain", "squared"), ("intercept", "logistic"), ("pooled", "huber")])
def test_the_program_is_solved_as_it_is_printed(case, loss):
    atoms, Y = pooled(0) if case == "pooled" else (Relu(gaussian_problem(1, 15, 3)[0]), None)
    if Y is None:
        _, y, labels = gaussian_problem(1, 15, 3)
        Y = (labels if loss == "logistic" else y)[:, None]
    n, free = len(Y), case == "intercept"
    problem = Problem(atoms, Y, np.full(n, 1 / n), get_loss(loss), 0.05, free)
    rows = atoms.reduced
    norms = np.linalg.norm(rows, axis=1)
    X, d = rows / np.where(norms > 0, norms, 1.0)[:, None], rows.shape[1]
    hidden, cost, rules = 0.0, 0.0, []
    for sign in (1.0, -1.0):
        Z, r = cp.Variable((d + 1, d + 1), PSD=True), cp.Variable(len(rows))
        t, q = X @ Z[1:, 0], cp.sum(cp.multiply(X @ Z[1:, 1:], X), axis=1)
        rules += [cp.trace(Z[1:, 1:]) <= Z[0, 0], cp.abs(t) <= r, q <= r]
        rules += [cp.SOC(Z[0, 0] + q[i], cp.hstack([2 * r[i], Z[0, 0] - q[i]])) for i in range(len(rows))]
        hidden, cost = hidden + sign * cp.multiply(0.5 * norms, t + r), cost + Z[0, 0]
    F = hidden if atoms.A is None else atoms.A.toarray() @ hidden
    F = F + (cp.Variable() if free else 0.0)
    rest = F - Y[:, 0]
    losses = {
        "squared": lambda: cp.sum_squares(rest) / 2,
        "huber": lambda: cp.sum(cp.huber(rest, problem.loss.delta)) / 2,
        "logistic": lambda: cp.sum(cp.logistic(-cp.multiply(Y[:, 0], F))),
    }
    program = cp.Problem(cp.Minimize(losses[loss]() / n + problem.beta * cost), rules)
    program.solve(solver="CLARABEL")
    training = RelaxedTraining(problem)
    V = problem.dual_point(training.run(np.inf))
    reached = training._objective(training.neurons, training.intercept)
    assert program.value * (1 - 1e-6) <= reached <= program.value * (1 + 2 * ENOUGH)
    if case != "pooled":  # the bound takes rows together, and so may be better
        assert proven(problem, V) == pytest.approx(program.value, rel=0.01)
    assert proven(problem, V) >= program.value * (1 - 0.01)


def test_targets_that_cost_nothing_have_a_relaxed_point_too():
    problem = Problem(Relu(np.eye(4)), np.zeros((4, 1)), np.full(4, 0.25), get_loss("squared"), 0.1, False)
    assert np.abs(relaxed_dual(problem, np.zeros((4, 1)))).max() < 1e-6


def test_samples_that_share_rows_and_large_problems_are_left_to_columns():
    assert affordable(Problem(*large(50, 5)), 1.0)
    assert not affordable(Problem(*large(50, 5)), 0.0)
    assert not affordable(Problem(*large(400, 90)), np.inf)
    atoms = Relu(np.eye(3), sp.csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])))
    assert not affordable(replace(Problem(*large(2, 3)), atoms=atoms), np.inf)


def large(n, d):
    return Relu(np.random.default_rng(0).standard_normal((n, d))), np.ones((n, 1)), np.ones(n) / n, None, 1.0, False


def test_columns_come_close_to_the_program(by_columns):
    X, y, _ = gaussian_problem(2, 30, 5)
    problem = Problem(Relu(X), y[:, None], np.full(30, 1 / 30), get_loss("squared"), 0.05, False)
    limit = RelaxedTraining(problem)
    limit.run(np.inf)
    value = proven(problem, relaxed_dual(problem, y[:, None] / 30))
    top = limit._objective(limit.neurons, limit.intercept)
    assert 0.97 * top <= value <= top


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
