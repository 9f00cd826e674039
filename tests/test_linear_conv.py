"""Linear convolutional networks: against CVXPY on the printed program, torch on the network, and closed forms."""

from __future__ import annotations

import json
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from bidual import LinearConvRegressor, LinearNetRegressor, Network
from bidual._util.patches import Window
from bidual.certification.check_certificate import check
from bidual.closed_form.linear_conv import FourierFilters

RNG = np.random.default_rng(0)
#: Shape of X and the arguments of the estimator.
SETTINGS = [
    ((14, 7, 2), {"kernel_size": 3}),
    ((14, 5, 4, 2), {"kernel_size": (3, 2), "stride": 2, "padding": 1}),
    ((14, 5, 4), {"kernel_size": (2, 2), "circular": True}),
    ((14, 6, 3), {"kernel_size": None}),
    ((14, 6), {"kernel_size": None, "circular": True}),
    ((14, 3, 4, 2), {"kernel_size": None, "circular": True}),
]


def nuclear_program(X, Y, w, beta, fit_intercept):
    """003 eq. 12 by CVXPY, on patches (n, K, h)."""
    n, K, h = X.shape
    C = Y.shape[1]
    Z = cp.Variable((h, K * C))
    F = sum(X[:, k] @ Z[:, k * C : (k + 1) * C] for k in range(K))
    if fit_intercept:
        F = F + np.ones((n, 1)) @ cp.Variable((1, C))
    loss = 0.5 * cp.sum(cp.multiply(w[:, None], cp.square(F - Y)))
    return float(cp.Problem(cp.Minimize(loss + beta * cp.normNuc(Z))).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("C", [1, 2])
@pytest.mark.parametrize(("shape", "arguments"), SETTINGS)
def test_gap_is_closed_network_is_the_map_and_torch_agrees(shape, arguments, C, fit_intercept):
    X, Y, w = RNG.standard_normal(shape), RNG.standard_normal((shape[0], C)), RNG.random(shape[0])
    est = LinearConvRegressor(beta=0.05, fit_intercept=fit_intercept, **arguments).fit(X, Y, w)
    assert est.gap_ <= 1e-6
    F = est.predict(X)
    network = est.network_
    squares = 0.5 * (np.sum(network.filters**2) + np.sum(network.output_weights**2))
    objective = 0.5 * np.average(((F - Y) ** 2).sum(axis=1), weights=w) + 0.05 * squares
    assert est.objective_ == pytest.approx(objective, rel=1e-9)
    np.testing.assert_allclose(X.reshape(len(X), -1) @ est.coef_.reshape(C, -1).T + est.intercept_, F, atol=1e-9)
    kernel = network.window.kernel
    tensors = X if kernel is None or X.ndim == len(kernel) + 2 else X[..., None]
    tensors = tensors if kernel is None else np.moveaxis(tensors, -1, 1)
    with torch.no_grad():
        np.testing.assert_allclose(network.to_torch()(torch.tensor(tensors)).numpy(), F, atol=1e-9)
    np.testing.assert_array_equal(Network.from_dict(network.to_dict()).predict(X).reshape(F.shape), F)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("shape", "arguments"), SETTINGS[:4])
def test_the_optimum_is_that_of_the_printed_program(shape, arguments, fit_intercept):
    X, Y, w = RNG.standard_normal(shape), RNG.standard_normal((shape[0], 2)), RNG.random(shape[0])
    est = LinearConvRegressor(beta=0.05, fit_intercept=fit_intercept, **arguments).fit(X, Y, w)
    window = est.network_.window
    patches = window.rows(X).reshape(shape[0], -1, window.size(shape))
    optimum = nuclear_program(patches, Y, w / w.sum(), 0.05, fit_intercept)
    assert est.objective_ == pytest.approx(optimum, rel=1e-5)


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(2, 6), st.integers(1, 2), st.integers(1, 2), st.integers(0, 1000))
def test_fourier_factors_are_real_and_cost_what_the_norm_says(height, width, channels, C, seed):
    shape = (1, height, width, channels)
    filters = FourierFilters(Window.of((height, width), 1, 0, 4, circular=True), shape, C)
    Z = np.random.default_rng(seed).standard_normal((height * width * channels, C))
    U, alpha = filters.factors(Z)
    assert 0.5 * (np.sum(U**2) + np.sum(alpha**2)) == pytest.approx(filters.cost(Z), rel=1e-9)
    network = filters.network(Z, np.zeros(C))
    X = np.eye(len(Z)).reshape(-1, height, width, channels)
    np.testing.assert_allclose(network.forward(X), Z, atol=1e-9)


def test_fourier_program_needs_the_root_of_the_length():
    """003 eq. 14 prints beta where beta / sqrt(d) belongs: torch trains to the corrected value, which is lower."""
    n, d, beta = 12, 6, 0.05
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    est = LinearConvRegressor(None, circular=True, beta=beta, fit_intercept=False, tol=1e-9).fit(X, y)
    z = cp.Variable(d)
    DFT = np.fft.fft(np.eye(d), norm="ortho")

    def program(weight):
        norm = cp.sum(cp.abs(DFT @ z))
        return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(X @ z - y) / n + weight * norm)).solve(solver=cp.CLARABEL)

    assert est.objective_ == pytest.approx(program(beta / np.sqrt(d)), rel=1e-6)
    torch.manual_seed(0)
    u = (0.3 * torch.randn(3, 1, d, dtype=torch.float64)).requires_grad_()
    alpha = (0.3 * torch.randn(3, d, dtype=torch.float64)).requires_grad_()
    wrapped = torch.tensor(np.concatenate([X, X[:, :-1]], axis=1)[:, None])
    optimiser = torch.optim.LBFGS([u, alpha], max_iter=2000, tolerance_change=1e-15, line_search_fn="strong_wolfe")

    def objective():
        optimiser.zero_grad()
        F = torch.einsum("njk,jk->n", torch.nn.functional.conv1d(wrapped, u), alpha)
        value = 0.5 * ((F - torch.tensor(y)) ** 2).mean() + beta / 2 * ((u**2).sum() + (alpha**2).sum())
        value.backward()
        return value

    optimiser.step(objective)
    trained = objective().item()
    assert trained == pytest.approx(est.objective_, rel=1e-6)
    assert trained < 0.99 * program(beta)


def test_explicit_patches_of_one_position_are_the_linear_network():
    X, Y = RNG.standard_normal((15, 4)), RNG.standard_normal((15, 3))
    conv = LinearConvRegressor(None, beta=0.02).fit(X[:, None], Y)
    dense = LinearNetRegressor(depth=2, beta=0.02).fit(X, Y)
    assert conv.objective_ == pytest.approx(dense.objective_, rel=1e-5)


def test_longer_filters_can_only_help_circular_networks():
    X, y = RNG.standard_normal((20, 8)), RNG.standard_normal(20)
    values = [LinearConvRegressor(h, circular=True, beta=0.02).fit(X, y).objective_ for h in (1, 3, 7, 8)]
    assert all(a >= b * (1 - 1e-5) for a, b in pairwise(values))


def test_large_beta_leaves_the_intercept_only():
    X, y = RNG.standard_normal((9, 5)), RNG.standard_normal(9)
    est = LinearConvRegressor(2, beta=100.0).fit(X, y)
    assert est.n_neurons_ == 0
    np.testing.assert_allclose(est.predict(X), y.mean())


def test_bad_input_and_early_ends_are_said():
    X, y = RNG.standard_normal((9, 5)), RNG.standard_normal(9)
    with pytest.raises(ValueError, match="beta must be"):
        LinearConvRegressor(beta=0.0).fit(X, y)
    with pytest.raises(ValueError, match="larger than X"):
        LinearConvRegressor(6).fit(X, y)
    with pytest.raises(ValueError, match="larger than X"):
        LinearConvRegressor(6, circular=True).fit(X, y)
    with pytest.raises(ValueError, match="stride=1 and padding=0"):
        LinearConvRegressor(2, circular=True, stride=2).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        LinearConvRegressor(2, max_iter=1).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(
    [LinearConvRegressor(1, beta=0.01), LinearConvRegressor(None, circular=True, beta=0.01, max_iter=2000)]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_time_limit_and_control_c_return_a_network_with_its_gap(monkeypatch, capsys):
    from bidual._util.watch import Watch

    X, y = RNG.standard_normal((30, 12)), RNG.standard_normal(30)
    with pytest.warns(ConvergenceWarning, match=r"stopped at time_limit.*raise max_iter or time_limit"):
        stopped = LinearConvRegressor(4, beta=1e-3, time_limit=0.0).fit(X, y)
    assert 0 <= stopped.lower_bound_ <= stopped.objective_
    with pytest.raises(ValueError, match="time_limit"):
        LinearConvRegressor(4, time_limit=-1.0).fit(X, y)
    whole = LinearConvRegressor(4, beta=1e-3, verbose=1).fit(X, y)
    assert "gap" in capsys.readouterr().out
    presses = iter([False] * 30)
    monkeypatch.setattr(Watch, "interrupted", property(lambda self: next(presses, True)))
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        early = LinearConvRegressor(4, beta=1e-3).fit(X, y)
    assert early.n_iter_ < whole.n_iter_
    assert early.lower_bound_ <= whole.objective_ <= early.objective_ <= stopped.objective_


def test_a_network_without_filters_can_be_read_from_a_file_and_verified():
    X = np.random.default_rng(0).standard_normal((6, 5))
    est = LinearConvRegressor(2, beta=100.0).fit(X, X[:, 0])
    network = Network.from_dict(json.loads(json.dumps(est.network_.to_dict())))
    assert network.n_neurons == 0
    np.testing.assert_array_equal(network.forward(X), est.network_.forward(X))
    assert est.certificate_.verify(X, X[:, 0], model=network)
    assert check(json.loads(json.dumps(est.certificate_.to_dict())), X, X[:, 0], model=network.to_dict())[0]
