"""Exact training against the programs of 003 written out in CVXPY, and against the symmetries of the problem."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import ReLUClassifier, ReLURegressor, enumerate_patterns
from bidual.losses import EpsilonInsensitive, Huber, Quantile

from .helpers import (
    X_LINE,
    Y_LINE,
    gap_may_stay_open,
    gaussian_problem,
    lp_patterns,
    plain_objective,
    printed_program,
    with_ones,
)

few = settings(max_examples=8)
seeds = st.integers(0, 2**31)

# name, the loss as the estimator takes it, its parameters, whether targets are labels
LOSSES = [
    ("squared", "squared", {}, False),
    ("huber", Huber(0.5), {"delta": 0.5}, False),
    ("absolute", "absolute", {}, False),
    ("quantile", Quantile(0.3), {"tau": 0.3}, False),
    ("epsilon_insensitive", EpsilonInsensitive(0.3), {"epsilon": 0.3}, False),
    ("logistic", "logistic", {}, True),
    ("hinge", "hinge", {}, True),
    ("squared_hinge", "squared_hinge", {}, True),
    ("squared", "squared", {}, True),
]
IDS = [f"{name}{'-labels' if labels and name == 'squared' else ''}" for name, _, _, labels in LOSSES]


@cache
def cells(seed, n, d, bias):
    return lp_patterns(with_ones(gaussian_problem(seed, n, d)[0], bias))


def fit(X, y, beta, loss="squared", labels=False, weight=None, **kw):
    kw = {"method": "exact", "tol": 1e-6, **kw}
    kind = ReLUClassifier if labels else ReLURegressor
    return kind(beta, loss=loss, **kw).fit(X, y, sample_weight=weight)


# ---- the printed program -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("name", "loss", "parameters", "labels"), LOSSES, ids=IDS)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_exact_training_reaches_the_optimum_of_the_printed_program(
    name, loss, parameters, labels, bias, fit_intercept, weighted
):
    X, y, signs = gaussian_problem(1)
    y = signs if labels else y
    weight = np.array([0.2, 3.0, 1.0, 1.0, 0.5, 2.0]) if weighted else None
    beta = 0.02
    est = fit(X, y, beta, loss, labels, weight, bias=bias, fit_intercept=fit_intercept)
    truth = printed_program(
        X,
        y,
        beta,
        name,
        weight=weight,
        bias=bias,
        fit_intercept=fit_intercept,
        active=cells(1, 6, 2, bias),
        **parameters,
    )
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.lower_bound_ == pytest.approx(truth, rel=1e-6)
    assert est.lower_bound_ <= truth * (1 + 1e-8)
    assert 0 <= est.gap_ < 1e-6
    assert est.certificate_.scope == "global"
    assert plain_objective(est.network_, X, y, beta, name, weight, **parameters) == pytest.approx(truth, rel=1e-6)
    codes = np.where(y > 0, 1, 0) if labels and name != "squared" else y
    scratch = est.network_.objective(X, codes, beta=beta, loss=loss, sample_weight=weight)
    assert scratch == pytest.approx(est.objective_, rel=1e-12)
    if not bias:
        assert est.network_.hidden_bias is None
    if not fit_intercept:
        np.testing.assert_array_equal(est.network_.intercept, 0.0)


@pytest.mark.parametrize("beta", [1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("shape", [(5, 3), (8, 2), (3, 4)], ids=str)
def test_exact_training_reaches_the_printed_optimum_at_every_strength_and_shape(shape, beta):
    n, d = shape
    X, y, _ = gaussian_problem(4, n, d)
    est = fit(X, y, beta, bias=False, fit_intercept=False)
    truth = printed_program(X, y, beta, active=cells(4, n, d, False))
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.gap_ < 1e-6


@pytest.mark.parametrize(
    ("loss", "labels"), [("squared", False), ("absolute", False), ("logistic", True), ("hinge", True)]
)
def test_exact_training_over_many_patterns_reaches_the_printed_optimum(loss, labels):
    X, y, signs = gaussian_problem(6, 12, 3)
    y = signs if labels else y
    active = enumerate_patterns(with_ones(X, True)).active  # complete by test_arrangements; too many for one program
    assert len(active) == 464
    est = fit(X, y, 0.01, loss, labels)
    truth = printed_program(X, y, 0.01, loss, bias=True, fit_intercept=True, active=active)
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.lower_bound_ <= truth * (1 + 1e-8)
    assert est.gap_ < 1e-6
    assert est.certificate_.n_patterns == 464


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_exact_training_reaches_the_printed_optimum_on_degenerate_data(loss):
    X = np.array([[1.0, 2, 3], [1, 2, 3], [0, 0, 0], [2, 4, 6], [-1, 0, 1], [1, 1, 1]])
    y = np.array([1.0, -1, 2, 0.5, 1, -2])
    est = fit(X, y, 0.05, loss, bias=False, fit_intercept=False)
    assert est.objective_ == pytest.approx(printed_program(X, y, 0.05, loss), rel=1e-6)
    assert est.gap_ < 1e-6


def test_torch_computes_the_objective_that_the_estimator_reports():
    X, y, _ = gaussian_problem(1)
    est = fit(X, y, 0.02)
    module = est.network_.to_torch()
    outputs = module(torch.as_tensor(X))[:, 0]
    decay = sum((p**2).sum() for p in (module[0].weight, module[0].bias, module[2].weight))
    value = 0.5 * ((outputs - torch.as_tensor(y)) ** 2).mean() + 0.02 / 2 * decay
    assert value.item() == pytest.approx(est.objective_, rel=1e-12)


def test_trained_neurons_are_balanced_and_no_more_than_the_rows_allow():
    X, y, _ = gaussian_problem(1)
    network = fit(X, y, 0.02).network_
    hidden = np.sqrt((network.hidden_weights**2).sum(axis=1) + network.hidden_bias**2)
    np.testing.assert_allclose(hidden, np.abs(network.output_weights[:, 0]), rtol=1e-9)
    assert network.n_neurons <= len(X) + 1  # 003: some optimum has at most n + 1 neurons


# ---- beta = 0 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "labels"), [("squared", False), ("absolute", False), ("hinge", True), ("squared", True)]
)
def test_beta_zero_is_the_smallest_network_that_fits(loss, labels, fit_intercept):
    X, y, signs = gaussian_problem(2)
    y = signs if labels else y
    est = fit(X, y, 0.0, loss, labels, fit_intercept=fit_intercept)
    truth = printed_program(X, y, 0.0, loss, bias=True, fit_intercept=fit_intercept, active=cells(2, 6, 2, True))
    assert est.objective_ == pytest.approx(truth, rel=1e-5)
    assert est.network_.penalty() == pytest.approx(est.objective_, rel=1e-12)
    assert est.lower_bound_ == pytest.approx(truth, rel=1e-5)
    F = est.network_.predict(X)
    if loss == "hinge":
        assert (y * F).min() > 1 - 2e-6
    else:
        np.testing.assert_allclose(F, y, atol=2e-6)


def test_objective_over_beta_rises_to_the_smallest_norm_as_beta_vanishes():
    X, y, _ = gaussian_problem(2)
    smallest = fit(X, y, 0.0).objective_
    ratios = [fit(X, y, beta).objective_ / beta for beta in (1e-1, 1e-2, 1e-3, 1e-5)]
    assert np.all(np.diff(ratios) > 0)
    assert ratios[-1] <= smallest * (1 + 1e-6)
    assert ratios[-1] == pytest.approx(smallest, rel=5e-3)


@pytest.mark.parametrize("size", [1e-8, 1e-3, 1e4])
def test_smallest_interpolating_norm_scales_with_the_targets(size):
    X, y, _ = gaussian_problem(2)
    one, other = (fit(X, t * y, 0.0, fit_intercept=False, tol=1e-4) for t in (1.0, size))
    assert other.objective_ == pytest.approx(size * one.objective_, rel=1e-4)
    np.testing.assert_allclose(other.predict(X), size * y, atol=1e-5 * size)


@pytest.mark.parametrize(
    ("X", "y"), [([[1.0], [1.0], [2.0]], [0.0, 1.0, 2.0]), ([[0.0], [1.0]], [1.0, 1.0])], ids=["twins", "origin"]
)
@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_data_that_no_network_interpolates_raise_a_clear_error(X, y, method):
    est = ReLURegressor(0.0, method=method, bias=False, fit_intercept=False, random_state=0)
    with pytest.raises(ValueError, match=r"exactly.*beta > 0"):
        est.fit(X, y)


def test_beta_zero_needs_a_loss_that_reaches_zero():
    with pytest.raises(ValueError, match="never reaches its infimum"):
        fit(np.eye(2), [0, 1], 0.0, "logistic", True)


# ---- symmetries --------------------------------------------------------------------------------------------------


@few
@given(seed=seeds)
def test_optimum_is_invariant_under_row_permutation_and_feature_rotation(seed):
    rng = np.random.default_rng(seed)
    X, y, _ = gaussian_problem(seed, 5, 2)
    base = fit(X, y, 0.03, bias=False).objective_
    order = rng.permutation(5)
    assert fit(X[order], y[order], 0.03, bias=False).objective_ == pytest.approx(base, rel=1e-6)
    Q, _ = np.linalg.qr(rng.standard_normal((2, 2)))
    assert fit(X @ Q, y, 0.03, bias=False).objective_ == pytest.approx(base, rel=1e-6)
    assert fit(X @ Q.T, y, 0.03, bias=True).objective_ == pytest.approx(fit(X, y, 0.03).objective_, rel=1e-6)


@few
@given(seed=seeds)
def test_repeated_rows_are_the_same_as_integer_weights(seed):
    X, y, _ = gaussian_problem(seed, 5, 2)
    counts = np.array([1, 3, 1, 2, 1])
    repeated = fit(np.repeat(X, counts, axis=0), np.repeat(y, counts), 0.03)
    weighted = fit(X, y, 0.03, weight=counts)
    assert repeated.objective_ == pytest.approx(weighted.objective_, rel=1e-6)
    assert fit(X, y, 0.03, weight=7.0 * counts).objective_ == pytest.approx(weighted.objective_, rel=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "squared"])
def test_swapping_the_two_labels_changes_nothing_but_the_sign(loss):
    X, _, signs = gaussian_problem(8)
    one, other = fit(X, signs, 0.02, loss, True), fit(X, -signs, 0.02, loss, True)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-6)
    named = fit(X, np.where(signs > 0, "yes", "no"), 0.02, loss, True)
    assert named.objective_ == pytest.approx(one.objective_, rel=1e-9)


def test_the_softmax_loss_of_two_classes_is_the_logistic_one():
    X, _, signs = gaussian_problem(8)
    assert fit(X, signs, 0.02, "softmax", True).objective_ == pytest.approx(
        fit(X, signs, 0.02, "logistic", True).objective_, rel=1e-9
    )


@pytest.mark.parametrize("s", [1e-3, 7.0, 1e3])
@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_scaling_the_inputs_and_beta_together_changes_nothing(s, loss):
    X, y, _ = gaussian_problem(3)
    base = fit(X, y, 0.02, loss, bias=False).objective_
    assert fit(s * X, y, s * 0.02, loss, bias=False).objective_ == pytest.approx(base, rel=1e-6)


@pytest.mark.parametrize("t", [1e-2, 5.0, 1e3])
def test_scaling_the_targets_and_beta_together_scales_the_squared_objective_quadratically(t):
    X, y, _ = gaussian_problem(3)
    base = fit(X, y, 0.02).objective_
    assert fit(X, t * y, t * 0.02).objective_ == pytest.approx(t**2 * base, rel=1e-6)


@pytest.mark.parametrize("shift", [-3.0, 100.0])
def test_a_free_intercept_absorbs_a_shift_of_the_targets(shift):
    X, y, _ = gaussian_problem(3)
    assert fit(X, y + shift, 0.02).objective_ == pytest.approx(fit(X, y, 0.02).objective_, rel=1e-6)


def test_optimum_rises_with_beta_and_falls_with_freedom():
    X, y, _ = gaussian_problem(5)
    values = [fit(X, y, beta).objective_ for beta in (0.001, 0.01, 0.1, 1.0)]
    assert np.all(np.diff(values) > 0)
    free = fit(X, y, 0.01).objective_
    for restricted in ({"bias": False}, {"fit_intercept": False}):
        assert free <= fit(X, y, 0.01, **restricted).objective_ * (1 + 1e-8)


# ---- sampled programs and several outputs ------------------------------------------------------------------------


@few
@given(seed=seeds)
def test_sampled_training_is_never_better_than_exact_and_claims_only_its_patterns(seed):
    X, y, _ = gaussian_problem(seed, 7, 2)
    exact = fit(X, y, 0.02)
    sampled = fit(X, y, 0.02, method="sampled", n_patterns=5, random_state=seed % 1000)
    assert exact.objective_ <= sampled.objective_ * (1 + 1e-7)
    assert sampled.certificate_.scope == "patterns"
    assert sampled.certificate_.n_patterns == 5
    assert sampled.gap_ < 1e-6


def test_sampled_training_solves_the_printed_program_on_its_patterns():
    X, y, _ = gaussian_problem(6, 8, 3)
    from bidual import sample_patterns

    patterns = sample_patterns(X, 6, random_state=4)
    est = fit(X, y, 0.02, method="sampled", n_patterns=6, random_state=4, bias=False, fit_intercept=False)
    assert est.objective_ == pytest.approx(printed_program(X, y, 0.02, active=patterns.active), rel=1e-6)


def test_sampling_every_pattern_is_as_good_as_exact():
    X, y, _ = gaussian_problem(6, 5, 2)
    assert fit(X, y, 0.02, method="sampled", n_patterns=500, random_state=0).objective_ == pytest.approx(
        fit(X, y, 0.02).objective_, rel=1e-6
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_with_several_targets_the_bounds_enclose_what_single_networks_prove(fit_intercept):
    X, _, _ = gaussian_problem(7)
    Y = np.random.default_rng(0).standard_normal((6, 2))
    with gap_may_stay_open():
        both = fit(X, Y, 0.02, fit_intercept=fit_intercept)
    singles = [fit(X, Y[:, c], 0.02, fit_intercept=fit_intercept).objective_ for c in range(2)]
    # One neuron per output is the sum of the single problems; shared neurons can only be cheaper. A network for both
    # targets holds one for each, at no more than its cost.
    assert max(singles) <= both.objective_ <= sum(singles) * (1 + 1e-9)
    assert both.gap_ < 1e-2
    assert both.network_.objective(X, Y, beta=0.02) == pytest.approx(both.objective_, rel=1e-12)
    assert both.predict(X).shape == (6, 2)


def test_a_column_of_targets_twice_is_bounded_below_the_network_that_shares_its_neurons():
    X, y, _ = gaussian_problem(7)
    single = fit(X, y, 0.02 / np.sqrt(2))
    with gap_may_stay_open():
        both = fit(X, np.column_stack([y, y]), 0.02)
    # Neurons that feed both outputs double the loss, but the cost only grows by sqrt 2.
    assert both.lower_bound_ <= 2 * single.objective_ * (1 + 1e-9)
    assert both.objective_ == pytest.approx(2 * single.objective_, rel=1e-2)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "squared"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_multiclass_objective_is_that_of_its_network_and_above_its_bound(loss, fit_intercept):
    X, _, _ = gaussian_problem(9, 7, 2)
    y = np.array([0, 1, 2, 0, 1, 2, 1])
    with gap_may_stay_open():
        est = fit(X, y, 0.02, loss, True, fit_intercept=fit_intercept, tol=1e-2)
    F = est.decision_function(X)
    if loss == "logistic":
        value = (np.log(np.exp(F).sum(axis=1)) - F[np.arange(7), y]).mean()
        np.testing.assert_allclose(est.predict_proba(X), np.exp(F) / np.exp(F).sum(axis=1, keepdims=True))
    else:
        m = (2 * np.eye(3)[y] - 1) * F
        row = {
            "hinge": np.maximum(1 - m, 0),
            "squared_hinge": np.maximum(1 - m, 0) ** 2 / 2,
            "squared": (1 - m) ** 2 / 2,
        }
        value = row[loss].sum(axis=1).mean()
    assert est.objective_ == pytest.approx(value + 0.02 * est.network_.penalty(), rel=1e-10)
    assert 0 < est.lower_bound_ <= est.objective_
    np.testing.assert_array_equal(est.predict(X), F.argmax(axis=1))


# ---- gradient descent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_adam_on_the_example_of_003_never_gets_below_the_lower_bound(seed):
    beta = 0.01
    est = fit(X_LINE, Y_LINE, beta, fit_intercept=False)
    assert len(enumerate_patterns(with_ones(X_LINE, True))) == 10
    torch.manual_seed(seed)
    X = torch.as_tensor(with_ones(X_LINE, True))
    y = torch.as_tensor(Y_LINE)
    U, a = torch.randn(15, 2, dtype=torch.float64), torch.randn(15, dtype=torch.float64)
    U.requires_grad_()
    a.requires_grad_()
    optimiser = torch.optim.Adam([U, a], lr=0.02)
    best = np.inf
    for _ in range(800):
        optimiser.zero_grad()
        value = 0.5 * ((torch.relu(X @ U.T) @ a - y) ** 2).mean() + beta / 2 * ((U**2).sum() + (a**2).sum())
        value.backward()
        optimiser.step()
        best = min(best, value.item())
    assert best >= est.lower_bound_
    assert best >= est.objective_ * (1 - 1e-6)
    assert best < 5 * est.objective_  # the descent did something


def test_training_leaves_the_threads_of_torch_alone():
    X = np.random.default_rng(0).standard_normal((50, 2))
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            # so many patterns that their bounds are tightened by compiled loops
            ReLUClassifier(2e-6, loss="hinge", fit_intercept=False, method="exact").fit(X, np.sign(X[:, 0] * X[:, 1]))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
