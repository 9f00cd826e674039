"""Losses: derivatives, conjugates, cone forms and encodings, against finite differences, grids and CVXPY."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual.losses import (
    LOSSES,
    Absolute,
    EpsilonInsensitive,
    ExactFit,
    Hinge,
    Huber,
    Logistic,
    Margin,
    Quantile,
    Softmax,
    Squared,
    SquaredHinge,
    Tube,
    get_loss,
    loss_from_dict,
)

from .helpers import plain_loss

ALL = [
    Squared(),
    Huber(0.5),
    Huber(2.0),
    Absolute(),
    Quantile(0.3),
    EpsilonInsensitive(0.4),
    Logistic(),
    Softmax(),
    Hinge(),
    SquaredHinge(),
    ExactFit(),
    Tube(0.4),
    Margin(),
]
FINITE = [loss for loss in ALL if not isinstance(loss, ExactFit | Tube | Margin)]
SMOOTH = [loss for loss in ALL if loss.smooth]
SCALAR = [loss for loss in ALL if not loss.coupled]
few = settings(max_examples=25)
seeds = st.integers(0, 2**32 - 1)


def targets(loss, rng, n=5, C=3):
    if isinstance(loss, Softmax):
        return np.eye(C)[rng.integers(0, C, n)]
    if loss.classification:
        return rng.choice([-1.0, 1.0], (n, C))
    return 2.0 * rng.standard_normal((n, C))


def weights(rng, n=5):
    w = rng.random(n) + 0.05
    return w / w.sum()


def inside(loss, Y, rng):
    """Random row vectors in the domain of the conjugate, by its definition in the textbooks."""
    U = rng.random(Y.shape)
    if isinstance(loss, Softmax):
        return rng.dirichlet(np.ones(Y.shape[1]), len(Y)) - Y
    if isinstance(loss, Logistic | SquaredHinge | Hinge | Margin):
        return -Y * U * (1.0 if isinstance(loss, Logistic) or type(loss) is Hinge else 5.0)
    if isinstance(loss, Huber):
        return loss.delta * (2 * U - 1)
    if isinstance(loss, Absolute | EpsilonInsensitive):
        return 2 * U - 1
    if isinstance(loss, Quantile):
        return U - loss.tau
    return 6 * U - 3


def difference(f, x, h=1e-5):
    """Central difference of a function of an array, in every entry."""
    out = []
    for k in range(x.size):
        step = np.zeros(x.size)
        step[k] = h
        step = step.reshape(x.shape)
        out.append((np.asarray(f(x + step)) - np.asarray(f(x - step))) / (2 * h))
    return np.array(out)


def away_from_kinks(loss, F, Y, margin=1e-3):
    """Move outputs off the places where a derivative jumps."""
    e = Y * F - 1 if loss.classification else F - Y
    place = getattr(loss, "delta", getattr(loss, "epsilon", 0.0))
    for jump in (-place, place):
        close = np.abs(e - jump) < margin
        F = np.where(close, F + 4 * margin, F)
    return F


# ---- derivatives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", FINITE, ids=repr)
@few
@given(seed=seeds)
def test_weighted_gradient_is_the_finite_difference_of_the_weighted_value(loss, seed):
    rng = np.random.default_rng(seed)
    Y, w = targets(loss, rng), weights(rng)
    F = away_from_kinks(loss, 2 * rng.standard_normal(Y.shape), Y)
    numeric = difference(lambda Z: loss.value(Z, Y, w), F).reshape(F.shape)
    np.testing.assert_allclose(loss.gradient(F, Y, w), numeric, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
@few
@given(seed=seeds)
def test_row_hessians_and_curvature_are_finite_differences_of_the_gradient(loss, seed):
    rng = np.random.default_rng(seed)
    Y, w = targets(loss, rng), weights(rng)
    F = away_from_kinks(loss, 2 * rng.standard_normal(Y.shape), Y)
    hessians = loss.row_hessians(F, Y)
    for i in range(len(F)):
        numeric = difference(lambda f, i=i: loss.row_gradients(f[None], Y[i : i + 1])[0], F[i])
        np.testing.assert_allclose(hessians[i], numeric, atol=1e-8, rtol=1e-6)
        np.testing.assert_allclose(loss.curvature(F, Y, w)[i], w[i] * np.diag(numeric), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
@few
@given(seed=seeds)
def test_row_gradient_is_lipschitz_with_the_stated_constant(loss, seed):
    rng = np.random.default_rng(seed)
    Y = targets(loss, rng, n=50)
    F, G = 3 * rng.standard_normal((2, *Y.shape))
    moved = np.linalg.norm(loss.row_gradients(F, Y) - loss.row_gradients(G, Y), axis=1)
    assert (moved <= loss.lipschitz * np.linalg.norm(F - G, axis=1) * (1 + 1e-12)).all()


@pytest.mark.parametrize("loss", [loss for loss in ALL if not loss.smooth], ids=repr)
def test_a_loss_that_is_not_smooth_has_no_curvature_and_says_so(loss):
    with pytest.raises(TypeError, match="not smooth"):
        loss.curvature(np.zeros((1, 1)), np.ones((1, 1)), np.ones(1))


@pytest.mark.parametrize("loss", [loss for loss in SCALAR if loss in FINITE], ids=repr)
def test_value_is_the_textbook_formula(loss):
    rng = np.random.default_rng(3)
    Y, w = targets(loss, rng, C=1), weights(rng)
    F = 3 * rng.standard_normal(Y.shape)
    assert loss.value(F, Y, w) == pytest.approx(plain_loss(loss.name, F[:, 0], Y[:, 0], w, **vars(loss)), rel=1e-13)


def test_logistic_and_softmax_stay_finite_at_huge_outputs():
    F = np.array([[1e4], [-1e4]])
    Y = np.array([[-1.0], [-1.0]])
    np.testing.assert_allclose(Logistic().rows(F, Y), [1e4, 0.0])
    assert np.isfinite(Logistic().row_gradients(F, Y)).all()
    F = np.array([[1e4, 0.0, -1e4]])
    np.testing.assert_allclose(Softmax().rows(F, np.eye(3)[[2]]), [2e4])
    np.testing.assert_allclose(Softmax().row_gradients(F, np.eye(3)[[2]]), [[1.0, 0.0, -1.0]])


# ---- conjugates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ALL, ids=repr)
@few
@given(seed=seeds)
def test_fenchel_young_holds_row_by_row_and_weighted(loss, seed):
    rng = np.random.default_rng(seed)
    Y, w = targets(loss, rng), weights(rng)
    F = 3 * rng.standard_normal(Y.shape)
    if isinstance(loss, ExactFit):
        F = Y.copy()
    if isinstance(loss, Margin):
        F = Y * (1 + np.abs(F))
    if isinstance(loss, Tube):
        F = Y + loss.epsilon * np.tanh(F)
    V = inside(loss, Y, rng)
    conjugates = loss.row_conjugates(V, Y)
    assert np.isfinite(conjugates).all()
    assert (loss.rows(F, Y) + conjugates >= (F * V).sum(axis=1) - 1e-9).all()
    W = w[:, None] * V
    total = loss.value(F, Y, w) + loss.conjugate(W * (1 - 1e-13), Y, w)
    assert total >= (F * W).sum() - 1e-9


@pytest.mark.parametrize("loss", FINITE, ids=repr)
@few
@given(seed=seeds)
def test_fenchel_young_is_an_equality_at_a_subgradient(loss, seed):
    rng = np.random.default_rng(seed)
    Y, w = targets(loss, rng), weights(rng)
    F = 3 * rng.standard_normal(Y.shape)
    V = loss.row_gradients(F, Y)
    np.testing.assert_allclose(loss.rows(F, Y) + loss.row_conjugates(V, Y), (F * V).sum(axis=1), atol=1e-10)
    V = loss.gradient(F, Y, w) * (1 - 1e-13)
    assert loss.value(F, Y, w) + loss.conjugate(V, Y, w) == pytest.approx((F * V).sum(), abs=1e-9)


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_conjugate_equals_a_brute_force_supremum_on_a_grid(loss):
    rng = np.random.default_rng(11)
    grid = np.arange(-60000, 60001)[:, None] / 1000.0
    for y in [1.0, -1.0] if loss.classification else [0.7, -1.3]:
        Y = np.full_like(grid, y)
        values = loss.rows(grid, Y)
        for v in 0.98 * inside(loss, np.full((20, 1), y), rng)[:, 0]:
            brute = (v * grid[:, 0] - values).max()
            assert loss.row_conjugates(np.array([[v]]), np.array([[y]]))[0] == pytest.approx(brute, abs=2e-5)


@pytest.mark.parametrize(
    ("loss", "v", "y"),
    [
        (Huber(0.5), 0.5001, 1.0),
        (Huber(0.5), -0.5001, 1.0),
        (Absolute(), 1.001, 1.0),
        (Quantile(0.3), 0.701, 1.0),
        (Quantile(0.3), -0.301, 1.0),
        (EpsilonInsensitive(0.4), 1.001, 1.0),
        (EpsilonInsensitive(0.4), -1.001, 1.0),
        (Logistic(), 0.01, 1.0),
        (Logistic(), -1.01, 1.0),
        (Hinge(), 0.01, 1.0),
        (Hinge(), 1.01, -1.0),
        (SquaredHinge(), -0.01, -1.0),
        (Margin(), 0.01, 1.0),
    ],
    ids=repr,
)
def test_conjugate_is_infinite_exactly_where_the_supremum_runs_away(loss, v, y):
    assert loss.row_conjugates(np.array([[v]]), np.array([[y]]))[0] == np.inf
    reach = []
    for R in (1e4, 1e6):
        grid = np.linspace(-R, R, 20001)[:, None]
        reach.append((v * grid[:, 0] - loss.rows(grid, np.full_like(grid, y))).max())
    assert reach[1] > 10 * max(reach[0], 0.1)


def test_softmax_conjugate_is_infinite_off_the_simplex_and_negative_entropy_on_it():
    Y = np.eye(3)[[0]]
    p = np.array([[0.2, 0.3, 0.5]])
    assert Softmax().row_conjugates(p - Y, Y)[0] == pytest.approx(
        0.2 * np.log(0.2) + 0.3 * np.log(0.3) + 0.5 * np.log(0.5)
    )
    assert Softmax().row_conjugates(np.zeros((1, 3)), Y)[0] == 0.0
    assert Softmax().row_conjugates(1.01 * p - Y, Y)[0] == np.inf
    assert Softmax().row_conjugates(np.array([[-0.1, 0.6, 0.5]]) - Y, Y)[0] == np.inf


@pytest.mark.parametrize("loss", ALL, ids=repr)
@few
@given(seed=seeds)
def test_row_conjugates_are_convex_along_segments(loss, seed):
    rng = np.random.default_rng(seed)
    Y = targets(loss, rng)
    U, V = inside(loss, Y, rng), inside(loss, Y, rng)
    middle = loss.row_conjugates(0.3 * U + 0.7 * V, Y)
    ends = 0.3 * loss.row_conjugates(U, Y) + 0.7 * loss.row_conjugates(V, Y)
    assert (middle <= ends + 1e-10).all()


# ---- dual points -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("loss", ALL, ids=repr)
@few
@given(seed=seeds, size=st.sampled_from([0.1, 1.0, 30.0]))
def test_dual_point_lands_in_the_domain_from_anywhere_and_is_centred_when_asked(loss, centred, seed, size):
    rng = np.random.default_rng(seed)
    Y, w = targets(loss, rng, n=7), weights(rng, 7)
    V = loss.dual_point(size * w[:, None] * rng.standard_normal(Y.shape), Y, w, centred=centred)
    assert np.isfinite(V).all()
    assert np.isfinite(loss.conjugate(-V, Y, w))
    if centred:
        np.testing.assert_allclose(V.sum(axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize("loss", ALL, ids=repr)
@few
@given(seed=seeds)
def test_dual_point_moves_nothing_that_is_feasible_already(loss, seed):
    rng = np.random.default_rng(seed)
    Y, w = targets(loss, rng, n=6), weights(rng, 6)
    V = -w[:, None] * inside(loss, Y, rng)
    np.testing.assert_allclose(loss.dual_point(V, Y, w, centred=False), V, atol=1e-15)
    # A centred feasible point: every row twice, with opposite sign where the domain allows it.
    if isinstance(loss, Softmax):
        P = np.roll(Y, 1, axis=0)
        V = np.full((6, 1), 1 / 6) * (Y - P)
        w = np.full(6, 1 / 6)
    elif loss.classification:
        Y, w = np.concatenate([Y, -Y]), np.concatenate([w, w]) / 2
        V = np.concatenate([V, -V]) / 2
    else:
        quarter = 0.3 * V
        Y, w = np.concatenate([Y, Y]), np.concatenate([w, w]) / 2
        V = np.concatenate([quarter, -quarter]) / 2
    assert np.abs(V.sum(axis=0)).max() < 1e-15
    np.testing.assert_allclose(loss.dual_point(V, Y, w, centred=True), V, atol=1e-14)


# ---- cone forms --------------------------------------------------------------------------------------------------


def minimise_cone_form(form, F):
    """The optimal value of a ConeForm over t at fixed outputs, by CVXPY, reading only its documentation."""
    e = (F - form.offset).ravel()
    Q = form.quadratic_e.toarray() if sp.issparse(form.quadratic_e) else np.diag(form.quadratic_e)
    constant = 0.5 * e @ Q @ e + float(np.sum(form.linear_e * e))
    k = len(form.linear_t)
    if k == 0:
        if form.G_e is None:
            return constant
        s, row = form.h - form.G_e @ e, 0
        for kind, size in form.cones:
            part = s[row : row + size]
            row += size
            bad = np.abs(part).max() > 1e-9 if kind == "zero" else part.min() < -1e-9
            if bad:
                return np.inf
        return constant
    t = cp.Variable(k)
    s = form.h - form.G_e @ e - form.G_t @ t
    constraints, row = [], 0
    for kind, size in form.cones:
        if kind == "exponential":
            part = s[row : row + 3 * size]
            constraints.append(cp.ExpCone(part[0::3], part[1::3], part[2::3]))
            row += 3 * size
        else:
            part = s[row : row + size]
            constraints.append(part == 0 if kind == "zero" else part >= 0)
            row += size
    assert row == len(form.h)
    objective = 0.5 * cp.sum(cp.multiply(form.quadratic_t, cp.square(t))) + form.linear_t @ t
    program = cp.Problem(cp.Minimize(objective), constraints)
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-10, tol_feas=1e-10)
    return constant + float(program.value)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_cone_form_minimised_over_its_extra_variables_is_the_loss(loss):
    rng = np.random.default_rng(7)
    for C in (1, 3):
        if isinstance(loss, Softmax) and C == 1:
            continue
        Y, w = targets(loss, rng, n=4, C=C), weights(rng, 4)
        F = 2 * rng.standard_normal(Y.shape)
        candidates = [F] if loss.finite else [F, Y.copy(), 1.5 * Y, loss.nearest_outputs(F, Y)]
        for F in candidates:
            assert minimise_cone_form(loss.cone_form(Y, w), F) == pytest.approx(loss.value(F, Y, w), rel=1e-6, abs=1e-8)


def test_every_loss_is_found_by_name_and_survives_its_dictionary():
    for loss in ALL:
        assert loss_from_dict(loss.to_dict()) == loss
        assert hash(loss_from_dict(loss.to_dict())) == hash(loss)
        assert type(get_loss(loss.name)) is type(loss)
    assert {loss.name for loss in ALL} == set(LOSSES)
    assert Huber(1.0) != Huber(2.0)
    with pytest.raises(ValueError, match="unknown loss 'huger'"):
        get_loss("huger")
    with pytest.raises(ValueError, match="the loss 'nope' is not known here: import"):
        loss_from_dict({"name": "nope"})
