"""Exact fits without enumeration, against enumeration, CVXPY, and what no network can do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import Convolutional, ReLUClassifier, ReLURegressor
from bidual.atoms import Neurons
from bidual.losses import get_loss
from bidual.programs.restore import restored
from bidual.solvers import InfeasibleError
from bidual.training.objective import Objective

from .helpers import gaussian_problem, lp_patterns, printed_program, with_ones

seeds = st.integers(0, 2**31)


def fit(X, y, kind=ReLURegressor, **kw):
    return kind(0.0, **{"tol": 5e-7, "random_state": 0, "prove": False, **kw}).fit(X, y)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive", "hinge"])
def test_column_generation_reaches_the_smallest_fit_of_the_printed_program(loss, fit_intercept, bias):
    X, y, signs = gaussian_problem(1)
    kind, y = (ReLUClassifier, signs) if loss == "hinge" else (ReLURegressor, y)
    est = fit(X, y, kind, loss=loss, bias=bias, fit_intercept=fit_intercept)
    active = lp_patterns(with_ones(X, bias))
    truth = printed_program(X, y, 0, loss, bias=bias, fit_intercept=fit_intercept, active=active, epsilon=0.1)
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.likely_bound_ == pytest.approx(truth, rel=1e-6)
    assert est.lower_bound_ <= truth * (1 + 1e-6)
    F = est.network_.evaluate(X)[:, 0]
    missed = {"hinge": 1 - y * F, "squared": abs(F - y), "epsilon_insensitive": abs(F - y) - 0.1}[loss]
    assert missed.max() < 1e-6


@pytest.mark.parametrize(("n", "d"), [(25, 2), (12, 3)])
def test_it_agrees_with_enumeration_where_that_is_possible(n, d):
    X, y, _ = gaussian_problem(3, n, d)
    found, exact = fit(X, y), fit(X, y, method="exact", prove="auto")
    assert found.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    assert exact.lower_bound_ <= found.objective_ * (1 + 1e-6)
    assert found.likely_gap_ < 1e-6


def test_several_outputs_share_their_neurons():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((6, 1)), rng.standard_normal((6, 2))
    found, exact = fit(X, Y, tol=1e-4), fit(X, Y, method="exact", tol=1e-4, prove="auto")
    assert found.objective_ == pytest.approx(exact.objective_, rel=1e-3)
    X, Y = rng.standard_normal((14, 6)), rng.standard_normal((14, 2))
    shared = fit(X, Y, tol=1e-2)
    np.testing.assert_allclose(shared.network_.evaluate(X), Y, atol=1e-6)
    separate = sum(fit(X, y, tol=1e-2).objective_ for y in Y.T)
    assert shared.likely_bound_ * (1 - 1e-6) <= shared.objective_ <= separate


def test_rows_too_many_to_enumerate_are_fitted_and_bounded():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 8)), rng.standard_normal(40)
    est = fit(X, y, tol=1e-2, random_state=1)
    other = fit(X, y, tol=3e-3, random_state=2)
    assert est.likely_gap_ <= 1e-2
    assert other.objective_ >= est.likely_bound_ * (1 - 1e-6)
    assert est.objective_ >= other.likely_bound_ * (1 - 1e-6)
    np.testing.assert_allclose(est.network_.evaluate(X)[:, 0], y, atol=1e-6)


def test_scales_and_weights_change_nothing_but_units():
    X, y, _ = gaussian_problem(2, 10, 2)
    plain = fit(X, y, fit_intercept=False, bias=False)
    scaled = fit(1e3 * X, 1e-2 * y, fit_intercept=False, bias=False)
    assert scaled.objective_ == pytest.approx(1e-5 * plain.objective_, rel=1e-6)
    weighted = ReLURegressor(0.0, tol=5e-7, bias=False, fit_intercept=False, random_state=0, prove=False)
    weighted.fit(X, y, sample_weight=np.linspace(0.1, 5.0, 10))
    assert weighted.objective_ == pytest.approx(plain.objective_, rel=1e-6)


def test_filters_fit_too():
    X = np.random.default_rng(0).standard_normal((6, 4))
    y = np.random.default_rng(1).standard_normal(6)
    est = fit(X, y, architecture=Convolutional(2), tol=1e-5)
    exact = fit(X, y, architecture=Convolutional(2), method="exact", tol=1e-5, prove="auto")
    assert est.objective_ == pytest.approx(exact.objective_, rel=1e-5)


def test_a_width_does_not_go_with_an_exact_fit():
    X, y, _ = gaussian_problem(1)
    with pytest.raises(ValueError, match="max_neurons does not go with beta=0"):
        fit(X, y, max_neurons=3)


# ---- what no network can do ----------------------------------------------------------------------------------------

CROSS = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]])
IMPOSSIBLE = [
    ([[0, 1], [1, 0], [0, 1]], [1, 2, 3], {}, "the sample .* has the targets 1 and 3"),
    ([[0, 1], [1, 0], [0, 2]], [1, 2, 3], {"bias": False, "fit_intercept": False}, "weighted by .* add up to zero"),
    ([[0, 1], [0, 2], [0, 3]], [1, 3, 7], {"bias": False}, "weighted by"),
    ([[0, 0], [1, 0], [0, 2]], [1, 2, 3], {"bias": False, "fit_intercept": False}, r"\+1 at \(0, 0\)"),
    (CROSS, [1, 2, 3, 0, 0, 0], {"bias": False, "fit_intercept": False}, "and 2 more"),
    ([[0, 1], [1, 0], [0, 1]], [1, 2, 1.5], {"loss": "epsilon_insensitive"}, "has the targets 1 and 1.5"),
    ([[0, 1], [1, 0], [0, 1]], [[1, 2], [3, 4], [1, 3]], {}, "has the targets 2 and 3"),
]


@pytest.mark.parametrize("method", ["adaptive", "exact"])
@pytest.mark.parametrize(("X", "y", "settings", "words"), IMPOSSIBLE)
def test_what_no_network_fits_is_said_with_a_proof(X, y, settings, words, method):
    with pytest.raises(InfeasibleError, match=words) as told:
        fit(np.array(X, float), np.array(y, float), method=method, **settings)
    error = told.value
    # whatever a neuron computes, the weighted outputs add up to zero
    ones = np.ones((len(error.samples), 1)) * settings.get("bias", True)
    U = np.random.default_rng(0).standard_normal((200, error.samples.shape[1] + 1))
    hidden = np.maximum(np.hstack([error.samples, ones]) @ U.T, 0.0)
    np.testing.assert_allclose(hidden.T @ error.weights, 0.0, atol=1e-9)
    if settings.get("fit_intercept", True):
        np.testing.assert_allclose(error.weights.sum(axis=0), 0.0, atol=1e-12)


def test_labels_that_cannot_be_separated():
    with pytest.raises(InfeasibleError, match="has the targets -1 and 1"):
        fit(np.array([[0.0, 1], [1, 0], [0, 1]]), ["a", "b", "b"], ReLUClassifier, loss="hinge")


@settings(max_examples=8)
@given(seeds, st.booleans())
def test_homogeneous_data_are_refused_exactly_if_their_patterns_cannot_fit(seed, fit_intercept):
    """Integer rows of the plane: many are opposite, parallel or zero. The referee is least squares on all neurons."""
    rng = np.random.default_rng(seed)
    X = np.unique(rng.integers(-1, 2, size=(7, 2)).astype(float), axis=0)
    y = rng.integers(-2, 3, size=len(X)).astype(float)
    U = rng.standard_normal((500, 2))
    atoms = np.column_stack([np.maximum(X @ U.T, 0.0), np.ones((len(X), int(fit_intercept)))])
    left = np.linalg.norm(atoms @ np.linalg.lstsq(atoms, y, rcond=1e-10)[0] - y)
    if left < 1e-6:
        est = fit(X, y, bias=False, fit_intercept=fit_intercept, tol=1e-3)
        np.testing.assert_allclose(est.network_.evaluate(X)[:, 0], y, atol=1e-5)
    else:
        with pytest.raises(InfeasibleError, match="add up to zero"):
            fit(X, y, bias=False, fit_intercept=fit_intercept)


# ---- the pieces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_network_that_nearly_fits_is_moved_to_where_it_does(outputs):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((15, 4)), rng.standard_normal((15, outputs))
    problem = Objective(get_loss("squared"), 0.0).pose(X, Y).natural
    rank = problem.atoms.reduced.shape[1]
    neurons = Neurons(rng.standard_normal((30, rank)), rng.standard_normal((30, outputs)), np.zeros(outputs))
    H = np.maximum(problem.atoms.reduced @ neurons.U.T, 0.0)
    alpha = np.linalg.lstsq(H, problem.Y, rcond=None)[0]
    nearly = Neurons(neurons.U, alpha * (1 + 1e-3 * rng.standard_normal(alpha.shape)), neurons.intercept)
    moved = restored(problem, nearly, problem.Y)
    F = np.maximum(problem.atoms.reduced @ moved.U.T, 0.0) @ moved.alpha + moved.intercept
    np.testing.assert_allclose(F, problem.Y, atol=1e-9)
    assert moved.costs.sum() == pytest.approx(nearly.costs.sum(), rel=0.05)
