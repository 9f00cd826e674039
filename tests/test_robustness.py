"""What users do to software: bad input, extreme scales, degenerate data, impatient limits, scikit-learn's machinery."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ReLUClassifier, ReLURegressor, TwoLayer
from bidual.losses import Huber

from .helpers import X_LINE, Y_LINE, gap_may_stay_open, gaussian_problem, lp_patterns, plain_objective, printed_program

BOTH = [ReLURegressor, ReLUClassifier]


@contextmanager
def within(seconds):
    """Fail, rather than hang, if the block does not end."""

    def ring(number, frame):
        raise TimeoutError(f"still running after {seconds} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def exact(beta=0.02, **kw):
    return ReLURegressor(beta, method="exact", **kw)


# ---- bad input ---------------------------------------------------------------------------------------------------


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


# ---- degenerate data ---------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile"])
@pytest.mark.parametrize("value", [0.0, 3.0, -1e6, 1e-7])
def test_a_constant_target_needs_no_neurons_and_leaves_no_gap(loss, value):
    X, _, _ = gaussian_problem(0)
    est = exact(loss=loss).fit(X, np.full(6, value))
    assert est.n_neurons_ == 0
    assert est.objective_ == pytest.approx(0.0, abs=1e-12 * max(1.0, value**2))
    np.testing.assert_allclose(est.predict(X), value, rtol=1e-6, atol=1e-9)
    assert est.gap_ <= est.tol  # and no ConvergenceWarning, which is an error here


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


# ---- scales ------------------------------------------------------------------------------------------------------


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


def test_columns_further_apart_than_floating_point_sees_still_train():
    X, y, _ = gaussian_problem(3, 6, 3)
    with gap_may_stay_open():
        est = exact(0.02, bias=False).fit(X * [1e12, 1.0, 1.0], y)
    assert 0 <= est.lower_bound_ <= est.objective_


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


# ---- weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_a_row_of_weight_zero_is_a_row_that_is_not_there(kind, method):
    X, y, signs = gaussian_problem(5)
    y = signs if kind is ReLUClassifier else y
    weight = np.array([1.0, 2.0, 0.0, 1.0, 0.0, 3.0])
    kept = weight > 0
    options = {"method": method, "random_state": 0, "n_patterns": 10}
    one = kind(0.02, **options).fit(X, y, sample_weight=weight)
    other = kind(0.02, **options).fit(X[kept], y[kept], sample_weight=weight[kept])
    assert one.objective_ == other.objective_
    assert one.lower_bound_ == other.lower_bound_
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


# ---- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("limit", [{"time_limit": 0.0}, {"time_limit": 1e-6}, {"max_iter": 1}], ids=str)
@pytest.mark.parametrize("shape", [(6, 2), (25, 2)], ids=["one program", "working set"])
def test_an_impatient_fit_returns_a_network_with_a_true_gap_and_a_warning(loss, limit, shape):
    X, y, _ = gaussian_problem(6, *shape)
    truth = exact(0.02, loss=loss, tol=1e-6).fit(X, y)
    with within(10.0), pytest.warns(ConvergenceWarning, match=r"gap .* is above tol"):
        est = exact(0.02, loss=loss, **limit).fit(X, y)
    assert est.objective_ >= truth.lower_bound_
    assert est.lower_bound_ <= truth.objective_
    assert est.gap_ > 1e-4
    assert est.objective_ == pytest.approx(plain_objective(est.network_, X, y, 0.02, loss, delta=1.0), rel=1e-9)
    assert np.isfinite(est.predict(X)).all()


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_impatient_classifier_returns_a_network_with_a_true_gap_and_a_warning(loss, n_classes):
    X = gaussian_problem(6, 9, 2)[0]
    y = np.arange(9) % n_classes
    with within(10.0), pytest.warns(ConvergenceWarning, match=r"gap .* is above tol"):
        est = ReLUClassifier(0.02, loss=loss, method="exact", max_iter=1).fit(X, y)
    with gap_may_stay_open():
        truth = ReLUClassifier(0.02, loss=loss, method="exact").fit(X, y)
    assert est.objective_ >= truth.lower_bound_
    assert est.lower_bound_ <= truth.objective_
    assert np.isfinite([est.objective_, est.lower_bound_]).all()


def test_an_impatient_interpolation_does_not_claim_to_fit():
    with within(10.0), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            est = exact(0.0, max_iter=1).fit(X_LINE, Y_LINE)
        except (ValueError, RuntimeError):
            return  # refusing is honest too
    assert any(issubclass(w.category, ConvergenceWarning) for w in caught)
    residual = np.abs(est.predict(X_LINE) - Y_LINE).max()
    assert residual < 1e-5 or not est.gap_ < 1.0
    assert est.n_neurons_ > 0  # the best there is, not an empty network


def test_a_certificate_can_be_saved_whatever_the_outcome(tmp_path):
    with gap_may_stay_open():
        est = exact(0.0, max_iter=1).fit(X_LINE, Y_LINE)
    assert est.certificate_.save(tmp_path / "c.json").exists()


def test_control_c_during_training_returns_the_best_network_so_far(monkeypatch):
    from bidual.solvers.interrupt import InterruptFlag

    enter = InterruptFlag.__enter__

    def pressed(self):
        flag = enter(self)
        signal.raise_signal(signal.SIGINT)
        return flag

    monkeypatch.setattr(InterruptFlag, "__enter__", pressed)
    before = signal.getsignal(signal.SIGINT)
    X, y, _ = gaussian_problem(6)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est = exact().fit(X, y)
    assert 0 <= est.lower_bound_ <= est.objective_
    assert signal.getsignal(signal.SIGINT) is before


def test_an_enumeration_that_cannot_be_is_refused_with_its_numbers():
    X = np.random.default_rng(0).standard_normal((300, 20))
    with within(10.0), pytest.raises(ValueError, match=r"300 distinct rows of rank 21.*2,000,000"):
        exact().fit(X, X[:, 0])


def test_time_limit_bounds_the_time_of_training():
    X, y, _ = gaussian_problem(0, 40, 3)
    with within(60.0), gap_may_stay_open():
        est = exact(1e-4, time_limit=0.5).fit(X, y)
    assert est.certificate_.elapsed < 10.0
    assert 0 <= est.lower_bound_ <= est.objective_


# ---- arrays, frames and scikit-learn -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH)
def test_training_reads_but_never_writes_its_arrays(kind):
    X, _, y = gaussian_problem(0)
    weight = np.ones(6)
    for array in (X, y, weight):
        array.flags.writeable = False
    est = kind(0.02, method="exact").fit(X, y, sample_weight=weight)
    assert np.isfinite(est.predict(X).astype(float)).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_memory_layout_and_dtype_do_not_matter(order, dtype):
    X = np.array(np.round(10 * gaussian_problem(0)[0]), dtype=dtype, order=order)
    y = np.arange(6.0)
    base = exact().fit(np.ascontiguousarray(X, dtype=float), y)
    assert exact().fit(X, y).objective_ == pytest.approx(base.objective_, rel=1e-8)
    strided = np.repeat(X, 2, axis=0)[::2]
    assert exact().fit(strided, y).objective_ == pytest.approx(base.objective_, rel=1e-8)


def test_data_frames_give_feature_names_and_are_checked_for_them():
    X, y, _ = gaussian_problem(0)
    frame = pd.DataFrame(X, columns=["left", "right"])
    est = exact().fit(frame, pd.Series(y, name="target"))
    assert est.feature_names_in_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(est.predict(frame), est.network_.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        est.predict(frame[["right", "left"]])


def test_labels_of_any_type_come_back_as_they_were():
    X, _, signs = gaussian_problem(0)
    for names in (np.array(["no", "yes"]), np.array([10, 20]), np.array([False, True]), np.array([2.0, 7.0])):
        est = ReLUClassifier(1e-4, method="exact").fit(X, names[(signs > 0).astype(int)])
        np.testing.assert_array_equal(est.classes_, names)
        np.testing.assert_array_equal(est.predict(X), names[(signs > 0).astype(int)])


def test_probabilities_exist_exactly_for_the_losses_that_model_them():
    X, _, signs = gaussian_problem(0)
    est = ReLUClassifier(0.02, method="exact").fit(X, signs)
    p = est.predict_proba(X)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-est.decision_function(X))))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(est.predict_log_proba(X), np.log(p))
    assert not hasattr(ReLUClassifier(loss="hinge"), "predict_proba")


@pytest.mark.parametrize("kind", BOTH)
def test_clone_and_pickle_keep_parameters_and_predictions(kind):
    X, _, y = gaussian_problem(0)
    est = kind(0.02, method="exact", loss="squared", architecture=TwoLayer(), tol=1e-5).fit(X, y)
    fresh = clone(est)
    assert fresh.get_params() == est.get_params()
    assert not hasattr(fresh, "network_")
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.predict(X), est.predict(X))
    assert again.certificate_ == est.certificate_
    assert again.gap_ == est.gap_


def test_grid_search_pipelines_and_cross_validation_work():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 2)) * [1.0, 50.0] + 7.0
    y = np.maximum(X[:, 0] - 7, 0)
    pipeline = make_pipeline(StandardScaler(), ReLURegressor(method="sampled", n_patterns=10, random_state=0))
    search = GridSearchCV(pipeline, {"relu" + "regressor__beta": [1e-3, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["relu" + "regressor__beta"] == 1e-3
    assert search.best_score_ > 0.8
    labels = np.where(y > 0.1, "up", "down")
    scores = cross_val_score(
        make_pipeline(StandardScaler(), ReLUClassifier(1e-2, method="sampled", n_patterns=10, random_state=0)),
        X,
        labels,
        cv=3,
    )
    assert scores.mean() > 0.6


@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_the_same_random_state_gives_the_same_bits(method):
    X, y, _ = gaussian_problem(0, 12, 2)
    one, other = (ReLURegressor(0.02, method=method, n_patterns=12, random_state=5).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.network_.hidden_weights, other.network_.hidden_weights)
    np.testing.assert_array_equal(one.network_.output_weights, other.network_.output_weights)
    assert one.objective_ == other.objective_
    assert one.lower_bound_ == other.lower_bound_


def test_fitting_leaves_the_global_random_stream_alone():
    X, y, _ = gaussian_problem(0)
    np.random.seed(0)
    expected = np.random.rand()
    np.random.seed(0)
    ReLURegressor(0.02, method="sampled", n_patterns=5, random_state=1).fit(X, y)
    exact().fit(X, y)
    assert np.random.rand() == expected


def test_refitting_forgets_the_previous_data_and_warm_start_never_gets_worse():
    X, y, _ = gaussian_problem(0, 12, 3)
    est = ReLURegressor(0.02, method="sampled", n_patterns=8, random_state=0)
    first = est.fit(X, y).objective_
    assert est.fit(X[:, :2], y).n_features_in_ == 2
    assert est.fit(X, y).objective_ == first
    warm = ReLURegressor(0.02, method="sampled", n_patterns=8, random_state=0, warm_start=True).fit(X, y)
    before = warm.objective_
    for seed in range(1, 4):
        after = warm.set_params(random_state=seed).fit(X, y).objective_
        assert after <= before * (1 + 1e-6)
        before = after


def test_history_ends_with_the_reported_numbers():
    X, y, _ = gaussian_problem(0, 14, 3)
    est = exact().fit(X, y)
    last = est.history_[-1]
    assert (last.objective, last.lower_bound, last.n_neurons) == (est.objective_, est.lower_bound_, est.n_neurons_)
    assert np.all(np.diff([entry.elapsed for entry in est.history_]) >= 0)
    assert np.all(np.diff([entry.lower_bound for entry in est.history_]) >= -1e-12)
    assert est.n_iter_ >= 1


def test_verbose_prints_the_certificate(capsys):
    exact(verbose=1).fit(X_LINE, Y_LINE)
    assert "relative gap" in capsys.readouterr().out
    exact().fit(X_LINE, Y_LINE)
    assert capsys.readouterr().out == ""


def test_referee_patterns_are_those_of_the_example():
    assert len(lp_patterns(np.column_stack([X_LINE, np.ones(5)]))) == 10


def test_a_fit_that_runs_out_of_time_is_audited():
    """The bound of a stopped run must survive a much wider search at its dual point."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 6))
    y = np.abs(X[:, 0]) - np.maximum(X @ rng.standard_normal(6), 0) + 0.1 * rng.standard_normal(100)
    est = ReLURegressor(beta=0.002, tol=1e-12, time_limit=4.0, random_state=0)
    with pytest.warns(ConvergenceWarning):
        est.fit(X, y)
    assert est.certificate_.method == "local search, audited"
    assert est.certificate_.elapsed < 8.0
    without = ReLURegressor(beta=0.002, tol=1e-12, time_limit=1.0, random_state=0, audit=False)
    with pytest.warns(ConvergenceWarning):
        without.fit(X, y)
    assert without.certificate_.method == "local search"


def test_max_neurons_limits_the_width_and_the_gap_says_what_it_costs():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    with pytest.warns(ConvergenceWarning):
        narrow = ReLURegressor(beta=1e-3, tol=1e-3, max_neurons=3, random_state=0).fit(X, y)
    free = ReLURegressor(beta=1e-3, tol=1e-3, random_state=0).fit(X, y)
    assert narrow.n_neurons_ <= 3 < free.n_neurons_
    assert narrow.lower_bound_ <= free.objective_ <= narrow.objective_
    assert narrow.gap_ > free.gap_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_neurons": 0}, "max_neurons must be an integer"),
        ({"max_neurons": 3, "method": "exact"}, "max_neurons is for method='adaptive'"),
        ({"max_neurons": 3, "activation": "gated"}, "max_neurons is for method='adaptive'"),
        ({"audit": "yes"}, "audit must be True, False or 'auto'"),
    ],
)
def test_bad_width_and_audit_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        ReLURegressor(**parameters).fit(np.arange(6.0).reshape(3, 2), np.arange(3.0))


def test_importing_the_library_loads_no_compiler_and_no_optional_library():
    code = "import sys, bidual; print([m for m in ('numba', 'torch', 'matplotlib') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
