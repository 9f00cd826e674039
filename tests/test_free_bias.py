"""Free hidden biases (004 eq. 1-4): networks whose weight decay leaves them out, for any number of inputs."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from bidual import (
    ReLUClassifier,
    ReLUClassifierCV,
    ReLURegressor,
    SplineClassifier,
    SplineRegressor,
    TwoLayer,
    beta_max,
    certify,
    load,
    solution_path,
)
from bidual._util.tuning import tuned
from bidual.architectures import Standardised
from bidual.arrangements import enumerate_patterns
from bidual.atoms import FreeBias, FreeNeurons
from bidual.bounds import Bound, bound_by_norms, cone_bounds
from bidual.bounds.free_bias import Priced, PricedProof
from bidual.bounds.oracle import bound_oracle
from bidual.certification import refusal
from bidual.certification.check_certificate import check
from bidual.losses import get_loss
from bidual.networks import TwoLayerNetwork
from bidual.problem import Problem
from bidual.solvers import Options, solve_adaptive
from bidual.solvers.free_bias.pricing import FreePricer
from bidual.solvers.steps import Steps
from bidual.training.objective import Objective

EXACT = {"bias": "free", "method": "exact", "scale": False}


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.abs(X[:, 0]) - X[:, -1] + 0.3 * rng.standard_normal(n)


def labels(y):
    return (y > np.median(y)).astype(int)


def fitted(est, X, y):
    """Trained to an accuracy that proofs over patterns do not have: rows nearly parallel are one to them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return est.fit(X, y)


def problem_of(X, Y, beta=0.05, loss="squared"):
    return Objective(get_loss(loss), beta, bias="free").pose(X, Y.reshape(len(X), -1)).natural


def dual_points(problem, seed=0):
    V = problem.w[:, None] * np.random.default_rng(seed).standard_normal(problem.Y.shape)
    return V - V.mean(axis=0)


def at_all_kinks(atoms, V, U):
    """Values of the dual constraint for unit weights U, at the best biases: every kink is tried."""
    X = atoms.M[:, :-1]
    best = 0.0
    for u in U / np.linalg.norm(U, axis=1)[:, None]:
        z = X @ u
        hidden = np.maximum(z[:, None] - z, 0.0)
        best = max(best, float(np.linalg.norm(V.T @ hidden, axis=0).max()))
    return best


# ---- independent truth ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile", "epsilon_insensitive"])
@pytest.mark.parametrize("beta", [0.1, 0.003])
def test_one_input_is_a_spline(loss, beta):
    X, y = rows(22, 1)
    spline = SplineRegressor(beta, loss=loss, tol=1e-10).fit(X, y)
    for method in ("exact", "adaptive"):
        est = fitted(ReLURegressor(beta, loss=loss, bias="free", method=method, scale=False, tol=1e-9), X, y)
        assert est.objective_ == pytest.approx(spline.objective_, rel=1e-8)
        assert est.lower_bound_ <= spline.objective_ * (1 + 1e-9)


@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared", "squared_hinge"])
def test_one_input_is_a_spline_classifier(loss):
    X, y = rows(22, 1)
    spline = SplineClassifier(0.01, loss=loss, tol=1e-10).fit(X, labels(y))
    est = fitted(ReLUClassifier(0.01, loss=loss, tol=1e-9, **EXACT), X, labels(y))
    assert est.objective_ == pytest.approx(spline.objective_, rel=1e-8)


def test_one_input_with_exact_fit_is_a_spline():
    X, y = rows(12, 1)
    spline = SplineRegressor(0.0).fit(X, y)
    assert ReLURegressor(0.0, **EXACT).fit(X, y).objective_ == pytest.approx(spline.objective_, rel=1e-6)
    spline = SplineClassifier(0.0).fit(X, labels(y))
    est = ReLUClassifier(0.0, loss="hinge", **EXACT).fit(X, labels(y))
    assert est.objective_ == pytest.approx(spline.objective_, rel=1e-6)


def program_as_printed(X, y, beta):
    """004 eq. 1-4 on all patterns of [X, 1]: weights and biases in their cones, of which only the weights cost."""
    ones = np.column_stack([X, np.ones(len(X))])
    F, cost, constraints = cp.Variable(), 0, []
    for active in enumerate_patterns(ones).active:
        sign = np.where(active, 1.0, -1.0)
        for way in (1.0, -1.0):
            z = cp.Variable(X.shape[1] + 1)
            F = F + way * cp.multiply(active.astype(float), ones @ z)
            constraints.append(cp.multiply(sign, ones @ z) >= 0)
            cost = cost + cp.norm(z[:-1])
    loss = 0.5 * cp.sum_squares(F - y) / len(y)
    return cp.Problem(cp.Minimize(loss + beta * cost), constraints).solve(solver="CLARABEL")


@pytest.mark.parametrize("seed", [0, 1])
def test_two_inputs_are_the_program_as_printed(seed):
    X, y = rows(9, 2, seed)
    truth = program_as_printed(X, y, 0.02)
    est = ReLURegressor(0.02, tol=1e-6, **EXACT).fit(X, y)
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.lower_bound_ <= truth * (1 + 1e-7)
    assert est.gap_ <= 1e-6


@pytest.mark.parametrize("beta", [0.1, 0.01])
def test_moving_neurons_end_where_all_patterns_do(beta):
    X, y = rows(25, 2)
    exact = ReLURegressor(beta, **EXACT).fit(X, y)
    with tuned(free_patterns=0):
        est = ReLURegressor(beta, bias="free", scale=False, tol=1e-5, random_state=0).fit(X, y)
    assert exact.lower_bound_ <= est.objective_ <= exact.objective_ * (1 + 2e-5)
    assert est.likely_bound_ <= exact.objective_ * (1 + 1e-9)


def test_free_biases_cost_no_more_than_regularised_ones():
    X, y = rows(15, 2)
    free = ReLURegressor(0.02, **EXACT).fit(X, y)
    assert free.objective_ < ReLURegressor(0.02, **{**EXACT, "bias": True}).fit(X, y).lower_bound_


# ---- invariances ---------------------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["shift", "turn", "double", "flip", "scale"]))
def test_what_networks_do_not_see(seed, change):
    rng = np.random.default_rng(seed)
    X, y = rows(10, 2, seed)
    beta, weight, moved, targets = 0.03, None, X, y
    if change == "shift":
        moved = X + rng.uniform(-100, 100, 2)
    elif change == "turn":
        moved = X @ np.linalg.qr(rng.standard_normal((2, 2)))[0]
    elif change == "flip":
        moved, targets = -X, -y
    elif change == "scale":  # s X with s beta
        moved, beta = 7.0 * X, 7.0 * 0.03
    elif change == "double":
        moved, targets = np.vstack([X, X[:4]]), np.concatenate([y, y[:4]])
        weight = np.concatenate([[0.5] * 4, np.ones(6), [0.5] * 4])
    est = ReLURegressor(0.03, tol=1e-6, **EXACT).fit(X, y)
    same = ReLURegressor(beta, tol=1e-6, **EXACT).fit(moved, targets, sample_weight=weight)
    assert same.objective_ == pytest.approx(est.objective_, rel=1e-7)


def test_rows_far_from_zero_lose_nothing():
    X, y = rows(20, 3)
    options = {"bias": "free", "scale": False, "random_state": 0, "tol": 1e-4, "prove": False}
    near = ReLURegressor(0.05, **options).fit(X, y)
    far = ReLURegressor(0.05, **options).fit(X + 1e6, y)
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-3)


# ---- the dual constraint -------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_no_neuron_is_above_a_bound(seed, d, outputs, tied):
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (8, d)).astype(float) if tied else rng.standard_normal((8, d))
    problem = problem_of(X, rng.standard_normal((8, outputs)))
    V = dual_points(problem, seed)
    directions = np.vstack([rng.standard_normal((300, d)), np.eye(d), -np.eye(d)])
    attained = at_all_kinks(problem.atoms, V, directions)
    assert attained <= bound_by_norms(problem, V).limit
    patterns = problem.atoms.cells()
    bound = cone_bounds(problem, patterns).lower_bound(V)
    assert bound.proven
    assert attained <= bound.limit * (1 + 1e-12)
    assert bound.proof.bound(problem, V) >= attained
    for multiple in (1.0, 10.0):
        priced = Priced.at(problem, multiple)
        found = bound_oracle(priced.problem, V, method="compact" if multiple == 1.0 else "cones", rtol=1e-3)
        assert attained <= PricedProof(priced.price, found.proof).bound(problem, V)


@pytest.mark.parametrize("d", [1, 2])
def test_search_and_all_patterns_find_the_same_largest_value(d):
    X, y = rows(14, d)
    problem = problem_of(X, y)
    for seed in range(4):
        V = dual_points(problem, seed)
        limit = cone_bounds(problem, problem.atoms.cells()).lower_bound(V).limit
        found = Steps.of(problem).search(V, 0)
        assert found == pytest.approx(limit, rel=1e-6)
        assert found <= limit


def test_the_best_bias_is_at_a_row():
    """For any weights no bias is better than the best kink, as the dual point sums to zero."""
    X, y = rows(12, 3)
    problem = problem_of(X, np.column_stack([y, X[:, 0]]))
    V = dual_points(problem)
    pricer = FreePricer(problem, np.random.default_rng(0))
    for u in np.random.default_rng(1).standard_normal((10, 3)):
        u /= np.linalg.norm(u)
        z = problem.atoms.M[:, :-1] @ u
        anywhere = np.linalg.norm(V.T @ np.maximum(z[:, None] + np.linspace(-5, 5, 4001), 0.0), axis=0).max()
        there = pricer.at_kinks(V, np.append(u, 0.0)[None], None)
        assert there.best >= anywhere * (1 - 1e-12)
        assert there.best == pytest.approx(at_all_kinks(problem.atoms, V, u[None]), rel=1e-12)


def test_a_price_brackets_the_problem():
    """Ordinary neurons at a price of the bias cost more than free ones; with the limit over f they bound them."""
    X, y = rows(10, 2)
    free = problem_of(X, y)
    optimum = solve_adaptive(free, Options(tol=1e-7)).history[-1].objective
    for multiple in (1.0, 10.0):
        priced = Priced.at(free, multiple)
        below = solve_adaptive(priced.problem, Options(tol=1e-6, random_state=0)).history[-1].objective
        above = solve_adaptive(replace(priced.problem, beta=free.beta), Options(tol=1e-6, random_state=0))
        assert below * (1 - 1e-6) <= optimum <= above.history[-1].objective * (1 + 1e-6)


# ---- what neurons without weights are ------------------------------------------------------------------------------


def test_constants_and_idle_biases_are_the_business_of_the_intercept():
    X, _ = rows(8, 2)
    lift = TwoLayer().free_lift(X)
    network = TwoLayerNetwork([[0, 0], [1, 2], [1, 0]], [[3.0], [1.0], [2.0]], [2.0, 50.0, 0.1], [0.5], free_bias=True)
    neurons = lift.neurons(network)
    assert len(neurons) == 2
    again = lift.recover(neurons)
    assert again.free_bias
    assert np.allclose(again.forward(X), network.forward(X))
    assert again.hidden(X)[:, 0].min() == pytest.approx(0.0, abs=1e-12)


def test_only_weights_cost():
    neurons = FreeNeurons(np.array([[3.0, 4.0, 7.0]]), np.array([[2.0]]), np.zeros(1))
    assert neurons.costs == pytest.approx([10.0])
    assert neurons.balanced().lengths == pytest.approx(np.sqrt([10.0]))


@pytest.mark.parametrize("method", ["adaptive", "exact", "sampled"])
def test_rows_that_do_not_differ_leave_a_constant(method):
    est = ReLURegressor(0.1, bias="free", method=method, scale=False).fit(np.ones((4, 2)), [1.0, 2.0, 3.0, 4.0])
    assert est.n_neurons_ == 0
    assert est.objective_ == pytest.approx(0.625)
    assert est.gap_ <= 1e-6


def test_the_largest_beta():
    X, y = rows(15, 2)
    top = beta_max(X, y, bias="free")
    assert ReLURegressor(1.001 * top, **EXACT).fit(X, y).n_neurons_ == 0
    assert ReLURegressor(0.98 * top, **EXACT).fit(X, y).n_neurons_ > 0
    path = solution_path(X, y, n_betas=3, bias="free", tol=1e-3, random_state=0)
    assert all(network.free_bias for network in path.networks)


# ---- certificates --------------------------------------------------------------------------------------------------


def stands(est, X, y):
    """Whether the certificate is accepted by us and by the independent checker, and both refuse a better claim."""
    certificate = est.certificate_
    assert refusal(certificate, X, y, None, est) is None
    document = json.loads(json.dumps(certificate.to_dict()))
    network = json.loads(json.dumps(est.network_.to_dict()))
    proven, reason = check(document, X, y, None, network)
    assert proven, reason
    claimed = document["lower_bound"] + 0.3 * (document["objective"] - document["lower_bound"])
    better = {**document, "lower_bound": claimed}
    better["gap"] = better["likely_gap"] = None
    better["likely_bound"] = max(better["likely_bound"], better["lower_bound"])
    if document["gap"] > 1e-5:
        assert not check(better, X, y, None, network)[0]
    return certificate


SETTINGS = {
    "all patterns": {"method": "exact"},
    "sampled": {"method": "sampled", "n_patterns": 15},
    "moved": {"prove": False},
    "standardised": {"method": "exact", "scale": True},
    "fit": {"method": "exact", "beta": 0.0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_certificates_stand(name):
    X, y = rows(12, 2)
    est = ReLURegressor(**{"beta": 0.02, "bias": "free", "scale": False, "random_state": 0, **SETTINGS[name]}).fit(X, y)
    certificate = stands(est, X, y)
    assert certificate.scope == ("patterns" if name == "sampled" else "global")
    assert certificate.gap <= 1e-5


@pytest.mark.parametrize("name", ["all patterns", "moved", "sampled"])
def test_certificates_of_several_outputs_stand(name):
    X, y = rows(12, 2)
    Y = np.column_stack([y, X[:, 0] ** 2])
    est = ReLURegressor(**{"beta": 0.1, "bias": "free", "scale": False, "random_state": 0, **SETTINGS[name]}).fit(X, Y)
    assert stands(est, X, Y).gap <= (1.0 if name == "moved" else 1e-3)


@tuned(free_patterns=0)
def test_branch_and_bound_proves_what_patterns_do():
    X, y = rows(12, 3)
    exact = ReLURegressor(0.05, **EXACT).fit(X, y)
    est = ReLURegressor(0.05, bias="free", scale=False, random_state=0, prove=False).fit(X, y)
    cones = certify(est, X, y, method="cones", time_limit=None, tol=2e-3)
    assert "cones" in cones.method
    assert cones.gap <= 1e-2
    assert cones.lower_bound <= exact.objective_ * (1 + 1e-9)
    relaxed = certify(est, X, y, method="compact", tol=2e-3, time_limit=None)
    assert "relaxation" in relaxed.method
    assert 0 < relaxed.lower_bound <= exact.objective_


def test_classes_are_certified():
    X, y = rows(12, 2)
    three = np.digitize(y, np.quantile(y, [0.33, 0.66]))
    est = ReLUClassifier(0.05, bias="free", scale=False, random_state=0, prove=False).fit(X, three)
    stands(est, X, three)
    for loss in ("hinge", "logistic"):
        est = ReLUClassifier(0.05, loss=loss, **EXACT).fit(X, labels(y))
        assert stands(est, X, labels(y)).gap <= 1e-5


def test_any_network_may_be_judged_with_free_biases():
    X, y = rows(12, 2)
    est = ReLURegressor(0.05, method="exact", scale=False).fit(X, y)
    free = ReLURegressor(0.05, **EXACT).fit(X, y)
    judged = certify(est, X, y, bias="free", time_limit=20)
    penalty = est.network_.penalty() - 0.5 * float((est.network_.hidden_bias**2).sum())
    loss = 0.5 * float(((est.predict(X) - y) ** 2).mean())
    assert judged.objective == pytest.approx(loss + 0.05 * penalty, rel=1e-9)
    assert judged.lower_bound <= free.objective_ * (1 + 1e-9)
    assert judged.evidence.bias == "free"
    own = certify(free, X, y, beta=0.05, time_limit=20)
    assert own.gap <= 1e-3
    assert own.evidence.bias == "free"
    line, targets = rows(10, 1)
    assert certify(est_of_line(line, targets), line, targets, beta=0.05).gap <= 1e-3


def est_of_line(X, y):
    return ReLURegressor(0.05, **EXACT).fit(X, y).network_


def test_a_certificate_does_not_pass_for_one_of_regularised_biases():
    X, y = rows(10, 2)
    est = ReLURegressor(0.05, **EXACT).fit(X, y)
    network = est.network_
    charged = TwoLayerNetwork(network.hidden_weights, network.output_weights, network.hidden_bias, network.intercept)
    assert "biases" in refusal(est.certificate_, X, y, None, charged)
    document = est.certificate_.to_dict()
    assert not check(document, X, y, None, charged.to_dict())[0]
    for change in ({"bias": True}, {"fit_intercept": False}):
        other = {**document, "evidence": {**document["evidence"], **change}}
        assert not check(other, X, y)[0]


def test_a_price_must_be_one():
    X, y = rows(8, 2)
    problem, est = problem_of(X, y), ReLURegressor(0.05, **EXACT).fit(X, y)
    proof = est.certificate_.evidence.proof
    for wrong in (PricedProof(0.0, proof.inner), PricedProof(1.0, proof)):
        with pytest.raises(ValueError, match="at a price"):
            wrong.bound(problem, dual_points(problem))
    ordinary = Objective(get_loss("squared"), 0.05).pose(X, y[:, None]).natural
    with pytest.raises(ValueError, match="free biases"):
        proof.bound(ordinary, dual_points(ordinary))


# ---- files and estimators ------------------------------------------------------------------------------------------


def test_networks_are_stored_and_run_elsewhere(tmp_path):
    torch = pytest.importorskip("torch")
    X, y = rows(10, 2)
    est = ReLURegressor(0.05, **EXACT).fit(X, y)
    est.network_.save(tmp_path / "network.json")
    again = load(tmp_path / "network.json")
    assert again.free_bias
    assert again.penalty() == est.network_.penalty()
    F = est.network_.to_torch()(torch.as_tensor(X)).detach().numpy()[:, 0]
    assert np.allclose(F, est.predict(X))
    judged = certify(est.network_.to_torch(), X, y, beta=0.05, bias="free", fit_intercept=True, time_limit=20)
    assert judged.objective == pytest.approx(est.objective_)


def test_estimators_start_from_their_networks_and_choose_beta():
    X, y = rows(20, 2)
    est = ReLURegressor(0.05, bias="free", scale=False, warm_start=True, random_state=0, tol=1e-4)
    with tuned(free_patterns=0):
        first = est.fit(X, y).objective_
        assert est.fit(X, y).objective_ <= first * (1 + 1e-4)
    wide = ReLURegressor(0.01, bias="free", scale=False, max_neurons=2, random_state=0, tol=1e-2)
    assert fitted(wide, X, y).n_neurons_ <= 2
    chosen = fitted(ReLUClassifierCV(betas=[0.1, 0.01], bias="free", cv=2, random_state=0), X, labels(y))
    assert getattr(chosen.network_, "layer", chosen.network_).free_bias


def test_the_same_random_state_gives_the_same_network():
    X, y = rows(30, 4)
    options = {"bias": "free", "scale": False, "tol": 1e-3, "random_state": 3, "prove": False}
    one, two = (ReLURegressor(0.05, **options).fit(X, y) for _ in range(2))
    assert one.objective_ == two.objective_
    assert one.likely_gap_ <= 1e-3


# ---- what does not go together -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"fit_intercept": False},
            "bias='free' does not go with fit_intercept=False: it needs networks with",
        ),
        (
            {"architecture": "batch_norm"},
            r"bias='free' does not go with architecture=BatchNorm.*biases may be free",
        ),
        ({"method": "cutting_plane"}, "method='cutting_plane' does not go with bias='free'.*or bias=True"),
        ({"method": "closed_form"}, "method='closed_form' does not go with bias='free'"),
        ({"activation": "gated"}, "activation='gated' does not go with bias='free'"),
        ({"beta": 0.0}, "method='adaptive' does not go with beta=0"),
        ({"bias": "frei"}, "bias must be True, False or 'free', got 'frei'"),
        ({"bias": 1}, "bias must be True, False or 'free', got 1"),
    ],
)
def test_refusals(options, sentence):
    X, y = rows(6, 2)
    with pytest.raises(ValueError, match=sentence):
        ReLURegressor(**{"beta": 0.1, "bias": "free", **options}).fit(X, y)


def test_what_is_posed():
    X, y = rows(6, 2)
    data = Objective(get_loss("squared"), 0.1, Standardised(TwoLayer()), bias="free").pose(X, y[:, None])
    assert isinstance(data.problem.atoms, FreeBias)
    assert isinstance(data.problem, Problem)
    assert Bound.nothing(data.natural).proven
