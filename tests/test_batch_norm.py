"""Batch normalisation before the ReLU: 000 Theorems 2.1 to 2.4, 4.1, 5.1 and 5.2."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import BatchNorm, BatchNormNetwork, Network, ReLUClassifier, ReLURegressor, beta_max, load, solution_path
from bidual.architectures.batch_norm import CentredSVD, truncate

from .helpers import gap_may_stay_open, gaussian_problem, plain_loss, printed_program, white

LOSSES = ["squared", "absolute", "logistic", "hinge", "squared_hinge"]
PAPER = {"architecture": "batch_norm", "bias": False, "fit_intercept": False}


def paper_objective(network, X, y, beta, loss="squared", weight=None):
    """000 eq. 3 and 19 with statistics of the rows at hand: what GD would train, for one output."""
    c = np.ones(len(X)) if weight is None else np.asarray(weight, float)
    n = c.sum()
    F = np.full(len(X), float(network.intercept[0]))
    penalty = 0.0
    for j in range(network.n_neurons):
        h = X @ network.hidden_weights[j] + network.bias_vector[j]
        if network.position == "after":
            h = np.maximum(h, 0)
        h = h - c @ h / n
        h = network.gamma[j] * h / np.sqrt(c @ h**2) + network.shift[j] / np.sqrt(n)
        if network.position == "before":
            h = np.maximum(h, 0)
        F += float(network.output_weights[j, 0]) * h
        penalty += 0.5 * float(network.gamma[j] ** 2 + network.shift[j] ** 2 + network.output_weights[j, 0] ** 2)
    return plain_loss(loss, F, y, c) + beta * penalty


def random_network(seed, position="before", d=3, m=4, C=2):
    rng = np.random.default_rng(seed)
    return BatchNormNetwork(
        hidden_weights=rng.standard_normal((m, d)),
        output_weights=rng.standard_normal((m, C)),
        gamma=rng.standard_normal(m),
        shift=rng.standard_normal(m),
        mean=rng.standard_normal(m),
        norm=rng.uniform(1e-4, 3, m),
        n_samples=7.5,
        position=position,
        hidden_bias=rng.standard_normal(m),
        intercept=rng.standard_normal(C),
    )


# ---- the convex program ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_exact_training_solves_the_program_of_theorem_2_2(loss, fit_intercept):
    X, y, labels = gaussian_problem(3, n=7)
    y = y if loss in ("squared", "absolute") else labels
    estimator = ReLURegressor if loss in ("squared", "absolute") else ReLUClassifier
    est = estimator(0.02, loss=loss, architecture="batch_norm", method="exact", fit_intercept=fit_intercept).fit(X, y)
    truth = printed_program(white(X), y, 0.02, loss, fit_intercept=fit_intercept)
    assert est.objective_ == pytest.approx(truth, rel=1e-6)
    assert est.gap_ < 1e-5
    assert paper_objective(est.network_, X, y, 0.02, loss) == pytest.approx(est.objective_, rel=1e-9)


@pytest.mark.parametrize("method", ["adaptive", "sampled"])
def test_other_methods_agree_with_the_program_of_theorem_2_2(method):
    X, y, _ = gaussian_problem(4, n=9)
    est = ReLURegressor(0.01, method=method, tol=1e-4, random_state=0, **PAPER).fit(X, y)
    truth = printed_program(white(X), y, 0.01)
    assert truth * (1 - 1e-6) <= est.objective_ <= truth * (1 + 2e-4)


def test_a_hidden_bias_in_front_of_the_normalisation_changes_nothing():
    X, y, _ = gaussian_problem(5)
    fits = [ReLURegressor(0.02, architecture="batch_norm", method="exact", bias=b).fit(X, y) for b in (True, False)]
    assert fits[0].objective_ == fits[1].objective_
    assert fits[0].network_.hidden_bias is None


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), position=st.sampled_from(["before", "after"]))
def test_affine_maps_of_the_data_leave_the_optimum_unchanged(seed, position):
    X, y, _ = gaussian_problem(seed)
    rng = np.random.default_rng(seed)
    A = np.eye(2) + 0.5 * rng.standard_normal((2, 2))
    moved = X @ A + 10 * rng.standard_normal(2)
    values = [
        ReLURegressor(0.02, architecture=BatchNorm(position), method="exact").fit(Z, y).objective_ for Z in (X, moved)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize("position", ["before", "after"])
def test_sample_weights_count_rows(position):
    X, y, _ = gaussian_problem(6)
    weight = np.array([1, 2, 0, 3, 1, 1])
    repeated = np.repeat(np.arange(6), weight)
    est = ReLURegressor(0.02, architecture=BatchNorm(position), method="exact")
    network = est.fit(X, y, sample_weight=weight).network_
    objective = est.objective_
    est.fit(X[repeated], y[repeated])
    assert est.objective_ == objective
    np.testing.assert_array_equal(est.network_.predict(X), network.predict(X))
    assert network.n_samples == 8
    assert paper_objective(network, X[repeated], y[repeated], 0.02) == pytest.approx(objective, rel=1e-9)
    if position == "before":
        truth = printed_program(white(X[repeated]), y[repeated], 0.02, fit_intercept=True)
        assert objective == pytest.approx(truth, rel=1e-6)


def test_equal_inputs_with_different_targets_are_so_many_rows():
    X, y, _ = gaussian_problem(7)
    X[1] = X[0]
    est = ReLURegressor(0.02, method="exact", **PAPER).fit(X, y)
    assert est.objective_ == pytest.approx(printed_program(white(X), y, 0.02), rel=1e-6)


def test_several_outputs_are_trained_below_what_gradient_descent_reaches():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((8, 3)), rng.standard_normal((8, 2))
    beta = 0.02
    with gap_may_stay_open():
        est = ReLURegressor(beta, tol=1e-2, random_state=0, **PAPER).fit(X, Y)
    torch.manual_seed(0)
    n, m = 8, 20
    W = torch.randn(m, 3, dtype=torch.float64, requires_grad=True)
    gamma = torch.full((m,), 0.5, dtype=torch.float64, requires_grad=True)
    shift = torch.zeros(m, dtype=torch.float64, requires_grad=True)
    out = (0.3 * torch.randn(m, 2, dtype=torch.float64)).requires_grad_()
    parameters = [W, gamma, shift, out]
    optimiser = torch.optim.Adam(parameters, lr=0.02)
    Xt, Yt = torch.tensor(X), torch.tensor(Y)
    for _ in range(600):
        h = Xt @ W.T
        h = h - h.mean(0)
        h = torch.relu(gamma * h / h.norm(dim=0) + shift / n**0.5)
        penalty = 0.5 * ((gamma**2).sum() + (shift**2).sum() + (out**2).sum())
        objective = 0.5 * ((h @ out - Yt) ** 2).sum() / n + beta * penalty
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()
    reached = float(objective.detach())
    assert est.lower_bound_ <= est.objective_ <= reached * (1 + 1e-2)
    assert reached <= est.objective_ * 1.2  # the two are about the same problem


def test_a_path_begins_without_neurons_at_beta_max():
    X, y, _ = gaussian_problem(8, n=8)
    top = beta_max(X, y, architecture="batch_norm")
    path = solution_path(X, y, n_betas=3, beta_min_ratio=0.1, architecture="batch_norm", random_state=0)
    assert path.betas[0] == pytest.approx(top)
    assert path.n_neurons[0] == 0
    assert path.n_neurons[1] > 0
    assert path.converged.all()


def test_a_warm_start_begins_at_the_network_it_is_given():
    X, y, _ = gaussian_problem(9, n=9)
    est = ReLURegressor(0.01, architecture="batch_norm", method="sampled", n_patterns=12, random_state=0).fit(X, y)
    cold = est.objective_
    est.set_params(warm_start=True, n_patterns=1, random_state=1).fit(X, y)
    assert est.objective_ <= cold * (1 + 1e-6)


# ---- truncation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["before", "after"])
def test_truncation_trains_on_the_leading_directions_alone(position):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((8, 4)) * [4, 2, 0.5, 0.1], rng.standard_normal(8)
    architecture = BatchNorm(position, rank=2)
    est = ReLURegressor(0.02, architecture=architecture, method="exact", fit_intercept=False).fit(X, y)
    same = ReLURegressor(0.02, architecture=BatchNorm(position), method="exact", fit_intercept=False)
    same.fit(truncate(X, 2), y)
    assert est.objective_ == pytest.approx(same.objective_, rel=1e-5)
    Vt = np.linalg.svd(X - X.mean(0))[2]
    np.testing.assert_allclose(est.network_.hidden_weights @ Vt[2:].T, 0, atol=1e-9)
    # ... and is an ordinary network on the data as they are
    assert paper_objective(est.network_, X, y, 0.02) == pytest.approx(est.objective_, rel=1e-9)


def test_a_fraction_keeps_the_directions_that_explain_so_much_variance():
    rng = np.random.default_rng(2)
    Q, _ = np.linalg.qr(rng.standard_normal((10, 4)) - 0)
    X = (Q - Q.mean(0)) @ np.diag([3.0, 2.0, 1.0, 0.5])
    share = np.cumsum(np.linalg.svd(X - X.mean(0), compute_uv=False) ** 2)
    share /= share[-1]
    for k in range(4):
        for fraction in (share[k], share[k] - 1e-3):
            assert len(CentredSVD.of(X, np.ones(10), float(min(1.0, fraction))).sigma) == k + 1


# ---- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "rank", "words"),
    [
        (np.ones((4, 2)), None, "rows that differ"),
        (np.full((4, 2), 0.1), None, "rows that differ"),
        (np.ones((1, 2)), None, "n_samples=1"),
        (np.eye(4)[:, :2], 3, "rank=3 is larger than 2"),
    ],
)
@pytest.mark.parametrize("position", ["before", "after"])
def test_data_without_enough_variation_are_refused(X, rank, words, position):
    with pytest.raises(ValueError, match=words):
        ReLURegressor(architecture=BatchNorm(position, rank=rank)).fit(X, np.arange(len(X)) * 1.0)


@pytest.mark.parametrize("rank", [0, -1, True, "all", 0.0, 1.5, np.nan])
def test_ranks_that_cannot_be_are_refused(rank):
    with pytest.raises(ValueError, match="rank"):
        BatchNorm(rank=rank)


def test_an_unknown_position_is_refused():
    with pytest.raises(ValueError, match="before"):
        BatchNorm("between")


@pytest.mark.parametrize("position", ["before", "after"])
def test_a_constant_column_gets_no_weight(position):
    X, y, _ = gaussian_problem(10)
    wide = np.column_stack([X[:, :1], np.full(6, 0.1), X[:, 1:]])
    fits = [ReLURegressor(0.02, architecture=BatchNorm(position), method="exact").fit(Z, y) for Z in (X, wide)]
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)
    if position == "before":
        np.testing.assert_array_equal(fits[1].network_.hidden_weights[:, 1], 0)


def test_gated_networks_have_no_batch_normalisation():
    X, y, _ = gaussian_problem(0)
    with pytest.raises(ValueError, match="gated"):
        ReLURegressor(architecture="batch_norm", activation="gated", gates=np.eye(2)).fit(X, y)


# ---- networks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["before", "after"])
def test_torch_computes_the_same_on_training_and_test_rows(position):
    X, y, _ = gaussian_problem(11, n=9)
    network = (
        ReLURegressor(0.005, architecture=BatchNorm(position), method="sampled", random_state=0).fit(X, y).network_
    )
    module = network.to_torch()
    kinds = [type(layer).__name__ for layer in module]
    middle = ["BatchNorm1d", "ReLU"] if position == "before" else ["ReLU", "BatchNorm1d"]
    assert kinds == ["Linear", *middle, "Linear"]
    assert not module.training
    new = np.random.default_rng(0).standard_normal((20, 2)) * 3
    for Z in (X, new):
        np.testing.assert_allclose(module(torch.tensor(Z)).detach().numpy()[:, 0], network.predict(Z), atol=1e-12)
    # in training mode torch takes the statistics of the batch: on the training rows these are the same
    np.testing.assert_allclose(module.train()(torch.tensor(X)).detach().numpy()[:, 0], network.predict(X), atol=1e-10)


@pytest.mark.parametrize("position", ["before", "after"])
def test_torch_is_exact_however_small_the_variance(position):
    network = random_network(0, position)
    Z = np.random.default_rng(1).standard_normal((5, 3))
    np.testing.assert_allclose(network.to_torch()(torch.tensor(Z)).detach().numpy(), network.forward(Z), rtol=1e-9)
    assert network.to_torch(torch.float32)(torch.ones(2, 3)).dtype == torch.float32


@pytest.mark.parametrize("position", ["before", "after"])
@pytest.mark.parametrize("m", [0, 4])
def test_networks_are_read_back_bit_for_bit(position, m, tmp_path):
    network = random_network(3, position, m=m)
    Z = np.random.default_rng(1).standard_normal((5, 3))
    for copy in (
        load(network.save(tmp_path / "net.json")),
        Network.from_dict(json.loads(json.dumps(network.to_dict()))),
    ):
        assert isinstance(copy, BatchNormNetwork)
        np.testing.assert_array_equal(copy.forward(Z), network.forward(Z))
        assert copy.penalty() == network.penalty()
        assert (copy.position, copy.n_samples) == (position, 7.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"norm": [0.0]}, "norm"),
        ({"n_samples": 0}, "n_samples"),
        ({"position": "x"}, "position"),
        ({"gamma": 1}, "gamma"),
    ],
)
def test_networks_that_cannot_be_are_refused(change, words):
    weights = {"hidden_weights": [[1.0]], "output_weights": [[1.0]], "gamma": [1.0], "shift": [0.0], "mean": [0.0]}
    with pytest.raises(ValueError, match=words):
        BatchNormNetwork(**{**weights, "norm": [1.0], "n_samples": 2, **change})


@pytest.mark.parametrize("position", ["before", "after"])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_recovery_from_the_lift_keeps_the_function_of_any_network(position, seed):
    X = np.random.default_rng(seed).standard_normal((9, 3))
    network = random_network(seed, position, C=1)
    lift = BatchNorm(position).lift(X, bias=True)
    neurons = lift.neurons(network)
    again = lift.recover(neurons)
    np.testing.assert_allclose(again.forward(X), network.forward(X), rtol=1e-8, atol=1e-8)
    assert again.penalty() == pytest.approx(neurons.costs.sum(), rel=1e-9)


def test_a_lift_refuses_networks_it_cannot_hold():
    lift = BatchNorm().lift(np.eye(4)[:, :3], bias=True)
    with pytest.raises(TypeError, match="before"):
        lift.neurons(random_network(0, "after"))
    with pytest.raises(ValueError, match="inputs"):
        lift.neurons(random_network(0, d=2))


@pytest.mark.parametrize("position", ["before", "after"])
def test_the_scale_of_the_hidden_weights_does_not_matter(position):
    """000 Remark 1.2: charging them as well cannot change the optimum, as they can be made small at no cost."""
    X, y, _ = gaussian_problem(12, n=8)
    network = ReLURegressor(0.01, architecture=BatchNorm(position), method="sampled", random_state=0).fit(X, y).network_
    values = []
    for t in (1.0, 1e-3, 50.0):
        weights = network.weights()
        weights["hidden_weights"] = t * weights["hidden_weights"]
        if weights["hidden_bias"] is not None:
            weights["hidden_bias"] = t * weights["hidden_bias"]
        values.append(paper_objective(BatchNormNetwork(**weights), X, y, 0.01))
    np.testing.assert_allclose(values, values[0], rtol=1e-9)
