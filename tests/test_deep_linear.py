"""Linear networks: nuclear norm, ridge path and white rows against convex programs and training."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from tests.deep_helpers import squared, train_dense, white_rows

from bidual import Certificate, LinearNetRegressor
from bidual.certification.check_certificate import check
from bidual.closed_form.deep_linear import LinearOptions, solve_linear, train_linear
from bidual.closed_form.linear import LinearProblem, dual_projection
from bidual.closed_form.ranks import rank_jumps, rank_path
from bidual.closed_form.scalar import critical_beta

TIGHT = LinearOptions(tol=1e-10)


def data(seed, n=12, d=4, C=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(1.5, 0.3, d)
    return X, X @ rng.standard_normal((d, C)) + 0.5 * rng.standard_normal((n, C)) + 1.0


def nuclear_program(X, Y, beta, w, fit_intercept=True):
    """001 sec. 2.2.1 for the weighted mean loss, as printed."""
    W = cp.Variable((X.shape[1], Y.shape[1]))
    b = cp.Variable((1, Y.shape[1])) if fit_intercept else np.zeros((1, Y.shape[1]))
    residual = X @ W + np.ones((len(X), 1)) @ b - Y
    loss = 0.5 * cp.sum_squares(cp.multiply(np.sqrt(w)[:, None], residual))
    problem = cp.Problem(cp.Minimize(loss + beta * cp.normNuc(W)))
    return float(problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("beta", [1.0, 0.1, 0.001])
@pytest.mark.parametrize(("n", "d", "C"), [(12, 4, 3), (5, 8, 2), (9, 3, 1)])
def test_two_layers_solve_the_nuclear_norm_program(n, d, C, beta, fit_intercept):
    X, Y = data(1, n, d, C)
    weight = np.linspace(0.5, 1.5, n)
    network, certificate, _ = train_linear(
        X, Y, beta=beta, sample_weight=weight, fit_intercept=fit_intercept, options=TIGHT
    )
    truth = nuclear_program(X, Y, beta, weight / weight.sum(), fit_intercept)
    assert certificate.objective == pytest.approx(truth, rel=1e-7)
    assert certificate.gap <= 1e-9
    assert certificate.objective == network.objective(X, Y, beta=beta, sample_weight=weight)


@pytest.mark.parametrize(("depth", "beta"), [(2, 0.3), (3, 0.02), (3, 0.3), (5, 0.02)])
def test_one_output_is_globally_optimal_at_any_depth(depth, beta):
    X, Y = data(2, C=1)
    network, certificate, _ = train_linear(X, Y, beta=beta, depth=depth)
    trained = train_dense(X, squared(Y), 1, beta, depth, 4, relu=False, intercept=True)
    # Training may end in the other local minimum, never below.
    assert certificate.objective <= trained * (1 + 1e-9)
    assert certificate.gap <= 1e-9
    assert certificate.objective == network.objective(X, Y, beta=beta)
    # Every stationary point is on the ridge path: a scan of it finds nothing better.
    Xc, Yc = (X - X.mean(axis=0)) / np.sqrt(len(X)), (Y - Y.mean(axis=0)) / np.sqrt(len(X))
    for mu in np.geomspace(1e-6, 1e3, 2000):
        w = np.linalg.solve(Xc.T @ Xc + mu * np.eye(4), Xc.T @ Yc)
        value = 0.5 * ((Xc @ w - Yc) ** 2).sum() + 0.5 * beta * depth * np.linalg.norm(w) ** (2 / depth)
        assert value >= certificate.lower_bound


@pytest.mark.parametrize(("depth", "wide"), [(2, True), (3, False), (4, True)])
def test_white_rows_are_globally_optimal_for_several_outputs(depth, wide):
    X = white_rows(0, 4, 6) if wide else 2.0 * white_rows(0, 4, 9).T
    Y = np.random.default_rng(1).standard_normal((len(X), 3))
    beta = 0.03
    network, certificate, _ = train_linear(X, Y, beta=beta, depth=depth, fit_intercept=False)
    assert certificate.gap <= 1e-8
    assert certificate.objective == network.objective(X, Y, beta=beta)
    trained = train_dense(X, squared(Y), 3, beta, depth, 4, relu=False)
    assert certificate.objective == pytest.approx(trained, rel=1e-8)


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_bound_of_white_rows_is_not_lifted_by_singular_values_that_are_rounding(depth):
    X = 3.0 * white_rows(1, 6, 20).T
    Y = np.random.default_rng(2).standard_normal((20, 5))
    beta = 0.9 * float(rank_jumps(X, Y, depth=depth)[0])  # rank one or two of five
    network, _, _ = train_linear(X, Y, beta=beta, depth=depth, fit_intercept=False)
    solution = solve_linear(LinearProblem.of(X / np.sqrt(20), Y / np.sqrt(20)), beta, depth, LinearOptions())
    assert 0 < network.objective(X, Y, beta=beta) - solution.lower_bound < 1e-11


@pytest.mark.parametrize("depth", [3, 4])
def test_local_search_says_that_it_is_not_certified(depth):
    X, Y = data(3)
    with pytest.warns(ConvergenceWarning, match="more than two layers"):
        est = LinearNetRegressor(depth=depth, beta=0.05).fit(X, Y)
    trained = train_dense(X, squared(Y), 3, 0.05, depth, 4, relu=False, intercept=True)
    assert est.objective_ == pytest.approx(trained, rel=1e-6)
    assert "not convex" in est.certificate_.method
    assert est.lower_bound_ < trained
    assert est.gap_ > 0.01


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(2, 5), st.integers(1, 3), st.floats(0.001, 1.0))
def test_no_network_is_below_the_lower_bound(seed, depth, C, beta):
    X, Y = data(seed, 8, 3, C)
    network, certificate, _ = train_linear(X, Y, beta=beta, depth=depth, options=LinearOptions(tol=1e-5))
    assert certificate.lower_bound <= certificate.objective
    rng = np.random.default_rng(seed)
    for scale in (1e-3, 0.1, 0.5):  # around the solution, and anywhere
        network.layers = [W + scale * rng.standard_normal(W.shape) for W in network.layers]
        assert network.objective(X, Y, beta=beta) >= certificate.lower_bound


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_layers_are_balanced_and_aligned(depth):
    X, Y = data(4, C=2)
    network, _, _ = train_linear(X, Y, beta=0.02, depth=depth, widths=[5] * (depth - 1), options=LinearOptions(1e-4))
    assert [W.shape[1] for W in network.layers] == [5] * (depth - 1) + [2]
    for first, second in zip(network.layers, network.layers[1:], strict=False):
        np.testing.assert_allclose(first.T @ first, second @ second.T, atol=1e-12)


@pytest.mark.parametrize("depth", [3, 4])
def test_operator_and_frobenius_norms_agree_for_one_output(depth):
    X, Y = data(5, C=1)
    network, _, _ = train_linear(X, Y, beta=0.02, depth=depth)
    norms = [(np.linalg.norm(W), np.linalg.norm(W, 2)) for W in network.layers]
    np.testing.assert_allclose(norms, norms[0][0], rtol=1e-12)


@pytest.mark.parametrize("depth", [2, 4])
def test_beta_zero_is_the_smallest_norm_of_an_exact_fit(depth):
    rng = np.random.default_rng(6)
    X, Y = rng.standard_normal((4, 7)), rng.standard_normal((4, 3))
    network, certificate, _ = train_linear(X, Y, beta=0.0, depth=depth, fit_intercept=False)
    np.testing.assert_allclose(network.predict(X), Y, atol=1e-12)
    W = cp.Variable((7, 3))
    truth = cp.Problem(cp.Minimize(cp.normNuc(W)), [X @ W == Y]).solve(solver=cp.CLARABEL)
    sigma = np.linalg.svd(np.linalg.pinv(X) @ Y, compute_uv=False)
    assert certificate.objective == pytest.approx(0.5 * depth * (sigma ** (2 / depth)).sum())
    if depth == 2:
        assert certificate.objective == pytest.approx(truth, rel=1e-6)
    for shift in 0.3 * rng.standard_normal((20, 7, 3)):  # other exact fits cost more
        other = np.linalg.pinv(X) @ Y + shift - np.linalg.pinv(X) @ (X @ shift)
        assert (np.linalg.svd(other, compute_uv=False) ** (2 / depth)).sum() >= (sigma ** (2 / depth)).sum()


@pytest.mark.parametrize("beta", [1e-300, 1e-100, 1e-30, 1e-18])
@pytest.mark.parametrize(("depth", "C"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_a_beta_that_rounding_hides_is_refused_or_proves_little_but_nothing_false(depth, C, beta):
    rng = np.random.default_rng(depth)
    X, Y = rng.standard_normal((9, 3)), rng.standard_normal((9, C))
    net = LinearNetRegressor(depth, beta)
    if beta == 1e-300:
        with pytest.raises(ValueError, match="lost"):
            net.fit(X, Y)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        net.fit(X, Y)
    unfitted = 0.5 * np.mean(np.sum((Y - LinearNetRegressor(2, 0).fit(X, Y).predict(X).reshape(Y.shape)) ** 2, axis=1))
    assert 0 <= net.lower_bound_ <= net.objective_
    assert net.objective_ == pytest.approx(unfitted, rel=1e-6)


def test_a_claim_about_a_beta_that_rounding_hides_is_refused():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 3)), rng.standard_normal((9, 1))
    data = LinearNetRegressor(3, 0.01).fit(X, Y).certificate_.to_dict()
    assert not Certificate.from_dict(data | {"beta": 1e-300}).verify(X, Y)
    assert not check(data | {"beta": 1e-300}, X, Y)[0]


@pytest.mark.parametrize("C", [1, 2])
def test_dual_projection_is_the_nearest_feasible_point(C):
    X, Y = data(7, 7, 3, C)
    beta = 0.4 * np.linalg.norm(X.T @ Y, 2)
    projected = dual_projection(X, Y, beta)
    U = cp.Variable(Y.shape)
    cp.Problem(cp.Minimize(cp.sum_squares(U - Y)), [cp.norm(X.T @ U, 2) <= beta]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(projected, U.value, atol=1e-4)
    # Remark 2.1: optimal neurons are right singular vectors with singular value beta.
    network, _, _ = train_linear(X, Y, beta=beta / len(X), fit_intercept=False, options=TIGHT)
    neurons = network.layers[0] / np.linalg.norm(network.layers[0], axis=0)
    np.testing.assert_allclose(np.linalg.norm(projected.T @ X @ neurons, axis=0), beta, rtol=1e-5)


@pytest.mark.parametrize("depth", [2, 3])
def test_rank_of_white_rows_drops_at_every_critical_beta(depth):
    X = np.sqrt(10) * white_rows(8, 4, 10).T
    Y = np.random.default_rng(9).standard_normal((10, 3))
    jumps = rank_jumps(X, Y, depth=depth)
    np.testing.assert_allclose(jumps, critical_beta(np.linalg.svd(X.T @ Y / 10, compute_uv=False), depth))
    assert rank_path(X, Y, jumps * (1 - 1e-6), depth=depth).tolist() == [1, 2, 3]
    assert rank_path(X, Y, jumps * (1 + 1e-6), depth=depth).tolist() == [0, 1, 2]


def test_rank_falls_with_beta_and_vanishes_at_the_first_singular_value():
    X, Y = data(10, C=4)
    top = rank_jumps(X, Y)[0]
    ranks = rank_path(X, Y, np.geomspace(1e-3, 1.01, 12) * top)
    assert (np.diff(ranks) <= 0).all()
    assert ranks[0] == 4
    assert ranks[-1] == 0
    assert rank_path(X, Y, [0.99 * top])[0] == 1


def test_weights_repeat_rows_and_rotations_change_nothing():
    X, Y = data(11)
    times = np.arange(12) % 3
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    weighted = LinearNetRegressor(beta=0.05, tol=1e-9).fit(X, Y, sample_weight=times)
    repeated = LinearNetRegressor(beta=0.05, tol=1e-9).fit(np.repeat(X, times, axis=0), np.repeat(Y, times, axis=0))
    rotated = LinearNetRegressor(beta=0.05, tol=1e-9).fit(X @ rotation, Y, sample_weight=times)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-9)
    assert weighted.objective_ == pytest.approx(rotated.objective_, rel=1e-9)
    np.testing.assert_allclose(weighted.predict(X), rotated.predict(X @ rotation), atol=1e-5)


def test_coefficients_are_the_function_of_the_network():
    X, Y = data(12)
    est = LinearNetRegressor(beta=0.05).fit(X, Y)
    np.testing.assert_allclose(est.predict(X), X @ est.coef_.T + est.intercept_)
    one = LinearNetRegressor(depth=4, beta=0.05).fit(X, Y[:, 0])
    np.testing.assert_allclose(one.predict(X), X @ one.coef_ + one.intercept_)
    assert one.rank_ == 1
    assert one.network_.depth == 4


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"depth": 1}, "depth must be an integer >= 2"),
        ({"beta": -1.0}, "beta must be a number >= 0"),
        ({"widths": [1]}, "each at least 3"),
        ({"depth": 3, "widths": [9]}, "2 numbers for 3 layers"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_wrong_parameters_are_named(parameters, words):
    X, Y = data(13)
    with pytest.raises(ValueError, match=words):
        LinearNetRegressor(**{"beta": 1e-3, **parameters}).fit(X, Y)
