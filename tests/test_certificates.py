"""Certificates: weak duality against arbitrary networks and dual points, bounds against brute force."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import Certificate, ReLUClassifier, ReLURegressor, TwoLayer, TwoLayerNetwork, enumerate_patterns
from bidual.arrangements import sample_patterns
from bidual.atoms import Relu
from bidual.bounds import ConeBounds, lower_bound, relative_gap, slack, spectral_bound
from bidual.losses import EpsilonInsensitive, Huber, Quantile, get_loss
from bidual.problem import Problem

from .helpers import X_LINE, Y_LINE, gap_may_stay_open, gaussian_problem, printed_program

few = settings(max_examples=25)
seeds = st.integers(0, 2**31)
LOSSES = [
    ("squared", "squared", {}),
    ("huber", Huber(0.5), {"delta": 0.5}),
    ("absolute", "absolute", {}),
    ("quantile", Quantile(0.3), {"tau": 0.3}),
    ("epsilon_insensitive", EpsilonInsensitive(0.3), {"epsilon": 0.3}),
    ("logistic", "logistic", {}),
    ("hinge", "hinge", {}),
    ("squared_hinge", "squared_hinge", {}),
]
IDS = [name for name, _, _ in LOSSES]


def make_problem(X, Y, loss, beta, *, bias=True, fit_intercept=True):
    lift = TwoLayer().lift(X, bias=bias)
    Y = Y[:, None] if Y.ndim == 1 else Y
    return Problem(Relu(lift.M, lift.A), Y, np.full(len(X), 1 / len(X)), get_loss(loss), beta, fit_intercept)


def cone_bounds(problem, patterns, V, known=None):
    """The bounds of every cone at V: the one place here that knows how the class is driven."""
    bounds = ConeBounds(problem, patterns)
    bounds.start(V, known)
    return bounds


def pattern_bound(problem, patterns, V, known=None):
    """Value and upper bound of the dual constraint over the cones of the patterns."""
    value = cone_bounds(problem, patterns, V, known).maximum()
    return value, value + slack(problem, patterns, V)


def certify_patterns(problem, patterns, V):
    return lower_bound(problem, V, *pattern_bound(problem, patterns, V))


def targets_of(loss, seed, n=6, d=2):
    X, y, signs = gaussian_problem(seed, n, d)
    return X, signs if get_loss(loss).classification else y


@cache
def trained(index, fit_intercept):
    _, loss, _ = LOSSES[index]
    X, y = targets_of(loss, 12)
    kind = ReLUClassifier if get_loss(loss).classification else ReLURegressor
    return kind(0.02, loss=loss, method="exact", fit_intercept=fit_intercept, tol=1e-6).fit(X, y), X, y


@cache
def referee(index, fit_intercept):
    name, loss, parameters = LOSSES[index]
    X, y = targets_of(loss, 12)
    return printed_program(X, y, 0.02, name, bias=True, fit_intercept=fit_intercept, **parameters)


# ---- weak duality ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("index", range(len(LOSSES)), ids=IDS)
@few
@given(seed=seeds, m=st.integers(0, 12), size=st.sampled_from([0.01, 0.3, 1.0, 5.0]))
def test_no_network_whatever_is_below_the_lower_bound(index, fit_intercept, seed, m, size):
    est, X, y = trained(index, fit_intercept)
    rng = np.random.default_rng(seed)
    network = TwoLayerNetwork(
        size * rng.standard_normal((m, 2)),
        size * rng.standard_normal((m, 1)),
        size * rng.standard_normal(m),
        size * rng.standard_normal(1) if fit_intercept else None,
    )
    assert network.objective(X, y, beta=0.02, loss=LOSSES[index][1]) >= est.lower_bound_


@pytest.mark.parametrize("index", range(len(LOSSES)), ids=IDS)
@few
@given(seed=seeds, size=st.sampled_from([1e-9, 1e-4, 1e-2]))
def test_no_perturbation_of_the_trained_network_is_below_the_lower_bound(index, seed, size):
    est, X, y = trained(index, True)
    rng = np.random.default_rng(seed)
    moved = {k: v + size * (1 + np.abs(v)) * rng.standard_normal(v.shape) for k, v in est.network_.weights().items()}
    objective = TwoLayerNetwork(**moved).objective(X, y, beta=0.02, loss=LOSSES[index][1])
    assert objective >= est.lower_bound_


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("index", range(len(LOSSES)), ids=IDS)
@few
@given(seed=seeds, size=st.sampled_from([1e-6, 0.1, 1.0, 100.0]))
def test_any_dual_point_however_bad_gives_a_bound_below_the_true_optimum(index, fit_intercept, seed, size):
    _, loss, _ = LOSSES[index]
    X, y = targets_of(loss, 12)
    problem = make_problem(X, y, loss, 0.02, fit_intercept=fit_intercept)
    V = size * np.random.default_rng(seed).standard_normal((6, 1)) / 6
    V = problem.loss.dual_point(V, problem.Y, problem.w, centred=fit_intercept)
    bound = certify_patterns(problem, enumerate_patterns(problem.atoms.M), V)
    assert np.isfinite(bound.value)
    assert bound.value <= referee(index, fit_intercept) * (1 + 1e-8)
    # The bound belongs to the scaled point, which is feasible in every direction.
    U = np.random.default_rng(0).standard_normal((2000, 3))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    assert np.abs(bound.feasible[:, 0] @ np.maximum(problem.atoms.M @ U.T, 0)).max() <= 0.02 * (1 + 1e-9)
    if fit_intercept:
        assert abs(bound.V.sum()) < 1e-9 * max(1.0, np.abs(bound.V).sum())


@pytest.mark.parametrize("index", range(len(LOSSES)), ids=IDS)
def test_the_gradient_at_the_optimum_is_a_dual_point_without_gap(index):
    _, loss, _ = LOSSES[index]
    if not get_loss(loss).smooth:
        pytest.skip("a subgradient of a loss with kinks is not the dual solution")
    est, X, y = trained(index, True)
    problem = make_problem(X, y, loss, 0.02)
    V = -problem.loss.gradient(est.network_.forward(X), problem.Y, problem.w)
    V = problem.loss.dual_point(V, problem.Y, problem.w, centred=True)
    bound = certify_patterns(problem, enumerate_patterns(problem.atoms.M), V)
    assert bound.value == pytest.approx(referee(index, True), rel=1e-5)
    assert bound.attained == pytest.approx(0.02, rel=1e-3)  # complementary slackness


def test_the_lower_bound_holds_for_shared_neurons_of_several_outputs():
    X, y, _ = gaussian_problem(3)
    Y = np.column_stack([y, y])
    with gap_may_stay_open():
        est = ReLURegressor(0.02, method="exact", tol=1e-2).fit(X, Y)
    single = ReLURegressor(0.02 / np.sqrt(2), method="exact", tol=1e-6).fit(X, y).network_
    k = 2**0.25  # balance the doubled heads
    shared = TwoLayerNetwork(
        single.hidden_weights * k,
        np.repeat(single.output_weights, 2, axis=1) / k,
        single.hidden_bias * k,
        np.repeat(single.intercept, 2),
    )
    value = shared.objective(X, Y, beta=0.02)
    assert value < est.objective_  # sharing pays, so that the check below is a sharp one
    assert est.lower_bound_ <= value


# ---- the oracle --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@few
@given(seed=seeds)
def test_pattern_bound_is_the_brute_force_maximum_over_directions(bias, seed):
    X, y, _ = gaussian_problem(seed, 6, 1 if bias else 2)
    problem = make_problem(X, y, "squared", 1.0, bias=bias)
    V = np.random.default_rng(seed).standard_normal((6, 1))
    value, bound = pattern_bound(problem, enumerate_patterns(problem.atoms.M), V)
    boundaries = np.arctan2(problem.atoms.M[:, 0], -problem.atoms.M[:, 1])  # the maximum may sit on a kink
    angles = np.concatenate([np.linspace(0, 2 * np.pi, 40001), boundaries, boundaries + np.pi])
    U = np.column_stack([np.cos(angles), np.sin(angles)])
    brute = np.abs(V[:, 0] @ np.maximum(problem.atoms.M @ U.T, 0)).max()
    assert bound >= brute
    assert value == pytest.approx(brute, rel=1e-7)
    assert bound == pytest.approx(brute, rel=1e-7)


@few
@given(seed=seeds)
def test_bounds_are_never_below_the_constraint_in_higher_dimensions_and_with_several_outputs(seed):
    rng = np.random.default_rng(seed)
    X, V = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    problem = make_problem(X, V, "squared", 1.0, bias=False)
    patterns = enumerate_patterns(X)
    U = rng.standard_normal((20000, 3))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    hidden = np.maximum(X @ U.T, 0)
    _, bound = pattern_bound(problem, patterns, V)
    _, spectral = spectral_bound(problem, patterns, V)
    largest = np.abs(V.T @ hidden).max()
    assert bound >= largest
    assert bound == pytest.approx(largest, rel=2e-2)
    assert spectral >= np.linalg.norm(V.T @ hidden, axis=0).max()


@few
@given(seed=seeds)
def test_multipliers_that_are_wrong_cannot_spoil_the_bound_when_they_are_true_upper_bounds(seed):
    X, y, _ = gaussian_problem(seed, 6, 2)
    problem = make_problem(X, y, "squared", 1.0, bias=False)
    patterns = enumerate_patterns(X)
    V = np.random.default_rng(seed).standard_normal((6, 1))
    loose = np.full((2, 1, len(patterns)), 1e9)
    assert pattern_bound(problem, patterns, V, loose) == pattern_bound(problem, patterns, V)


@few
@given(seed=seeds, share=st.floats(0.0, 0.99))
def test_tightened_bounds_stay_above_the_constraint_in_every_cone_and_find_the_same_maximum(seed, share):
    rng = np.random.default_rng(seed)
    X, V = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    problem = make_problem(X, V, "squared", 1.0, bias=False)
    patterns = enumerate_patterns(X)
    bounds = cone_bounds(problem, patterns, V)
    before = bounds.values.copy()
    bounds.tighten(share * before.max())
    assert (bounds.values <= before * (1 + 1e-12)).all()
    U = rng.standard_normal((20000, 3))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    hidden = np.maximum(X @ U.T, 0)
    names = {tuple(row): i for i, row in enumerate(patterns.active.tolist())}
    cell = np.array([names[tuple(row)] for row in (U @ X.T >= 0).tolist()])
    for s, sign in enumerate((1.0, -1.0)):
        for c in range(2):
            attained = np.full(len(patterns), -np.inf)
            np.maximum.at(attained, cell, sign * (V[:, c] @ hidden))
            assert (bounds.values[s, c] >= attained - 1e-12).all()
    assert bounds.maximum() == pytest.approx(cone_bounds(problem, patterns, V).maximum(), rel=1e-12)


def test_fewer_patterns_prove_less_but_never_a_larger_constraint():
    X, y, _ = gaussian_problem(3, 8, 3)
    problem = make_problem(X, y, "squared", 1.0, bias=False)
    V = y[:, None]
    every = pattern_bound(problem, enumerate_patterns(X), V)[0]
    some = pattern_bound(problem, sample_patterns(X, 4, random_state=0), V)[0]
    assert some <= every * (1 + 1e-12)


@pytest.mark.parametrize(("y", "optimum"), [([1.0, -1.0], 0.5), ([3.0, 1.0], None)], ids=["cancel", "agree"])
def test_twins_with_different_targets_leave_no_gap_although_the_constraint_vanishes(y, optimum):
    X = np.array([[1.0, 2.0], [1.0, 2.0]])
    est = ReLURegressor(0.1, method="exact", bias=False, fit_intercept=False).fit(X, y)
    assert est.objective_ == pytest.approx(printed_program(X, np.array(y), 0.1), rel=1e-6)
    assert est.gap_ < 1e-6
    if optimum is not None:
        assert est.objective_ == pytest.approx(optimum)
        assert est.n_neurons_ == 0


def test_lower_bound_uses_the_best_point_of_the_ray():
    problem = make_problem(X_LINE, Y_LINE, "squared", 0.01)
    patterns = enumerate_patterns(problem.atoms.M)
    V = problem.loss.dual_point((Y_LINE / 5)[:, None], problem.Y, problem.w, centred=True)
    value, bound = pattern_bound(problem, patterns, V)
    found = lower_bound(problem, V, value, bound).value
    ray = max(problem.dual_value(c * V) for c in np.linspace(0, 0.01 / bound, 1001))
    assert found == pytest.approx(ray, rel=1e-9)


@pytest.mark.parametrize("bound", [0.0, *10.0 ** np.arange(-17, 0)])
def test_a_constraint_that_hardly_binds_leaves_the_whole_dual_value(bound):
    y = np.array([1.0, 2.0, 6.0])
    problem = make_problem(np.zeros((3, 1)), y, "squared", 0.1)
    V = ((y - 3.0) / 3.0)[:, None]  # the gradient at the best constant, optimal whenever bound <= beta
    assert lower_bound(problem, V, 0.0, bound).value == pytest.approx(0.5 * np.var(y), rel=1e-9)


# ---- the object --------------------------------------------------------------------------------------------------


def certificate(**changes):
    values = {
        "objective": 1.25,
        "lower_bound": 1.0,
        "scope": "global",
        "method": "all 10 activation patterns",
        "attained": 0.01,
        "limit": 0.0100001,
        "beta": 0.01,
        "loss": "squared",
        "n_patterns": 10,
        "elapsed": 0.125,
    }
    return Certificate(**{**values, **changes})


def test_certificate_survives_a_file_exactly(tmp_path):
    cert = certificate(objective=1 / 3, lower_bound=0.1)
    assert Certificate.load(cert.save(tmp_path / "c.json")) == cert
    est = ReLURegressor(0.01, method="exact").fit(X_LINE, Y_LINE)
    assert Certificate.load(est.certificate_.save(tmp_path / "c.json")) == est.certificate_
    assert est.certificate_.to_dict()["gap"] == est.gap_


def test_a_certificate_that_lacks_a_number_is_refused_by_name():
    data = certificate().to_dict()
    del data["lower_bound"]
    with pytest.raises(ValueError, match="lower_bound"):
        Certificate.from_dict(data)


def test_certificate_prints_its_numbers_and_what_is_proven():
    text = str(certificate())
    for words in ("1.25", "lower bound", "2.00e-01", "proven", "all 10 activation patterns", "squared", "beta=0.01"):
        assert words in text
    assert "likely" not in text
    text = str(certificate(likely_bound=1.2, likely_method="local search", scope="patterns"))
    assert "likely gap                   4.00e-02   (local search)" in text
    assert "on these activation patterns" in text
    assert "exact fit" in str(certificate(beta=0.0))


def test_relative_gap_is_the_documented_ratio():
    assert certificate().gap == pytest.approx(0.2)
    assert relative_gap(1.0, 1.0 + 1e-16) == 0.0
    assert relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(2.0, -2.0) == 2.0
