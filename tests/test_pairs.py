"""Several outputs, the parts: steps on pairs, corrective steps over output weights, prices from samples of rows."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from bidual._util.watch import watching
from bidual.arrangements.faces import few_faces
from bidual.atoms import Heads, Neurons, Relu
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.programs.outputs_corrective import corrected_outputs
from bidual.solvers.engine.pair_gradient import PairGradient, PairSpace, random_pairs
from bidual.solvers.engine.pricing import Pricer


def problem(seed, loss="squared", n=60, d=4, C=3, beta=0.02, fit_intercept=True, scales=1.0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((n, d)) * scales, np.ones(n)])
    classes = loss in ("softmax", "hinge")
    Y = np.eye(C)[rng.permutation(np.arange(n) % C)] if classes else rng.standard_normal((n, C))
    Y = 2.0 * Y - 1.0 if loss == "hinge" else Y
    w = rng.uniform(0.5, 1.5, n)
    return Problem(Relu(X), Y, w / w.sum(), get_loss(loss), beta, fit_intercept)


def network(p, seed, width=20):
    rng = np.random.default_rng(seed)
    return random_pairs(p, width, np.zeros(p.n_outputs), rng, 1.0)


def unit(U):
    return U / np.linalg.norm(U, axis=1, keepdims=True)


@pytest.mark.parametrize("scales", [1.0, np.array([100.0, 1.0, 0.1, 1.0])])
def test_neurons_come_back_from_the_axes_of_the_data(scales):
    p = problem(0, scales=scales)
    neurons = network(p, 1)
    back = PairSpace.of(p).outside(*PairSpace.of(p).inside(neurons))
    F, G = p.atoms.outputs(neurons), p.atoms.outputs(back)
    np.testing.assert_allclose(G, F, atol=1e-5 * np.abs(F).max())
    np.testing.assert_allclose(np.linalg.norm(back.alpha, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.sort(back.costs), np.sort(neurons.costs), rtol=1e-5)


@pytest.mark.parametrize(("loss", "delta"), [("squared", 0.0), ("squared", 0.1), ("softmax", 0.1)])
def test_the_gradient_on_pairs_is_the_slope_of_its_value(loss, delta):
    p = problem(2, loss)
    pairs = PairGradient(PairSpace.of(p), p.loss, network(p, 3))
    pairs.delta = np.float32(delta)
    U, A, b = pairs.state
    U, A = 3 * U, 3 * A
    rng = np.random.default_rng(4)
    P, Q, q = (rng.standard_normal(v.shape) for v in (U, A, b))
    size = 2e-3 * np.linalg.norm(U) / np.linalg.norm(P)
    P, Q = (size * P).astype(np.float32), (size * Q).astype(np.float32)
    q = size * q
    _, (of_U, of_A, of_b) = pairs._gradient(U, A, b)
    slope = np.vdot(of_U, P) + np.vdot(of_A, Q) + of_b @ q
    ahead, behind = (pairs._gradient(U + s * P, A + s * Q, b + s * q)[0] for s in (1, -1))
    assert (ahead - behind) / 2 == pytest.approx(slope, rel=0.05, abs=2e-6)


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_steps_on_pairs_lower_the_objective_of_the_network_they_return(loss):
    p = problem(5, loss)
    first = network(p, 6, 40)
    pairs = PairGradient(PairSpace.of(p), p.loss, first)
    seen = []
    with watching(None):
        pairs.descend(((0.1, 60), (0.01, 60), (0.0, 60)), 0.0, seen.append)
    assert len(seen) == 3
    assert p.objective(pairs.result()) < 0.95 * p.objective(first)
    assert p.objective(seen[-1]) <= p.objective(seen[0])


def fit_of(loss, F, p):
    """The loss of outputs F, as printed."""
    rows = {
        "squared": lambda E: cp.square(E) / 2,
        "absolute": cp.abs,
        "quantile": lambda E: cp.abs(E) / 2,
        "epsilon_insensitive": lambda E: cp.pos(cp.abs(E) - 0.1),
        "hinge": lambda _: cp.pos(1 - cp.multiply(p.Y, F)),
    }
    if loss == "softmax":
        return p.w @ (cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(p.Y, F), axis=1))
    return cp.sum(cp.multiply(p.w[:, None], rows[loss](F - p.Y)))


def lasso(p, loss, H, heads=1):
    """The smallest objective of output weights, ``heads`` rows of them for each direction."""
    alpha, b = cp.Variable((H.shape[1], p.n_outputs)), cp.Variable((1, p.n_outputs))
    F = H @ alpha + (np.ones((len(p.Y), 1)) @ b if p.fit_intercept else 0)
    norms = sum(cp.norm(alpha[k : k + heads], "fro") for k in range(0, H.shape[1], heads))
    return cp.Problem(cp.Minimize(fit_of(loss, F, p) + p.beta * norms)).solve(solver="CLARABEL")


LOSSES = ["squared", "softmax", "absolute", "quantile", "epsilon_insensitive", "hinge"]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("width", [30, 80])  # fewer directions than rows, and more
def test_the_best_output_weights_are_those_of_the_group_lasso_as_printed(loss, fit_intercept, width):
    p = problem(7, loss, fit_intercept=fit_intercept)
    rng = np.random.default_rng(8)
    U = unit(rng.standard_normal((width, p.atoms.reduced.shape[1])))
    atoms = Neurons(U, unit(rng.standard_normal((width, p.n_outputs))), np.zeros(p.n_outputs))
    with watching(None):
        turned, step = corrected_outputs(p, 0.0, atoms, np.where(np.arange(width) < 5, 0.1, 0.0), 1e-6)
    H = np.maximum(p.atoms.reduced @ U.T, 0.0)
    truth = lasso(p, loss, H)
    assert truth * (1 - 1e-7) <= step.value <= truth * (1 + 1e-5)
    assert p.objective(step.neurons(turned)) == pytest.approx(step.value, rel=1e-9)
    V = p.dual_point(step.V)
    reached = np.linalg.norm(H.T @ V, axis=1).max()
    assert p.dual_value(V * min(1.0, p.beta / reached)) >= truth * (1 - 1e-5)


@pytest.mark.parametrize("loss", ["squared", "softmax", "absolute"])
@pytest.mark.parametrize("width", [8, 40])
def test_the_best_weights_of_heads_share_one_norm(loss, width):
    rng = np.random.default_rng(21)
    n, K, C = 25, 3, 2
    Y = np.eye(C)[rng.integers(C, size=n)] if loss == "softmax" else rng.standard_normal((n, C))
    atoms_kind = Heads(rng.standard_normal((n * K, 4)), sp.eye_array(n * K, format="csr"), n_positions=K)
    p = Problem(atoms_kind, Y, np.full(n, 1 / n), get_loss(loss), 0.02, True)
    U = unit(rng.standard_normal((width, 4)))
    atoms = Neurons(U, unit(rng.standard_normal((width, K * C))), np.zeros(C))
    with watching(None):
        turned, step = corrected_outputs(p, 0.0, atoms, np.zeros(width), 1e-6)
    H = np.maximum(p.atoms.reduced @ U.T, 0.0).reshape(n, K, width).transpose(0, 2, 1).reshape(n, -1)
    truth = lasso(p, loss, H, K)
    assert truth * (1 - 1e-7) <= step.value <= truth * (1 + 1e-5)
    assert p.objective(step.neurons(turned)) == pytest.approx(step.value, rel=1e-9)


def test_directions_that_are_not_used_keep_their_outputs_and_others_vanish_exactly():
    p = problem(9, beta=0.2)
    rng = np.random.default_rng(10)
    U = unit(rng.standard_normal((20, p.atoms.reduced.shape[1])))
    atoms = Neurons(U, unit(rng.standard_normal((20, p.n_outputs))), np.zeros(p.n_outputs))
    with watching(None):
        turned, step = corrected_outputs(p, 0.0, atoms, np.full(20, 0.1), 1e-8)
    idle = ~step.support
    assert idle.any()
    np.testing.assert_array_equal(turned.alpha[idle], atoms.alpha[idle])
    np.testing.assert_allclose(np.linalg.norm(turned.alpha, axis=1), 1.0, rtol=1e-12)


def test_prices_from_a_sample_of_rows_are_attained_on_all_of_them():
    p = problem(11, "softmax", n=6000, d=5)
    V = p.dual_point(-p.loss.gradient(np.zeros_like(p.Y), p.Y, p.w))
    rng = np.random.default_rng(12)
    with watching(None):
        found = Pricer(p, rng).sampled(V, unit(network(p, 13).U), 32)
        full = Pricer(p, rng).quick(V, unit(network(p, 13).U), 32)
    exact = np.linalg.norm(np.maximum(p.atoms.reduced @ found.directions.T, 0.0).T @ V, axis=1)
    np.testing.assert_allclose(found.values, exact, rtol=1e-9)
    assert found.best >= 0.98 * full.best


def test_faces_in_many_dimensions_are_too_many_without_counting():
    assert few_faces(np.zeros((50_000, 3_000)), 20_000) is None
