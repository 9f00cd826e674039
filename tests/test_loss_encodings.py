"""Losses: limits, encodings and names; losses of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from bidual import ReLUClassifier, ReLURegressor
from bidual.losses import (
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
)

from .helpers import printed_program

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
    with pytest.raises(TypeError, match="give it dual_box, or smooth=True"):  # its envelope would be a guess
        ReLURegressor(0.1, loss=Rough()).fit(np.eye(2), [1.0, 2.0])


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_smooth_loss_without_its_lipschitz_constant_is_refused_by_the_engine_that_steps_by_it(outputs):
    X = np.random.default_rng(0).standard_normal((6, 2))
    with pytest.raises(TypeError, match=r"'pseudo_huber' is smooth but states no lipschitz constant.*method='exact'"):
        ReLURegressor(0.1, loss=PseudoHuber()).fit(X, X[:, :outputs])

    class Stated(PseudoHuber):
        lipschitz = 1.0

    est = ReLURegressor(0.1, loss=Stated(), random_state=0, prove=False).fit(X, X[:, :outputs])
    assert est.likely_gap_ <= est.tol_


def test_losses_for_numbers_and_for_classes_are_not_confused():
    X = np.eye(2)
    with pytest.raises(ValueError, match="ReLUClassifier"):
        ReLURegressor(loss="hinge").fit(X, [0.0, 1.0])
    with pytest.raises(ValueError, match="ReLURegressor"):
        ReLUClassifier(loss="huber").fit(X, [0, 1])
    with pytest.raises(ValueError, match="ReLURegressor"):
        ReLUClassifier(loss="epsilon_insensitive").fit(X, [0, 1])


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
