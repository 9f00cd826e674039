"""Networks with free biases on one input, against the dictionary program of 004 written out naively."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import bidual
from bidual import ReLURegressor, SplineClassifier, SplineRegressor
from bidual._util.tuning import tuned
from bidual.losses import (
    Absolute,
    EpsilonInsensitive,
    ExactFit,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Quantile,
    Softmax,
    Squared,
    SquaredHinge,
    Tube,
)
from bidual.networks import TwoLayerNetwork
from bidual.splines.line import find_line
from bidual.splines.problem import SplineProblem, spline_norm
from bidual.splines.training import train_spline

from .helpers import cvxpy_loss

REGRESSION = [Squared(), Huber(0.7), Absolute(), Quantile(0.3), EpsilonInsensitive(0.3)]
CLASSIFICATION = [Hinge(), SquaredHinge(), Logistic()]


def dictionary(x):
    """All ramps at data points, as columns."""
    t = np.unique(x)
    return np.hstack([np.maximum(x[:, None] - t, 0), np.maximum(t - x[:, None], 0)])


def dictionary_optimum(x, Y, beta, loss, w=None):
    """The l1 (group) program of 004 Theorem 5.2 and A.7 Theorem 1 with a free intercept; beta=0: its limit."""
    n, C = Y.shape
    w = np.full(n, 1 / n) if w is None else w / w.sum()
    D = dictionary(x)
    W, b = cp.Variable((D.shape[1], C)), cp.Variable((1, C))
    F = D @ W + np.ones((n, 1)) @ b
    penalty = cp.sum(cp.norm(W, 2, axis=1))
    constraints = []
    if beta == 0:
        room = getattr(loss, "epsilon", 0.0)
        constraints = [cp.multiply(Y, F) >= 1] if loss.classification else [cp.abs(F - Y) <= room] if room else [F == Y]
        value = penalty
    elif isinstance(loss, Softmax):
        value = w @ (cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(Y, F), axis=1)) + beta * penalty
    else:
        columns = [cvxpy_loss(loss.name, F[:, c], Y[:, c], w, **vars(loss)) for c in range(C)]
        value = sum(columns) + beta * penalty
    program = cp.Problem(cp.Minimize(value), constraints)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(program.value)


def data(seed, n, loss, C=1):
    """A few points, some of them equal in x."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    x[n // 2] = x[0]
    Y = rng.standard_normal((n, C)) + np.sin(2 * x)[:, None]
    if isinstance(loss, Softmax):
        return x, np.eye(C)[rng.permutation(np.arange(n) % C)], rng.random(n) + 0.1
    return x, np.where(Y > 0, 1.0, -1.0) if loss.classification else Y, rng.random(n) + 0.1


def own_objective(network, X, Y, loss, beta, w):
    """Neuron by neuron; biases cost nothing."""
    F = np.tile(network.intercept, (len(X), 1))
    penalty = 0.0
    for u, b, a in zip(network.hidden_weights, network.hidden_bias, network.output_weights, strict=True):
        F = F + np.maximum(X @ u + b, 0.0)[:, None] * a
        penalty += 0.5 * (u @ u + a @ a)
    return float((w / w.sum()) @ loss.rows(F, Y)) + beta * penalty


# ---- the optimum ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*REGRESSION, *CLASSIFICATION], ids=repr)
@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("beta", [0.1, 0.003])
def test_optimum_is_that_of_the_dictionary_program(loss, C, beta):
    x, Y, w = data(C, 14, loss, C)
    trained = train_spline(x[:, None], Y, w, loss=loss, beta=beta)
    certificate = trained.certificate
    assert certificate.gap <= 1e-6
    truth = dictionary_optimum(x, Y, beta, loss, w)
    assert certificate.objective == pytest.approx(truth, rel=2e-6)
    assert certificate.lower_bound <= truth * (1 + 1e-6)
    assert certificate.objective == pytest.approx(
        own_objective(trained.network, x[:, None], Y, loss, beta, w), rel=1e-12
    )


@pytest.mark.parametrize("beta", [0.05, 0.001])
def test_softmax_optimum_is_that_of_the_dictionary_program(beta):
    x, Y, w = data(5, 15, Softmax(), 3)
    certificate = train_spline(x[:, None], Y, w, loss=Softmax(), beta=beta).certificate
    assert certificate.gap <= 1e-6
    assert certificate.objective == pytest.approx(dictionary_optimum(x, Y, beta, Softmax(), w), rel=5e-6)


@pytest.mark.parametrize("loss", [Squared(), Hinge()], ids=repr)
@pytest.mark.parametrize("C", [1, 2])
def test_beta_zero_is_the_smallest_exact_fit_or_margin(loss, C):
    x, Y, _ = data(3, 11, loss, C)
    x = np.arange(11.0) + 0.3 * np.sin(x)
    certificate = train_spline(x[:, None], Y, loss=loss, beta=0.0).certificate
    assert certificate.gap <= 1e-6
    assert certificate.objective == pytest.approx(dictionary_optimum(x, Y, 0.0, loss), rel=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(2, 40), st.sampled_from([1e-1, 1e-3, 1e-5]), st.sampled_from([1, 2]))
def test_bound_holds_and_gap_is_closed(seed, n, beta, C):
    rng = np.random.default_rng(seed)
    loss = [*REGRESSION, *CLASSIFICATION][seed % 7]
    x, Y, w = data(seed, n, loss, C)
    trained = train_spline(x[:, None], Y, w, loss=loss, beta=beta)
    c = trained.certificate
    one_sided = loss.classification and (np.abs(Y.sum(axis=0)) == n).any()  # the infimum may be zero, never reached
    assert c.gap <= 1e-6 or one_sided or c.objective < 1e-12
    # no perturbed network is below the bound
    net = trained.network
    other = TwoLayerNetwork(
        net.hidden_weights * (1 + 0.01 * rng.standard_normal(net.hidden_weights.shape)),
        net.output_weights * (1 + 0.01 * rng.standard_normal(net.output_weights.shape)),
        net.hidden_bias + 0.01 * rng.standard_normal(net.n_neurons),
        net.intercept,
        free_bias=True,
    )
    value = loss.value(other.forward(x[:, None]), Y, w / w.sum()) + beta * other.penalty()
    assert value >= c.lower_bound * (1 - 1e-12)


def test_dual_constraint_is_largest_at_data_points():
    rng = np.random.default_rng(0)
    x = np.sort(rng.standard_normal(20))
    V = rng.standard_normal((20, 2))
    V -= V.mean(axis=0)
    problem = SplineProblem(x, np.zeros((20, 2)), np.full(20, 0.05), Squared(), 1.0, np.zeros(20))
    right, left = problem.constraint(V)
    anywhere = np.linspace(x[0] - 5, x[-1] + 5, 4001)
    ramps = np.concatenate([np.maximum(x - anywhere[:, None], 0) @ V, np.maximum(anywhere[:, None] - x, 0) @ V])
    assert np.linalg.norm(ramps, axis=1).max() <= max(right.max(), left.max()) * (1 + 1e-12)
    np.testing.assert_allclose(right, np.linalg.norm(np.maximum(x - x[:, None], 0) @ V, axis=1), atol=1e-13)
    np.testing.assert_allclose(left, np.linalg.norm(np.maximum(x[:, None] - x, 0) @ V, axis=1), atol=1e-13)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_function_norm_is_the_smallest_l1_norm_on_the_dictionary(slopes):
    x = np.arange(len(slopes) + 1.0)
    f = np.concatenate([[0.0], np.cumsum(slopes)])
    truth = dictionary_optimum(x, f[:, None], 0.0, Squared())
    assert spline_norm(np.array(slopes, float)) == pytest.approx(truth, abs=1e-6)
    # the formula is about functions on the whole line, where a line costs both its ends
    d = np.array(slopes, float)
    S = np.abs(np.diff(d)).sum()
    assert spline_norm(d) <= max(S, abs(d[0] + d[-1]))


# ---- invariances ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("s", "t"), [(1e-8, 1e8), (1e6, 1e-3), (1e100, 1.0), (1e-100, 1e50)])
def test_scaling_inputs_and_targets_scales_the_optimum(s, t):
    x, Y, _ = data(1, 30, Squared())
    base = train_spline(x[:, None], Y, loss=Squared(), beta=0.01).certificate
    scaled = train_spline(s * x[:, None], t * Y, loss=Squared(), beta=0.01 * s * t).certificate
    assert scaled.objective == pytest.approx(t**2 * base.objective, rel=1e-7)
    assert scaled.gap <= 1e-6


@pytest.mark.parametrize("loss", [Squared(), Absolute(), Hinge()], ids=repr)
def test_shift_mirror_repetition_and_order_do_not_matter(loss):
    x, Y, w = data(2, 25, loss)
    base = train_spline(x[:, None], Y, w, loss=loss, beta=0.01).certificate.objective
    order = np.random.default_rng(0).permutation(25)
    for X2, Y2, w2 in [
        (x + 7.0, Y, w),
        (-x, Y, w),
        (x[order], Y[order], w[order]),
        (np.r_[x, x], np.r_[Y, Y], np.r_[w, w]),
    ]:
        again = train_spline(X2[:, None], Y2, w2, loss=loss, beta=0.01).certificate.objective
        assert again == pytest.approx(base, rel=2e-6)


def test_rows_on_a_line_of_any_dimension_are_one_dimensional_data():
    rng = np.random.default_rng(0)
    c, a, o = rng.standard_normal(30), rng.standard_normal(5), 3 * rng.standard_normal(5)
    y = np.sin(3 * c)
    plain = SplineRegressor(beta=0.01).fit(np.linalg.norm(a) * c[:, None], y)
    for X in (np.outer(c, a), o + np.outer(c, a)):
        est = SplineRegressor(beta=0.01).fit(X, y)
        assert est.objective_ == pytest.approx(plain.objective_, rel=1e-6)
        np.testing.assert_allclose(est.predict(X), plain.predict(np.linalg.norm(a) * c[:, None]), atol=1e-4)
        np.testing.assert_allclose(np.linalg.matrix_rank(est.network_.hidden_weights), 1)


def test_rows_close_to_a_line_leave_room_in_the_bound():
    rng = np.random.default_rng(0)
    X = np.outer(rng.standard_normal(40), [1.0, 2.0]) + 1e-10 * rng.standard_normal((40, 2))
    est = SplineRegressor(beta=0.01).fit(X, np.sin(X[:, 0]))
    assert est.gap_ <= 1e-6
    assert est.certificate_.limit > est.certificate_.attained
    assert (find_line(X).distances(X) > 0).all()


# ---- small, large and odd data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Squared(), Absolute(), Huber(), EpsilonInsensitive()], ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("beta", [0.0, 0.01, 100.0])
def test_few_rows(loss, n, beta):
    x, y = np.arange(float(n)), np.array([1.0, -1.0, 2.0])[:n]
    certificate = train_spline(x[:, None], y[:, None], loss=loss, beta=beta).certificate
    assert certificate.gap <= 1e-6
    truth = dictionary_optimum(x, y[:, None], beta, loss) if n > 1 else 0.0
    assert certificate.objective == pytest.approx(truth, rel=1e-5, abs=1e-8)


def test_constant_target_and_constant_input_need_no_neurons():
    x = np.linspace(0, 1, 20)[:, None]
    for beta in (0.0, 0.1):
        est = SplineRegressor(beta=beta).fit(x, np.full(20, 3.0))
        assert est.n_neurons_ == 0
        np.testing.assert_allclose(est.predict(x), 3.0)
    est = SplineRegressor(beta=0.1).fit(np.ones((20, 3)), x[:, 0])
    assert est.n_neurons_ == 0
    assert est.predict(np.ones((1, 3)))[0] == pytest.approx(0.5)


def test_no_neurons_above_beta_max_and_few_below():
    x, Y, _ = data(4, 200, Squared())
    assert SplineRegressor(beta=10.0).fit(x[:, None], Y[:, 0]).n_neurons_ == 0
    est = SplineRegressor(beta=0.01).fit(x[:, None], Y[:, 0])
    assert 0 < est.n_neurons_ < 20
    kinks = -est.network_.hidden_bias / est.network_.hidden_weights[:, 0]
    assert np.abs(kinks[:, None] - x).min(axis=1).max() < 1e-12  # 004 Lemma 2.6


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "epsilon_insensitive"])
@pytest.mark.parametrize("beta", [1e-2, 1e-6])
def test_close_points_with_opposite_targets(loss, beta):
    x = np.linspace(-1, 1, 40)
    X = np.concatenate([x, x + 1e-10, x + 1e-7])[:, None]
    y = np.concatenate([np.sin(3 * x), -np.sin(3 * x), np.cos(x)])
    est = SplineRegressor(beta=beta, loss=loss).fit(X, y)
    assert est.gap_ <= 1e-6


def test_interpolation_of_close_points_and_many_points():
    rng = np.random.default_rng(0)
    x = np.sort(rng.standard_normal(5000))
    est = SplineRegressor(beta=0.0).fit(x[:, None], rng.standard_normal(5000))
    assert est.gap_ < 1e-6  # close points amplify rounding


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "epsilon_insensitive"])
def test_fifty_thousand_points(loss):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(50_000)
    est = SplineRegressor(beta=1e-4, loss=loss).fit(x[:, None], np.sin(3 * x) + 0.3 * rng.standard_normal(len(x)))
    assert est.gap_ <= 1e-6
    assert est.n_neurons_ < 400


def test_time_limit_returns_a_network_with_its_true_gap():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20_000)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        est = SplineRegressor(beta=1e-6, loss="absolute", time_limit=0.0).fit(x[:, None], np.sin(9 * x))
    assert est.gap_ > 1e-6
    assert est.objective_ >= est.lower_bound_


def test_verbose_shows_rounds(capsys):
    x = np.linspace(0, 1, 30)
    SplineRegressor(beta=0.01, verbose=1).fit(x[:, None], x**2)
    assert "knots" in capsys.readouterr().out


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_other_data_are_refused_and_the_general_estimators_named():
    X = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ValueError, match="ReLURegressor or ReLUClassifier"):
        SplineRegressor().fit(X, X[:, 0])


def test_contradicting_rows_cannot_be_interpolated():
    with pytest.raises(ValueError, match="equal inputs have different targets"):
        SplineRegressor(beta=0.0).fit([[0.0], [0.0], [1.0]], [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="equal inputs have different targets"):
        SplineClassifier(beta=0.0).fit([[0.0], [0.0], [1.0]], [0, 1, 1])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"beta": -1.0}, "beta must be"),
        ({"tol": "x"}, "tol must be"),
        ({"loss": "hinge"}, "SplineClassifier"),
        ({"loss": "nonsense"}, "unknown loss"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"time_limit": -1}, "time_limit must be"),
    ],
)
def test_bad_parameters(parameters, words):
    with pytest.raises(ValueError, match=words):
        SplineRegressor(**parameters).fit([[0.0], [1.0]], [0.0, 1.0])


class PseudoHuber(Loss):
    """A smooth loss of the user's own: no dual box, no cone form."""

    name = "pseudo_huber"
    smooth = True
    lipschitz = 1.0

    def rows(self, F, Y):
        return (np.sqrt(1 + (F - Y) ** 2) - 1).sum(axis=1)

    def row_gradients(self, F, Y):
        return (F - Y) / np.sqrt(1 + (F - Y) ** 2)

    def row_curvatures(self, F, Y):
        return (1 + (F - Y) ** 2) ** -1.5

    def row_conjugates(self, V, Y):
        inside = np.abs(V) <= 1
        return np.where(inside, 1 - np.sqrt(np.maximum(1 - V**2, 0)) + V * Y, np.inf).sum(axis=1)

    def clip_rows(self, V, Y):
        return np.clip(V, -1, 1)


def test_a_smooth_loss_of_ones_own():
    x, Y, _ = data(6, 20, Squared())
    certificate = train_spline(x[:, None], Y, loss=PseudoHuber(), beta=0.01).certificate
    assert certificate.gap <= 1e-6
    assert certificate.objective == pytest.approx(dictionary_optimum(x, Y, 0.01, PseudoHuber()), rel=1e-6)


def test_a_loss_with_neither_box_nor_curvature_is_refused():
    class Rough(PseudoHuber):
        smooth = False

    with pytest.raises(TypeError, match="dual_box"):
        train_spline(np.arange(3.0)[:, None], np.ones((3, 1)), loss=Rough(), beta=0.1)


@pytest.mark.parametrize("loss", [*REGRESSION, *CLASSIFICATION, ExactFit(), Tube()], ids=repr)
def test_dual_boxes_state_the_conjugates(loss):
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((50, 1))
    Y = np.sign(Y) if loss.classification else Y
    box = loss.dual_box(Y)
    if box is None:
        assert isinstance(loss, Logistic)
        return
    V = 3 * rng.standard_normal((50, 1))
    inside = ((box.lower <= V) & (box.upper >= V))[:, 0]
    stated = np.where(inside, (0.5 * box.curvature * V**2 + V * Y + box.threshold * abs(V))[:, 0], np.inf)
    np.testing.assert_allclose(loss.row_conjugates(V, Y), stated)


# ---- networks -------------------------------------------------------------------------------------------------------


def test_network_goes_to_files_and_torch(tmp_path):
    torch = pytest.importorskip("torch")
    x, Y, _ = data(7, 60, Squared(), 2)
    est = SplineRegressor(beta=0.003).fit(x[:, None], Y)
    network = est.network_
    assert network.free_bias
    again = bidual.load(network.save(tmp_path / "spline.json"))
    assert again.penalty() == network.penalty()
    np.testing.assert_array_equal(again.predict(x[:, None]), network.predict(x[:, None]))
    outputs = network.to_torch()(torch.as_tensor(x[:, None])).detach().numpy()
    np.testing.assert_allclose(outputs, network.predict(x[:, None]), atol=1e-12)
    assert network.objective(x[:, None], Y, beta=0.003) == pytest.approx(est.objective_, rel=1e-12)


def test_files_without_free_biases_stay_as_they_were():
    network = TwoLayerNetwork([[1.0]], [[2.0]], [3.0])
    assert "free_bias" not in network.to_dict()
    assert network.penalty() == 0.5 * (1 + 4 + 9)
    assert TwoLayerNetwork([[1.0]], [[2.0]], [3.0], free_bias=True).penalty() == 0.5 * (1 + 4)


def test_wide_networks_are_evaluated_along_the_line_or_in_blocks():
    rng = np.random.default_rng(0)
    for d in (1, 3):
        network = TwoLayerNetwork(
            rng.standard_normal((50, d)) * (rng.random((50, 1)) < 0.9),
            rng.standard_normal((50, 2)),
            rng.standard_normal(50),
        )
        X = rng.standard_normal((40, d))
        plain = network.forward(X)
        with tuned(activations=200):
            np.testing.assert_allclose(network.forward(X), plain, atol=1e-12)


def test_optimal_networks_are_not_unique():
    """004 Prop. 3.1: ramps may face either way, and kinks may leave the data, at the same penalty."""
    x, y = np.arange(4.0)[:, None], np.array([0.0, 1.0, 0.0, 1.0])
    r = np.sqrt(2.0)
    ours = SplineRegressor(beta=0.0).fit(x, y)
    other = TwoLayerNetwork([[-r], [-1.0], [1.0]], [[-r], [1.0], [1.0]], [r, 2.0, -2.0], free_bias=True)
    np.testing.assert_allclose(other.predict(x), y, atol=1e-12)
    assert other.penalty() == pytest.approx(4.0)
    assert ours.objective_ == pytest.approx(4.0)
    # one has two ramps to the left, the other one
    assert (ours.network_.hidden_weights < 0).sum() != (other.hidden_weights < 0).sum()

    convex = np.array([0.0, 0.0, 1.0, 3.0])  # slopes 0, 1, 2: kinks at 1 and 2, or a single one at 3/2
    spline = SplineRegressor(beta=0.0).fit(x, convex)
    single = TwoLayerNetwork([[r]], [[r]], [-1.5 * r], free_bias=True)
    np.testing.assert_allclose(single.predict(x), convex, atol=1e-12)
    assert single.penalty() == pytest.approx(spline.objective_)


def test_classifier_regions_and_probabilities():
    x = np.linspace(-1, 1, 61)
    y = np.where(np.abs(x) < 0.5, "in", "out")
    est = SplineClassifier(beta=0.0).fit(x[:, None], y)
    assert (est.predict(x[:, None]) == y).all()
    assert np.abs(est.decision_function(x[:, None])).min() >= 1 - 1e-6
    soft = SplineClassifier(beta=1e-4, loss="logistic", class_weight="balanced").fit(x[:, None], y)
    assert soft.predict_proba(x[:, None]).shape == (61, 2)
    three = SplineClassifier(beta=1e-4, loss="logistic").fit(x[:, None], np.digitize(x, [-0.3, 0.3]))
    assert three.score(x[:, None], np.digitize(x, [-0.3, 0.3])) > 0.95
    assert three.gap_ <= 1e-6


def test_free_biases_cost_less_than_regularised_ones():
    x, Y, _ = data(8, 12, Squared())
    free = SplineRegressor(beta=0.01).fit(x[:, None], Y[:, 0])
    charged = ReLURegressor(beta=0.01, method="exact").fit(x[:, None], Y[:, 0])
    assert free.objective_ <= charged.objective_ * (1 + 1e-6)


def test_certify_judges_networks_with_free_biases():
    x, Y, _ = data(9, 40, Squared())
    est = SplineRegressor(beta=0.01).fit(x[:, None], Y[:, 0])
    assert bidual.certify(est, x[:, None], Y[:, 0], tol=1e-6).gap <= 1e-6
    net = est.network_
    worse = TwoLayerNetwork(
        net.hidden_weights, 0.5 * net.output_weights, net.hidden_bias, net.intercept, free_bias=True
    )
    certificate = bidual.certify(worse, x[:, None], Y[:, 0], beta=0.01)
    assert certificate.objective > est.objective_ > certificate.lower_bound
    better = bidual.polish(worse, x[:, None], Y[:, 0], beta=0.01)
    assert better.certificate.objective == pytest.approx(est.objective_, rel=1e-3)


def test_pictures():
    plt = pytest.importorskip("matplotlib.pyplot")
    from bidual.plots import plot_fit_1d, plot_neurons_1d, plot_regions_1d

    x = np.linspace(-1, 1, 21)
    est = SplineRegressor(beta=0.01).fit(x[:, None], np.abs(x))
    plot_fit_1d(est, x[:, None], np.abs(x))
    assert len(plot_neurons_1d(est.network_, x[:, None], np.abs(x)).lines) == est.n_neurons_ + 2
    classes = np.where(np.abs(x) < 0.5, "in", "out")
    clf = SplineClassifier(beta=1e-3).fit(x[:, None], classes)
    assert len(plot_regions_1d(clf, x[:, None], classes).patches) == 3  # out, in, out
    with pytest.raises(ValueError, match="one input and one output"):
        plot_neurons_1d(TwoLayerNetwork(np.ones((1, 2)), np.ones((1, 1))), x[:, None])
    plt.close("all")
