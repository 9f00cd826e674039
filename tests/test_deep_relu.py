"""Deep ReLU networks in closed form, against training, the general engine and hand-made networks."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from tests.deep_helpers import squared, train_dense, train_parallel, white_rows
from tests.helpers import gap_may_stay_open

from bidual import DeepNetwork, DeepReLUClassifier, ReLUClassifier, load
from bidual.closed_form.deep_relu import train_classes
from bidual.closed_form.layers import aligned_layers
from bidual.closed_form.rank_one import interpolate_spline, train_rank_one
from bidual.closed_form.whitening import Whitening
from bidual.losses import Hinge, Logistic


def classes(n, K):
    return np.arange(n) % K


# ---- whitened rows --------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "n_beta"), [(2, 0.2), (3, 0.2), (4, 0.5)])
def test_squared_loss_reaches_the_best_parallel_network(depth, n_beta):
    n, K = 9, 3
    X, y = white_rows(0, n, 10), classes(n, K)
    est = DeepReLUClassifier(depth, n_beta / n).fit(X, y)
    assert est.gap_ <= 1e-12
    trained = train_parallel(X, squared(np.eye(K)[y]), K, n_beta / n, depth, 3, 8)
    assert est.objective_ <= trained * (1 + 1e-9)
    assert est.objective_ == pytest.approx(trained, rel=1e-4)
    assert est.network_.objective(X, np.eye(K)[y], beta=n_beta / n) == est.objective_
    assert est.certificate_.scope == ("global" if depth == 2 else "parallel")


@pytest.mark.slow
def test_dense_networks_of_five_layers_beat_the_best_parallel_ones():
    # Thm 4.3 is about parallel networks: dense ones pass four classes through fewer than four neurons.
    X, y, beta = np.eye(4), np.arange(4), 0.03
    est = DeepReLUClassifier(5, beta).fit(X, y)
    assert est.certificate_.scope == "parallel"
    assert train_parallel(X, squared(X), 4, beta, 5, 3, 8, steps=500) >= est.lower_bound_
    assert train_dense(X, squared(X), 4, beta, 5, 10, relu=True, seeds=6, steps=500) < 0.98 * est.lower_bound_


def test_two_layers_are_the_thresholds_of_the_paper():
    X, y, beta = white_rows(1, 10, 12), np.array([0] * 7 + [1] * 3), 1.9
    est = DeepReLUClassifier(2, beta / 10).fit(X, y)
    # (||y_j|| - beta)_+ of Thm 4.3: sqrt(3) < 1.9 < sqrt(7), one class only
    strength = np.sqrt(7) - beta
    np.testing.assert_allclose(est.network_.predict(X)[y == 0], np.tile([strength / np.sqrt(7), 0], (7, 1)), atol=1e-12)
    np.testing.assert_allclose(est.network_.predict(X)[y == 1], 0.0, atol=1e-12)
    assert est.network_.penalty() == pytest.approx(strength)


@pytest.mark.parametrize(("loss", "K"), [("logistic", 3), ("logistic", 2), ("squared_hinge", 3)])
def test_two_layers_of_other_losses_agree_with_the_general_engine(loss, K):
    X, y = white_rows(2, 10, 11), classes(10, K)
    est = DeepReLUClassifier(2, 0.03, loss=loss).fit(X, y)
    assert est.gap_ <= 1e-9
    with gap_may_stay_open():
        engine = ReLUClassifier(0.03, loss=loss, bias=False, fit_intercept=False, tol=1e-4, random_state=0).fit(X, y)
    assert est.objective_ <= engine.objective_ * (1 + 1e-9)
    assert est.objective_ == pytest.approx(engine.objective_, rel=1e-3)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_two_classes_of_margin_losses_are_proven_at_any_depth(loss):
    n, beta = 8, 0.02
    X, y = white_rows(3, n, 9), classes(n, 2)
    est = DeepReLUClassifier(4, beta, loss=loss).fit(X, y)
    signs = torch.as_tensor(2.0 * y - 1)[:, None]
    rows = {
        "logistic": lambda m: torch.nn.functional.softplus(-m),
        "squared_hinge": lambda m: torch.relu(1 - m) ** 2 / 2,
    }
    trained = train_parallel(X, lambda F: rows[loss](signs * F).mean(), 1, beta, 4, 3, 6)
    assert est.gap_ <= 1e-9
    assert est.objective_ <= trained * (1 + 1e-9)
    assert est.objective_ == pytest.approx(trained, rel=1e-2)


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("sizes", [(4, 4, 4), (7, 3, 1), (2, 5, 2, 6)])
@pytest.mark.parametrize("beta", [0.1, 0.01])
def test_two_layers_are_proven_for_up_to_four_classes(loss, sizes, beta):
    y = np.repeat(np.arange(len(sizes)), sizes)
    est = DeepReLUClassifier(2, beta, loss=loss).fit(white_rows(10, len(y), len(y)), y)
    assert est.gap_ <= 1e-9


def test_gap_stays_open_where_one_chain_for_each_class_is_not_optimal():
    X, y = white_rows(4, 12, 12), classes(12, 6)  # margin losses of more than four classes share a branch
    with pytest.warns(ConvergenceWarning, match="relative gap"):
        est = DeepReLUClassifier(2, 0.05, loss="squared_hinge").fit(X, y)
    with gap_may_stay_open():
        engine = ReLUClassifier(
            0.05, loss="squared_hinge", bias=False, fit_intercept=False, tol=1e-3, random_state=0
        ).fit(X, y)
    assert est.lower_bound_ <= engine.objective_ < est.objective_


def test_two_branches_beat_one_for_each_class_under_cross_entropy_at_eight_layers():
    # Against 001 Remark A.1: ten classes on an arc are told apart by two branches.
    X, y, angle = np.eye(10), np.arange(10), np.linspace(0, np.pi / 2, 10)
    with pytest.warns(ConvergenceWarning, match="not convex"):
        est = DeepReLUClassifier(8, 1e-3, loss="logistic").fit(X, y)
    P = np.column_stack([np.cos(angle), np.sin(angle)])
    size = np.linalg.norm(P, axis=0)
    other = DeepNetwork(aligned_layers(P / size, 800.0 * size**2, P.T / size[:, None], 8))
    objective = other.objective(X, y, beta=1e-3, loss="softmax")
    assert est.lower_bound_ <= objective < 0.95 * est.objective_


@settings(max_examples=40)
@given(
    st.integers(0, 1000),
    st.sampled_from(["squared", "logistic", "hinge"]),
    st.integers(2, 5),
    st.integers(2, 4),
    st.floats(1e-3, 0.3),
    st.booleans(),
)
def test_no_parallel_network_is_below_the_lower_bound(seed, loss, depth, K, beta, dependent):
    rng = np.random.default_rng(seed)
    n = 8
    X, y = rng.standard_normal((n, 3 if dependent else 9)), classes(n, K)
    with gap_may_stay_open():
        est = DeepReLUClassifier(depth, beta, loss=loss).fit(X, y)
    assert est.lower_bound_ <= est.objective_
    network = est.network_
    targets = np.eye(K)[y] if loss == "squared" else y
    blocks = [np.zeros_like(W) for W in network.layers]
    for block, W in zip(blocks, network.layers, strict=True):  # disturb within the branches only
        block[W != 0] = 1.0
    for scale in (1e-3, 0.1, 0.5):
        network.layers = [
            W + scale * rng.standard_normal(W.shape) * (B if 0 < k < depth - 1 else 1.0)
            for k, (W, B) in enumerate(zip(network.layers, blocks, strict=True))
        ]
        assert network.objective(X, targets, beta=beta, loss=est.loss_) >= est.lower_bound_


def test_exact_fit_at_beta_zero():
    X, y = np.random.default_rng(5).standard_normal((6, 8)), classes(6, 3)
    est = DeepReLUClassifier(3, 0.0).fit(X, y)
    np.testing.assert_allclose(est.network_.predict(X), np.eye(3)[y], atol=1e-10)
    assert est.objective_ == pytest.approx(3 * 1.5 * np.sqrt(2) ** (2 / 3))
    with pytest.raises(ValueError, match="linearly independent rows"):
        DeepReLUClassifier(3, 0.0).fit(X[:, :2], y)


def test_whitening_is_kept_for_new_rows(tmp_path):
    rng = np.random.default_rng(6)
    X, y, new = rng.standard_normal((10, 14)), classes(10, 2), rng.standard_normal((5, 14))
    est = DeepReLUClassifier(3, 0.01).fit(X, y)
    scores = est.network_.predict(new)
    module = est.network_.to_torch()
    np.testing.assert_allclose(module(torch.as_tensor(new)).detach(), scores, atol=1e-12)
    assert [type(layer).__name__ for layer in module] == ["Linear", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert not module[0].weight.requires_grad
    est.network_.save(tmp_path / "net.json")
    np.testing.assert_array_equal(load(tmp_path / "net.json").predict(new), scores)
    np.testing.assert_array_equal(est.decision_function(new), scores[:, 1] - scores[:, 0])


def test_white_rows_are_used_as_they_are():
    assert Whitening.of(white_rows(7, 5, 8)).matrix is None
    rng = np.random.default_rng(7)
    for X in (rng.standard_normal((5, 8)), np.arange(3.0)[:, None] * np.ones((1, 2)) + np.eye(3, 2)):
        whitening = Whitening.of(X)
        assert whitening.exact
        np.testing.assert_allclose(whitening.apply(X) @ whitening.apply(X).T, np.eye(len(X)), atol=1e-10)
    dependent = Whitening.of(rng.standard_normal((9, 3)))
    assert not dependent.exact
    assert dependent.bias is not None


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"depth": 1}, "depth"), ({"beta": -1}, "beta"), ({"loss": "huber"}, "for numbers"), ({"widths": [2]}, "widths")],
)
def test_wrong_parameters_are_named(parameters, words):
    X, y = white_rows(8, 6, 6), classes(6, 3)
    with pytest.raises(ValueError, match=words):
        DeepReLUClassifier(**parameters).fit(X, y)


# ---- rank-one rows --------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "C"), [(2, 1), (3, 2), (4, 1)])
def test_rank_one_rows_have_one_optimal_chain_even_among_dense_networks(depth, C):
    rng = np.random.default_rng(depth)
    X = rng.random((7, 1)) * rng.standard_normal((1, 4))
    Y = rng.standard_normal((7, C)) + 2.0
    network, certificate = train_rank_one(X, Y, beta=0.05, depth=depth)
    assert certificate.gap <= 1e-9
    assert certificate.objective == network.objective(X, Y, beta=0.05)
    trained = train_dense(X, squared(Y), C, 0.05, depth, 4, relu=True)
    assert certificate.objective == pytest.approx(trained, rel=1e-7)


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rank_one_rows_of_other_losses(loss, sign):
    X = np.array([[0.5], [1.0], [2.0], [3.0]]) @ np.array([[0.6, -0.8]])
    y = sign * np.array([[1.0], [-1.0], [1.0], [1.0]])
    network, certificate = train_rank_one(X, y, beta=0.02, depth=3, loss=loss)
    assert certificate.gap <= 1e-9
    x = np.array([0.5, 1.0, 2.0, 3.0])
    for a in np.linspace(-5, 5, 4001):
        value = loss.rows(a * x[:, None], y).mean() + 0.03 * abs(a) ** (2 / 3)
        assert value >= certificate.lower_bound
    assert network.objective(X, y, beta=0.02, loss=loss) == certificate.objective
    assert np.sign(network.predict(X)).tolist() == [sign] * 4


def test_rank_one_rows_are_fitted_exactly_at_beta_zero():
    X = np.array([[1.0], [2.0]]) @ np.array([[3.0, 4.0]])
    network, certificate = train_rank_one(X, np.array([[10.0], [20.0]]), beta=0.0, depth=3)
    np.testing.assert_allclose(network.predict(X), [10.0, 20.0])
    assert certificate.objective == pytest.approx(1.5 * 2 ** (2 / 3))
    with pytest.raises(ValueError, match="only multiples of c"):
        train_rank_one(X, np.array([[1.0], [1.0]]), beta=0.0)


@pytest.mark.parametrize(
    ("X", "words"),
    [(np.eye(2), "rank one"), (np.array([[1.0], [-1.0]]), "some are negative"), (np.zeros((2, 2)), "rank one")],
)
def test_other_rows_than_rank_one_are_refused(X, words):
    with pytest.raises(ValueError, match=words):
        train_rank_one(X, np.ones((2, 1)), beta=0.1)


# ---- splines --------------------------------------------------------------------------------------


def ramp_program(x, y):
    """Smallest sum of ramp strengths through the points, with kinks on a fine grid and a free constant."""
    kinks = np.unique(np.concatenate([x, np.linspace(x.min(), x.max(), 41)]))
    ramps = np.maximum(np.concatenate([x[:, None] - kinks, kinks - x[:, None]], axis=1), 0.0)
    kappa, b = cp.Variable(ramps.shape[1]), cp.Variable()
    return cp.Problem(cp.Minimize(cp.norm1(kappa)), [ramps @ kappa + b == y]).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("seed", range(6))
def test_two_layer_spline_has_the_smallest_penalty(seed):
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.standard_normal(6)), rng.standard_normal(6)
    if seed == 5:
        y = 3.0 * x + 0.01 * y  # the line is what costs
    network, certificate = interpolate_spline(x[:, None], y)
    np.testing.assert_allclose(network.predict(x[:, None]), y, atol=1e-10)
    assert certificate.gap <= 1e-10
    assert certificate.objective == pytest.approx(ramp_program(x, y), rel=1e-6)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_spline_is_linear_between_the_data_and_optimal_at_any_depth(depth):
    rng = np.random.default_rng(depth)
    x, y = np.sort(rng.random(7)), rng.standard_normal(7)
    direction = np.array([[0.6, 0.8]])
    network, certificate = interpolate_spline(x[:, None] * direction, y, depth=depth)
    grid = np.linspace(x[0], x[-1], 200)
    np.testing.assert_allclose(network.predict(grid[:, None] * direction), np.interp(grid, x, y), atol=1e-9)
    assert network.depth == depth
    assert certificate.objective == network.penalty()
    assert certificate.objective == pytest.approx(depth / 2 * ramp_program(x, y) ** (2 / depth), rel=1e-6)
    assert certificate.gap <= 1e-10
    # all layers are balanced: rescaling neighbours only costs
    norms = [np.linalg.norm(W) for W in network.layers]
    np.testing.assert_allclose(norms, norms[0])


@pytest.mark.parametrize("depth", [2, 3])
def test_training_with_weak_decay_does_not_leave_the_penalty_of_the_spline(depth):
    x, y, beta = np.array([[0.2], [0.5], [1.0], [1.3]]), np.array([0.0, 0.4, -0.2, 0.3]), 1e-4
    spline, certificate = interpolate_spline(x, y, depth=depth)
    inputs, targets = torch.as_tensor(x), torch.as_tensor(y)[:, None]
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.05, 0.3):
        module = spline.to_torch()
        with torch.no_grad():
            for p in module.parameters():
                p += scale * torch.as_tensor(rng.standard_normal(p.shape))
        weights = [p for name, p in module.named_parameters() if name.endswith("weight")]
        lbfgs = torch.optim.LBFGS(module.parameters(), max_iter=500, line_search_fn="strong_wolfe")

        def objective(module=module, weights=weights):
            loss = 0.5 * (module(inputs) - targets).square().mean()
            return loss + 0.5 * beta * sum((W**2).sum() for W in weights)

        def closure(lbfgs=lbfgs, objective=objective):
            lbfgs.zero_grad()
            value = objective()
            value.backward()
            return value

        lbfgs.step(closure)
        # The optimum of weak decay is beta times the smallest penalty of an exact fit, up to higher order.
        assert objective().item() >= 0.99 * beta * certificate.objective
        if scale == 0.0:
            assert objective().item() <= beta * certificate.objective


def test_branches_of_their_own_prefer_one_kink_between_the_data():
    # Against 001 Cor. 4.2 for parallel networks: two kinks at data points cost more than one between them.
    x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0.0, 0.0, 0.5, 1.5])
    _, certificate = interpolate_spline(x, y, depth=3)
    t = 0.5 ** (1 / 3)
    branches = DeepNetwork([[[t, t]], np.diag([t, t]), [[t], [t]]], biases=[None, -np.array([1.0, 2.0]) * t**2, None])
    one_kink = DeepNetwork([[[1.0]], [[1.0]], [[1.0]]], biases=[None, [-1.5], None])
    np.testing.assert_allclose(branches.predict(x), y, atol=1e-12)
    np.testing.assert_allclose(one_kink.predict(x), y)
    assert one_kink.penalty() < branches.penalty() - 0.3
    assert one_kink.penalty() == pytest.approx(certificate.objective)


@pytest.mark.parametrize(("x", "y"), [([1.0], [2.0]), ([1.0, 2.0], [3.0, 3.0]), ([1.0, 1.0, 2.0], [0.0, 0.0, 5.0])])
def test_few_points_are_fitted_too(x, y):
    network, certificate = interpolate_spline(np.array(x)[:, None], np.array(y), depth=3)
    np.testing.assert_allclose(network.predict(np.array(x)[:, None]), y, atol=1e-12)
    assert certificate.gap <= 1e-12


def test_contradicting_points_are_refused():
    with pytest.raises(ValueError, match="equal rows have different targets"):
        interpolate_spline(np.array([[1.0], [1.0]]), np.array([0.0, 1.0]))


def test_targets_that_are_not_orthogonal_are_not_claimed_to_be_proven():
    X, targets = white_rows(9, 6, 6), np.array([[1.0, 0.5], [0.5, 1.0]])
    _, open_gap = train_classes(X, classes(6, 2), targets, beta=0.01, depth=3)
    _, proven = train_classes(X, classes(6, 2), np.eye(2), beta=0.01, depth=3)
    assert proven.gap <= 1e-12
    assert open_gap.gap > 0.1
    assert "not convex" in open_gap.method


def test_rows_that_are_hard_to_whiten_keep_the_bound_below():
    X = np.random.default_rng(11).standard_normal((8, 10)) * np.logspace(0, -13, 10)
    with gap_may_stay_open():
        est = DeepReLUClassifier(3, 0.01).fit(X, classes(8, 2))
    assert est.lower_bound_ <= est.objective_
    perfect = DeepReLUClassifier(3, 0.01).fit(np.eye(8), classes(8, 2))
    assert est.lower_bound_ <= perfect.objective_ * (1 + 1e-12)


def test_rows_a_little_off_their_line_are_no_rank_one_rows_to_a_tiny_beta():
    # the second column is 5e-10 of the first, and two neurons that see it alone fit the targets
    side = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    X, Y, beta = np.column_stack([np.ones(6), 5e-10 * side]), side[:, None], 1e-14
    hidden = np.array([[0.0, 0.0], [1.0, -1.0]]) / np.sqrt(5e-10)
    other = DeepNetwork([hidden, np.array([[1.0], [-1.0]]) / np.sqrt(5e-10)])
    assert np.allclose(other.forward(X), Y)
    _, certificate = train_rank_one(X, Y, beta=beta, depth=2)
    assert certificate.lower_bound <= beta * other.penalty()


def test_points_that_the_line_hardly_tells_apart_prove_no_steep_spline():
    # along the line two points are 1e-12 apart, beside it 1e-9: that slope is a thousand times smaller
    X = np.array([[1.0, 0.0], [2.0, 0.0], [2.0 + 1e-12, 1e-9], [3.0, 0.0]])
    y = np.array([0.0, 0.0, 1.0, 0.0])
    ramp = DeepNetwork([np.array([[0.0], [1.0]]) / np.sqrt(1e-9), np.array([[1.0]]) / np.sqrt(1e-9)])
    assert np.allclose(ramp.forward(X)[:, 0], y)
    _, certificate = interpolate_spline(X, y)
    assert certificate.lower_bound <= ramp.penalty()
