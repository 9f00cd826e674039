"""The corrective step of losses with kinks: the optimum of its program, by CVXPY and by its own dual."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual.atoms import Neurons, Relu
from bidual.losses import EpsilonInsensitive, Quantile, get_loss
from bidual.problem import Problem
from bidual.programs.box_corrective import BoxProgram, corrected_on_box
from bidual.programs.smoothing import SmoothedLoss


def posed(seed, n, m, loss, free, C=1, weighted=False):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((n, 4)), rng.standard_normal((n, C))
    w = rng.integers(0, 3, n) + 0.0 if weighted else np.ones(n)
    Y = np.where(Y > 0, 1.0, -1.0) if loss.classification else Y
    problem = Problem(Relu(X), Y, w / w.sum(), loss, 0.02, free)
    alpha = rng.standard_normal((m, C))
    return problem, Neurons(rng.standard_normal((m, problem.atoms.reduced.shape[1])), alpha, np.zeros(C))


LOSSES = [get_loss("absolute"), get_loss("hinge"), Quantile(0.2), EpsilonInsensitive(0.3)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("n", "m", "C"), [(40, 15, 1), (15, 40, 1), (20, 12, 2)])
@pytest.mark.parametrize("epsilon", [0.1, 1e-5])
def test_primal_and_dual_meet(loss, free, n, m, C, epsilon):
    problem, atoms = posed(n + m, n, m, loss, free, C, weighted=True)
    step = corrected_on_box(problem, epsilon, atoms, 1e-6)
    smoothed = SmoothedLoss(loss, epsilon)
    used = problem.w > 0
    primal = smoothed.value(step.F[used], problem.Y[used], problem.w[used]) + problem.beta * atoms.costs @ step.t
    inside = np.clip(-step.V[used] / problem.w[used, None], *_bounds(loss, problem.Y[used]))
    np.testing.assert_allclose(inside, -step.V[used] / problem.w[used, None], atol=1e-12)
    dual = -smoothed.conjugate(inside * problem.w[used, None], problem.Y[used], problem.w[used])
    assert dual <= primal <= dual + 1e-5 * abs(primal)
    Phi = problem.atoms.contributions(np.maximum(problem.atoms.reduced @ atoms.U.T, 0.0), atoms.alpha).reshape(n * C, m)
    assert (step.V.ravel() @ Phi <= problem.beta * atoms.costs * (1 + 1e-9)).all()
    np.testing.assert_allclose(step.F, (Phi @ step.t).reshape(n, C) + step.intercept, atol=1e-12)
    assert (step.t >= 0).all()
    if free:
        np.testing.assert_allclose(step.V.sum(axis=0), 0.0, atol=1e-8)


def _bounds(loss, Y):
    box = loss.dual_box(Y)
    return box.lower, box.upper


@pytest.mark.parametrize("loss", ["absolute", "hinge", "epsilon_insensitive"])
def test_the_objective_is_that_of_cvxpy(loss):
    problem, atoms = posed(1, 30, 20, get_loss(loss), True)
    step = corrected_on_box(problem, 1e-8, atoms, 1e-7)
    Phi = problem.atoms.contributions(np.maximum(problem.atoms.reduced @ atoms.U.T, 0.0), atoms.alpha).reshape(30, 20)
    t, b = cp.Variable(20, nonneg=True), cp.Variable()
    F, y = Phi @ t + b, problem.Y[:, 0]
    value = {
        "absolute": cp.abs(F - y),
        "hinge": cp.pos(1 - cp.multiply(y, F)),
        "epsilon_insensitive": cp.pos(cp.abs(F - y) - 0.1),
    }[loss]
    truth = cp.Problem(cp.Minimize(cp.sum(value) / 30 + problem.beta * atoms.costs @ t)).solve(solver="CLARABEL")
    assert step.value == pytest.approx(truth, rel=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.integers(-6, 3), st.booleans())
@settings(max_examples=60)
def test_the_point_is_always_inside(seed, N, m, power, equation):
    """Parallel and zero cuts, flat and steep problems: whatever happens the point can be used."""
    rng = np.random.default_rng(seed)
    A = rng.integers(-1, 2, (N, m)) * 10.0**power
    A[:, m // 2] = A[:, 0]
    E = np.ones((N, 1)) if equation else np.zeros((N, 0))
    box = BoxProgram(np.full(N, 1e-3), rng.integers(-2, 3, N) + 0.0, -np.ones(N), np.ones(N), A, E)
    u, z, _ = box.solve(1e-6)
    assert np.isfinite(u).all()
    assert np.isfinite(z).all()
    assert (np.abs(u) <= 1).all()
    assert (A.T @ u <= 1 + 1e-9).all()
    assert (z >= 0).all()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_without_atoms_the_intercept_remains(loss):
    problem, atoms = posed(0, 11, 5, loss, True)
    step = corrected_on_box(problem, 1e-6, atoms.take(np.zeros(0, dtype=int)), 1e-7)
    grid = np.linspace(-3, 3, 601)
    best = min(problem.loss_value(np.full((11, 1), b)) for b in grid)
    assert step.value <= best + 1e-5
    assert not len(step.t)


def test_neurons_without_weights_stay_out():
    problem, atoms = posed(0, 11, 5, get_loss("absolute"), True)
    U = atoms.U.copy()
    U[2] = 0.0
    step = corrected_on_box(problem, 1e-3, Neurons(U, atoms.alpha, atoms.intercept), 1e-6)
    without = corrected_on_box(problem, 1e-3, atoms.take(np.array([0, 1, 3, 4])), 1e-6)
    assert step.t[2] == 0.0
    assert step.value == pytest.approx(without.value, rel=1e-6)


def test_smooth_losses_are_for_others():
    problem, atoms = posed(0, 10, 5, get_loss("logistic"), True)
    assert corrected_on_box(problem, 0.1, atoms, 1e-6) is None
