"""Cutting planes with the spike-free relaxation (004 Algorithm 1, A.7, A.7.3)."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from bidual import BatchNorm, ReLUClassifier, ReLURegressor, is_spike_free
from bidual.plots import plot_gap_by_width, plot_polar, plot_rectified_ellipsoid

from .helpers import cvxpy_loss, gap_may_stay_open, plain_objective

PAPER = {"bias": False, "fit_intercept": False, "method": "cutting_plane"}


def spike_free_data(seed, n=6, d=8, C=1):
    rng = np.random.default_rng(seed)
    B = rng.random((n, n))
    K = n * np.eye(n) - 0.5 * (B + B.T)
    X = np.linalg.cholesky(np.linalg.inv(K)) @ np.linalg.qr(rng.standard_normal((d, n)))[0].T * np.sqrt(n)
    assert is_spike_free(X)
    return X, rng.standard_normal((n, C) if C > 1 else n)


def relaxed_optimum(X, y, beta, loss="squared", fit_intercept=False):
    """The convex program on the pattern 1...1: what the cuts converge to, by CVXPY."""
    p, q, b = cp.Variable(X.shape[1]), cp.Variable(X.shape[1]), cp.Variable()
    F = X @ (p - q) + (b if fit_intercept else 0)
    goal = cvxpy_loss(loss, F, y, np.full(len(y), 1 / len(y))) + beta * (cp.norm(p) + cp.norm(q))
    return cp.Problem(cp.Minimize(goal), [X @ p >= 0, X @ q >= 0]).solve("CLARABEL")


@settings(max_examples=5)
@given(st.integers(0, 1000), st.sampled_from([0.003, 0.03, 10.0]), st.booleans())
def test_spike_free_data_are_trained_to_the_proven_global_optimum(seed, beta, fit_intercept):  # Prop. 3.2
    X, y = spike_free_data(seed)
    est = ReLURegressor(beta, **{**PAPER, "fit_intercept": fit_intercept}).fit(X, y)
    exact = ReLURegressor(beta, **{**PAPER, "fit_intercept": fit_intercept, "method": "exact"}).fit(X, y)
    assert est.certificate_.scope == "global"
    assert est.gap_ <= 1e-4
    assert est.objective_ == pytest.approx(exact.objective_, rel=1e-4)
    assert est.lower_bound_ <= exact.objective_ * (1 + 1e-9)
    assert est.n_neurons_ <= 2
    assert est.objective_ == pytest.approx(plain_objective(est.network_, X, y, beta, "squared"))
    assert exact.objective_ == pytest.approx(relaxed_optimum(X, y, beta, "squared", fit_intercept), rel=1e-4)


@pytest.mark.parametrize("loss", ["absolute", "huber", "quantile", "epsilon_insensitive"])
def test_other_losses_on_spike_free_data(loss):
    X, y = spike_free_data(3)
    est = ReLURegressor(0.02, loss=loss, **PAPER).fit(X, y)
    assert est.gap_ <= 1e-4


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
def test_classes_of_spike_free_data(loss):
    X, y = spike_free_data(4)
    est = ReLUClassifier(0.02, loss=loss, **PAPER).fit(X, y > 0)
    assert est.gap_ <= 1e-4
    codes = np.where(y > 0, 1.0, -1.0)
    assert est.objective_ == pytest.approx(relaxed_optimum(X, codes, 0.02, loss), rel=2e-4)


def test_interpolation_of_spike_free_data_is_minimal_and_proven():
    X, y = spike_free_data(5)
    est = ReLURegressor(0, **PAPER).fit(X, y)
    exact = ReLURegressor(0, **{**PAPER, "method": "exact"}).fit(X, y)
    np.testing.assert_allclose(est.predict(X), y, atol=1e-5)
    assert est.objective_ == pytest.approx(exact.objective_, rel=1e-5)


def test_several_outputs_reach_the_optimum():  # A.7
    X = np.linalg.qr(np.random.default_rng(6).standard_normal((8, 6)))[0].T
    Y = np.eye(3)[[0, 1, 2, 0, 1, 0]]
    est = ReLURegressor(0.03, **PAPER).fit(X, Y)
    formula = ReLURegressor(0.03, **{**PAPER, "method": "closed_form"}).fit(X, Y)  # 000 Theorem 2.4
    assert est.objective_ == pytest.approx(formula.objective_, rel=1e-4)
    assert est.likely_gap_ <= 1e-4


def test_several_outputs_of_spike_free_data_come_with_a_small_gap():
    X, Y = spike_free_data(6, C=2)
    est = ReLURegressor(0.03, random_state=0, **PAPER).fit(X, Y)
    assert est.likely_gap_ <= 1e-4


def test_the_l1_variant_solves_its_own_program():  # A.7.3: each neuron feeds one output, and outputs come apart
    X, Y = spike_free_data(7, C=2)
    with gap_may_stay_open():
        est = ReLURegressor(0.03, **{**PAPER, "method": "cutting_plane_l1"}).fit(X, Y)
    alone = sum(relaxed_optimum(X, y, 0.03) for y in Y.T)
    l1 = 0.03 * sum(
        np.linalg.norm(u) * np.abs(a).sum()
        for u, a in zip(est.network_.hidden_weights, est.network_.output_weights, strict=True)
    )
    loss = 0.5 * ((est.predict(X) - Y) ** 2).sum() / len(X)
    assert loss + l1 == pytest.approx(alone, rel=1e-3)
    assert est.objective_ <= (loss + l1) * (1 + 1e-9)


def test_on_other_data_the_gap_tells_the_truth():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    with gap_may_stay_open():
        est = ReLURegressor(0.003, **PAPER).fit(X, y)
    best = ReLURegressor(0.003, random_state=0, **{**PAPER, "method": "adaptive"}).fit(X, y)
    assert est.objective_ > 1.5 * best.objective_  # the relaxation loses a lot
    assert est.lower_bound_ <= best.objective_  # and its bound holds all the same
    assert est.gap_ > 0.3


def test_the_tips_of_the_spikes_are_among_the_cuts():
    """Obtuse rows: without the spikes the relaxation could not even use the full length of the rows."""
    X, y = np.array([[1.0, 0.0], [-1.0, 0.1]]), np.array([1.0, 1.0])
    est = ReLURegressor(0.05, **PAPER).fit(X, y)
    exact = ReLURegressor(0.05, **{**PAPER, "method": "exact"}).fit(X, y)
    assert est.objective_ == pytest.approx(exact.objective_, rel=1e-4)
    assert relaxed_optimum(X, y, 0.05) > 1.2 * est.objective_


def test_batch_normalisation_after_the_relu_is_refused():
    X, y = spike_free_data(8)
    with pytest.raises(ValueError, match="it needs ordinary neurons"):
        ReLURegressor(0.01, architecture=BatchNorm("after"), method="cutting_plane").fit(X, y)


def test_time_limit_iterations_and_progress(capsys):
    X, y = spike_free_data(9, n=20, d=25)
    with gap_may_stay_open():
        est = ReLURegressor(1e-3, max_iter=2, verbose=1, **PAPER).fit(X, y)
    assert est.n_iter_ == 2
    assert "(of the relaxation)" in capsys.readouterr().out
    with gap_may_stay_open():
        assert ReLURegressor(1e-3, time_limit=0.0, **PAPER).fit(X, y).n_iter_ == 1


def test_units_rows_and_constant_targets_make_no_difference():
    X, y = spike_free_data(10)
    est = ReLURegressor(0.02, **PAPER).fit(X, y)
    scaled = ReLURegressor(0.02 * 1e6, **PAPER).fit(1e6 * X, y)
    assert scaled.objective_ == pytest.approx(est.objective_, rel=1e-4)
    order = np.arange(len(X))[::-1]
    np.testing.assert_allclose(ReLURegressor(0.02, **PAPER).fit(X[order], y[order]).predict(X), est.predict(X))
    constant = ReLURegressor(0.02, method="cutting_plane").fit(X, np.full(6, 3.0))
    assert constant.n_neurons_ == 0
    single = ReLURegressor(0.02, **PAPER).fit(X[:1], y[:1])
    assert single.gap_ <= 1e-4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@pytest.mark.slow
@parametrize_with_checks(
    [ReLURegressor(0.05, method="cutting_plane", tol=0.1), ReLUClassifier(0.01, method="cutting_plane_l1", tol=0.1)]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


# ---- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("X", [[[1.0, 0.1], [-0.5, 0.9]], [[1.0], [2.0]], np.diag([1.0, 0.8, 0.6])])
def test_pictures_are_drawn(X):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        ax = plot_rectified_ellipsoid(X)
        assert "spike-free" in ax.get_title()
        plot_polar(X).figure.canvas.draw()
        ax.figure.canvas.draw()
    assert len(plot_gap_by_width([1, 2], {"a": [0.5, 0.0]}).lines) == 2
    plt.close("all")


def test_pictures_need_few_rows():
    with pytest.raises(ValueError, match="two or three rows"):
        plot_rectified_ellipsoid(np.eye(4))
    with pytest.raises(ValueError, match="zero row"):
        plot_polar(np.zeros((2, 2)))


def test_the_gap_warning_is_given():
    rng = np.random.default_rng(0)
    with pytest.warns(ConvergenceWarning, match="likely gap"):
        ReLURegressor(0.001, **PAPER).fit(rng.standard_normal((12, 2)), rng.standard_normal(12))
