"""Batch normalisation after the ReLU: 000 Theorems 6.1 and 6.2."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import BatchNorm, BatchNormNetwork, ReLUClassifier, ReLURegressor, beta_max
from bidual._util.tuning import tuned
from bidual.arrangements import Patterns
from bidual.atoms import Normalised
from bidual.bounds.normalised import polar_distance
from bidual.closed_form import ConditionError

from .helpers import cvxpy_loss, gaussian_problem, lp_patterns, with_ones
from .test_batch_norm import paper_objective

AFTER = BatchNorm("after")


def after_program(X, y, beta, loss="squared", *, bias=False, fit_intercept=False, weight=None, printed=False):
    """000 eq. 20 with hidden weights q instead of s; ``printed`` restricts q to the row space, as the paper does."""
    X = with_ones(X, bias)
    n, d = X.shape
    c = np.ones(n) if weight is None else np.asarray(weight, float)
    total = c.sum()
    F, penalty, cones = cp.Variable() if fit_intercept else 0.0, 0.0, []
    for D in lp_patterns(X):
        T = D[:, None] * X
        T = T - c @ T / total
        for sign in (1, -1):
            a, q = cp.Variable(), cp.Variable(d)
            if printed:
                _, s, Vt = np.linalg.svd(T)
                null = Vt[int((s > 1e-10 * max(1.0, s[0])).sum()) :]
                cones += [null @ q == 0] if len(null) else []
            cones.append(cp.multiply(2.0 * D - 1, X @ q) >= 0)
            F = F + sign * (T @ q + a / np.sqrt(total))
            penalty = penalty + cp.norm(cp.hstack([cp.multiply(np.sqrt(c), T @ q), a]))
    program = cp.Problem(cp.Minimize(cvxpy_loss(loss, F, y, c / total) + beta * penalty), cones)
    program.solve(solver=cp.CLARABEL)
    return float(program.value)


@pytest.mark.parametrize("loss", ["squared", "absolute", "logistic", "squared_hinge"])
@pytest.mark.parametrize("bias", [False, True])
def test_exact_training_solves_the_program_of_theorem_6_1(loss, bias):
    X, y, labels = gaussian_problem(3, n=6)
    regression = loss in ("squared", "absolute")
    y = y if regression else labels
    estimator = ReLURegressor if regression else ReLUClassifier
    est = estimator(0.02, loss=loss, architecture=AFTER, method="exact", bias=bias, fit_intercept=not bias).fit(X, y)
    truth = after_program(X, y, 0.02, loss, bias=bias, fit_intercept=not bias)
    assert est.objective_ == pytest.approx(truth, rel=1e-4)
    assert est.objective_ <= truth * (1 + 1e-6)
    assert est.gap_ < 1e-4
    assert paper_objective(est.network_, X, y, 0.02, loss) == pytest.approx(est.objective_, rel=1e-7)


def test_the_printed_program_misses_neurons_of_the_null_spaces():
    """Theorem 6.2's own neuron, for instance: X q = y - min y needs all of q."""
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((2, 2)) + 1, rng.standard_normal(2)
    est = ReLURegressor(0.02, architecture=AFTER, method="exact", bias=False, fit_intercept=False).fit(X, y)
    assert paper_objective(est.network_, X, y, 0.02) == pytest.approx(after_program(X, y, 0.02), rel=1e-5)
    assert after_program(X, y, 0.02, printed=True) > 2 * est.objective_


def test_weights_and_free_intercepts_enter_the_program():
    X, y, _ = gaussian_problem(5, n=5)
    weight = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    est = ReLURegressor(0.02, architecture=AFTER, method="exact").fit(X, y, sample_weight=weight)
    truth = after_program(X, y, 0.02, bias=True, fit_intercept=True, weight=weight)
    assert est.objective_ == pytest.approx(truth, rel=1e-5)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31), kappa=st.floats(1e-3, 1.5), fit_intercept=st.booleans())
def test_the_closed_form_is_that_of_theorem_6_2(seed, kappa, fit_intercept):
    rng = np.random.default_rng(seed)
    n, d = 5, 6
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    beta = kappa * np.linalg.norm(y)
    options = {"architecture": AFTER, "bias": False, "fit_intercept": fit_intercept}
    est = ReLURegressor(beta / n, method="closed_form", **options).fit(X, y)
    assert est.n_neurons_ <= 1
    assert est.gap_ < 1e-10
    assert paper_objective(est.network_, X, y, beta / n) == pytest.approx(est.objective_, rel=1e-8)
    if not fit_intercept:  # as printed
        t = np.linalg.norm(y)
        printed = BatchNormNetwork(
            hidden_weights=(np.linalg.pinv(X) @ (y - y.min()))[None],
            output_weights=[[np.sqrt(max(t - beta, 0))]],
            gamma=[np.sqrt(max(t - beta, 0)) * np.linalg.norm(y - y.mean()) / t],
            shift=[np.sqrt(max(t - beta, 0)) * y.sum() / np.sqrt(n) / t],
            mean=[0.0],
            norm=[1.0],
            n_samples=n,
            position="after",
        )
        assert est.objective_ == pytest.approx(paper_objective(printed, X, y, beta / n), rel=1e-9)


def test_the_closed_form_is_chosen_where_it_holds_and_is_the_optimum_of_the_program():
    X, y, _ = gaussian_problem(7, n=4, d=4)
    options = {"architecture": AFTER, "bias": False, "fit_intercept": False}
    chosen = ReLURegressor(0.05, **options).fit(X, y)
    assert "Theorem 6.2" in chosen.certificate_.method
    exact = ReLURegressor(0.05, method="exact", **options).fit(X, y)
    assert chosen.objective_ == pytest.approx(exact.objective_, rel=1e-6)


def test_the_closed_form_names_the_condition_that_fails():
    X, y, _ = gaussian_problem(8, n=6, d=2)
    with pytest.raises(ConditionError, match="full row-rank"):
        ReLURegressor(0.05, architecture=AFTER, method="closed_form").fit(X, y)


@pytest.mark.parametrize("bias", [False, True])
def test_pricing_finds_the_patterns_that_enumeration_knows(bias):
    X, y, _ = gaussian_problem(9, n=12)
    options = {"architecture": AFTER, "bias": bias, "tol": 1e-4, "random_state": 0}
    exact = ReLURegressor(0.01, method="exact", **options).fit(X, y)
    with tuned(normalised_patterns=0):
        priced = ReLURegressor(0.01, **options).fit(X, y)
    assert priced.objective_ == pytest.approx(exact.objective_, rel=2e-4)
    assert priced.lower_bound_ <= exact.objective_ * (1 + 1e-6)
    assert "local search" in priced.certificate_.likely_method


def test_adaptive_training_is_exact_where_patterns_are_few():
    X, y, _ = gaussian_problem(10, n=8)
    est = ReLURegressor(0.01, architecture=AFTER).fit(X, y)
    assert est.gap_ < 1e-4


def test_gradient_descent_stays_above_the_lower_bound():
    X, y, _ = gaussian_problem(11, n=10)
    beta, n, m = 0.01, 10, 15
    est = ReLURegressor(beta, architecture=AFTER, method="exact", fit_intercept=False).fit(X, y)
    torch.manual_seed(0)
    Xt, yt = torch.tensor(with_ones(X, True)), torch.tensor(y)
    W = torch.randn(m, 3, dtype=torch.float64, requires_grad=True)
    gamma, out = (torch.randn(m, dtype=torch.float64).mul_(0.5).requires_grad_() for _ in range(2))
    shift = torch.zeros(m, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([W, gamma, shift, out], lr=0.05)
    for _ in range(300):
        h = torch.relu(Xt @ W.T)
        h = h - h.mean(0)
        h = gamma * h / (h.norm(dim=0) + 1e-12) + shift / n**0.5
        penalty = 0.5 * sum((p**2).sum() for p in (gamma, shift, out))
        objective = 0.5 * ((h @ out - yt) ** 2).sum() / n + beta * penalty
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()
    reached = float(objective.detach())
    assert est.objective_ <= reached
    assert reached <= 2 * est.objective_  # the two are about the same problem


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_no_neuron_is_worth_its_cost_from_beta_max_on(fit_intercept):
    X, y, _ = gaussian_problem(12, n=7)
    options = {"architecture": AFTER, "fit_intercept": fit_intercept}
    top = beta_max(X, y, **options)
    assert ReLURegressor(top * 1.001, method="exact", **options).fit(X, y).n_neurons_ == 0
    assert ReLURegressor(top * 0.99, method="exact", **options).fit(X, y).n_neurons_ > 0


def test_a_neuron_that_is_all_shift_is_a_network_too():
    X, _, _ = gaussian_problem(13)
    fits = [
        ReLURegressor(0.01, architecture=AFTER, method=method, fit_intercept=False).fit(X, np.ones(6))
        for method in ("closed_form", "exact")
    ]
    assert fits[0].n_neurons_ == 1
    for est in fits:
        np.testing.assert_allclose(est.network_.gamma, 0, atol=1e-5)
        assert est.objective_ == pytest.approx(fits[0].objective_, rel=1e-7)
        assert paper_objective(est.network_, X, np.ones(6), 0.01) == pytest.approx(est.objective_, rel=1e-8)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), k=st.integers(1, 3), free=st.integers(0, 2), rows=st.integers(1, 8))
def test_the_polar_distance_bounds_the_cone_from_above(seed, k, free, rows):
    rng = np.random.default_rng(seed)
    normals = rng.standard_normal((rows, k + free))
    normals[rng.random(rows) < 0.4, k:] = 0
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    g = rng.standard_normal(k)
    charged = np.arange(k + free) < k
    value, proven = polar_distance(g, normals, charged)
    z = cp.Variable(k + free)
    program = cp.Problem(cp.Maximize(g @ z[:k]), [normals @ z >= 0, cp.norm(z[:k]) <= 1])
    truth = program.solve(solver=cp.CLARABEL)
    assert value == pytest.approx(truth, abs=1e-6)
    assert proven >= truth - 1e-6


def one_neuron_objective(z, y, beta):
    """The best objective of one neuron with the activations z after the ReLU, and an intercept."""
    h = (z - z.mean()) / np.linalg.norm(z - z.mean())
    c = h @ y - np.clip(h @ y, -len(y) * beta, len(y) * beta)
    return 0.5 * ((c * h + y.mean() - y) ** 2).mean() + beta * abs(c)


@pytest.mark.parametrize(
    ("X", "q", "bias"),
    [
        # rows that are nearly opposite have a sliver between them, in which both are active
        ([[1.0, 0.0], [-1.0, 1e-12], [-0.3, -1.0], [0.3, -2.0], [0.1, -5.0]], [0.5e-12, 1.0], False),
        # three lines nearly through a point: a triangle in which all three are active
        (
            [[1, 0, 0], [0, 1, 0], [-1, -1, 1e-12], [0.1, 0.2, -1], [0.3, 0.1, -4], [-0.2, 0.1, -2], [-0.1, -0.3, -9]],
            [0.3e-12, 0.3e-12, 1.0],
            False,
        ),
        # 0 and 1e-20 are one number after a shift by 1
        ([[0.0], [1e-20], [1.0], [2.0]], [-1e20, 1.0], True),
    ],
    ids=["opposite rows", "a triangle", "lost by a shift"],
)
def test_no_bound_is_proven_over_patterns_that_rounding_hides(X, q, bias):
    X = np.array(X)
    z = np.maximum(with_ones(X, bias) @ q, 0.0)
    y = z / z.max()
    est = ReLURegressor(0.02, architecture=AFTER, bias=bias, method="exact", random_state=0).fit(X, y)
    assert est.lower_bound_ <= one_neuron_objective(z, y, 0.02) * (1 + 1e-12)


@pytest.mark.parametrize(("tilt", "complete"), [(0.0, True), (1e-13, False), (1.0, True)])
def test_a_row_that_sees_a_free_direction_by_rounding_only_leaves_a_pattern_in_doubt(tilt, complete):
    # the second row is inactive beside its neighbour only if the free direction is large
    X = np.array([[1.0, 0.0], [1.0, tilt], [-0.3, 1.0], [0.2, 2.0]])
    atoms = Normalised(np.column_stack([X, np.full(4, 0.5)]), w=np.full(4, 0.25))
    assert atoms.blocks(Patterns(np.array([[True, False, False, False]]), np.zeros((1, 2)))).complete is complete
