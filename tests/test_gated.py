"""Gated networks: the group lasso against CVXPY, the certificate against weak duality, and the way to a network."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from bidual import GatedNetwork, ReLUClassifier, ReLURegressor, ReLURegressorCV, TwoLayerNetwork, load
from bidual.atoms import GatedNeurons, Relu
from bidual.losses import Absolute, Huber, Logistic, Loss, Softmax, Squared, SquaredHinge
from bidual.problem import Problem
from bidual.programs.gated.design import GatedDesign
from bidual.solvers import Options, gates_of, solve_gated
from bidual.solvers.gated.newton import newton_direction
from bidual.solvers.gated.prox import Prox
from bidual.solvers.gated.solve import best_intercept

from .helpers import cvxpy_loss, with_ones

ESTIMATORS = [
    ReLURegressor(1e-3, activation="gated", n_patterns=20, random_state=0),
    ReLUClassifier(1e-3, activation="gated", n_patterns=8, tol=1e-2, random_state=0),
]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    return X, np.maximum(X[:, 0], 0) - np.abs(X[:, 1]) + 0.1 * rng.standard_normal(30), rng


def group_lasso(M, D, Y, beta, loss, w, fit_intercept, **kw):
    """The program as printed, with the blocks written out."""
    n, p = M.shape
    C = Y.shape[1]
    W = [cp.Variable((p, C)) for _ in D]
    b = cp.Variable(C) if fit_intercept else np.zeros(C)
    F = sum((D_i[:, None] * M) @ W_i for D_i, W_i in zip(D.astype(float), W, strict=True)) + np.ones((n, 1)) @ (
        cp.reshape(b, (1, C), order="C")
    )
    if loss == "softmax":
        value = w @ (cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(Y, F), axis=1))
    else:
        value = sum(cvxpy_loss(loss, F[:, c], Y[:, c], w, **kw) for c in range(C))
    program = cp.Problem(cp.Minimize(value + beta * sum(cp.norm(W_i, "fro") for W_i in W)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        try:
            program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-10, tol_feas=1e-10)
        except cp.SolverError:  # more than it can do: its own tolerances
            program.solve(solver=cp.SCS, eps=1e-9, max_iters=100_000)
    return float(program.value)


REGRESSION = [("squared", Squared(), {}), ("huber", Huber(0.3), {"delta": 0.3})]
CLASSES = [("logistic", Logistic(), {}), ("squared_hinge", SquaredHinge(), {}), ("softmax", Softmax(), {})]


@pytest.mark.parametrize(("bias", "fit_intercept"), [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "loss", "kw"), REGRESSION + CLASSES)
def test_the_printed_program(data, name, loss, kw, weighted, bias, fit_intercept):
    X, y, rng = data
    weight = rng.uniform(0.2, 3.0, len(X)) if weighted else np.ones(len(X))
    gates = rng.standard_normal((12, X.shape[1] + bias))
    beta = 0.02
    common = {
        "beta": beta,
        "loss": loss,
        "activation": "gated",
        "gates": gates,
        "bias": bias,
        "fit_intercept": fit_intercept,
        "tol": 1e-7,
    }
    if loss.classification:
        classes = 3 if loss.coupled else 2
        target = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])) if classes == 3 else (y > 0).astype(int)
        est = ReLUClassifier(**common).fit(X, target, sample_weight=weight)
        Y = est.loss_.encode(target, classes)
    else:
        target, Y = y, y[:, None]
        est = ReLURegressor(**common).fit(X, target, sample_weight=weight)
    M = with_ones(X, bias)
    truth = group_lasso(M, gates @ M.T >= 0, Y, beta, name, weight / weight.sum(), fit_intercept, **kw)
    assert est.objective_ == pytest.approx(truth, rel=2e-6)
    assert est.lower_bound_ <= truth * (1 + 1e-8)
    assert 0 <= est.gap_ <= 1e-7
    assert est.certificate_.scope == "gates"
    assert "these gates" in str(est.certificate_)
    assert est.network_.objective(X, target, beta=beta, loss=est.loss_, sample_weight=weight) == pytest.approx(
        est.objective_, rel=1e-12
    )


def test_several_targets(data):
    X, y, rng = data
    Y = np.column_stack([y, y**2, -y])
    gates = rng.standard_normal((10, 3))
    est = ReLURegressor(beta=0.05, activation="gated", gates=gates, bias=False, tol=1e-8).fit(X, Y)
    truth = group_lasso(X, gates @ X.T >= 0, Y, 0.05, "squared", np.full(30, 1 / 30), True)
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.predict(X).shape == Y.shape


def problem_of(X, Y, loss: Loss, beta, *, fit_intercept=False, A=None):
    n = len(Y)
    return Problem(Relu(X, A), Y, np.full(n, 1 / n), loss, beta, fit_intercept)


def test_pooling(data):
    X, y, rng = data
    A = sp.csr_array(np.kron(np.eye(15), np.ones((1, 2))))
    problem = problem_of(X, y[:15, None], Squared(), 0.05, A=A)
    gates = rng.standard_normal((8, 3))
    solution = solve_gated(problem, Options(tol=1e-8, gates=gates_of(X, gates)))
    W = [cp.Variable(3) for _ in gates]
    F = sum((A @ ((X @ g >= 0)[:, None] * X)) @ W_i for g, W_i in zip(gates, W, strict=True))
    value = cp.sum_squares(F - y[:15]) / 30 + 0.05 * sum(cp.norm(W_i) for W_i in W)
    truth = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL, tol_gap_rel=1e-10)
    assert solution.history[-1].objective == pytest.approx(truth, rel=1e-6)
    assert solution.bound.value <= truth * (1 + 1e-8)


@pytest.mark.parametrize("loss", [Squared(), Huber(0.5), Softmax()])
def test_weak_duality(data, loss):
    X, y, rng = data
    Y = np.eye(3)[np.digitize(y, [-1.0, 0.0])] if loss.coupled else y[:, None]
    problem = problem_of(X, Y, loss, 0.02, fit_intercept=True)
    patterns = gates_of(X, rng.standard_normal((15, 3)))
    solution = solve_gated(problem, Options(tol=1e-3, gates=patterns))
    design = GatedDesign(problem, patterns.active)
    assert design.norms(solution.bound.feasible).max() <= problem.beta
    np.testing.assert_allclose(solution.bound.feasible.sum(axis=0), 0, atol=1e-12)
    assert solution.bound.value == pytest.approx(problem.dual_value(solution.bound.feasible), rel=1e-9)
    for scale in (0.0, 0.01, 0.1, 1.0):  # no weights whatever are below the bound
        W = scale * rng.standard_normal((len(patterns), 3, Y.shape[1]))
        F = design.outputs(W) + scale * rng.standard_normal(Y.shape[1])
        assert problem.loss_value(F) + problem.beta * np.linalg.norm(W, axis=(1, 2)).sum() >= solution.bound.value


def test_zero_from_beta_max_on(data):
    X, y, rng = data
    gates = rng.standard_normal((20, 3))
    V = (y - y.mean()) / len(y)
    beta_max = max(np.linalg.norm(X.T @ ((X @ g >= 0) * V)) for g in gates)
    fit = {"activation": "gated", "gates": gates, "bias": False, "tol": 1e-8}
    above = ReLURegressor(beta=1.0001 * beta_max, **fit).fit(X, y)
    assert above.n_neurons_ == 0
    assert above.gap_ <= 1e-8
    np.testing.assert_allclose(above.predict(X), y.mean())
    assert ReLURegressor(beta=0.99 * beta_max, **fit).fit(X, y).n_neurons_ > 0


def test_one_open_gate_is_a_linear_model(data):
    X, y, _ = data
    est = ReLURegressor(beta=1e-9, activation="gated", gates=np.zeros((1, 3)), bias=False, tol=1e-8).fit(X, y)
    linear = LinearRegression().fit(X, y)
    np.testing.assert_allclose(est.network_.linear_weights[0, :, 0], linear.coef_, atol=1e-6)
    np.testing.assert_allclose(est.network_.intercept, linear.intercept_, atol=1e-6)
    # With a penalty it is a ridge of its own strength: X^T (Xw - y) / n + beta w / norm(w) = 0.
    est = ReLURegressor(
        beta=0.3, activation="gated", gates=np.zeros((1, 3)), bias=False, fit_intercept=False, tol=1e-10
    ).fit(X, y)
    w = est.network_.linear_weights[0, :, 0]
    ridge = np.linalg.solve(X.T @ X / 30 + 0.3 / np.linalg.norm(w) * np.eye(3), X.T @ y / 30)
    np.testing.assert_allclose(w, ridge, atol=1e-5)


def test_a_relaxation_of_relu(data):
    X, y, _ = data
    relu = ReLURegressor(beta=0.02, random_state=0).fit(X, y)
    for source in (relu, relu.network_, np.column_stack([relu.network_.hidden_weights, relu.network_.hidden_bias])):
        gated = ReLURegressor(beta=0.02, activation="gated", gates=source, tol=1e-8).fit(X, y)
        assert gated.objective_ <= relu.objective_ * (1 + 1e-8)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_sampled_programs_on_the_patterns_of_a_network_are_no_worse_than_it(data, loss):
    X, y, rng = data
    hidden, bias, output = rng.standard_normal((6, 3)), rng.standard_normal(6), rng.standard_normal(6)
    network = TwoLayerNetwork(hidden_weights=hidden, hidden_bias=bias, output_weights=output[:, None])
    convex = ReLURegressor(0.02, loss=loss, method="sampled", gates=network, fit_intercept=False, tol=1e-7).fit(X, y)
    assert convex.objective_ <= network.objective(X, y, beta=0.02, loss=loss) * (1 + 1e-8)
    assert convex.certificate_.scope == "patterns"
    assert convex.certificate_.n_patterns <= 6
    vectors = ReLURegressor(
        0.02, loss=loss, method="sampled", gates=np.column_stack([hidden, bias]), fit_intercept=False, tol=1e-7
    ).fit(X, y)
    assert vectors.objective_ == pytest.approx(convex.objective_, rel=1e-7)


def test_derivative_of_the_prox_and_newton_step(data):
    X, y, rng = data
    Z = rng.standard_normal((6, 3, 2))
    prox = Prox.at(Z, 1.2)
    np.testing.assert_allclose(prox.norms, np.linalg.norm(prox.value, axis=(1, 2)), atol=1e-14)
    H = rng.standard_normal(Z.shape)
    numeric = (Prox.at(Z + 1e-6 * H, 1.2).value - Prox.at(Z - 1e-6 * H, 1.2).value)[prox.active] / 2e-6
    np.testing.assert_allclose(prox.derivative(H[prox.active]), numeric, atol=1e-7)
    # The Newton step solves (I + sigma B H) delta = -R, whichever way its system is preconditioned.
    problem = problem_of(X, y[:, None], Squared(), 0.1)
    design = GatedDesign(problem, gates_of(X, rng.standard_normal((6, 3))).active)
    prox = Prox.at(Z[:, :, :1], 1.0)
    K = np.hstack([D[:, None] * X for D in design.active[prox.active]])
    J = sp.block_diag(
        [s * np.eye(3) + (1 - s) * np.outer(z, z) for s, z in zip(prox.shrink, prox.direction[:, :, 0], strict=True)]
    )
    R = rng.standard_normal((30, 1))
    direction = newton_direction(problem, design, prox, np.zeros((30, 1)), R, 10.0, 0.7)
    system = np.eye(30) + 10.0 * (K @ J @ K.T + 0.7) / 30
    np.testing.assert_allclose(direction, np.linalg.solve(system, -R), atol=1e-3 * np.linalg.norm(R))


@pytest.mark.parametrize("loss", [Huber(0.01), Logistic(), Softmax()])
def test_best_intercept(data, loss):
    _, y, rng = data
    Y = {"huber": y[:, None] + 5, "logistic": np.sign(y)[:, None], "softmax": np.eye(3)[rng.integers(0, 3, 30)]}[
        loss.name
    ]
    problem = problem_of(np.ones((30, 1)), Y, loss, 0.1, fit_intercept=True)
    b = best_intercept(problem, np.zeros_like(Y), np.zeros(Y.shape[1]))
    assert np.abs(loss.gradient(np.zeros_like(Y) + b, Y, problem.w).sum(axis=0)).max() < 1e-6


# ---- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_network(data, tmp_path, bias):
    X, y, _ = data
    est = ReLURegressor(beta=0.02, activation="gated", n_patterns=25, random_state=0, bias=bias).fit(
        X, np.column_stack([y, -(y**2)])
    )
    net = est.network_
    assert isinstance(net, GatedNetwork)
    assert 0 < net.n_neurons <= 25
    F, penalty = np.tile(net.intercept, (30, 1)), 0.0
    for i in range(net.n_neurons):
        c = net.linear_bias[i] if bias else np.zeros(2)
        opened = X @ net.gate_weights[i] + (net.gate_bias[i] if bias else 0.0) >= 0
        F += opened[:, None] * (X @ net.linear_weights[i] + c)
        penalty += np.sqrt((net.linear_weights[i] ** 2).sum() + c @ c)
    np.testing.assert_allclose(net.predict(X), F, atol=1e-12)
    assert net.penalty() == pytest.approx(penalty)
    again = load(net.save(tmp_path / "net.json"))
    assert all(np.array_equal(a, b) for a, b in zip(net.weights().values(), again.weights().values(), strict=True))
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(net.to_torch()(torch.as_tensor(X)).detach().numpy(), F, atol=1e-12)
    assert net.to_torch(torch.float32)(torch.zeros((4, 3))).shape == (4, 2)


def test_network_without_gates(tmp_path):
    net = GatedNetwork(np.zeros((0, 2)), np.zeros((0, 2, 3)), np.zeros(0), np.zeros((0, 3)), [1.0, 2.0, 3.0])
    again = load(net.save(tmp_path / "net.json"))
    np.testing.assert_array_equal(again.predict(np.ones((2, 2))), [[1, 2, 3]] * 2)
    assert (again.n_inputs, again.n_outputs, again.n_neurons, again.penalty()) == (2, 3, 0, 0.0)


# ---- estimators ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_the_battery_is_not_skipped(estimator):
    assert len(list(estimator_checks_generator(estimator))) > 45


def test_weights_are_repetitions(data):
    X, y, rng = data
    counts = rng.integers(1, 4, len(X))
    est = ReLURegressor(beta=0.02, activation="gated", random_state=0)
    weighted = clone(est).fit(X, y, sample_weight=counts).predict(X)
    np.testing.assert_array_equal(weighted, clone(est).fit(np.repeat(X, counts, 0), np.repeat(y, counts)).predict(X))


def test_scaling_law(data):
    X, y, rng = data
    gates = rng.standard_normal((15, 3))
    fit = {"activation": "gated", "gates": gates, "bias": False, "tol": 1e-9}
    one = ReLURegressor(beta=0.02, **fit).fit(X, y)
    other = ReLURegressor(beta=0.02 * 1e3 * 10, **fit).fit(1e3 * X, 10 * y + 4)
    assert other.objective_ == pytest.approx(100 * one.objective_, rel=1e-7)
    np.testing.assert_allclose(other.predict(1e3 * X), 10 * one.predict(X) + 4, atol=1e-3)


def test_many_gates_and_warm_start():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    y = np.maximum(X[:, 0], 0) - np.maximum(X[:, 1], 0) + 0.1 * rng.standard_normal(200)
    est = ReLURegressor(beta=0.01, activation="gated", n_patterns=600, random_state=0, tol=1e-7, warm_start=True)
    first = est.fit(X, y).objective_
    assert est.gap_ <= 1e-7
    assert est.certificate_.n_patterns == 600
    steps = est.n_iter_
    assert est.fit(X, y).n_iter_ < steps
    assert est.objective_ == pytest.approx(first, rel=1e-6)
    assert est.set_params(beta=0.008).fit(X, y).gap_ <= 1e-7
    assert [h.elapsed for h in est.history_] == sorted(h.elapsed for h in est.history_)


def test_degenerate_data():
    y = np.array([1.0, 2.0, 4.0])
    est = ReLURegressor(activation="gated", bias=False).fit(np.zeros((3, 2)), y)
    np.testing.assert_allclose(est.predict(np.ones((1, 2))), y.mean())
    assert est.gap_ <= 1e-4
    low_rank = ReLURegressor(beta=0.01, activation="gated", random_state=0).fit(
        np.outer([1.0, -1.0, 2.0], [1, 2, 3]), y
    )
    assert low_rank.gap_ <= 1e-4


def test_limits(data):
    X, y, _ = data
    est = ReLURegressor(beta=1e-4, activation="gated", random_state=0, tol=1e-12, max_iter=2)
    with pytest.warns(UserWarning, match="max_iter"):
        est.fit(X, y)
    assert np.isfinite(est.gap_)
    with pytest.warns(UserWarning, match="time_limit"):
        est.set_params(max_iter=200, time_limit=0.0).fit(X, y)
    assert 0 < est.gap_ <= 1


def test_errors(data):
    X, y, _ = data
    for loss in ("absolute", "quantile", Absolute()):
        with pytest.raises(ValueError, match=r"smooth.*'squared' or 'huber'"):
            ReLURegressor(loss=loss, activation="gated").fit(X, y)
    with pytest.raises(ValueError, match="smooth"):
        ReLURegressor(beta=0, activation="gated").fit(X, y)
    with pytest.raises(ValueError, match="activation='gated'"):
        ReLURegressor(gates=np.ones((2, 3))).fit(X, y)
    for gates, words in [
        (np.ones((2, 5)), "shape"),
        (np.ones(3), "shape"),
        (np.zeros((0, 3)), "shape"),
        (np.full((2, 3), np.nan), "NaN"),
    ]:
        with pytest.raises(ValueError, match=words):
            ReLURegressor(activation="gated", gates=gates).fit(X, y)
    with pytest.raises(ValueError, match="bias=False"):
        ReLURegressor(activation="gated", gates=np.ones((2, 4)), bias=False).fit(X, y)
    with pytest.raises(ValueError, match="activation"):
        ReLURegressor(activation="swish").fit(X, y)
    fitted = ReLURegressor(activation="gated", warm_start=True, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="two-layer"):
        fitted.set_params(activation="relu").fit(X, y)


def test_equal_gates_count_once(data):
    X, y, rng = data
    gates = rng.standard_normal((5, 4))
    est = ReLURegressor(beta=0.01, activation="gated", gates=np.concatenate([gates, 2 * gates])).fit(X, y)
    assert est.certificate_.n_patterns == 5
    assert len(GatedNeurons(gates, np.zeros((5, 4, 1)), np.zeros(1)).balanced()) == 0


def test_folds_are_trained_with_gates_too():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.abs(X[:, 0]) + 0.1 * rng.standard_normal(60)
    kw = {"activation": "gated", "n_patterns": 15, "random_state": 0, "tol": 1e-5}
    chosen = ReLURegressorCV(betas=[0.1, 0.01], cv=2, **kw).fit(X, y)
    assert isinstance(chosen.network_, GatedNetwork)
    # two folds of consecutive rows, each on its own
    for fold, test in enumerate((slice(0, 30), slice(30, 60))):
        train = np.setdiff1d(np.arange(60), np.arange(60)[test])
        first = ReLURegressor(beta=0.1, **kw).fit(X[train], y[train])
        assert chosen.scores_[0, fold] == pytest.approx(first.score(X[test], y[test]), abs=1e-3)
