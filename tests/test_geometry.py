"""Extreme points, spike-free matrices, representers and minimal networks (004), against independent truth."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from bidual import ReLURegressor, enumerate_patterns, is_spike_free
from bidual.closed_form import ConditionError
from bidual.closed_form.whitening import Whitening
from bidual.geometry import (
    extreme_point,
    extreme_points,
    project_on_cone,
    project_on_hull,
    relaxed_neuron_free_bias,
    relaxed_neurons,
    relaxed_neurons_joint,
    spike_factor,
    support_function,
)
from bidual.study.minimal import l0_l1_equivalence, minimal_network
from bidual.study.representer import representers

from .helpers import lp_patterns

seeds = st.integers(0, 10_000)


def gaussian(seed, n, d):
    return np.random.default_rng(seed).standard_normal((n, d))


def spike_free_rows(seed, n, d):
    """Rows whose inverse Gram matrix has no positive entry off its diagonal."""
    rng = np.random.default_rng(seed)
    B = rng.random((n, n))
    K = n * np.eye(n) - 0.5 * (B + B.T)
    return np.linalg.cholesky(np.linalg.inv(K)) @ np.linalg.qr(rng.standard_normal((d, n)))[0].T


def longest(X, k=3000, seed=0):
    """Largest ||X^+ (Xu)_+|| over random u, and how far (Xu)_+ gets from the range of X."""
    U = gaussian(seed, k, X.shape[1])
    Z = np.maximum(U @ X.T, 0.0) / np.linalg.norm(U, axis=1, keepdims=True)
    z = Z @ np.linalg.pinv(X).T
    return np.linalg.norm(z, axis=1).max(), np.abs(z @ X.T - Z).max()


# ---- many projections at once --------------------------------------------------------------------


@settings(max_examples=15)
@given(seeds, st.integers(2, 12), st.integers(1, 5))
def test_projections_agree_with_cvxpy(seed, n, d):
    X = gaussian(seed, n, d)
    hull, cone = project_on_hull(X, X, np.arange(n)), project_on_cone(X, X, np.arange(n))
    i = seed % n
    others, weights = np.delete(X, i, axis=0), cp.Variable(n - 1, nonneg=True)
    distance = cp.Minimize(cp.norm(X[i] - others.T @ weights))
    assert hull.distances[i] == pytest.approx(cp.Problem(distance, [cp.sum(weights) == 1]).solve("CLARABEL"), abs=1e-6)
    assert cone.distances[i] == pytest.approx(cp.Problem(distance).solve("CLARABEL"), abs=1e-6)
    for found in (hull, cone):
        np.testing.assert_allclose(X - found.weights @ X, found.residuals, atol=1e-10)
        assert (found.weights.toarray() >= 0).all()
        assert not found.weights.diagonal().any()
    np.testing.assert_allclose(hull.weights.sum(axis=1), 1.0)


@settings(max_examples=10)
@given(seeds, st.sampled_from([1e-9, 1.0, 1e9]))
def test_projections_do_not_depend_on_units_or_origin(seed, scale):
    X = gaussian(seed, 20, 3)
    plain, moved = (
        project_on_hull(X, X, np.arange(20)),
        project_on_hull(scale * (X + 7), scale * (X + 7), np.arange(20)),
    )
    np.testing.assert_allclose(moved.distances, scale * plain.distances, rtol=1e-6, atol=1e-8 * scale)


def test_every_gap_is_closed_on_many_points_in_many_dimensions():
    X = gaussian(0, 600, 30)
    found = project_on_hull(X, X, np.arange(600))
    assert found.gaps.max() < 1e-8
    # the gap means what it says: the residual separates the target from all other points by the distance
    U = found.residuals / found.distances[:, None]
    reach = X @ U.T
    np.fill_diagonal(reach, -np.inf)
    np.testing.assert_allclose(np.einsum("id,id->i", U, X) - reach.max(axis=0), found.distances, atol=1e-8)


def test_duplicate_points_constant_points_and_single_points_are_projected():
    assert project_on_hull(np.ones((5, 2)), np.zeros((1, 2))).distances[0] == pytest.approx(np.sqrt(2))
    twins = np.repeat(gaussian(1, 4, 3), 3, axis=0)
    assert (project_on_hull(twins, twins, np.arange(12)).distances < 1e-12).all()
    assert project_on_cone(np.zeros((3, 2)), np.ones((1, 2))).distances[0] == pytest.approx(np.sqrt(2))
    assert len(project_on_hull(np.ones((2, 2)), np.zeros((0, 2))).distances) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1.0, 2.0]], [[1.0]]), "must agree in d"),
        (([[np.nan]], [[1.0]]), "finite"),
        (([[1.0]], [[1.0]], [3]), "exclude must hold"),
        (([[1.0]], [[1.0]], [0]), "at least one point"),
    ],
)
def test_projections_say_what_is_wrong(arguments, words):
    with pytest.raises(ValueError, match=words):
        project_on_hull(*arguments)


# ---- extreme points ------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seeds, st.integers(3, 9), st.integers(1, 3), st.booleans())
def test_extreme_points_along_the_axes_solve_the_program_of_lemma_2_7(seed, n, d, bias):
    X = gaussian(seed, n, d)
    tips, i = extreme_points(X, bias=bias), seed % n
    u, b = cp.Variable(d), cp.Variable()
    rest = [X[j] @ u + b <= 0 for j in range(n) if j != i] + [cp.norm(u) <= 1]
    value = cp.Problem(cp.Maximize(X[i] @ u + b), rest if bias else [*rest, b == 0]).solve("CLARABEL")
    assert tips.heights[i] == pytest.approx(value, abs=1e-6)
    hidden = np.maximum(X @ tips.U.T + tips.bias, 0.0)
    np.testing.assert_allclose(hidden, np.diag(tips.heights), atol=1e-8)


def test_vertices_of_the_hull_are_the_rows_with_a_neuron_of_their_own():
    X = gaussian(3, 40, 2)
    assert set(np.flatnonzero(extreme_points(X).heights)) == set(ConvexHull(X).vertices)


def test_extreme_points_fit_any_target_if_all_rows_are_vertices():  # Theorem 3.5
    X = gaussian(0, 12, 30)
    tips, y = extreme_points(X), gaussian(1, 12, 1)[:, 0]
    np.testing.assert_allclose(np.maximum(X @ tips.U.T + tips.bias, 0.0) @ (y / tips.heights), y, atol=1e-8)


@settings(max_examples=5)
@given(seeds, st.integers(2, 5), st.integers(1, 2), st.booleans())
def test_extreme_point_along_a_direction_is_the_best_of_all_patterns(seed, n, d, bias):
    X, v = gaussian(seed, n, d), gaussian(seed + 1, n, 1)[:, 0]
    v = v - v.mean() if bias else v
    tip = extreme_point(X, v, bias=bias)
    rows = np.column_stack([X, np.ones(n)]) if bias else X
    best = 0.0
    for active in lp_patterns(rows):
        u, b, sign = cp.Variable(d), cp.Variable(), np.where(active, 1.0, -1.0)
        cell = [cp.multiply(sign, X @ u + b) >= 0, cp.norm(u) <= 1, cp.abs(b) <= 1e3]
        goal = cp.Maximize((v * active) @ (X @ u + b))
        best = max(best, cp.Problem(goal, cell if bias else [*cell, b == 0]).solve("CLARABEL"))
    assert tip.value == pytest.approx(best, abs=1e-6)
    assert tip.value == pytest.approx(v @ np.maximum(X @ tip.u + tip.bias, 0.0), abs=1e-9)
    if tip.value > 1e-6:  # the form of the lemma
        signed = np.where(tip.active, v + tip.multipliers, -tip.multipliers)
        form = signed @ X
        np.testing.assert_allclose(form / np.linalg.norm(form), tip.u, atol=1e-5)
        if bias:
            assert abs(signed.sum()) < 1e-6
            assert np.abs(X @ tip.u + tip.bias).min() < 1e-9  # some row lies on the kink


def test_corollary_2_1_needs_weights_of_its_own():
    """Printed with the direction itself as weights and one row on the kink, it fails in two dimensions."""
    rng = np.random.default_rng(11)
    X, v = rng.standard_normal((6, 2)), rng.standard_normal(6)
    v -= v.mean()
    tip = extreme_point(X, v, bias=True)
    kinks = np.flatnonzero(np.abs(X @ tip.u + tip.bias) < 1e-7)
    active = X @ tip.u + tip.bias > 1e-7
    assert len(kinks) == 2
    printed = [(v * active) @ (X - X[k]) for k in kinks]
    assert max(u @ tip.u / np.linalg.norm(u) for u in printed) < 0.9
    differences = X[active | (np.abs(X @ tip.u + tip.bias) < 1e-7)] - X[kinks[0]]
    c = np.linalg.lstsq(differences.T, tip.u, rcond=None)[0]
    np.testing.assert_allclose(differences.T @ c, tip.u, atol=1e-7)


def test_a_direction_that_lets_the_bias_grow_is_refused():
    with pytest.raises(ValueError, match="positive sum"):
        extreme_point(np.eye(2), np.ones(2), bias=True)


@pytest.mark.parametrize("method", ["exact", "adaptive"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_neuron_of_our_solvers_is_a_combination_of_the_rows_it_sees(method, bias):
    X = gaussian(5, 25, 2)
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    est = ReLURegressor(0.01, method=method, bias=bias, tol=1e-5, random_state=0).fit(X, y)
    found = representers(est, X)
    assert est.n_neurons_ > 2
    assert found.residuals.max() < 1e-5
    np.testing.assert_allclose(found.coefficients[~found.support], 0.0)


def test_representers_notice_a_neuron_that_is_none():
    X = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert representers((np.array([[0.0, 0.0, 1.0]]), np.array([[1.0]])), X).residuals[0] == pytest.approx(1.0)


# ---- spike-free ----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.sampled_from(["plain", "positive", "twins", "opposite"]))
def test_spike_free_answers_agree_with_the_definition(seed, n, d, kind):
    X = gaussian(seed, n, d)
    X = np.abs(X) if kind == "positive" else X
    X = np.vstack([X, 2 * X[:1], 0 * X[:1]]) if kind == "twins" else X
    X = np.vstack([X, -X[:1]]) if kind == "opposite" else X
    answer = is_spike_free(X)
    assume(answer.status != "unknown")
    if answer:
        length, outside = longest(X)
        assert length <= answer.factor + 1e-9
        assert outside < 1e-8
    else:
        z = np.maximum(X @ answer.witness, 0.0)
        shortest = np.linalg.pinv(X) @ z
        if np.isinf(answer.factor):
            assert np.abs(X @ shortest - z).max() > 1e-9
        else:
            assert np.linalg.norm(shortest) == pytest.approx(answer.factor, rel=1e-6)
            assert answer.factor > 1


@settings(max_examples=8)
@given(seeds, st.integers(2, 4))
def test_bounds_of_the_spike_factor_enclose_what_sampling_finds(seed, n):
    X = gaussian(seed, n, n + 1)
    lower, upper = spike_factor(X)
    sampled = longest(X)[0]
    assert sampled <= upper * (1 + 1e-9)
    assert 0.99 * sampled <= lower <= upper
    assert (lower == 1) == bool(is_spike_free(X))


@settings(max_examples=5)
@given(seeds)
def test_blowing_up_the_relaxation_by_the_factor_holds_all_neurons(seed):
    """P_relaxed(beta / s) <= P(beta) <= P_relaxed(beta)."""
    X, y, beta = gaussian(seed, 3, 4), gaussian(seed + 1, 3, 1)[:, 0], 0.03
    s = spike_factor(X)[1]
    assume(np.isfinite(s))

    def relaxed(beta):
        p, q = cp.Variable(4), cp.Variable(4)
        goal = cp.sum_squares(X @ (p - q) - y) / 6 + beta * (cp.norm(p) + cp.norm(q))
        return cp.Problem(cp.Minimize(goal), [X @ p >= 0, X @ q >= 0]).solve("CLARABEL")

    best = ReLURegressor(beta, method="exact", bias=False, fit_intercept=False).fit(X, y).objective_
    assert relaxed(beta / s) <= best * (1 + 1e-6)
    assert best <= relaxed(beta) * (1 + 1e-6)


def test_lemmas_2_4_and_2_5():
    W = np.linalg.qr(gaussian(0, 8, 5))[0].T
    assert is_spike_free(W).reason == "the rows are orthogonal"
    assert is_spike_free(np.diag([3.0, 1.0, 1e-5]) @ W[:3])  # Sigma V^T
    a = gaussian(1, 1, 6)
    assert is_spike_free(np.array([[1.0], [0.0], [2.5]]) * a)
    both = is_spike_free(np.array([[1.0], [-2.0]]) * a)
    assert both.status == "no"
    assert np.isinf(both.factor)


def test_the_second_condition_of_lemma_2_3_is_not_enough():
    """Only u = 0 has (Xu)_+ in the range of X = (1, -1)^T; the printed maximum is zero, yet X has spikes."""
    X = np.array([[1.0], [-1.0]])
    in_range = [u for u in np.linspace(-1, 1, 201) if abs(np.maximum(X[:, 0] * u, 0.0).sum()) < 1e-12]
    assert len(in_range) == 1
    assert is_spike_free(X).status == "no"


def test_theorem_3_4_the_factor_tends_to_one_but_not_the_probability():
    rng = np.random.default_rng(0)
    matrices = [rng.standard_normal((2, 1000)) for _ in range(200)]
    share = np.mean([bool(is_spike_free(X)) for X in matrices])
    assert 0.4 < share < 0.6  # 1/2 in every dimension
    assert all(bool(is_spike_free(X)) == (X[0] @ X[1] >= 0) for X in matrices)
    assert max(spike_factor(X)[1] for X in matrices[:5]) < 1.02


def test_rounding_is_admitted():
    X = np.array([[1.0, 0.0, 0.0], [1.0, 1e-7, 0.0], [1.0, 0.0, 1e-7], [1.0, -1e-7, 1e-14]])
    assert is_spike_free(X[:, :2]).status in ("no", "unknown")
    with pytest.raises(ValueError, match="finite"):
        is_spike_free([[np.inf]])
    with pytest.raises(ValueError, match="rows and columns"):
        is_spike_free(np.zeros((0, 2)))
    assert bool(is_spike_free(np.zeros((2, 2))))


# ---- relaxation and support function ------------------------------------------------------------


@settings(max_examples=15)
@given(seeds, st.integers(1, 8), st.integers(1, 4))
def test_relaxed_neurons_solve_the_program_of_equation_15(seed, n, d):
    X, V = gaussian(seed, n, d), gaussian(seed + 1, n, 1)
    found = relaxed_neurons(X, V)
    for u, a, value in zip(found.U, found.outputs, found.values, strict=True):
        z = cp.Variable(d)
        truth = cp.Problem(cp.Maximize(float(a[0]) * (X.T @ V[:, 0]) @ z), [X @ z >= 0, cp.norm(z) <= 1]).solve(
            "CLARABEL"
        )
        assert value == pytest.approx(truth, abs=1e-6)
        assert (X @ u >= -1e-9).all()


def test_joint_relaxed_neurons_beat_those_of_one_output():
    X, V = np.abs(gaussian(0, 10, 4)), gaussian(1, 10, 3)
    joint = relaxed_neurons_joint(X, V)
    assert joint.best >= relaxed_neurons(X, V).best
    assert joint.best == pytest.approx(np.linalg.norm(V.T @ X @ joint.U[0]))
    U = gaussian(2, 20_000, 4)
    U = U[(U @ X.T >= 0).all(axis=1)]
    assert joint.best >= (np.linalg.norm(U @ X.T @ V, axis=1) / np.linalg.norm(U, axis=1)).max() - 1e-9


def test_algorithm_3_adds_linear_neurons_only():
    """With a free bias every row can be active: the relaxed maximum is ||X^T v||, as CVXPY confirms."""
    X, v = gaussian(0, 12, 3), gaussian(1, 12, 1)[:, 0]
    v -= v.mean()
    u, b, value = relaxed_neuron_free_bias(X, v)
    z, c = cp.Variable(3), cp.Variable()
    truth = cp.Problem(cp.Maximize((X.T @ v) @ z + c * v.sum()), [X @ z + c >= 0, cp.norm(z) <= 1]).solve("CLARABEL")
    assert value == pytest.approx(truth, rel=1e-6)
    assert (X @ u + b >= -1e-12).all()
    with pytest.raises(ValueError, match="sums to zero"):
        relaxed_neuron_free_bias(X, v + 1)


def test_support_function_is_attained_and_never_exceeded():
    X, V = gaussian(0, 3, 3), gaussian(1, 5, 3)
    h = support_function(X, V)
    U = gaussian(2, 50_000, 3)
    Z = np.maximum(U @ X.T, 0.0) / np.linalg.norm(U, axis=1, keepdims=True)
    sampled = (V @ Z.T).max(axis=1)
    assert (sampled <= h + 1e-9).all()
    assert (sampled >= h - 0.02).all()
    assert [extreme_point(X, v).value for v in V] == pytest.approx(h, abs=1e-9)


# ---- minimal networks and white rows -------------------------------------------------------------


@settings(max_examples=15)
@given(seeds, st.integers(1, 6), st.integers(1, 3))
def test_minimal_networks_fit_exactly_with_one_neuron_for_each_output_and_sign(seed, n, C):
    X, Y = gaussian(seed, n, n + 2), gaussian(seed + 1, n, C)
    network = minimal_network(X, Y)
    np.testing.assert_allclose(network.forward(X), Y, atol=1e-7)
    assert network.n_neurons == ((Y > 0).any(axis=0).sum() + (Y < 0).any(axis=0).sum())
    assert np.count_nonzero(network.output_weights) == network.n_neurons


def test_one_hot_targets_need_one_neuron_for_each_class():  # A.7 Lemma 2
    X, Y = gaussian(0, 6, 8), np.eye(3)[[0, 1, 2, 0, 1, 2]]
    network = minimal_network(X, Y)
    assert network.n_neurons == 3
    expected = sum(np.linalg.norm(np.linalg.pinv(X) @ Y[:, k]) for k in range(3))
    assert network.penalty() == pytest.approx(expected)


def test_dependent_rows_have_no_minimal_network():
    with pytest.raises(ConditionError, match="independent"):
        minimal_network(gaussian(0, 5, 2), gaussian(1, 5, 1)[:, 0])


@settings(max_examples=8)
@given(seeds, st.integers(2, 4))
def test_l0_l1_answers_come_with_a_witness_or_a_cheaper_network(seed, n):
    X, y = gaussian(seed, n, n), gaussian(seed + 1, n, 1)[:, 0]
    assume(np.linalg.cond(X) < 50)
    answer = l0_l1_equivalence(X, y)
    assert answer.lower_bound == pytest.approx(answer.witness @ y, rel=1e-6)
    assert support_function(X, np.stack([answer.witness, -answer.witness])).max() <= 1 + 1e-9
    if answer.status == "no":
        np.testing.assert_allclose(answer.cheaper.predict(X), y, atol=1e-5)
        assert answer.cheaper.penalty() < answer.cost
    else:
        assert answer
        assert answer.cost <= (1 + 1e-5) * answer.lower_bound


def test_white_rows_are_equivalent_and_have_the_closed_form():  # Lemma 3.2, Cor. 3.6
    X = Whitening.of(gaussian(0, 20, 25), zero_phase=True).apply(gaussian(0, 20, 25))
    np.testing.assert_allclose(X @ X.T, np.eye(20), atol=1e-10)
    y = gaussian(1, 20, 1)[:, 0]
    answer = l0_l1_equivalence(X, y)
    assert answer
    plus, minus = np.maximum(y, 0), np.maximum(-y, 0)
    assert answer.cost == pytest.approx(np.linalg.norm(plus) + np.linalg.norm(minus))
    np.testing.assert_allclose(answer.witness, plus / np.linalg.norm(plus) - minus / np.linalg.norm(minus), atol=1e-3)
    est = ReLURegressor(0.005, bias=False, fit_intercept=False, method="closed_form").fit(X, y)
    assert est.gap_ < 1e-9
    assert est.n_neurons_ == 2
    # by hand: soft thresholding of the two parts, in sums instead of means
    fit = sum(max(np.linalg.norm(p) - 20 * 0.005, 0.0) * s * p / np.linalg.norm(p) for s, p in ((1, plus), (-1, minus)))
    np.testing.assert_allclose(est.predict(X), fit, atol=1e-9)


def test_zero_phase_whitening_is_the_white_matrix_nearest_to_the_rows():
    X = gaussian(0, 4, 6)
    zero_phase, plain = Whitening.of(X, zero_phase=True).apply(X), Whitening.of(X).apply(X)
    assert plain.shape == (4, 4)
    assert zero_phase.shape == X.shape
    nearest = np.linalg.norm(X - zero_phase)
    for seed in range(20):
        Q = np.linalg.qr(gaussian(seed, 6, 4))[0].T
        assert nearest <= np.linalg.norm(X - Q)


def test_theorem_3_6_gaussian_rows_in_high_dimension_are_vertices():
    n = 8
    d = int(4 * n * np.log(n - 1) ** 2) + 1
    assert (extreme_points(gaussian(0, n, d)).heights > 0).all()


def test_enumerated_patterns_are_those_of_the_support_function():
    X = gaussian(7, 3, 2)
    assert len(enumerate_patterns(X)) == 6
    assert support_function(X, np.eye(3)) == pytest.approx(np.linalg.norm(X, axis=1))
