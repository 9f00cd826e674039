"""Fewer neurons for the same objective."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from bidual import ReLUClassifier, solution_path
from bidual.atoms import Neurons, Relu
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.solvers.reduce import basis, gathered


def test_neurons_that_are_there_twice_vanish_together_without_a_division_by_zero():
    n, m, C = 6, 60, 3
    for seed in range(10):
        rng = np.random.default_rng(seed)
        problem = Problem(
            Relu(rng.standard_normal((n, 2))), np.zeros((n, C)), np.full(n, 1 / n), get_loss("squared"), 0.1, False
        )
        U, alpha = rng.standard_normal((m, 2)), rng.standard_normal((m, C))
        both = Neurons(np.vstack([U, U[::-1]]), np.vstack([alpha, alpha[::-1]]), np.zeros(C))
        fewer = basis(problem, both, problem.objective(both) * (1 + 1e-9))
        assert len(fewer) <= n * C + 1
        np.testing.assert_allclose(problem.outputs(fewer), problem.outputs(both), rtol=1e-8, atol=1e-8)


def test_gathered_neurons_are_sums_of_those_that_are_alike():
    rng = np.random.default_rng(0)
    few = Neurons(rng.standard_normal((3, 4)), np.eye(3), np.zeros(3))
    shares = rng.dirichlet(np.ones(5), 3).ravel()
    parts = Neurons(np.repeat(few.U, 5, axis=0) * shares[:, None], np.repeat(few.alpha, 5, axis=0), few.intercept)
    back = gathered(parts, 3)
    order = np.argmax(back.alpha, axis=1)
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(back.U, few.U[order], rtol=1e-12)
    assert len(gathered(parts, 7)) == 7
    assert len(gathered(parts.take(np.zeros(15, dtype=bool)), 2)) == 0


def test_neurons_that_do_nothing_are_gathered_by_none():
    neurons = Neurons(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), np.array([[1.0], [1.0], [0.0]]), np.zeros(1))
    assert len(gathered(neurons, 3)) == 1
    assert len(gathered(neurons, 1)) == 1


def test_opposite_neurons_vanish_together():
    neurons = Neurons(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.ones((2, 1)), np.zeros(1))
    assert len(gathered(neurons, 1)) == 0


def ring():
    """Points of one class around those of another."""
    rng = np.random.default_rng(7)
    inner = np.arange(40) % 2
    r = np.where(inner, 0.6 * np.sqrt(rng.random(40)), 1.3 + 0.3 * rng.random(40))
    angle = 2 * np.pi * rng.random(40)
    return np.column_stack([1.1 * r * np.cos(angle), r * np.sin(angle)]), inner


@pytest.mark.parametrize("beta", [0.03, 0.01, 0.003])
def test_there_are_no_more_neurons_than_in_a_proven_optimum(beta):
    X, y = ring()
    known = {"beta": beta, "scale": False, "random_state": 0}
    best = ReLUClassifier(**known, method="exact", tol=1e-6).fit(X, y)
    ours = ReLUClassifier(**known, tol=1e-2, prove=False).fit(X, y)
    assert ours.n_neurons_ <= best.n_neurons_
    assert ours.objective_ <= best.objective_ * (1 + 1e-2)
    assert ours.likely_gap_ <= 1e-2


def test_fewer_neurons_with_more_decay_on_iris():
    X, y = load_iris(return_X_y=True)
    path = solution_path(
        (X - X.mean(axis=0)) / X.std(axis=0), y, loss="softmax", n_betas=6, tol=1e-2, beta_min_ratio=1e-2, prove=False,
        random_state=0,
    )  # fmt: skip
    assert path.converged.all()
    assert path.n_neurons[0] == 0
    assert (np.diff(path.n_neurons) >= 0).all()
    assert path.n_neurons[-1] <= 3
