"""Parallel networks beyond three layers, special cases of A.2, and the penalty form: 002 Corollary 1, A.2, eq. 11."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from bidual import Parallel, ParallelNetwork, ReLUClassifier, ReLURegressor
from bidual.atoms.tree import Tree
from bidual.losses import get_loss
from bidual.solvers import Options
from bidual.training.objective import Objective

from .helpers import gap_may_stay_open, gaussian_problem

PAPER = {"bias": False, "fit_intercept": False}


def test_a_tree_computes_what_nested_sums_compute():
    rng = np.random.default_rng(0)
    tree = Tree((2, 3))
    pre = rng.standard_normal((5, 4, 6))
    signs = np.where(rng.random((4, tree.edges)) < 0.5, -1.0, 1.0)
    value, gates = tree.gates(pre, signs)
    for i in range(5):
        for k in range(4):
            root = 0.0
            for g in range(3):
                node = sum(signs[k, 2 * g + c] * max(pre[i, k, 2 * g + c], 0.0) for c in range(2))
                root += signs[k, 6 + g] * max(node, 0.0)
            assert value[i, k] == pytest.approx(max(root, 0.0))
    assert (gates * pre).sum(axis=2) == pytest.approx(value)
    masks = tree.masks(pre, signs)
    assert tree.coefficients(masks, signs[None])[-1] == pytest.approx(gates)


def test_gates_are_the_derivatives():
    rng = np.random.default_rng(1)
    tree = Tree((3, 2))
    pre = rng.standard_normal((3, 2, 6))
    signs = np.where(rng.random((2, tree.edges)) < 0.5, -1.0, 1.0)
    _, gates = tree.gates(pre, signs)
    for t in range(6):
        moved = pre.copy()
        moved[:, :, t] += 1e-7
        assert (tree.value(moved, signs) - tree.value(pre, signs)) / 1e-7 == pytest.approx(gates[:, :, t], abs=1e-6)


@pytest.fixture(scope="module")
def four_layers():
    X, y, _ = gaussian_problem(2, n=12)
    with gap_may_stay_open():
        est = ReLURegressor(
            0.05, architecture=Parallel(2, 2, deeper=(2,)), tol=2e-2, max_iter=15, random_state=0, **PAPER
        ).fit(X, y)
    return X, y, est


def test_four_layers_are_trained_and_judged(four_layers):
    X, y, est = four_layers
    assert est.network_.depth == 4
    assert [W.shape[1:] for W in est.network_.layers] == [(2, 4), (4, 2), (2, 2), (2, 1)]
    assert est.objective_ == pytest.approx(est.network_.objective(X, y, beta=0.05), rel=1e-9)
    assert "search" in est.certificate_.likely_method
    assert est.likely_gap_ < 0.1 < est.gap_


def test_deeper_branches_can_do_what_shallower_ones_do(four_layers):
    X, y, deep = four_layers
    # children that are all alike make a node a copy of one leaf, at the cost of a branch of three layers
    shallow = ReLURegressor(0.05, architecture=Parallel(2, 2), method="sampled", n_patterns=5, random_state=0, **PAPER)
    assert deep.lower_bound_ <= shallow.fit(X, y).objective_ * (1 + 1e-9)


def test_networks_unfold_into_trees_at_no_higher_cost(four_layers):
    X, y, est = four_layers
    data = est._pose(X, y, None)
    back = data.lift.recover(data.lift.neurons(est.network_))
    assert back.predict(X) == pytest.approx(est.network_.predict(X))
    assert back.penalty() == pytest.approx(est.network_.penalty())
    rng = np.random.default_rng(0)
    dense = ParallelNetwork([rng.standard_normal(shape) for shape in [(3, 2, 2), (3, 2, 2), (3, 2, 2), (3, 2, 1)]])
    unfolded = data.lift.recover(data.lift.neurons(dense))
    assert unfolded.predict(X) == pytest.approx(dense.predict(X))
    assert unfolded.penalty() <= dense.penalty() * (1 + 1e-9)


def test_all_patterns_are_for_three_layers_only():
    X, y, _ = gaussian_problem(0, n=4)
    with pytest.raises(ValueError, match="patterns that can be enumerated"):
        ReLURegressor(0.1, architecture=Parallel(2, 2, deeper=(1,)), method="exact").fit(X, y)


def test_a_standard_deep_network_is_a_parallel_one_with_equal_branches():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((7, 3))
    W1, W2, W3, w4 = (rng.standard_normal(shape) for shape in [(3, 4), (4, 3), (3, 2), (2, 1)])
    plain = np.maximum(np.maximum(np.maximum(X @ W1, 0) @ W2, 0) @ W3, 0) @ w4
    # 002 A.2 leaves out that two equal branches add up to twice the network: the last layers share it
    twice = ParallelNetwork([np.stack([W] * 2) for W in (W1, W2, W3, w4 / 2)])
    assert twice.forward(X) == pytest.approx(plain)


def test_a_residual_block_is_a_parallel_network_of_two_branches():
    rng = np.random.default_rng(1)
    X = np.abs(rng.standard_normal((7, 3)))
    W1, W2, W3, w4 = (rng.standard_normal(shape) for shape in [(3, 3), (3, 3), (3, 2), (2, 1)])
    deep = np.maximum(np.maximum(np.maximum(X @ W1, 0) @ W2, 0) @ W3, 0) @ w4
    short = np.maximum(X @ W3, 0) @ w4
    eye = np.eye(3)
    layers = [np.stack(pair) for pair in [(W1, eye), (W2, eye), (W3, W3), (w4, w4)]]
    assert ParallelNetwork(layers).forward(X) == pytest.approx(deep + short)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_penalty_form_comes_close_to_the_constrained_program(loss):
    pytest.importorskip("torch")
    from bidual.solvers.parallel.penalty import PenaltyForm

    X, y, labels = gaussian_problem(3, n=12)
    Y = (y if loss == "squared" else labels)[:, None]
    data = Objective(get_loss(loss), 0.02, Parallel(2), **PAPER).pose(X, Y)
    kind = ReLURegressor if loss == "squared" else ReLUClassifier
    exact = kind(0.02, loss=loss, architecture=Parallel(2), method="sampled", n_patterns=30, random_state=0, **PAPER)
    exact.fit(X, Y[:, 0])
    trained = data.train(PenaltyForm(epochs=300, rate=0.02, n_patterns=30), Options(random_state=0))
    assert trained.certificate.objective <= 1.3 * exact.objective_
    assert trained.certificate.lower_bound <= exact.objective_ * (1 + 1e-6)
    batches = data.train(PenaltyForm(epochs=20, batch_size=5), Options(random_state=0))
    again = data.train(PenaltyForm(epochs=20, batch_size=5), Options(random_state=0))
    assert batches.certificate.objective == again.certificate.objective


def test_the_penalty_form_takes_optimisers_by_name_and_made_to_order():
    torch = pytest.importorskip("torch")
    from bidual.solvers.parallel.penalty import PenaltyForm

    X, y, _ = gaussian_problem(3, n=12)
    data = Objective(get_loss("squared"), 0.02, Parallel(2), **PAPER).pose(X, y[:, None])

    def objective(optimiser):
        form = PenaltyForm(optimiser, epochs=30, n_patterns=10)
        return data.train(form, Options(random_state=0)).certificate.objective

    assert objective(torch.optim.SGD) == objective("SGD")
    assert objective(partial(torch.optim.SGD, momentum=0.9)) < objective("SGD")


def test_the_penalty_form_is_for_parallel_networks():
    pytest.importorskip("torch")
    from bidual.solvers.parallel.penalty import PenaltyForm

    X, y, _ = gaussian_problem(0, n=4)
    data = Objective(get_loss("squared"), 0.1).pose(X, y[:, None])
    with pytest.raises(TypeError, match="parallel networks"):
        data.train(PenaltyForm(), Options())
    parallel = Objective(get_loss("squared"), 0.1, Parallel()).pose(X, y[:, None])
    with pytest.raises(ValueError, match="no optimiser"):
        parallel.train(PenaltyForm(optimiser="Newton"), Options())
