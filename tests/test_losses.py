"""Losses: derivatives, conjugates, cone forms and encodings, against finite differences, grids and CVXPY."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import ReLUClassifier, ReLURegressor
from bidual.losses import (
    LOSSES,
    Absolute,
    ExactFit,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Margin,
    Quantile,
    RegressionLoss,
    Softmax,
    Squared,
    SquaredHinge,
    get_loss,
    loss_from_dict,
)

from .helpers import plain_loss, printed_program

ALL = [
    Squared(),
    Huber(0.5),
    Huber(2.0),
    Absolute(),
    Quantile(0.3),
    Logistic(),
    Softmax(),
    Hinge(),
    SquaredHinge(),
    ExactFit(),
    Margin(),
]
FINITE = [loss for loss in ALL if not isinstance(loss, ExactFit | Margin)]
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
    if isinstance(loss, Absolute):
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
    jumps = [0.0] if not isinstance(loss, Huber) else [-loss.delta, loss.delta]
    for jump in jumps:
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
        candidates = [F, Y.copy(), 1.5 * Y] if isinstance(loss, ExactFit | Margin) else [F]
        for F in candidates:
            assert minimise_cone_form(loss.cone_form(Y, w), F) == pytest.approx(loss.value(F, Y, w), rel=1e-6, abs=1e-8)


# ---- limits, encodings, names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Squared(), Huber(0.5), Absolute(), Quantile(0.2)], ids=repr)
def test_limit_of_a_regression_loss_is_the_exact_fit(loss):
    limit = loss.limit()
    Y = np.array([[1.0], [2.0]])
    assert limit.value(Y, Y, np.full(2, 0.5)) == 0.0
    assert limit.value(Y + 1e-3, Y, np.full(2, 0.5)) == np.inf


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=repr)
def test_limit_of_a_hinge_is_the_margin_where_the_hinge_is_zero(loss):
    F, Y = np.array([[1.0], [5.0], [-1.0]]), np.array([[1.0], [1.0], [-1.0]])
    w = np.full(3, 1 / 3)
    assert loss.limit().value(F, Y, w) == loss.value(F, Y, w) == 0.0
    assert loss.limit().value(0.99 * F, Y, w) == np.inf


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=repr)
def test_a_loss_that_never_reaches_its_infimum_has_no_limit(loss):
    with pytest.raises(ValueError, match="never reaches its infimum"):
        loss.limit()


@pytest.mark.parametrize("size", [1e-8, 1e-3, 1.0, 1e6])
def test_exact_fit_is_judged_relative_to_the_targets(size):
    Y = size * np.array([[1.0], [-2.0]])
    assert ExactFit().value(Y * (1 + 1e-9), Y, np.full(2, 0.5)) == 0.0
    assert ExactFit().value(np.zeros_like(Y), Y, np.full(2, 0.5)) == np.inf


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), SquaredHinge(), Margin()], ids=repr)
@pytest.mark.parametrize("y", [[-1, 1, 1], [0, 1, 1], [False, True, True], [0.0, 1.0, 1.0], [[-1], [1], [1]]])
def test_margin_losses_encode_two_classes_in_any_coding_as_one_signed_column(loss, y):
    np.testing.assert_array_equal(loss.encode(np.array(y)), [[-1.0], [1.0], [1.0]])


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=repr)
def test_margin_losses_encode_three_classes_one_against_the_rest(loss):
    np.testing.assert_array_equal(loss.encode(np.array([0, 2])), [[1, -1, -1], [-1, -1, 1]])
    np.testing.assert_array_equal(loss.encode(np.array([1, 1]), n_classes=3), [[-1, 1, -1], [-1, 1, -1]])


@pytest.mark.parametrize("y", [[0, 0, 0], [1, 1, 1], [-1, -1, -1]])
def test_margin_losses_encode_a_single_class_as_one_column(y):
    Y = Hinge().encode(np.array(y))
    np.testing.assert_array_equal(Y, np.full((3, 1), 1.0 if y[0] == 1 else -1.0))


@pytest.mark.parametrize("loss", [Hinge(), Softmax()], ids=repr)
@pytest.mark.parametrize("y", [[0.5, 1.0], [-2, 1], [0, np.nan], [[0.3, 0.7]], [0, 1, 7]])
def test_bad_class_codes_are_refused(loss, y):
    with pytest.raises(ValueError):
        loss.encode(np.array(y), n_classes=3)


def test_softmax_encodes_codes_and_one_hot_rows_alike():
    np.testing.assert_array_equal(Softmax().encode(np.array([0, 2, 1])), np.eye(3)[[0, 2, 1]])
    np.testing.assert_array_equal(Softmax().encode(np.eye(3)[[0, 2, 1]]), np.eye(3)[[0, 2, 1]])
    assert Softmax().encode(np.array([0, 1]), n_classes=4).shape == (2, 4)
    with pytest.raises(ValueError, match="one-hot"):
        Softmax().encode(np.array([[1.0, 1.0]]))


def test_regression_losses_encode_vectors_as_columns_and_refuse_cubes():
    assert Squared().encode(np.arange(3)).shape == (3, 1)
    assert Squared().encode(np.zeros((3, 2))).shape == (3, 2)
    with pytest.raises(ValueError, match="dimensions"):
        Squared().encode(np.zeros((2, 2, 2)))


def test_every_loss_is_found_by_name_and_survives_its_dictionary():
    for loss in ALL:
        assert loss_from_dict(loss.to_dict()) == loss
        assert hash(loss_from_dict(loss.to_dict())) == hash(loss)
        assert type(get_loss(loss.name)) is type(loss)
    assert {loss.name for loss in ALL} == set(LOSSES)
    assert Huber(1.0) != Huber(2.0)
    with pytest.raises(ValueError, match="unknown loss 'huger'"):
        get_loss("huger")
    with pytest.raises(ValueError, match="unknown loss"):
        loss_from_dict({"name": "nope"})


@pytest.mark.parametrize("delta", [0.0, -1.0, np.nan, np.inf])
def test_huber_refuses_a_delta_that_is_not_positive(delta):
    with pytest.raises(ValueError, match="delta"):
        Huber(delta)


@pytest.mark.parametrize("tau", [0.0, 1.0, -0.2, np.nan])
def test_quantile_refuses_a_tau_outside_the_open_unit_interval(tau):
    with pytest.raises(ValueError, match="tau"):
        Quantile(tau)


def test_probabilities_are_those_of_the_model():
    F = np.array([[0.3], [-2.0]])
    np.testing.assert_allclose(Logistic().probabilities(F)[:, 1], 1 / (1 + np.exp(-F[:, 0])))
    F = np.array([[0.1, 0.2, -1.0]])
    np.testing.assert_allclose(Softmax().probabilities(F), np.exp(F) / np.exp(F).sum())
    assert Hinge().probabilities(F) is None


# ---- a loss of one's own -----------------------------------------------------------------------------------------


class PseudoHuber(Loss):
    """sqrt(1 + e^2) - 1, nothing but the row functions."""

    name = "pseudo_huber"
    smooth = True

    def rows(self, F, Y):
        return (np.sqrt(1 + (F - Y) ** 2) - 1).sum(axis=1)

    def row_gradients(self, F, Y):
        return (F - Y) / np.sqrt(1 + (F - Y) ** 2)

    def row_curvatures(self, F, Y):
        return (1 + (F - Y) ** 2) ** -1.5

    def row_conjugates(self, V, Y):
        safe = np.clip(V, -1, 1)
        return np.where(np.abs(V) <= 1, V * Y + 1 - np.sqrt(1 - safe**2), np.inf).sum(axis=1)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_custom_smooth_loss_trains_to_the_global_optimum(fit_intercept):
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((6, 2)), 3 * rng.standard_normal(6)
    est = ReLURegressor(0.02, loss=PseudoHuber(), method="exact", bias=False, fit_intercept=fit_intercept, tol=1e-6)
    est.fit(X, y)
    truth = printed_program(X, y, 0.02, "pseudo_huber", fit_intercept=fit_intercept)
    assert est.gap_ < 1e-5
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.lower_bound_ <= truth * (1 + 1e-9)


def test_a_custom_loss_without_curvature_or_cone_form_is_refused_with_what_it_lacks():
    class Rough(PseudoHuber):
        smooth = False

    with pytest.raises(TypeError, match="row_curvatures"):
        ReLURegressor(0.1, loss=Rough(), method="exact").fit(np.eye(2), [1.0, 2.0])


def test_losses_for_numbers_and_for_classes_are_not_confused():
    X = np.eye(2)
    with pytest.raises(ValueError, match="ReLUClassifier"):
        ReLURegressor(loss="hinge").fit(X, [0.0, 1.0])
    with pytest.raises(ValueError, match="ReLURegressor"):
        ReLUClassifier(loss="huber").fit(X, [0, 1])


@pytest.mark.parametrize("size", [0.1, 20.0])
def test_a_custom_loss_of_the_residual_is_trained_in_its_own_units(size):
    class Residual(PseudoHuber, RegressionLoss):
        """The same loss, built on the public base class of losses of the residual."""

    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((6, 2)), size * rng.standard_normal(6)
    est = ReLURegressor(0.02, loss=Residual(), method="exact", bias=False, fit_intercept=False).fit(X, y)
    truth = printed_program(X, y, 0.02, "pseudo_huber")
    assert est.objective_ == pytest.approx(truth, rel=1e-4)
    assert est.lower_bound_ <= truth * (1 + 1e-8)
