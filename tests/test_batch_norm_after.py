"""Batch normalisation after the ReLU: 000 Theorems 6.1 and 6.2."""

from __future__ import annotations

import json

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from bidual import BatchNorm, BatchNormNetwork, ReLUClassifier, ReLURegressor, beta_max, certify, load, solution_path
from bidual._util.tuning import tuned
from bidual.arrangements import Patterns
from bidual.atoms import Normalised
from bidual.bounds.normalised import polar_distance
from bidual.bounds.oracle import SharedSearch
from bidual.certification.check_certificate import check
from bidual.closed_form import ConditionError
from bidual.losses import get_loss
from bidual.problem import Problem

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


# ---- several outputs ---------------------------------------------------------------------------------------------


def two_outputs(seed=0, n=6, d=2, C=2):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((n, C))


def training_objective(network, X, Y, beta, weight=None):
    """From the weights alone, with statistics of the rows: squared loss."""
    c = np.ones(len(X)) if weight is None else weight
    h = np.maximum(X @ network.hidden_weights.T + network.bias_vector, 0)
    h = h - c @ h / c.sum()
    h = network.gamma * h / np.sqrt(c @ h**2) + network.shift / np.sqrt(c.sum())
    E = h @ network.output_weights + network.intercept - Y
    charged = (network.gamma**2).sum() + (network.shift**2).sum() + (network.output_weights**2).sum()
    return 0.5 * float(c @ (E**2).sum(axis=1)) / c.sum() + 0.5 * beta * float(charged)


@pytest.mark.parametrize(("bias", "fit_intercept"), [(True, True), (False, False)])
def test_exact_training_of_several_outputs_is_proven_by_both(bias, fit_intercept):
    X, Y = two_outputs()
    weight = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 1.5])
    options = {"architecture": AFTER, "bias": bias, "fit_intercept": fit_intercept, "random_state": 0, "tol": 1e-3}
    est = ReLURegressor(0.02, method="exact", **options).fit(X, Y, sample_weight=weight)
    assert est.gap_ < 1e-3
    assert training_objective(est.network_, X, Y, 0.02, weight) == pytest.approx(est.objective_, rel=1e-8)
    document = json.loads(json.dumps(est.certificate_.to_dict()))
    proven, reason = check(document, X, Y, weight, json.loads(json.dumps(est.network_.to_dict())))
    assert proven, reason
    assert est.certificate_.verify(X, Y, sample_weight=weight)
    document["lower_bound"] = document["likely_bound"] = est.objective_
    assert not check(document, X, Y, weight)[0]
    found = ReLURegressor(0.02, **options).fit(X, Y, sample_weight=weight)
    assert est.lower_bound_ <= found.objective_ <= est.objective_ * (1 + 2e-2)
    assert found.lower_bound_ <= est.objective_


def test_one_output_twice_costs_as_much_as_one_of_its_length():
    X, Y = two_outputs(C=1)
    options = {"architecture": AFTER, "method": "exact", "random_state": 0, "fit_intercept": False}
    one = ReLURegressor(0.02, **options).fit(X, Y[:, 0])
    turned = ReLURegressor(0.02, tol=1e-3, **options).fit(X, Y @ np.array([[0.6, -0.8]]))
    assert turned.objective_ == pytest.approx(one.objective_, rel=1e-3)
    assert turned.lower_bound_ <= one.objective_ * (1 + 1e-9)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31), kappa=st.floats(1e-3, 1.5))
def test_the_formula_for_several_outputs_thresholds_singular_values(seed, kappa):
    rng = np.random.default_rng(seed)
    n, C = 4, 3
    X, Y = rng.standard_normal((n, 6)), rng.standard_normal((n, C))
    weight = rng.uniform(0.5, 2.0, n)
    U, t, Vt = np.linalg.svd(np.sqrt(weight)[:, None] * Y, full_matrices=False)
    beta = kappa * t[0]
    est = ReLURegressor(beta / weight.sum(), architecture=AFTER, method="closed_form", bias=False, fit_intercept=False)
    est.fit(X, Y, sample_weight=weight)
    F = (U * np.maximum(t - beta, 0)) @ Vt / np.sqrt(weight)[:, None]
    np.testing.assert_allclose(est.predict(X), F, atol=1e-8)
    assert est.gap_ < 1e-10
    assert est.n_neurons_ == (t > beta).sum()
    assert training_objective(est.network_, X, Y, beta / weight.sum(), weight) == pytest.approx(
        est.objective_, rel=1e-8
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_bounds_of_several_outputs_are_above_every_neuron(fit_intercept):
    X, Y = two_outputs(3, n=5, C=3)
    atoms = Normalised(np.column_stack([with_ones(X, True), np.full(5, 5**-0.5)]), w=np.full(5, 0.2))
    problem = Problem(atoms, Y, atoms.w, get_loss("squared"), 0.1, fit_intercept)
    V = Y - Y.mean(axis=0) if fit_intercept else Y
    search = SharedSearch(problem, atoms.cells(), V)
    goal = -np.inf
    while search.value > goal:
        goal = 1.01 * search.value
        search.run(goal, np.inf)
    rng = np.random.default_rng(0)
    U = rng.standard_normal((20_000, 4)) * [1, 1, 1, 0.3]
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    largest = np.linalg.norm(atoms.hidden(U).T @ V, axis=1).max()
    assert largest <= search.bound <= atoms.norm_limit(V)
    assert search.bound <= 1.01 * search.value


@pytest.mark.parametrize("loss", ["softmax", "hinge", "absolute"])
def test_several_outputs_are_trained_with_any_loss_on_any_road(loss):
    X, Y = two_outputs(5, n=9)
    y = Y if loss == "absolute" else np.array(["a", "b", "c"])[np.arange(9) % 3]
    estimator = ReLURegressor if loss == "absolute" else ReLUClassifier
    options = {"loss": loss, "architecture": AFTER, "random_state": 0, "prove": False, "tol": 1e-2, "max_iter": 10}
    est = estimator(0.02, **options).fit(X, y)
    sampled = estimator(0.02, method="sampled", n_patterns=200, **options).fit(X, y)
    assert est.likely_gap_ < 0.03
    assert est.objective_ <= sampled.objective_ * 1.02
    assert est.likely_bound_ <= sampled.objective_ * (1 + 1e-6)


def test_a_network_of_several_outputs_can_be_saved_certified_and_run_by_torch(tmp_path):
    X, Y = two_outputs(6)
    est = ReLURegressor(0.02, architecture=AFTER, random_state=0, tol=1e-3).fit(X, Y)
    est.network_.save(tmp_path / "network.json")
    np.testing.assert_array_equal(load(tmp_path / "network.json").predict(X), est.predict(X))
    np.testing.assert_allclose(est.network_.to_torch()(torch.tensor(X)).detach().numpy(), est.predict(X), atol=1e-10)
    certificate = certify(est.network_, X, Y, beta=0.02, time_limit=None, random_state=0)
    assert certificate.objective == pytest.approx(est.objective_, rel=1e-9)
    assert certificate.gap < 2e-3


def test_max_neurons_warm_starts_and_paths_of_several_outputs():
    X, Y = two_outputs(7, n=8)
    options = {"architecture": AFTER, "random_state": 0, "prove": False, "tol": 1e-2}
    few = ReLURegressor(0.01, max_neurons=2, **options)
    with pytest.warns(ConvergenceWarning):
        few.fit(X, Y)
    assert few.n_neurons_ <= 2
    path = solution_path(X, Y, n_betas=4, beta_min_ratio=0.05, **options)
    assert path.networks[0].n_neurons == 0
    assert (np.diff(path.objectives) < 0).all()


def test_gradient_descent_on_several_outputs_stays_above_the_lower_bound():
    X, Y = two_outputs(8)
    beta, n, m = 0.02, len(X), 20
    est = ReLURegressor(beta, architecture=AFTER, method="exact", tol=1e-3, fit_intercept=False, random_state=0)
    est.fit(X, Y)
    torch.manual_seed(0)
    Xt, Yt = torch.tensor(with_ones(X, True)), torch.tensor(Y)
    W = torch.randn(m, 3, dtype=torch.float64, requires_grad=True)
    gamma, shift = (torch.randn(m, dtype=torch.float64).mul_(0.5).requires_grad_() for _ in range(2))
    out = torch.randn(m, 2, dtype=torch.float64).mul_(0.5).requires_grad_()
    optimiser = torch.optim.Adam([W, gamma, shift, out], lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 800)
    for _ in range(800):
        h = torch.relu(Xt @ W.T)
        h = h - h.mean(0)
        h = gamma * h / (h.norm(dim=0) + 1e-12) + shift / n**0.5
        decay = 0.5 * sum((p**2).sum() for p in (gamma, shift, out))
        objective = 0.5 * ((h @ out - Yt) ** 2).sum() / n + beta * decay
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()
        schedule.step()
    reached = float(objective.detach())
    assert est.lower_bound_ <= reached
    assert est.objective_ <= reached * (1 + 1e-6)
    assert reached <= 1.1 * est.objective_


# ---- torch's normalisation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["before", "after"])
def test_the_normalisation_of_torch_is_that_of_the_papers_with_beta_over_the_root_of_n(position):
    X, y, _ = gaussian_problem(14, n=7)
    weight = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 1.5, 1.0])
    options = {"method": "exact", "random_state": 0}
    std = BatchNorm(position, normalisation="std")
    for w in (None, weight):
        n = 7 if w is None else w.sum()
        torch_units = ReLURegressor(0.02, architecture=std, **options).fit(X, y, sample_weight=w)
        papers = ReLURegressor(0.02 / np.sqrt(n), architecture=BatchNorm(position), **options).fit(
            X, y, sample_weight=w
        )
        assert torch_units.objective_ == pytest.approx(papers.objective_, rel=1e-7)
        assert torch_units.gap_ < 1e-5
        network = json.loads(json.dumps(torch_units.network_.to_dict()))
        document = json.loads(json.dumps(torch_units.certificate_.to_dict()))
        assert check(document, X, y, w, network)[0]
        assert not check(document, X, y, w, papers.network_.to_dict())[0]
        document["evidence"]["options"]["normalisation"] = "norm"
        assert not check(document, X, y, w)[0]
        assert torch_units.certificate_.verify(X, y, sample_weight=w)
    certificate = certify(torch_units.network_, X, y, beta=0.02, sample_weight=weight, bias=True, time_limit=None)
    assert certificate.objective == pytest.approx(torch_units.objective_, rel=1e-9)
    assert certificate.gap < 1e-3


@pytest.mark.parametrize(("position", "above"), [("before", 1.02), ("after", 3.0)])  # after: it ends in poor minima
def test_torch_trained_to_the_end_has_the_optimum_of_its_own_normalisation(position, above):
    X, y, _ = gaussian_problem(15, n=6)
    beta, m = 0.05, 20
    options = {"architecture": BatchNorm(position, normalisation="std"), "method": "exact", "fit_intercept": True}
    est = ReLURegressor(beta, **options).fit(X, y)
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm1d(m, eps=1e-10)
    middle = [norm, torch.nn.ReLU()] if position == "before" else [torch.nn.ReLU(), norm]
    first, last = torch.nn.Linear(2, m), torch.nn.Linear(m, 1)
    module = torch.nn.Sequential(first, *middle, last).double()
    torch.nn.init.normal_(norm.weight, std=0.5)

    def objective():
        decay = sum((p**2).sum() for p in (norm.weight, norm.bias, last.weight))
        return 0.5 * ((module(torch.tensor(X))[:, 0] - torch.tensor(y)) ** 2).mean() + 0.5 * beta * decay

    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 600)
    for _ in range(600):
        optimiser.zero_grad()
        value = objective()
        value.backward()
        optimiser.step()
        schedule.step()
    reached = float(value.detach())
    assert est.objective_ <= reached * (1 + 1e-9)
    assert reached <= above * est.objective_
    back = est.network_.to_torch()  # and ours, evaluated by torch
    norm, last = (back[1] if position == "before" else back[2]), back[3]
    with torch.no_grad():
        decay = sum(float((p**2).sum()) for p in (norm.weight, norm.bias, last.weight))
        ours = 0.5 * float(((back(torch.tensor(X))[:, 0] - torch.tensor(y)) ** 2).mean()) + 0.5 * beta * decay
    assert ours == pytest.approx(est.objective_, rel=1e-4)  # torch adds eps to the variance


def test_an_unknown_normalisation_is_refused():
    with pytest.raises(ValueError, match="'norm' or 'std'"):
        BatchNorm(normalisation="batch")
