"""The adaptive solver against the convex program of 003 eq. 8 on all patterns, and its promises."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from bidual import ReLURegressor
from bidual._util.watch import current, watching
from bidual.arrangements import enumerate_patterns
from bidual.atoms import Neurons, Relu
from bidual.bounds import lower_bound, relative_gap
from bidual.losses import EpsilonInsensitive, Huber, Quantile, get_loss
from bidual.problem import Problem
from bidual.programs.smoothing import SmoothedLoss
from bidual.solvers import Options
from bidual.solvers import solve_adaptive as solve
from bidual.solvers.engine import loop as engine


class Run:
    """A solution with the numbers the tests look at."""

    def __init__(self, problem, solution):
        self.neurons, self.history = solution.neurons, solution.history
        self.V, self.attained = solution.bound.feasible, solution.bound.attained
        self.objective, self.lower_bound = problem.objective(solution.neurons), solution.bound.value
        self.gap = relative_gap(self.objective, self.lower_bound)
        self.converged = solution.status == "converged"
        self.interrupted = solution.status in ("interrupted", "stopped at time_limit")


def solve_adaptive(problem, **options):
    return Run(problem, solve(problem, Options(**options)))


def make(M, y, beta, loss="squared", intercept=False, A=None, w=None):
    loss = get_loss(loss)
    Y = loss.encode(y)
    w = np.full(len(Y), 1.0 / len(Y)) if w is None else w / w.sum()
    return Problem(Relu(np.asarray(M, dtype=float), A), Y, w, loss, beta, intercept)


def planted(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X, U = rng.standard_normal((n, d)), rng.standard_normal((10, d))
    return X, np.maximum(X @ U.T, 0.0) @ rng.standard_normal(10) / np.sqrt(10) + 0.1 * rng.standard_normal(n)


def optimum(problem, row_loss):
    """003 eq. 8 on all patterns of M, as printed."""
    cp = pytest.importorskip("cvxpy")
    M, w = problem.atoms.M, problem.w
    patterns = enumerate_patterns(M)
    A = np.eye(len(M)) if problem.atoms.A is None else problem.atoms.A.toarray()
    F, norms, cells = 0, 0, []
    for active in patterns.active:
        v, u = cp.Variable(M.shape[1]), cp.Variable(M.shape[1])
        F = F + A @ (active[:, None] * M) @ (v - u)
        norms = norms + cp.norm(v) + cp.norm(u)
        signs = (2.0 * active - 1.0)[:, None] * M
        cells += [signs @ v >= 0, signs @ u >= 0]
    if problem.fit_intercept:
        F = F + cp.Variable()
    cost = w @ row_loss(cp, F, problem.Y[:, 0]) + problem.beta * norms
    return cp.Problem(cp.Minimize(cost), cells).solve(solver="CLARABEL")


ROWS = {
    "squared": lambda cp, F, y: 0.5 * cp.square(F - y),
    "huber": lambda cp, F, y: 0.5 * cp.huber(F - y, 0.5),
    "absolute": lambda cp, F, y: cp.abs(F - y),
    "quantile": lambda cp, F, y: 0.8 * cp.pos(y - F) + 0.2 * cp.pos(F - y),
    "epsilon_insensitive": lambda cp, F, y: cp.pos(cp.abs(F - y) - 0.2),
    "logistic": lambda cp, F, y: cp.logistic(-cp.multiply(y, F)),
    "hinge": lambda cp, F, y: cp.pos(1 - cp.multiply(y, F)),
    "squared_hinge": lambda cp, F, y: 0.5 * cp.square(cp.pos(1 - cp.multiply(y, F))),
}
LOSS = {"huber": Huber(0.5), "quantile": Quantile(0.8), "epsilon_insensitive": EpsilonInsensitive(0.2)}


def check(result, problem, tol):
    assert result.lower_bound <= result.objective * (1 + 1e-9)
    assert not result.converged or result.gap <= 1.02 * tol  # fewer neurons may cost a hundredth of it
    if result.attained > 0 and result.V.any():  # V is scaled: along its ray there is nothing better
        again = lower_bound(problem, result.V, problem.beta, problem.beta)
        assert result.lower_bound <= again.value + 1e-9 * result.objective


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", list(ROWS))
def test_objective_and_bound_meet_at_the_optimum_of_the_convex_program(name, intercept):
    X, y = planted(9, 2, seed=len(name))
    y = np.sign(y) if get_loss(LOSS.get(name, name)).classification else y
    problem = make(X, y, 0.03, LOSS.get(name, name), intercept, w=np.linspace(1, 2, 9))
    result = solve_adaptive(problem, tol=1e-5, random_state=0, time_limit=60)
    truth = optimum(problem, ROWS[name])
    check(result, problem, 1e-5)
    assert result.objective == pytest.approx(truth, rel=1e-4)
    assert result.objective >= truth * (1 - 1e-6)
    assert result.lower_bound <= truth * (1 + 1e-6)
    assert result.converged


def test_pooled_rows():
    rng = np.random.default_rng(0)
    M = rng.standard_normal((10, 2))
    A = sp.csr_array(np.kron(np.eye(5), np.ones((1, 2))))
    problem = make(M, rng.standard_normal(5), 0.05, A=A)
    result = solve_adaptive(problem, tol=1e-5, random_state=0, time_limit=10)
    assert result.objective == pytest.approx(optimum(problem, ROWS["squared"]), rel=1e-4)
    assert result.converged


def test_three_dimensions():
    X, y = planted(10, 3, seed=3)
    problem = make(X, y, 0.01)
    result = solve_adaptive(problem, tol=1e-5, random_state=0, time_limit=20)
    assert result.objective == pytest.approx(optimum(problem, ROWS["squared"]), rel=1e-4)
    assert result.converged


@pytest.mark.parametrize(("n", "d"), [(8, 12), (10, 5), (11, 7)])
def test_few_rows_of_many_columns_are_proven(n, d):
    X, y = planted(n, d)
    est = ReLURegressor(0.01, bias=False, tol=1e-4, prove=60.0, random_state=0).fit(X, y)
    assert est.gap_ <= est.tol_
    exact = ReLURegressor(0.01, bias=False, method="exact", tol=1e-7).fit(X, y)
    assert est.lower_bound_ <= exact.objective_
    assert exact.lower_bound_ <= est.objective_


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_vector_outputs_in_the_plane(loss):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20, 2))
    Y = np.arange(20) % 3 if loss == "softmax" else rng.standard_normal((20, 3))
    problem = make(X, Y, 0.02, loss, True)
    result = solve_adaptive(problem, tol=1e-3, random_state=0, time_limit=20)
    check(result, problem, 1e-3)
    assert result.converged
    kinks = np.arctan2(X[:, 1], X[:, 0]) + np.pi / 2
    angles = np.concatenate([np.linspace(0, 2 * np.pi, 100_001), kinks, kinks + np.pi])
    H = np.maximum(X @ np.stack([np.cos(angles), np.sin(angles)]), 0.0)
    g = np.linalg.norm(result.V.T @ H, axis=0).max()
    assert g <= problem.beta * (1 + 1e-6)
    assert np.abs(result.V.sum(axis=0)).max() < 1e-9


def test_planted_problem_to_an_audited_gap():
    problem = make(*planted(200, 5), 0.01)
    result = solve_adaptive(problem, tol=1e-3, random_state=0, time_limit=30)
    check(result, problem, 1e-3)
    assert result.converged
    assert result.history[-1].objective <= result.history[0].objective


@pytest.mark.parametrize("loss", ["squared", "logistic", "absolute", "hinge"])
@pytest.mark.parametrize("intercept", [False, True])
def test_no_neurons_above_beta_max(loss, intercept):
    X, y = planted(30, 3)
    y = np.sign(y) if get_loss(loss).classification else y + 1
    problem = make(X, y, 1e3, loss, intercept)
    result = solve_adaptive(problem, random_state=0)
    assert len(result.neurons) == 0
    assert result.gap <= 1e-4
    assert result.converged


def degenerate():
    rng = np.random.default_rng(0)
    X, y = planted(20, 3)
    yield "duplicate rows", np.repeat(X, 2, axis=0), np.repeat(y, 2)
    yield "opposite rows", np.vstack([X, -X]), np.concatenate([y, y])
    yield "zero rows", np.vstack([X, np.zeros((3, 3))]), np.concatenate([y, np.ones(3)])
    yield "zero columns", np.hstack([X, np.zeros((20, 2))]), y
    yield "all zero", np.zeros((4, 2)), np.arange(4.0)
    yield "rank one", np.outer(X[:, 0], [1.0, -2.0]), y
    yield "wide", rng.standard_normal((4, 9)), rng.standard_normal(4)
    yield "one row", np.ones((1, 2)), np.ones(1)
    yield "two rows", np.eye(2), np.array([1.0, -1.0])
    yield "constant targets", X, np.full(20, 3.0)
    yield "zero targets", X, np.zeros(20)
    yield "integers", rng.integers(-1, 2, (15, 3)).astype(float), rng.integers(0, 2, 15).astype(float)
    yield "scales", X * [1e-3, 1.0, 1e3], y
    yield "large targets", X, 1e6 * y
    yield "conflicting", np.ones((6, 1)), np.arange(6.0)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("name", "X", "y"), list(degenerate()), ids=[c[0] for c in degenerate()])
def test_degenerate_data(name, X, y, intercept):
    scale = np.abs(y).max() or 1.0
    problem = make(X, y, 0.01 * scale, intercept=intercept)
    result = solve_adaptive(problem, tol=1e-3, random_state=0, time_limit=5)
    check(result, problem, 1e-3)
    assert result.gap <= 1e-3 or result.objective < 1e-12


@pytest.mark.parametrize("factor", [1e-8, 1e-4, 0.999, 1.0, 2.0])
def test_any_beta(factor):
    X, y = planted(20, 2)
    top = solve_adaptive(make(X, y, 1e6), random_state=0).attained  # of the zero network's residual
    problem = make(X, y, factor * top)
    result = solve_adaptive(problem, tol=1e-3, random_state=0, time_limit=3)
    check(result, problem, 1e-3)
    if factor > 1:
        assert len(result.neurons) == 0


def test_same_seed_same_answer():
    problem = make(*planted(60, 4), 0.01)
    one, two = (solve_adaptive(problem, tol=1e-3, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one.neurons.U, two.neurons.U)
    assert one.lower_bound == two.lower_bound


def test_time_limit_and_interrupt(monkeypatch):
    problem = make(*planted(400, 12), 0.002)
    result = solve_adaptive(problem, tol=1e-9, random_state=0, time_limit=0.05)
    assert result.interrupted
    check(result, problem, 1e-9)
    seen = []

    def stop(self, words):
        seen.append(self.objective)
        if len(seen) == 3:
            current().interrupt()

    monkeypatch.setattr(engine.Engine, "note", stop)
    with watching():
        result = solve_adaptive(problem, tol=1e-9, random_state=0)
    assert result.interrupted
    assert len(seen) >= 3
    assert len(result.neurons)
    check(result, problem, 1e-9)


def test_an_interrupted_run_keeps_its_few_neurons(monkeypatch):
    # losses with kinks: the corrective step of the narrow network is abandoned after Ctrl-C
    X, y = planted(60, 4)
    problem = make(X, np.sign(y - np.median(y)), 0.01, loss="hinge")
    note, seen = engine.Engine.note, []

    def stop(self, *args, **words):
        seen.append(note(self, *args, **words))
        if len(seen) == 3:
            current().interrupt()

    monkeypatch.setattr(engine.Engine, "note", stop)
    with watching():
        result = solve_adaptive(problem, tol=1e-9, random_state=0, max_neurons=2)
    assert 0 < len(result.neurons) <= 2


def test_warm_start_and_width_limit():
    problem = make(*planted(80, 3), 0.01)
    cold = solve_adaptive(problem, tol=1e-3, random_state=0)
    warm = solve_adaptive(problem, tol=1e-3, random_state=0, start=cold.neurons)
    assert warm.objective <= cold.objective * (1 + 1e-3)
    assert warm.converged
    few = solve_adaptive(problem, tol=1e-3, random_state=0, max_neurons=5, time_limit=5)
    assert 0 < len(few.neurons) <= 5
    check(few, problem, 1e-3)
    given = Neurons(cold.neurons.U * 2, cold.neurons.alpha / 2, cold.neurons.intercept)
    assert solve_adaptive(problem, tol=1e-3, random_state=0, start=given).converged


def test_smoothed_loss_is_the_moreau_envelope():
    rng = np.random.default_rng(0)
    for name in ("absolute", "hinge"):
        base = get_loss(name)
        Y = np.sign(rng.standard_normal((40, 1)))
        F, eps = 2 * rng.standard_normal((40, 1)), 0.3
        smooth = SmoothedLoss(base, eps)
        grid = np.linspace(-6, 6, 24_001)
        for f, y, value in zip(F[:, 0], Y[:, 0], smooth.rows(F, Y), strict=True):
            rows = base.rows(grid[:, None], np.full((len(grid), 1), y)) + (f - grid) ** 2 / (2 * eps)
            assert value == pytest.approx(rows.min(), abs=1e-6)
        h = 1e-6
        slope = (smooth.rows(F + h, Y) - smooth.rows(F - h, Y)) / (2 * h)
        np.testing.assert_allclose(smooth.row_gradients(F, Y)[:, 0], slope, atol=1e-5)
