"""Bad input is refused in words; degenerate data train."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from bidual import ReLUClassifier, ReLURegressor, TwoLayer
from bidual.losses import Huber

from .helpers import (
    gaussian_problem,
    printed_program,
)

BOTH = [ReLURegressor, ReLUClassifier]


def exact(beta=0.02, **kw):
    return ReLURegressor(beta, method="exact", **kw)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", BOTH)
def test_inputs_that_are_not_finite_are_refused(kind, bad):
    X, _, signs = gaussian_problem(0)
    X[2, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        kind(method="exact").fit(X, signs)
    X, _, _ = gaussian_problem(0)
    est = kind(method="exact").fit(X, signs)
    X[0, 0] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        est.predict(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", BOTH)
def test_targets_that_are_not_finite_are_refused(kind, bad):
    X, y, _ = gaussian_problem(0)
    y[1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        kind(method="exact").fit(X, y)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones(4), [0, 1, 0, 1]),
        (np.ones((4, 2, 2)), [0, 1, 0, 1]),
        (np.ones((4, 2)), [0, 1, 0]),
        (np.ones((0, 2)), []),
        (np.ones((4, 0)), [0, 1, 0, 1]),
        ([["a", "b"], ["c", "d"]], [0, 1]),
    ],
    ids=["vector", "cube", "lengths", "no rows", "no columns", "text"],
)
def test_arrays_of_the_wrong_shape_are_refused(kind, X, y):
    with pytest.raises(ValueError):
        kind(method="exact").fit(X, y)


def test_prediction_refuses_another_number_of_columns_and_an_unfitted_model():
    X, y, _ = gaussian_problem(0)
    with pytest.raises(NotFittedError):
        exact().predict(X)
    with pytest.raises(ValueError, match="features"):
        exact().fit(X, y).predict(X[:, :1])
    assert not hasattr(exact(), "objective_")


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("loss", "huger", "unknown loss 'huger'"),
        ("method", "magic", "unknown method 'magic'"),
        ("activation", "tanh", "unknown activation 'tanh'"),
        ("architecture", "transformer", "unknown architecture 'transformer'"),
        ("architecture", TwoLayer, "unknown architecture"),
        ("loss", Huber, "unknown loss"),
        ("beta", -1e-3, "beta must be a number >= 0"),
        ("beta", float("nan"), "beta must be"),
        ("beta", float("inf"), "beta must be"),
        ("beta", True, "beta must be"),
        ("beta", "1", "beta must be"),
        ("beta", None, "beta must be"),
        ("tol", -1.0, "tol must be"),
        ("max_iter", 0, "max_iter must be"),
        ("max_iter", 2.5, "max_iter must be"),
        ("n_patterns", 0, "n_patterns must be"),
        ("time_limit", -1, "time_limit must be"),
        ("bias", "yes", "bias must be"),
        ("fit_intercept", "no", "fit_intercept must be"),
        ("random_state", "seven", "seed"),
    ],
)
def test_parameters_that_cannot_be_are_refused_in_words(kind, name, value, words):
    X, _, signs = gaussian_problem(0)
    with pytest.raises(ValueError, match=words):
        kind(**{"method": "sampled", "n_patterns": 5, name: value}).fit(X, signs)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "weight", [np.ones(5), np.ones((6, 2)), -np.ones(6), np.zeros(6), np.full(6, np.nan), np.array([1, 1, 1, 1, 1, -1])]
)
def test_sample_weights_that_mean_nothing_are_refused(kind, weight):
    X, _, signs = gaussian_problem(0)
    with pytest.raises(ValueError, match=r"(?i)weight"):
        kind(method="exact").fit(X, signs, sample_weight=weight)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_one_two_or_three_rows_are_enough(n, bias, fit_intercept):
    X, y, _ = gaussian_problem(3)
    X, y = X[:n], y[:n] + 1.0
    est = exact(bias=bias, fit_intercept=fit_intercept).fit(X, y)
    truth = printed_program(X, y, 0.02, bias=bias, fit_intercept=fit_intercept)
    assert est.objective_ == pytest.approx(truth, rel=1e-6, abs=1e-9)
    assert est.lower_bound_ == pytest.approx(truth, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile", "epsilon_insensitive"])
@pytest.mark.parametrize("value", [0.0, 3.0, -1e6, 1e-7])
def test_a_constant_target_needs_no_neurons_and_leaves_no_gap(loss, value):
    X, _, _ = gaussian_problem(0)
    est = exact(loss=loss).fit(X, np.full(6, value))
    assert est.n_neurons_ == 0
    assert est.objective_ == pytest.approx(0.0, abs=1e-12 * max(1.0, value**2))
    np.testing.assert_allclose(est.predict(X), value, rtol=1e-6, atol=1e-9)
    assert est.gap_ <= est.tol_  # and no ConvergenceWarning, which is an error here


def test_a_zero_target_without_intercept_is_fitted_by_nothing():
    X, _, _ = gaussian_problem(0)
    est = exact(bias=False, fit_intercept=False).fit(X, np.zeros(6))
    assert (est.n_neurons_, est.objective_, est.gap_) == (0, 0.0, 0.0)


@pytest.mark.parametrize("method", ["exact", "sampled"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_inputs_that_are_all_zero_train_to_the_best_constant(method, bias, fit_intercept):
    y = np.array([1.0, 2.0, 6.0])
    est = ReLURegressor(0.1, method=method, bias=bias, fit_intercept=fit_intercept, random_state=0)
    est.fit(np.zeros((3, 2)), y)
    if fit_intercept:
        truth = 0.5 * np.var(y)
    elif bias:  # one neuron with bias b: 1/2 mean (b - y)^2 + beta b
        b = y.mean() - 0.1
        truth = 0.5 * np.mean((b - y) ** 2) + 0.1 * b
    else:
        truth = 0.5 * np.mean(y**2)
    assert est.objective_ == pytest.approx(truth, rel=1e-7)
    assert est.gap_ < 1e-6


def test_a_column_of_zeros_changes_nothing_and_gets_no_weight():
    X, y, _ = gaussian_problem(0)
    wide = np.column_stack([X, np.zeros(6)])
    est, plain = exact(tol=1e-6).fit(wide, y), exact(tol=1e-6).fit(X, y)
    assert est.objective_ == pytest.approx(plain.objective_, rel=1e-7)
    np.testing.assert_allclose(est.network_.hidden_weights[:, 2], 0.0, atol=1e-6)


def test_more_columns_than_rows_and_repeated_columns_work():
    X, y, _ = gaussian_problem(0, 4, 2)
    wide = np.tile(X, (1, 5))
    # Five copies of X are sqrt 5 times X seen along one direction: the same as a smaller beta.
    est = exact(0.02, bias=False, tol=1e-6).fit(wide, y)
    assert est.objective_ == pytest.approx(
        exact(0.02 / np.sqrt(5), bias=False, tol=1e-6).fit(X, y).objective_, rel=1e-6
    )


@pytest.mark.parametrize("kind", ["all the same", "twins"])
def test_duplicate_rows_with_conflicting_targets_are_averaged(kind):
    X, y, _ = gaussian_problem(1, 4, 2)
    X = np.repeat(X[:1], 4, axis=0) if kind == "all the same" else np.concatenate([X, X])
    y = y if kind == "all the same" else np.concatenate([y, y + 1])
    est = exact(tol=1e-6).fit(X, y)
    assert est.objective_ == pytest.approx(printed_program(X, y, 0.02, bias=True, fit_intercept=True), rel=1e-6)
    assert est.gap_ < 1e-6


@pytest.mark.parametrize("labels", [["a"] * 4, [1, 1, 1, 1]])
def test_a_single_class_is_refused_by_name(labels):
    with pytest.raises(ValueError, match=rf"one class only.*{labels[0]}"):
        ReLUClassifier(method="exact").fit(np.ones((4, 1)), labels)


def test_real_numbers_are_not_labels():
    with pytest.raises(ValueError, match=r"(?i)continuous|unknown label"):
        ReLUClassifier(method="exact").fit(np.eye(3), [0.1, 0.5, 0.9])
