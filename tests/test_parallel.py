"""Parallel networks of three layers with the path regulariser: 002 Theorem 1 and Proposition 1."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag

from bidual import Certificate, Parallel, ParallelNetwork, ReLUClassifier, ReLURegressor, beta_max, certify, load
from bidual._util.tuning import tuned
from bidual.arrangements.enumerate import TooManyPatternsError
from bidual.atoms.branch_cells import enumerate_layered
from bidual.bounds.branches import LayeredBounds
from bidual.bounds.oracle import PatternProof
from bidual.losses import get_loss
from bidual.solvers.parallel.pricing import search_parallel
from bidual.training.objective import Objective

from .helpers import cvxpy_loss, gap_may_stay_open, gaussian_problem, lp_patterns, with_ones

PAPER = {"bias": False, "fit_intercept": False}


def printed_program(X, y, beta, m1, m2=1, loss="squared", *, bias=False, fit_intercept=False):
    """002 eq. 21: all tuples of first patterns, all signs, all second patterns, nothing left out."""
    X = with_ones(X, bias)
    n, d = X.shape
    first = lp_patterns(X)
    design, cones = [], []
    for chosen in product(range(len(first)), repeat=m1):
        for signs in product([1.0, -1.0], repeat=m1):
            for second in product([0.0, 1.0], repeat=n):
                inner = np.hstack([first[i][:, None] * X for i in chosen])
                leaves = [s * (2.0 * first[i] - 1)[:, None] * X for s, i in zip(signs, chosen, strict=True)]
                cone = np.vstack([block_diag(*leaves), (2.0 * np.array(second) - 1)[:, None] * inner])
                for side in (1.0, -1.0):
                    design.append(side * np.array(second)[:, None] * inner)
                    cones.append(cone)
    Z = cp.Variable((len(design), d * m1))
    F = np.hstack(design) @ cp.vec(Z, order="C") + (cp.Variable() if fit_intercept else 0.0)
    penalty = cp.sum(cp.norm(Z, axis=1))
    cones = [sp.block_diag(cones, format="csr") @ cp.vec(Z, order="C") >= 0]
    value = cvxpy_loss(loss, F, y, np.full(n, 1.0 / n)) + beta / np.sqrt(m2) * penalty
    program = cp.Problem(cp.Minimize(value), cones)
    program.solve(solver=cp.CLARABEL)
    return float(program.value)


def path_objective(network, X, y, beta):
    """Squared loss and 002 eq. 4 with loops over the paths."""
    total, F = 0.0, np.zeros(len(X)) + network.intercept
    W1, W2, W3 = network.layers
    for k in range(network.n_branches):
        squares = 0.0
        b = np.zeros(W1.shape[2]) if network.hidden_bias is None else network.hidden_bias[k]
        for j2 in range(W2.shape[2]):
            inner = np.zeros(len(X))
            for j1 in range(W2.shape[1]):
                inner += np.maximum(X @ W1[k, :, j1] + b[j1], 0.0) * W2[k, j1, j2]
                squares += (W1[k, :, j1] @ W1[k, :, j1] + b[j1] ** 2) * W2[k, j1, j2] ** 2 * W3[k, j2, 0] ** 2
            F += np.maximum(inner, 0.0) * W3[k, j2, 0]
        total += np.sqrt(squares)
    return 0.5 * np.mean((F - y) ** 2) + beta * total


@pytest.mark.parametrize(("m1", "m2", "fit_intercept"), [(1, 1, False), (2, 1, False), (2, 3, True)])
def test_exact_training_solves_the_program_of_the_paper(m1, m2, fit_intercept):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((3, 2)), rng.standard_normal(3)
    truth = printed_program(X, y, 0.05, m1, m2, fit_intercept=fit_intercept)
    est = ReLURegressor(
        0.05, architecture=Parallel(m1, m2), method="exact", bias=False, fit_intercept=fit_intercept
    ).fit(X, y)
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.gap_ < 1e-6
    assert path_objective(est.network_, X, y, 0.05) == pytest.approx(est.objective_, rel=1e-10)


@pytest.mark.parametrize("loss", ["absolute", "logistic", "hinge"])
def test_other_losses_solve_the_program_too(loss):
    X, y, labels = gaussian_problem(1, n=3)
    regression = loss == "absolute"
    kind = ReLURegressor if regression else ReLUClassifier
    target = y if regression else labels
    est = kind(0.05, loss=loss, architecture=Parallel(2), method="exact", **PAPER).fit(X, target)
    assert est.objective_ == pytest.approx(printed_program(X, target, 0.05, 2, loss=loss), rel=1e-5)
    assert est.gap_ < 1e-4


def test_one_leaf_is_a_neuron_of_a_two_layer_network():
    X, y, _ = gaussian_problem(0, n=9, d=3)
    three = ReLURegressor(0.02, architecture=Parallel(1), method="exact").fit(X, y)
    two = ReLURegressor(0.02, method="exact").fit(X, y)
    assert three.objective_ == pytest.approx(two.objective_, rel=1e-7)


@given(st.integers(0, 2**16), st.integers(1, 4))
@settings(max_examples=8)
def test_copies_in_the_second_layer_only_divide_beta(seed, m2):
    X, y, _ = gaussian_problem(seed, n=4)
    wide = ReLURegressor(0.03, architecture=Parallel(2, m2), method="exact", **PAPER).fit(X, y)
    one = ReLURegressor(0.03 / np.sqrt(m2), architecture=Parallel(2), method="exact", **PAPER).fit(X, y)
    assert wide.objective_ == pytest.approx(one.objective_, rel=1e-6)
    assert wide.network_.layers[1].shape[2] == m2


@given(st.integers(0, 2**16), st.integers(1, 3), st.integers(1, 2))
@settings(max_examples=20)
def test_no_network_is_below_the_lower_bound(seed, m1, m2):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((4, 2)), rng.standard_normal(4)
    est = ReLURegressor(0.02, architecture=Parallel(m1, m2), method="exact", **PAPER).fit(X, y)
    shapes = (3, 2, m1), (3, m1, m2), (3, m2, 1)
    for scale in (0.1, 0.5, 1.0):
        network = ParallelNetwork([scale * rng.standard_normal(shape) for shape in shapes])
        assert network.objective(X, y, beta=0.02) >= est.lower_bound_


@given(st.integers(0, 2**16))
@settings(max_examples=6)
def test_more_leaves_never_cost_more(seed):
    X, y, _ = gaussian_problem(seed, n=4)
    values = [ReLURegressor(0.02, architecture=Parallel(m), method="exact", **PAPER).fit(X, y) for m in (1, 2, 3)]
    assert values[1].lower_bound_ <= values[0].objective_
    assert values[2].lower_bound_ <= values[1].objective_


def test_cells_cover_all_branches():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 2))
    cells = enumerate_layered(X, 2)
    known = {
        tuple(sorted((int(s), *map(bool, leaf)) for s, leaf in zip(signs, masks[:, :2].T, strict=True)))
        for masks, signs in zip(cells.masks, cells.signs, strict=True)
    }
    for _ in range(500):
        W, signs = rng.standard_normal((2, 2)), np.where(rng.random(2) < 0.5, -1.0, 1.0)
        pre = X @ W.T
        root = np.maximum((np.maximum(pre, 0) * signs).sum(axis=1), 0)
        active = pre >= 0
        if not active.any(axis=0).all() or (signs < 0).all():
            continue  # as good as fewer leaves, or nothing
        assert tuple(sorted((int(s), *map(bool, leaf)) for s, leaf in zip(signs, active.T, strict=True))) in known
        # in one of the cells both layers agree, and what it computes is linear there
        gates = [
            g
            for g, m, s in zip(cells.gates, cells.masks, cells.signs, strict=True)
            for order in ([0, 1], [1, 0])
            if np.array_equal(m[:, order], active) and np.array_equal(s[order], signs)
            for g in [g[:, order]]
        ]
        assert any(np.allclose((g * pre).sum(axis=1), root) for g in gates)


def test_too_many_patterns_are_refused_with_advice():
    X, y, _ = gaussian_problem(0, n=40, d=4)
    with pytest.raises(TooManyPatternsError, match="use method='adaptive'"):
        ReLURegressor(0.1, architecture=Parallel(3), method="exact").fit(X, y)


@pytest.mark.parametrize("m1", [1, 2])
@tuned(parallel_cells=0)
def test_adaptive_training_finds_the_exact_optimum(m1):
    X, y, _ = gaussian_problem(4, n=7)
    exact = ReLURegressor(0.02, architecture=Parallel(m1), method="exact", **PAPER).fit(X, y)
    adaptive = ReLURegressor(0.02, architecture=Parallel(m1), random_state=0, **PAPER).fit(X, y)
    assert adaptive.objective_ == pytest.approx(exact.objective_, rel=1e-3)
    assert adaptive.objective_ >= exact.lower_bound_
    assert adaptive.lower_bound_ <= exact.objective_ * (1 + 1e-6)
    assert adaptive.likely_gap_ <= 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_pricing_finds_the_largest_value_of_the_dual_constraint(seed):
    """Over all cells it is known; steps that must each bring something end at kinks far below it."""
    X, y, _ = gaussian_problem(seed, n=7)
    data = Objective(get_loss("squared"), 0.02, Parallel(2), **PAPER).pose(X, y[:, None])
    problem = data.problem
    V = np.random.default_rng(seed).standard_normal((7, 1)) / 7
    largest = LayeredBounds(problem, problem.atoms.cells()).lower_bound(V).limit
    assert search_parallel(problem, V, seed) == pytest.approx(largest, rel=1e-3)


def test_adaptive_training_ends_below_gradient_descent_on_many_branches():
    torch = pytest.importorskip("torch")
    from bidual.networks.parallel_torch import ParallelModule

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(60)
    module = ParallelModule([3, 3, 1, 1], 40, bias=True, intercept=True, seed=0)
    stepper = torch.optim.Adam(module.parameters(), lr=1e-2)
    inputs, targets = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    for _ in range(500):
        stepper.zero_grad()
        (0.5 * ((module(inputs) - targets) ** 2).mean() + 1e-3 * module.path_norm()).backward()
        stepper.step()
    with gap_may_stay_open():
        ours = ReLURegressor(1e-3, architecture=Parallel(3), max_iter=4, tol=1e-2, random_state=0).fit(X, y)
    assert ours.objective_ < 0.98 * module.network().objective(X, y, beta=1e-3)


def test_max_neurons_limits_the_branches_and_the_gap_says_what_it_costs():
    X, y, _ = gaussian_problem(4, n=12)
    with gap_may_stay_open():
        wide, narrow = (
            ReLURegressor(1e-3, architecture=Parallel(2), max_iter=4, max_neurons=k, random_state=0).fit(X, y)
            for k in (50, 2)
        )
    assert narrow.network_.n_branches <= 2 < wide.network_.n_branches
    assert narrow.objective_ > wide.objective_
    assert narrow.gap_ > wide.gap_


def test_sampled_training_is_between_the_optimum_and_its_own_bound():
    X, y, _ = gaussian_problem(4, n=7)
    exact = ReLURegressor(0.02, architecture=Parallel(2), method="exact", **PAPER).fit(X, y)
    sampled = ReLURegressor(0.02, architecture=Parallel(2), method="sampled", n_patterns=60, random_state=0, **PAPER)
    sampled.fit(X, y)
    assert sampled.objective_ >= exact.lower_bound_
    assert sampled.gap_ < 1e-6
    assert sampled.certificate_.scope == "patterns"


def test_several_outputs_share_branches():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((6, 2))
    y = np.maximum(X[:, 0], 0)
    one = ReLURegressor(0.02, architecture=Parallel(2), method="exact", **PAPER).fit(X, y)
    with gap_may_stay_open():
        two = ReLURegressor(0.02, architecture=Parallel(2), tol=1e-3, max_iter=15, random_state=0, **PAPER)
        two.fit(X, np.column_stack([y, y]))
    # both outputs from the same branches: the problem of one output with y sqrt 2
    both = ReLURegressor(0.02, architecture=Parallel(2), method="exact", **PAPER).fit(X, np.sqrt(2) * y)
    assert two.objective_ == pytest.approx(both.objective_, rel=1e-3)
    assert two.objective_ < 2 * one.objective_
    assert two.network_.n_outputs == 2


def test_the_bound_over_all_cells_for_several_outputs_is_proven():
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((4, 2)), rng.standard_normal((4, 2))
    with gap_may_stay_open():
        est = ReLURegressor(
            0.05, architecture=Parallel(2), method="exact", tol=1e-3, max_iter=15, random_state=0, **PAPER
        ).fit(X, Y)
    assert 0 < est.lower_bound_ <= est.objective_
    assert est.gap_ < 0.02


def test_minimum_norm_interpolation():
    X, y, _ = gaussian_problem(6, n=4)
    limit = ReLURegressor(0.0, architecture=Parallel(2), method="exact", **PAPER).fit(X, y)
    small = ReLURegressor(1e-5, architecture=Parallel(2), method="exact", **PAPER).fit(X, y)
    assert limit.predict(X) == pytest.approx(y, abs=1e-6)
    assert limit.network_.penalty() == pytest.approx(small.network_.penalty(), rel=1e-2)


def test_beta_max_is_where_the_last_branch_dies():
    X, y, _ = gaussian_problem(0, n=5)
    top = beta_max(X, y, architecture=Parallel(2))
    below = ReLURegressor(0.98 * top, architecture=Parallel(2), method="exact").fit(X, y)
    above = ReLURegressor(1.001 * top, architecture=Parallel(2), method="exact").fit(X, y)
    assert below.network_.n_branches > 0
    assert above.network_.n_branches == 0
    assert top > beta_max(X, y)


def test_scaling_laws():
    X, y, _ = gaussian_problem(7, n=5)
    base = ReLURegressor(0.02, architecture=Parallel(2), method="exact", **PAPER).fit(X, y)
    scaled = ReLURegressor(0.02 * 3, architecture=Parallel(2), method="exact", **PAPER).fit(3 * X, y)
    turned = ReLURegressor(0.02, architecture=Parallel(2), method="exact", **PAPER)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((2, 2)))[0]
    turned.fit(X @ Q, y)
    assert scaled.objective_ == pytest.approx(base.objective_, rel=1e-6)
    assert turned.objective_ == pytest.approx(base.objective_, rel=1e-6)


def test_certify_judges_any_parallel_network():
    X, y, _ = gaussian_problem(8, n=5)
    est = ReLURegressor(0.02, architecture=Parallel(2, 2), method="exact", **PAPER).fit(X, y)
    rng = np.random.default_rng(0)
    network = ParallelNetwork([rng.standard_normal(shape) for shape in [(4, 2, 2), (4, 2, 2), (4, 2, 1)]])
    verdict = certify(network, X, y, beta=0.02)
    assert verdict.lower_bound == pytest.approx(est.objective_, rel=1e-3)
    assert verdict.objective == pytest.approx(path_objective(network, X, y, 0.02))


def test_certificates_are_verified_without_trust(tmp_path):
    X, y, _ = gaussian_problem(8, n=5)
    est = ReLURegressor(0.02, architecture=Parallel(2), method="exact").fit(X, y)
    certificate = Certificate.load(est.certificate_.save(tmp_path / "certificate.json"))
    assert certificate.verify(X, y, model=est)
    assert not replace(certificate, objective=np.inf, lower_bound=1.01 * certificate.lower_bound).verify(X, y)
    # a proof about two layers proves nothing about three
    forged = replace(certificate, evidence=replace(certificate.evidence, proof=PatternProof()))
    assert not forged.verify(X, y)


def test_warm_start_keeps_the_network():
    X, y, _ = gaussian_problem(9, n=20, d=3)
    est = ReLURegressor(0.05, architecture=Parallel(2), tol=1e-2, random_state=0).fit(X, y)
    data = est._pose(X, y, None)
    again = data.lift.recover(data.lift.neurons(est.network_))
    assert again.predict(X) == pytest.approx(est.predict(X))
    assert again.penalty() == pytest.approx(est.network_.penalty())
    before = est.objective_
    est.set_params(warm_start=True).fit(X, y)
    assert est.objective_ <= before * (1 + 1e-4)


def test_files_bring_the_network_back(tmp_path):
    X, y, _ = gaussian_problem(10, n=5)
    for beta in (0.02, 1e3):  # the second one has no branches
        est = ReLURegressor(beta, architecture=Parallel(2, 2), method="exact").fit(X, y)
        back = load(est.network_.save(tmp_path / "network.json"))
        assert back.predict(X).tolist() == est.network_.predict(X).tolist()
        assert back.penalty() == est.network_.penalty()


def test_torch_computes_the_same_and_the_same_path_norm():
    torch = pytest.importorskip("torch")
    X, y, _ = gaussian_problem(11, n=5)
    network = ReLURegressor(0.02, architecture=Parallel(2, 2), method="exact").fit(X, y).network_
    module = network.to_torch()
    assert module(torch.as_tensor(X)).detach().numpy()[:, 0] == pytest.approx(network.predict(X))
    assert float(module.path_norm().detach()) == pytest.approx(network.penalty())
    assert module.network().predict(X) == pytest.approx(network.predict(X))


def test_gradient_descent_does_not_go_below_the_optimum():
    torch = pytest.importorskip("torch")
    from bidual.networks.parallel_torch import ParallelModule

    X, y, _ = gaussian_problem(12, n=5)
    est = ReLURegressor(0.01, architecture=Parallel(2), method="exact", **PAPER).fit(X, y)
    ends = []
    for seed in range(2):
        module = ParallelModule([2, 2, 1, 1], 20, seed=seed)
        optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
        inputs, targets = torch.as_tensor(X), torch.as_tensor(y)[:, None]
        for _ in range(600):
            optimiser.zero_grad()
            value = 0.5 * ((module(inputs) - targets) ** 2).mean() + 0.01 * module.path_norm()
            value.backward()
            optimiser.step()
        ends.append(module.network().objective(X, y, beta=0.01))
    assert min(ends) >= est.lower_bound_
    assert min(ends) <= 1.5 * est.objective_


def test_widths_must_be_positive_integers():
    for bad in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="integers >= 1"):
            Parallel(bad)
    with pytest.raises(ValueError, match="integers >= 1"):
        Parallel(2, 0)
    assert Parallel(2, 3) == Parallel(2, 3)
    assert Parallel(2, 3) != Parallel(3, 2)


def test_networks_of_another_shape_are_refused():
    X, y, _ = gaussian_problem(0, n=5)
    est = ReLURegressor(0.02, warm_start=True, method="sampled", random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="expected a parallel network"):
        est.set_params(architecture="parallel").fit(X, y)
    network = ParallelNetwork([np.ones((1, 2, 4)), np.ones((1, 4, 1)), np.ones((1, 1, 1))])
    with pytest.raises(ValueError, match="more than 2 inputs of its own"):
        certify(network, X, y, beta=0.02, architecture=Parallel(2))
    with pytest.raises(ValueError, match="is not of the architecture"):
        certify(network, X, y, beta=0.02, architecture=Parallel(4, 1, deeper=(1,)))
