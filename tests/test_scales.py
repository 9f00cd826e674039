"""Extreme scales of inputs, targets, beta and weights."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bidual import ReLUClassifier, ReLURegressor

from .helpers import (
    gap_may_stay_open,
    gaussian_problem,
    plain_objective,
)

BOTH = [ReLURegressor, ReLUClassifier]


def exact(beta=0.02, **kw):
    return ReLURegressor(beta, method="exact", **kw)


@pytest.mark.parametrize("s", [1e-6, 1e6])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_inputs_of_extreme_scale_obey_the_scaling_law(s, loss):
    X, y, _ = gaussian_problem(3)
    base = exact(0.02, loss=loss, bias=False, tol=1e-6).fit(X, y).objective_
    est = exact(0.02 * s, loss=loss, bias=False, tol=1e-6).fit(s * X, y)
    assert est.objective_ == pytest.approx(base, rel=1e-6)


@pytest.mark.parametrize("s", [1e-6, 1e6])
@pytest.mark.parametrize("loss", ["squared", "absolute", "huber"])
def test_inputs_of_extreme_scale_with_biases_train_without_a_gap(s, loss):
    X, y, _ = gaussian_problem(3)
    est = exact(0.02, loss=loss).fit(s * X, y)
    assert est.gap_ <= 1e-4


@pytest.mark.parametrize("t", [1e-6, 1e6])
def test_targets_of_extreme_scale_obey_the_scaling_law(t):
    X, y, _ = gaussian_problem(3)
    base = exact(0.02).fit(X, y).objective_
    est = exact(0.02 * t).fit(X, t * y)
    assert est.gap_ <= 1e-4
    assert est.objective_ == pytest.approx(t**2 * base, rel=2e-4)


@pytest.mark.parametrize("t", [1e-6, 1e6])
@pytest.mark.parametrize("loss", ["absolute", "quantile"])
def test_targets_of_extreme_scale_scale_the_losses_that_are_linear(t, loss):
    X, y, _ = gaussian_problem(3)
    base = exact(0.02, loss=loss).fit(X, y).objective_
    est = exact(0.02, loss=loss).fit(X, t * y)
    assert est.gap_ <= 1e-4
    assert est.objective_ == pytest.approx(t * base, rel=2e-4)


def test_columns_a_million_apart_train_with_an_honest_gap():
    X, y, _ = gaussian_problem(3, 6, 3)
    X = X * [1e6, 1.0, 1e-6]
    with gap_may_stay_open():
        est = exact(0.02).fit(X, y)
    assert est.lower_bound_ <= est.objective_
    assert est.gap_ < 1e-2
    assert est.objective_ == pytest.approx(plain_objective(est.network_, X, y, 0.02, "squared"), rel=1e-9)


def test_columns_lost_beside_others_are_refused():
    X, y, _ = gaussian_problem(3, 6, 3)
    with pytest.raises(ValueError, match="standardise the columns"):
        exact(0.02, bias=False).fit(X * [1e12, 1.0, 1.0], y)


def test_inputs_whose_squares_overflow_are_refused():
    X, y, _ = gaussian_problem(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(ValueError, match="rescale"):
            exact().fit(1e200 * X, y)


@pytest.mark.parametrize("kind", BOTH)
def test_a_tiny_beta_still_ends_with_a_bound_below_and_an_objective_above(kind):
    X, _, signs = gaussian_problem(4)
    loss = "hinge" if kind is ReLUClassifier else "squared"
    with gap_may_stay_open():
        est = kind(1e-8, loss=loss, method="exact").fit(X, signs)
        zero = kind(0.0, loss=loss, method="exact").fit(X, signs)
    assert est.objective_ <= 1e-8 * zero.objective_ * (1 + 1e-3)
    assert 0 <= est.lower_bound_ <= 1e-8 * zero.objective_ * (1 + 1e-6)
    assert est.gap_ < 1e-2


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", BOTH)
def test_beta_above_its_maximum_leaves_no_neurons_and_just_below_leaves_some(kind, fit_intercept):
    X, y, signs = gaussian_problem(4)
    y = signs if kind is ReLUClassifier else y
    loss = "squared"
    # beta_max is the largest value of the dual constraint at the gradient of the best constant.
    V = (y - y.mean() * fit_intercept) / len(y)
    angles = np.linspace(0, 2 * np.pi, 200001)
    U = np.column_stack([np.cos(angles), np.sin(angles)])
    beta_max = np.abs(V @ np.maximum(X @ U.T, 0)).max()
    options = {"loss": loss, "method": "exact", "bias": False, "fit_intercept": fit_intercept}
    over, under = kind(beta_max * 1.001, **options).fit(X, y), kind(beta_max * 0.97, **options).fit(X, y)
    assert over.n_neurons_ == 0
    assert over.objective_ == pytest.approx(0.5 * np.mean((y - y.mean() * fit_intercept) ** 2), rel=1e-6)
    assert under.n_neurons_ > 0
    assert kind(1e6, **options).fit(X, y).n_neurons_ == 0


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_a_row_of_weight_zero_is_a_row_that_is_not_there(kind, method):
    X, y, signs = gaussian_problem(5)
    y = signs if kind is ReLUClassifier else y
    weight = np.array([1.0, 2.0, 0.0, 1.0, 0.0, 3.0])
    kept = weight > 0
    options = {"method": method, "random_state": 0, "n_patterns": 10 if method == "sampled" else None}
    one = kind(0.02, **options).fit(X, y, sample_weight=weight)
    other = kind(0.02, **options).fit(X[kept], y[kept], sample_weight=weight[kept])
    assert one.objective_ == other.objective_
    assert one.likely_bound_ == other.likely_bound_
    np.testing.assert_array_equal(one.network_.hidden_weights, other.network_.hidden_weights)


@pytest.mark.parametrize("tiny", [1e-12, 1e-300])
def test_a_row_of_almost_no_weight_hardly_counts_and_breaks_nothing(tiny):
    X, y, _ = gaussian_problem(5)
    weight = np.array([1.0, 1.0, tiny, 1.0, 1.0, 1.0])
    with gap_may_stay_open():
        est = exact().fit(X, y, sample_weight=weight)
    kept = weight > 0.5
    assert est.objective_ == pytest.approx(exact().fit(X[kept], y[kept]).objective_, rel=1e-4)
    assert est.gap_ < 1e-3


def test_class_weights_multiply_the_sample_weights():
    X, _, signs = gaussian_problem(5)
    weight = np.arange(1.0, 7.0)
    one = ReLUClassifier(0.02, method="exact", class_weight={-1.0: 1.0, 1.0: 3.0}).fit(X, signs, sample_weight=weight)
    other = ReLUClassifier(0.02, method="exact").fit(X, signs, sample_weight=weight * np.where(signs > 0, 3.0, 1.0))
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-9)
    balanced = ReLUClassifier(0.02, method="exact", class_weight="balanced").fit(X, signs)
    counts = np.where(signs > 0, (signs > 0).sum(), (signs < 0).sum())
    by_hand = ReLUClassifier(0.02, method="exact").fit(X, signs, sample_weight=1.0 / counts)
    assert balanced.objective_ == pytest.approx(by_hand.objective_, rel=1e-9)


def test_targets_far_below_the_delta_of_huber_are_those_of_the_squared_loss():
    # the conic solver saw nothing but delta in the units of these targets
    X = np.array([[1.36529415, 0.29113196], [0.61215786, 1.10150033], [1.36529415, 0.29113196]])
    Y = 1e-6 * np.array([[-7.4, 10.6], [-25.2, -11.2], [20.5, -13.5]])
    options = {"architecture": "batch_norm", "method": "sampled", "n_patterns": 20, "random_state": 0, "prove": False}
    with gap_may_stay_open():
        huber, squared = (
            ReLURegressor(1.4431e-11, loss=loss, **options).fit(X, Y, [4.0, 63.8, 6.8]) for loss in ("huber", "squared")
        )
    assert huber.objective_ == pytest.approx(squared.objective_, rel=1e-5)
