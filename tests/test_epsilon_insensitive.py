"""The epsilon-insensitive loss: what is special about a loss that forgives small residuals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVR

import bidual
from bidual import ReLURegressor, SplineRegressor, beta_max, solution_path
from bidual.cli.commands import loss_argument
from bidual.losses import Absolute, DualBox, EpsilonInsensitive, ExactFit, Hinge, Huber, Quantile, Tube
from bidual.models import Model
from bidual.programs.smoothing import SmoothedLoss
from bidual.solvers import InfeasibleError

from .helpers import gaussian_problem, printed_program

KINKED = [Absolute(), Quantile(0.3), Hinge(), EpsilonInsensitive(0.4)]


def targets(loss, n=40):
    y = np.random.default_rng(0).standard_normal((n, 2))
    return np.sign(y) if loss.classification else y


# ---- envelopes and sides ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-3, 0.2])
@pytest.mark.parametrize("loss", KINKED, ids=repr)
def test_the_smoothed_loss_is_the_moreau_envelope(loss, epsilon):
    Y = targets(loss)
    F = Y + 2 * np.random.default_rng(1).standard_normal(Y.shape)
    nearby = F[:, :, None] + epsilon * np.linspace(-1.1, 1.1, 20001)  # gradients are at most one
    inner = np.stack(
        [loss.rows(g.reshape(-1, 1), np.repeat(y, g.shape[-1])[:, None]) for g, y in zip(nearby, Y, strict=True)]
    )
    moved = inner.reshape(nearby.shape) + (nearby - F[:, :, None]) ** 2 / (2 * epsilon)
    smoothed = SmoothedLoss(loss, epsilon)
    np.testing.assert_allclose(smoothed.rows(F, Y), moved.min(axis=2).sum(axis=1), atol=3e-4 * epsilon)
    step = np.array([1e-7 * epsilon, 0.0])
    slopes = (smoothed.rows(F + step, Y) - smoothed.rows(F - step, Y)) / (2 * step[0])
    np.testing.assert_allclose(smoothed.row_gradients(F, Y)[:, 0], slopes, atol=1e-4)
    step = step[0]
    curved = (smoothed.row_gradients(F + step, Y) - smoothed.row_gradients(F - step, Y)) / (2 * step)
    np.testing.assert_allclose(smoothed.row_curvatures(F, Y), curved, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("curvature", [0.0, 0.7])
def test_the_sides_of_a_box_with_a_threshold_add_up_to_its_loss(curvature):
    rng = np.random.default_rng(0)
    Y, F = rng.standard_normal((2, 50, 3))
    box = DualBox(np.full(Y.shape, -0.8), np.full(Y.shape, 0.5), curvature, threshold=0.3)
    sides, plain = box.sided(Y)
    assert plain.threshold == 0.0
    grid = np.linspace(-0.8, 0.5, 1301)

    def rows(E, box):
        """The loss as the supremum over the box, on a grid."""
        v = np.clip(grid, box.lower[..., None], box.upper[..., None])
        return (v * E[..., None] - 0.5 * box.curvature * v**2 - box.threshold * abs(v)).max(axis=-1)

    both = rows(np.repeat(F, 2, axis=0) - sides, plain).reshape(50, 2, 3).sum(axis=1)
    np.testing.assert_allclose(both, rows(F - Y, box), atol=1e-6)


# ---- networks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
def test_on_positive_inputs_a_network_is_the_linear_support_vector_regression(C):
    """There a neuron without bias is linear, and the a that minimises L + a^2 / (2 C n) does so for L + beta |a|."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2.0, (40, 1))
    y = 1.5 * x[:, 0] - 1.0 + 0.4 * rng.standard_normal(40)
    machine = SVR(kernel="linear", C=C, epsilon=0.2, tol=1e-10).fit(x, y)
    slope = float(machine.coef_[0, 0])
    options = {"loss": EpsilonInsensitive(0.2), "bias": False, "tol": 1e-6, "prove": False}
    est = ReLURegressor(abs(slope) / (C * len(x)), method="exact", **options).fit(x, y)
    loss = np.maximum(abs(machine.predict(x) - y) - 0.2, 0).mean()
    assert est.objective_ == pytest.approx(loss + abs(slope) ** 2 / (C * len(x)), rel=1e-6)


@pytest.mark.parametrize("method", ["exact", "adaptive"])
@pytest.mark.parametrize("t", [1e-6, 1e6])
def test_epsilon_is_in_units_of_the_target(t, method):
    X, y, _ = gaussian_problem(3)
    base = ReLURegressor(0.02, loss=EpsilonInsensitive(0.3), method=method, tol=1e-4, random_state=0).fit(X, y)
    scaled = EpsilonInsensitive(0.3 * t)
    est = ReLURegressor(0.02, loss=scaled, method=method, tol=1e-4, random_state=0).fit(X, t * y)
    assert est.gap_ <= 1e-4
    assert est.objective_ == pytest.approx(t * base.objective_, rel=2e-4)
    assert est.certificate_.verify(X, t * y, model=est)


def test_without_epsilon_it_is_the_absolute_loss():
    X, y, _ = gaussian_problem(2, 12, 2)
    none, absolute = (
        ReLURegressor(0.02, loss=loss, random_state=0, prove=False).fit(X, y)
        for loss in (EpsilonInsensitive(0), "absolute")
    )
    assert none.objective_ == absolute.objective_
    assert EpsilonInsensitive(0).limit() == ExactFit()


@pytest.mark.parametrize("method", ["exact", "adaptive", "sampled"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_targets_within_epsilon_need_no_neurons(method, fit_intercept):
    X, y, _ = gaussian_problem(0)
    y = 0.05 * y / abs(y).max() + (7.0 if fit_intercept else 0.0)
    options = {"loss": "epsilon_insensitive", "fit_intercept": fit_intercept, "random_state": 0}
    est = ReLURegressor(0.01, method=method, **options).fit(X, y)
    assert (est.n_neurons_, est.objective_, est.gap_) == (0, 0.0, 0.0)
    assert est.certificate_.verify(X, y, model=est)
    assert beta_max(X, y, loss="epsilon_insensitive", fit_intercept=fit_intercept) == pytest.approx(0.0, abs=1e-9)
    assert solution_path(X, y, n_betas=3, **options).n_neurons.tolist() == [0, 0, 0]


@pytest.mark.parametrize("method", ["adaptive", "exact", "sampled"])
@pytest.mark.parametrize("position", ["before", "after"])
def test_a_tube_much_wider_than_the_targets_needs_no_solver(method, position):
    X = np.array([[5.5, -1.2e4], [0.0, 1.2e4], [0.0, -1.2e4], [-5.5, 1.2e4]])
    y = 1e-5 * np.array([-3.2, 0.0, 0.0, -1.6])
    options = {"loss": "epsilon_insensitive", "architecture": bidual.BatchNorm(position=position), "method": method}
    est = ReLURegressor(beta=1e-21, random_state=0, **options).fit(X, y)
    assert est.n_neurons_ == 0
    assert est.objective_ == est.lower_bound_ == 0.0
    assert est.certificate_.verify(X, y, model=est)


# ---- beta = 0 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_beta_zero_asks_for_the_smallest_network_in_the_tube(epsilon, fit_intercept):
    X, y, _ = gaussian_problem(1)
    loss = EpsilonInsensitive(epsilon)
    est = ReLURegressor(0, loss=loss, method="exact", fit_intercept=fit_intercept).fit(X, y)
    truth = printed_program(X, y, 0, "epsilon_insensitive", bias=True, fit_intercept=fit_intercept, epsilon=epsilon)
    assert est.objective_ == pytest.approx(truth, rel=1e-5)
    assert est.lower_bound_ <= truth * (1 + 1e-6)
    assert est.gap_ <= 1e-5
    assert abs(est.predict(X) - y).max() <= epsilon + 1e-6 * abs(y).max()
    assert est.certificate_.loss == "tube"
    assert est.certificate_.verify(X, y, model=est)


def test_equal_inputs_may_have_targets_that_differ_by_twice_epsilon():
    X, y = np.array([[0.0], [0.0], [0.0], [1.0]]), np.array([0.0, 0.19, 0.1, 1.0])
    for est in (SplineRegressor(0, loss="epsilon_insensitive"), ReLURegressor(0, loss="tube", method="exact")):
        assert abs(est.fit(X, y).predict(X) - y).max() <= 0.1 + 2e-6
    y[1] = 0.21
    with pytest.raises(ValueError, match="equal inputs have different targets"):
        SplineRegressor(0, loss="epsilon_insensitive").fit(X, y)
    with pytest.raises(InfeasibleError):
        ReLURegressor(0, loss="epsilon_insensitive", method="exact").fit(X, y)


# ---- names and parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [-0.1, np.nan, np.inf])
def test_epsilon_must_not_be_negative(epsilon):
    with pytest.raises(ValueError, match="epsilon of the epsilon-insensitive loss must not be negative"):
        EpsilonInsensitive(epsilon)
    with pytest.raises(ValueError, match="epsilon of a tube must be positive"):
        Tube(min(epsilon, 0.0))


def test_files_and_the_command_line_keep_epsilon(tmp_path):
    X, y, _ = gaussian_problem(1)
    loss = loss_argument("epsilon_insensitive:epsilon=0.3")
    assert loss == EpsilonInsensitive(0.3)
    model = Model.of(ReLURegressor(0.02, loss=loss, method="exact").fit(X, y), len(X))
    back = bidual.load(model.save(tmp_path / "m.json"))
    assert back.training.loss == loss
    assert back.objective(X, y) == pytest.approx(model.certificate.objective, rel=1e-12)
    assert back.certificate.verify(X, y, model=back)


def test_losses_with_a_threshold_are_the_only_ones_whose_rows_are_split():
    Y = np.zeros((3, 1))
    for loss in (Absolute(), Huber(), Quantile(), ExactFit()):
        assert loss.dual_box(Y).sided(Y)[0] is Y
    assert len(Tube().dual_box(Y).sided(Y)[0]) == 6
