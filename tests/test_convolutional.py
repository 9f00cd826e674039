"""Convolutional networks: patches against torch, programs against CVXPY, methods against each other."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import Convolutional, Network, ReLUClassifier, ReLURegressor, beta_max, certify, solution_path
from bidual._util.patches import Window, distinct_patches, fold, unfold
from bidual.architectures.convolutional import check_memory, pooling_matrix
from bidual.losses import get_loss
from bidual.networks import BatchNormNetwork, ConvolutionalNetwork, TwoLayerNetwork, from_torch
from bidual.training.objective import Objective

from .helpers import cvxpy_loss, gap_may_stay_open, lp_patterns

RNG = np.random.default_rng(0)
#: Shape of the tensors, kernel_size, stride, padding.
SETTINGS = [
    ((3, 6, 7, 2), (3, 2), (2, 1), (1, 0)),
    ((3, 9, 2), (4,), (2,), (1,)),
    ((3, 5, 4), None, 1, 0),
]


def random_layer(h, C, batch_norm=False, m=4, seed=0):
    rng = np.random.default_rng(seed)
    U, alpha, a, b, c = (rng.standard_normal(s) for s in ((m, h), (m, C), m, m, m))
    if batch_norm:
        return BatchNormNetwork(U, alpha, a, b, c, rng.random(m) + 0.5, 7)
    return TwoLayerNetwork(U, alpha, a)


def channels_first(X, kernel_size):
    return torch.tensor(X if kernel_size is None else np.moveaxis(X, -1, 1))


def printed_program(X, y, beta, kernel, loss="squared", weight=None, fit_intercept=False, **kw):
    """003 A.1's program on all patterns of the stacked patches, by CVXPY (without its bound on the weights)."""
    n = len(X)
    patches = np.stack([X[:, k : k + kernel] for k in range(X.shape[1] - kernel + 1)], axis=1)  # (n, K, h)
    M = patches.reshape(-1, kernel)
    w = np.full(n, 1.0 / n) if weight is None else weight / np.sum(weight)
    F, penalty, constraints = 0.0, 0.0, []
    for active in lp_patterns(M).astype(float):
        D = active.reshape(n, -1)
        K = np.einsum("nk,nkh->nh", D, patches)
        for sign in (1.0, -1.0):
            v = cp.Variable(kernel)
            F = F + sign * (K @ v)
            penalty = penalty + cp.norm(v)
            constraints.append(cp.multiply(2 * active - 1, M @ v) >= 0)
    if fit_intercept:
        F = F + cp.Variable()
    program = cp.Problem(cp.Minimize(cvxpy_loss(loss, F, y, w, **kw) + beta * penalty), constraints)
    program.solve(solver=cp.CLARABEL)
    return float(program.value)


# ---- patches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "kernel_size", "stride", "padding"), SETTINGS[:2])
def test_patches_are_those_of_torch_and_share_memory(shape, kernel_size, stride, padding):
    X = RNG.standard_normal(shape)
    window = Window.of(kernel_size, stride, padding, X.ndim)
    m = 3
    filters = RNG.standard_normal((m, window.size(shape)))
    ours = window.rows(X) @ filters.T
    weight = torch.tensor(np.moveaxis(filters.reshape(m, *kernel_size, shape[-1]), -1, 1))
    conv = torch.nn.functional.conv2d if len(kernel_size) == 2 else torch.nn.functional.conv1d
    theirs = conv(channels_first(X, kernel_size), weight, stride=stride, padding=padding).numpy()
    np.testing.assert_allclose(ours.reshape(shape[0], *window.grid(shape), m), np.moveaxis(theirs, 1, -1), atol=1e-12)
    bare = Window.of(kernel_size, stride, 0, X.ndim).view(X)
    assert np.shares_memory(bare, X)
    together = np.concatenate([rows for _, rows in window.pieces(X)])
    np.testing.assert_array_equal(together, window.rows(X))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(("shape", "kernel_size", "stride", "padding"), SETTINGS)
def test_folding_is_the_adjoint_of_taking_patches(shape, kernel_size, stride, padding, circular):
    if circular:
        if kernel_size is None:
            return
        stride, padding = 1, 0
    X = RNG.standard_normal(shape)
    window = Window.of(kernel_size, stride, padding, X.ndim, circular)
    K, h = int(np.prod(window.grid(shape))), window.size(shape)
    W, G = RNG.standard_normal((K, h, 2)), RNG.standard_normal((X[0].size, 2))
    patches = window.rows(X).reshape(len(X), K, h)
    expected = np.einsum("nkh,khc->nc", patches, W)
    np.testing.assert_allclose(X.reshape(len(X), -1) @ fold(window, W, shape), expected, atol=1e-12)
    assert (unfold(window, G, shape) * W).sum() == pytest.approx((G * fold(window, W, shape)).sum(), abs=1e-10)


def test_equal_patches_are_one_row_and_pooling_counts_them():
    X = np.array([[0.0, 0.0, 0.0, 1.0], [0.0, -0.0, 0.0, 0.0]])
    window = Window.of(2, 1, 0, 2)
    rows, which = distinct_patches(window.rows(X))
    assert sorted(map(tuple, rows.tolist())) == [(0.0, 0.0), (0.0, 1.0)]
    A = pooling_matrix(which, len(rows), 3, "sum").toarray()
    np.testing.assert_array_equal(A @ rows, window.rows(X).reshape(2, 3, 2).sum(axis=1))
    assert A.max() == 3.0


# ---- networks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["sum", "average", None, "flatten"])
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize(("shape", "kernel_size", "stride", "padding"), SETTINGS)
def test_torch_modules_have_equal_outputs(shape, kernel_size, stride, padding, batch_norm, pooling):
    X = RNG.standard_normal(shape)
    window = Window.of(kernel_size, stride, padding, X.ndim)
    grid = window.grid(shape)
    heads = int(np.prod(grid)) if pooling == "flatten" else 1
    layer = random_layer(window.size(shape), 2 * heads, batch_norm)
    network = ConvolutionalNetwork(
        layer, kernel_size, stride, padding, pooling, [0.5, -1.0], grid=grid if pooling == "flatten" else None
    )
    module = network.to_torch()
    with torch.no_grad():
        outputs = module(channels_first(X, kernel_size)).numpy()
    np.testing.assert_allclose(network.predict(X), outputs, atol=1e-12)
    assert outputs.shape == ((3, 2) if pooling is not None else (3, *grid, 2))
    again = Network.from_dict(network.to_dict())
    np.testing.assert_array_equal(again.predict(X), network.predict(X))
    if kernel_size is not None and pooling in ("sum", "average") and not batch_norm:
        back = from_torch(module)
        np.testing.assert_allclose(back.predict(X), outputs, atol=1e-12)
        assert back.penalty() == pytest.approx(network.penalty())


def test_gradients_of_the_objective_are_those_of_torch():
    X, y = RNG.standard_normal((5, 4, 4, 2)), RNG.standard_normal(5)
    layer = random_layer(8, 1)
    network = ConvolutionalNetwork(layer, (2, 2), 2)
    module = network.to_torch()
    F = module(channels_first(X, (2, 2)))[:, 0]
    loss = 0.5 * ((F - torch.tensor(y)) ** 2).mean()
    loss.backward()
    # M^T D A^T v, as pricing computes it
    data = Convolutional((2, 2), 2).lift(X, bias=True)
    v = (F.detach().numpy() - y) / len(y)
    Z = data.M @ data.neurons(network).U.T
    gradient = ((Z > 0) * (data.A.T @ v)[:, None] * layer.output_weights[:, 0]).T @ data.M
    theirs = np.moveaxis(module[0].weight.grad.numpy(), 1, -1).reshape(4, -1)
    np.testing.assert_allclose(gradient[:, :-1], theirs, atol=1e-12)
    np.testing.assert_allclose(gradient[:, -1], module[0].bias.grad.numpy(), atol=1e-12)


# ---- training --------------------------------------------------------------------------------------

LOSSES = [
    ("squared", {}),
    ("huber", {"delta": 1.0}),
    ("absolute", {}),
    ("quantile", {"tau": 0.5}),
    ("epsilon_insensitive", {"epsilon": 0.1}),
    ("logistic", {}),
    ("hinge", {}),
    ("squared_hinge", {}),
]


@pytest.mark.parametrize(("loss", "kw"), LOSSES)
def test_exact_and_adaptive_reach_the_printed_program_for_every_loss(loss, kw):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((5, 3))
    regression = loss not in ("logistic", "hinge", "squared_hinge")
    y = rng.standard_normal(5) if regression else np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    estimator = ReLURegressor if regression else ReLUClassifier
    optimum = printed_program(X, y, 0.03, 2, loss, fit_intercept=True, **kw)
    for method in ("exact", "adaptive"):
        est = estimator(0.03, loss=loss, architecture=Convolutional(2), bias=False, method=method, tol=1e-4)
        est.fit(X, y)
        assert est.objective_ == pytest.approx(optimum, rel=2e-4, abs=1e-7)
        assert est.lower_bound_ <= optimum * (1 + 1e-5) + 1e-7
        assert est.certificate_.verify(X, y)


@pytest.mark.parametrize("method", ["exact", "adaptive", "sampled"])
@pytest.mark.parametrize("pooling", ["sum", "average", None])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_certified_objective_is_that_of_the_network(method, pooling, batch_norm):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((6, 4))
    y = rng.standard_normal((6, 3) if pooling is None else 6)
    architecture = Convolutional(2, batch_norm=batch_norm, pooling=pooling)
    with gap_may_stay_open():
        drawn = 20 if method == "sampled" else None
        settings = {"method": method, "n_patterns": drawn, "tol": 1e-4, "random_state": 0}
        est = ReLURegressor(0.02, architecture=architecture, **settings).fit(X, y)
    F = est.predict(X)
    assert F.shape == y.shape
    assert est.objective_ == pytest.approx(0.5 * np.mean((F - y) ** 2) + 0.02 * est.network_.penalty(), rel=1e-9)
    assert est.gap_ <= 1e-3
    with torch.no_grad():
        out = est.network_.to_torch()(torch.tensor(X[:, None])).numpy()
    np.testing.assert_allclose(out.reshape(F.shape), F, atol=1e-10)


def test_one_label_per_patch_is_the_stacked_problem():
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((4, 3, 3)), rng.integers(0, 3, (4, 2, 2))
    architecture = Convolutional((2, 2), pooling=None)
    est = ReLUClassifier(0.03, architecture=architecture, tol=1e-2, prove=False, random_state=0).fit(X, Y)
    stacked = ReLUClassifier(0.03, tol=1e-2, prove=False, random_state=0)
    stacked.fit(architecture.patches(X).reshape(-1, 4), Y.ravel())
    assert est.objective_ == pytest.approx(stacked.objective_, rel=1e-2)
    assert est.predict(X).shape == Y.shape
    assert est.predict_proba(X).shape == (*Y.shape, 3)
    np.testing.assert_allclose(est.predict_proba(X).sum(axis=-1), 1.0)
    assert est.score(X, Y) == pytest.approx(np.mean(est.predict(X) == Y))
    assert est.network_.objective(X, Y, beta=0.03, loss="softmax") == pytest.approx(est.objective_)


def test_batch_norm_uses_the_statistics_of_all_patches():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((8, 5)), rng.standard_normal(8)
    est = ReLURegressor(0.001, architecture=Convolutional(2, batch_norm=True), random_state=0).fit(X, y)
    layer = est.network_.layer
    patches = Window.of(2, 1, 0, 2).rows(X) @ layer.hidden_weights.T
    np.testing.assert_allclose(patches.mean(axis=0), layer.mean, atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(patches - patches.mean(axis=0), axis=0), layer.norm, rtol=1e-10)
    assert layer.n_samples == 8 * 4


def test_several_outputs_are_proven():
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((6, 4)), rng.standard_normal((6, 2))
    est = ReLURegressor(0.05, architecture=Convolutional(2), method="exact", tol=1e-3, random_state=0).fit(X, Y)
    assert est.gap_ <= 2e-3
    apart = [ReLURegressor(0.05, architecture=Convolutional(2), method="exact").fit(X, y).objective_ for y in Y.T]
    assert est.lower_bound_ <= sum(apart) * (1 + 1e-6)


def test_a_window_as_large_as_the_input_is_the_dense_network():
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((9, 2)), rng.standard_normal(9)
    conv = ReLURegressor(0.01, architecture=Convolutional(2), method="exact").fit(X, y)
    dense = ReLURegressor(0.01, method="exact").fit(X, y)
    assert conv.objective_ == pytest.approx(dense.objective_, rel=1e-6)


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from(["sum", "average"]))
def test_weak_duality_and_invariances(seed, pooling):
    rng = np.random.default_rng(seed)
    X, y, w = rng.standard_normal((5, 3)), rng.standard_normal(5), rng.integers(1, 4, 5)
    fit = {"architecture": Convolutional(2, pooling=pooling), "bias": False, "method": "exact"}
    est = ReLURegressor(0.03, **fit).fit(X, y, w)
    repeated = ReLURegressor(0.03, **fit).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert repeated.objective_ == pytest.approx(est.objective_, rel=1e-7)
    mirrored = ReLURegressor(0.03, **fit).fit(X[:, ::-1], y, w)  # the filters too
    assert mirrored.objective_ == pytest.approx(est.objective_, rel=1e-6)
    net = ConvolutionalNetwork(
        TwoLayerNetwork(rng.standard_normal((3, 2)), rng.standard_normal((3, 1))), 2, pooling=pooling
    )
    assert net.objective(X, y, beta=0.03, sample_weight=w) >= est.lower_bound_


def test_average_pooling_is_sum_pooling_with_another_beta():
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((6, 4)), rng.standard_normal(6)
    average = ReLURegressor(0.01, architecture=Convolutional(2, pooling="average"), method="exact").fit(X, y)
    total = ReLURegressor(0.03, architecture=Convolutional(2), method="exact").fit(X, y)
    assert average.objective_ == pytest.approx(total.objective_, rel=1e-6)


def test_images_sequences_and_explicit_patches_agree():
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((6, 4, 1, 2)), rng.standard_normal(6)
    as_image = ReLURegressor(0.02, architecture=Convolutional((2, 1)), random_state=0).fit(X, y)
    as_sequence = ReLURegressor(0.02, architecture=Convolutional(2), random_state=0).fit(X[:, :, 0], y)
    patches = Convolutional(2).patches(X[:, :, 0]).reshape(6, 3, 4)
    explicit = ReLURegressor(0.02, architecture=Convolutional(None), random_state=0).fit(patches, y)
    np.testing.assert_allclose(as_image.predict(X), as_sequence.predict(X[:, :, 0]), atol=1e-10)
    np.testing.assert_allclose(explicit.predict(patches), as_sequence.predict(X[:, :, 0]), atol=1e-10)


def test_gated_filters_are_proven_among_their_gates():
    rng = np.random.default_rng(9)
    X, y = rng.standard_normal((20, 6)), rng.standard_normal(20)
    est = ReLURegressor(0.01, architecture=Convolutional(3), activation="gated", random_state=0).fit(X, y)
    assert est.gap_ <= 1e-4
    assert est.certificate_.scope == "gates"
    assert est.objective_ == pytest.approx(est.network_.objective(X, y, beta=0.01), rel=1e-9)


def test_certify_bounds_networks_of_torch():
    rng = np.random.default_rng(10)
    X, y = rng.standard_normal((8, 5)), rng.standard_normal(8)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv1d(1, 4, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool1d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 1),
    )
    certificate = certify(module, X[:, :, None], y, beta=0.02, random_state=0)
    best = ReLURegressor(0.02, architecture=Convolutional(2, pooling="average"), method="exact").fit(X, y)
    assert certificate.lower_bound == pytest.approx(best.objective_, rel=2e-3)
    assert certificate.verify(X[:, :, None], y, model=module)


def test_paths_start_without_filters():
    rng = np.random.default_rng(11)
    X, y = rng.standard_normal((6, 4)), rng.standard_normal(6)
    architecture = Convolutional(2)
    path = solution_path(X, y, n_betas=3, architecture=architecture, random_state=0)
    assert path.betas[0] == pytest.approx(beta_max(X, y, architecture=architecture))
    assert path.n_neurons[0] == 0
    assert (path.likely_gaps <= 1e-3).all()


def test_warm_starts_add_the_patterns_of_the_network():
    rng = np.random.default_rng(12)
    X, y = rng.standard_normal((12, 5)), rng.standard_normal(12)
    architecture = Convolutional(2)
    adaptive = ReLURegressor(0.01, architecture=architecture, tol=1e-4, random_state=0).fit(X, y)
    sampled = ReLURegressor(0.01, architecture=architecture, method="sampled", n_patterns=3, warm_start=True)
    sampled.network_ = adaptive.network_
    sampled.fit(X, y)
    assert sampled.objective_ == pytest.approx(adaptive.objective_, rel=1e-4)


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("C", [1, 2])
def test_output_weights_for_every_position_are_proven_and_no_worse_than_shared_ones(C, batch_norm):
    rng = np.random.default_rng(13)
    X, Y = rng.standard_normal((8, 4)), rng.standard_normal((8, C))
    beta = 0.05
    architecture = Convolutional(2, batch_norm=batch_norm, pooling="flatten")
    with gap_may_stay_open():  # the proof has seconds
        est = ReLURegressor(beta, architecture=architecture, method="exact", tol=2e-3, random_state=0).fit(X, Y)
    assert est.gap_ <= 0.02
    F = est.predict(X)
    assert est.objective_ == pytest.approx(
        0.5 * np.mean(((F - Y) ** 2).sum(axis=1)) + beta * est.network_.penalty(), rel=1e-9
    )
    with torch.no_grad():
        np.testing.assert_allclose(est.network_.to_torch()(torch.tensor(X[:, None])).numpy(), F, atol=1e-10)
    # weights shared by the positions, sqrt(K) times as dear here, are one choice of these
    shared = ReLURegressor(
        np.sqrt(3) * beta, architecture=Convolutional(2, batch_norm=batch_norm), tol=2e-3, random_state=0
    ).fit(X, Y)
    assert est.lower_bound_ <= shared.objective_


def test_dual_of_positions_is_the_adjoint_of_their_outputs():
    rng = np.random.default_rng(14)
    X, Y = rng.standard_normal((5, 6)), rng.standard_normal((5, 2))
    data = Objective(get_loss("squared"), 0.1, Convolutional(3, pooling="flatten"), bias=False).pose(X, Y)
    problem = data.problem
    activations, alpha = np.maximum(problem.atoms.M @ rng.standard_normal((4, 3)).T, 0.0), rng.standard_normal((4, 8))
    F = problem.atoms.combine(activations, alpha)
    np.testing.assert_allclose(problem.atoms.pool(activations @ alpha), F, atol=1e-12)
    np.testing.assert_allclose(problem.atoms.contributions(activations, alpha).sum(axis=2), F, atol=1e-12)
    V = rng.standard_normal((5, 2))
    assert (problem.atoms.spread(V) * (activations @ alpha)).sum() == pytest.approx((V * F).sum())


def test_patterns_of_clusters_and_networks_lower_the_sampled_optimum():
    rng = np.random.default_rng(15)
    X, y = rng.standard_normal((20, 8)), rng.standard_normal(20)
    architecture = Convolutional(3)
    common = {"architecture": architecture, "method": "sampled", "bias": False}
    clusters = architecture.cluster(X, 10, random_state=0)
    adaptive = ReLURegressor(0.02, architecture=architecture, bias=False, tol=1e-4, random_state=0).fit(X, y)
    few = ReLURegressor(0.02, gates=clusters, **common).fit(X, y)
    more = ReLURegressor(0.02, gates=[clusters, adaptive], **common).fit(X, y)
    assert clusters.shape == (10, 3)
    assert more.objective_ <= few.objective_ + 1e-9
    assert more.objective_ == pytest.approx(adaptive.objective_, rel=1e-3)


# ---- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "kernel_size must be an integer >= 1"),
        (((2, 2, 2),), "one or two entries"),
        ((2, 0), "stride must be"),
        ((2, 1, -1), "padding must be"),
        ((2, 1, 0, "yes"), "batch_norm must be"),
        ((2, 1, 0, False, "max"), "pooling must be one of"),
    ],
)
def test_bad_options_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Convolutional(*arguments)


@pytest.mark.parametrize(
    ("architecture", "shape", "y", "message"),
    [
        (Convolutional((2, 2)), (4, 9), 4, "needs X of shape"),
        (Convolutional(None), (4, 9), 4, "explicit patches"),
        (Convolutional(5), (4, 3), 4, "larger than X"),
        (Convolutional(2, pooling=None), (4, 3), 4, "a target at each of the 2 patches"),
    ],
)
def test_bad_shapes_say_what_is_wanted(architecture, shape, y, message):
    with pytest.raises(ValueError, match=message):
        ReLURegressor(architecture=architecture).fit(RNG.standard_normal(shape), RNG.standard_normal(y))


def test_other_inputs_than_those_of_training_are_refused():
    X, y = RNG.standard_normal((5, 4, 2)), RNG.standard_normal(5)
    est = ReLURegressor(0.1, architecture=Convolutional(2), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="patches of 6 entries"):
        est.predict(RNG.standard_normal((5, 4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        est.fit(np.full((5, 4, 2), np.nan), y)
    with pytest.raises(ValueError, match="unknown architecture"):
        ReLURegressor(architecture="convolutional").fit(X, y)


def test_memory_is_estimated_before_it_is_taken():
    with pytest.raises(MemoryError, match=r"1,000,000 patches of 49 entries .* about 2\.9 GiB, and 1\.0 GiB"):
        check_memory(1_000_000, 49, 64, available=2**30)
