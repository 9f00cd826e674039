"""Rounding is accounted for: no scale, offset, weight or corner of a loss makes a bound false."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy.linalg import hilbert

from bidual import (
    BatchNorm,
    Certificate,
    DeepReLUClassifier,
    LinearNetRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    SplineClassifier,
    SplineRegressor,
    certify,
)
from bidual._util.exact_rank import exact_rank
from bidual.atoms import Relu
from bidual.bounds import ContradictionError
from bidual.bounds.dual import Centring, certain_value
from bidual.losses import Logistic, Softmax, SquaredHinge, get_loss
from bidual.networks import TwoLayerNetwork
from bidual.problem import Problem

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# ---- batch normalisation does not see the scale of columns --------------------------------------------------------


def bn_problem(n=10):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    return X, np.sin(3 * X[:, 1]) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("position", ["before", "after"])
@pytest.mark.parametrize(
    ("scales", "offsets"),
    [((1e12, 1.0), (0.0, 0.0)), ((1.0, 1e-12), (0.0, 0.0)), ((1e-12, 1e12), (0.0, 0.0)), ((3e7, 1e-4), (1.7e9, 0.0))],
)
def test_batch_norm_finds_the_same_optimum_at_any_scale_of_the_columns(position, scales, offsets):
    X, y = bn_problem()
    raw = X * scales + offsets
    kind = {"architecture": BatchNorm(position), "random_state": 0, "tol": 1e-5}
    plain = ReLURegressor(beta=0.01, **kind).fit(X, y)
    scaled = ReLURegressor(beta=0.01, **kind).fit(raw, y)
    assert scaled.certificate_.scope == "global"
    assert scaled.objective_ == pytest.approx(plain.objective_, rel=1e-4)
    assert scaled.lower_bound_ <= plain.objective_ * (1 + 1e-12)
    assert plain.lower_bound_ <= scaled.objective_ * (1 + 1e-12)
    assert scaled.gap_ <= 1e-3
    assert scaled.network_.objective(raw, y, beta=0.01) == pytest.approx(scaled.objective_, rel=1e-9)


def test_a_direction_that_rounding_hides_restricts_the_claim_of_batch_norm():
    X, y = bn_problem()
    hidden = np.column_stack([X[:, 0], X[:, 0] * np.where(np.arange(len(X)) == 3, 1 + 2.0**-52, 1.0)])
    sum_of_integers = np.column_stack([np.round(9 * X), np.round(9 * X).sum(axis=1)])
    before = {"beta": 0.01, "architecture": "batch_norm", "prove": False}
    assert ReLURegressor(**before).fit(hidden, y).certificate_.scope == "rank 1"
    assert ReLURegressor(**before).fit(sum_of_integers, y).certificate_.scope == "global"
    after = ReLURegressor(beta=0.01, architecture=BatchNorm("after")).fit(hidden, y)
    best = ReLURegressor(beta=0.01, architecture=BatchNorm("after")).fit(
        np.column_stack([X[:, 0], np.arange(len(X)) == 3]), y
    )  # the same columns span the same neurons
    assert after.lower_bound_ <= best.objective_


@pytest.mark.parametrize("n", [6, 90])
def test_exact_rank_sees_one_unit_in_the_last_place(n):
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((2, n))
    whole = np.column_stack([a, b, 2 * a, 2.0**-900 * b, np.zeros(n)])
    assert exact_rank(whole) == 2
    moved = 2 * a
    moved[n // 2] = np.nextafter(moved[n // 2], np.inf)
    assert exact_rank(np.column_stack([a, b, moved])) == 3
    assert exact_rank(np.zeros((n, 0))) == exact_rank(np.zeros((n, 2))) == 0


# ---- conjugates near their corners --------------------------------------------------------------------------------


def true_dual_value(loss, V, Y, w, centred):
    """The dual value of a point next to V that is in the domain, and sums up to zero, in 450 digits."""
    mp.mp.dps = 450
    total = mp.mpf(0)
    v = [[mp.mpf(float(entry)) for entry in row] for row in V]
    if centred:  # rows of the sign in excess shrink
        for c in range(V.shape[1]):
            rest = mp.fsum(row[c] for row in v)
            excess = mp.fsum(row[c] for row in v if row[c] * rest > 0)
            for row in v:
                row[c] *= 1 - rest / excess if row[c] * rest > 0 else 1
    for row, y, weight in zip(v, Y, w, strict=True):
        weight = mp.mpf(float(weight))
        if isinstance(loss, Softmax):
            p = [-entry / weight for entry, own in zip(row, y, strict=True) if not own]
            p.append(1 - mp.fsum(p))
        else:
            s = mp.mpf(float(y[0])) * row[0] / weight
            p = [s, 1 - s]
        total -= weight * mp.fsum(q * mp.log(q) for q in p if q > 0)
    return total


@pytest.mark.parametrize("tiny", [1e-3, 1e-8, 1e-12, 1e-16, 1e-30, 1e-200])
@pytest.mark.parametrize("loss", [Logistic(), Softmax()])
@pytest.mark.parametrize("free", [False, True])
def test_dual_values_near_the_corners_are_never_above_the_truth(loss, tiny, free):
    if free and isinstance(loss, Softmax):
        pytest.skip("rows of a coupled loss do not shrink one by one")
    rng = np.random.default_rng(int(-np.log10(tiny)))
    n = 12
    codes = np.arange(n) % 3 if isinstance(loss, Softmax) else np.arange(n) % 2
    Y = loss.encode(codes, 3 if isinstance(loss, Softmax) else 2)
    w = rng.uniform(0.1, 1.0, n)
    w /= w.sum()
    s = np.where(np.arange(n) % 4 == 0, 1.0 - tiny, tiny) * rng.uniform(0.5, 1.0, n)
    direction = -loss.row_gradients(np.zeros_like(Y), Y)
    V = loss.dual_point(w[:, None] * direction * s[:, None], Y, w, centred=free)
    problem = Problem(Relu(np.ones((n, 1))), Y, w, loss, 1.0, fit_intercept=free)
    value = certain_value(problem, V, Centring.of(problem, V))
    truth = true_dual_value(loss, V, Y, w, free)
    assert value <= truth
    assert value == pytest.approx(float(truth), rel=1e-12)


@pytest.mark.parametrize("tiny", [1e-9, 1e-15, 1e-30])
def test_losses_and_gradients_keep_their_digits_where_rows_are_fitted_well(tiny):
    margin = -np.log(tiny)
    F, Y = np.array([[margin, 0.0, 0.0], [0.0, margin, -5.0]]), np.eye(3)[:2]
    mp.mp.dps = 60
    m = mp.mpf(float(margin))
    others = [2 * mp.exp(-m), mp.exp(-m) + mp.exp(-m - 5)]
    np.testing.assert_allclose(Softmax().rows(F, Y), [float(mp.log1p(q)) for q in others], rtol=1e-14)
    gradient = Softmax().row_gradients(F, Y)
    np.testing.assert_allclose(gradient[[0, 1], [0, 1]], [float(-q / (1 + q)) for q in others], rtol=1e-13)
    np.testing.assert_allclose(gradient.sum(axis=1), 0.0, atol=1e-15 * tiny)
    large = np.array([[-800.0, 0.0, 800.0]])
    assert Softmax().rows(large, np.eye(3)[:1])[0] == 1600.0


@pytest.mark.parametrize("beta", [1e-6, 1e-8, 1e-10, 1e-12, 1e-14])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_networks_of_separable_classes_never_contradict_their_bound_at_tiny_beta(beta, n_classes):
    rng = np.random.default_rng(0)
    y = np.arange(12) % n_classes
    deep = DeepReLUClassifier(depth=2, beta=beta, loss="logistic").fit(rng.standard_normal((12, 20)), y)
    assert deep.gap_ <= 1e-12
    flat = ReLUClassifier(beta=beta, loss="logistic", max_iter=5, prove=False).fit(rng.standard_normal((12, 2)), y)
    assert flat.lower_bound_ <= flat.objective_


NUMBERS = ["squared", "absolute", "huber", "epsilon_insensitive"]


@pytest.mark.parametrize("name", [*NUMBERS, "logistic", "hinge", "squared_hinge", "softmax"])
def test_a_dual_point_that_does_not_quite_sum_to_zero_costs_something(name):
    loss = get_loss(name)
    rng = np.random.default_rng(3)
    codes = np.arange(9) % 3
    Y = loss.encode(codes, 3) if loss.classification else rng.standard_normal((9, 1))
    w = np.full(9, 1 / 9)
    V = loss.dual_point(-0.3 * loss.gradient(np.zeros_like(Y), Y, w), Y, w, centred=True)
    problem = Problem(Relu(np.ones((9, 1))), Y, w, loss, 1.0, fit_intercept=True)
    tilted = V * (1 + 1e-6 * (V > 0))
    assert Centring.of(problem, V).moved <= 1e-15
    assert Centring.of(problem, tilted).cost(1.0) > 1e-8
    assert certain_value(problem, V, Centring.of(problem, V)) <= problem.dual_value(V)


def test_a_constraint_lost_in_rounding_does_not_make_a_dual_point_feasible():
    from bidual.bounds import lower_bound

    loss, rng = SquaredHinge(), np.random.default_rng(0)
    Y = np.where(rng.random((6, 1)) < 0.5, -1.0, 1.0)
    w = np.full(6, 1 / 6)
    problem = Problem(Relu(rng.standard_normal((6, 2))), Y, w, loss, 1e-30, fit_intercept=False)
    V = loss.dual_point(-loss.gradient(0 * Y, Y, w), Y, w, centred=False)
    assert lower_bound(problem, V, 1e-17, 1e-17).scale * 1e-17 <= 1e-30 * (1 + 1e-12)


# ---- splines far from zero ----------------------------------------------------------------------------------------

OFFSET = {"Julian days": 2460000.5 + np.arange(30) / 86400, "1e9": 1e9 + np.random.default_rng(1).standard_normal(30)}


@pytest.mark.parametrize("where", OFFSET)
@pytest.mark.parametrize("loss", [*NUMBERS, "hinge", "logistic"])
@pytest.mark.parametrize("beta", [1e-6, 1e-3])
def test_splines_far_from_zero_agree_with_those_at_zero(where, loss, beta):
    x = OFFSET[where]
    reach = np.ptp(x)
    near = (x - x.min()) / reach
    y = np.sin(6 * near) + 0.1 * np.random.default_rng(0).standard_normal(len(x))
    kind = SplineClassifier if loss in ("hinge", "logistic") else SplineRegressor
    targets = y > 0 if kind is SplineClassifier else y
    far = kind(beta=beta * reach, loss=loss).fit(x[:, None], targets)
    there = kind(beta=beta, loss=loss).fit(near[:, None], targets)
    assert far.lower_bound_ <= there.objective_ * (1 + 1e-12)
    assert there.lower_bound_ <= far.objective_ * (1 + 1e-12)
    assert far.lower_bound_ == pytest.approx(there.lower_bound_, rel=1e-5)


def test_networks_are_evaluated_with_all_digits_far_from_zero():
    mp.mp.dps = 50
    rng = np.random.default_rng(0)
    X = 1e9 + rng.standard_normal((5, 3))
    W, alpha = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    bias = -W @ X[0]
    network = TwoLayerNetwork(W, alpha, bias, np.zeros(2))
    exact = [
        [
            mp.fsum(
                max(mp.fdot([mp.mpf(u) for u in W[j].tolist()], x.tolist()) + mp.mpf(bias[j].item()), 0)
                * mp.mpf(alpha[j, c].item())
                for j in range(4)
            )
            for c in range(2)
        ]
        for x in X
    ]
    np.testing.assert_allclose(network.evaluate(X), np.array(exact, dtype=float), rtol=1e-13, atol=1e-14)


# ---- linear networks know their condition -------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("size", [4, 6, 8])
def test_interpolation_by_ill_conditioned_linear_networks_claims_no_more_than_is_true(size, depth):
    X = hilbert(size)
    mp.mp.dps = 60
    exact = mp.matrix([[mp.mpf(entry) for entry in row] for row in X.tolist()])
    for seed in range(3):
        y = np.random.default_rng(seed).standard_normal(size)
        W = mp.lu_solve(exact, mp.matrix(y.tolist()))
        truth = mp.mpf(depth) / 2 * mp.norm(W) ** (mp.mpf(2) / depth)
        est = LinearNetRegressor(depth=depth, beta=0, fit_intercept=False).fit(X, y)
        assert est.lower_bound_ <= truth
    well = LinearNetRegressor(depth=depth, beta=0).fit(np.random.default_rng(0).standard_normal((9, 3)), np.arange(9.0))
    assert well.gap_ <= 1e-11


def test_a_rank_that_rounding_decides_leaves_nothing_proven():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9, 2)), rng.standard_normal(9)
    noisy = np.column_stack([X, 0.3 * X[:, 0] + 0.1 * X[:, 1]])
    integers = np.round(16 * X)
    assert LinearNetRegressor(beta=0).fit(noisy, y).lower_bound_ == 0.0
    assert LinearNetRegressor(beta=0).fit(np.column_stack([integers, integers.sum(axis=1)]), y).gap_ <= 1e-10


# ---- rows that hardly weigh, and the gate -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["two_layer", "batch_norm", Parallel(2), "spline"])
def test_rows_of_tiny_weight_count_in_the_objective(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 1 if kind == "spline" else 2))
    y = rng.standard_normal(12)
    weights = np.where(np.arange(12) < 9, 1.0, 1e-40)
    y[9:] *= 1e40
    if kind == "spline":
        est = SplineRegressor(beta=0.01).fit(X, y, weights)
    else:
        est = ReLURegressor(beta=0.01, architecture=kind, prove=False, max_iter=3).fit(X, y, weights)
    assert est.objective_ == pytest.approx(est.network_.objective(X, y, beta=0.01, sample_weight=weights), rel=1e-12)
    assert est.objective_ > 1e30
    assert est.lower_bound_ <= est.objective_
    with pytest.raises(ValueError, match="exact fit of every row"):
        ReLURegressor(beta=0, method="exact").fit(X, y, weights)


def test_certify_counts_rows_of_tiny_weight_as_training_does():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((10, 2)), rng.standard_normal(10)
    weights = np.where(np.arange(10) < 9, 1.0, 1e-40)
    est = ReLURegressor(beta=0.01, prove=False).fit(X, y, weights)
    judged = certify(est, X, y, beta=0.01, sample_weight=weights, method="local")
    assert judged.objective == pytest.approx(est.objective_, rel=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_the_gate_allows_for_rounding_only(beta):
    claim = {"objective": 1.0, "method": "m", "attained": None, "limit": None, "beta": beta, "loss": "squared"}
    for scope in ("global", "patterns", "gates"):
        Certificate(lower_bound=1.0 + 1e-13, scope=scope, **claim)
        with pytest.raises(ContradictionError):
            Certificate(lower_bound=1.0 + 1e-9, scope=scope, **claim)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
def test_networks_on_sampled_patterns_are_among_those_their_bound_speaks_of(seed, loss):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((15, 3)), rng.standard_normal(15)
    kind = ReLURegressor if loss == "squared" else ReLUClassifier
    for beta in (1e-4, 1e-2) if loss == "logistic" else (0.0, 1e-4, 1e-2):
        est = kind(beta=beta, loss=loss, method="sampled", n_patterns=60, random_state=seed)
        est.fit(X, y if loss == "squared" else y > 0)
        assert est.certificate_.scope == "patterns"
        assert est.lower_bound_ <= est.objective_ * (1 + 1e-12)
