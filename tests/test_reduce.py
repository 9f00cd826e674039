"""Fewer neurons for the same objective."""

from __future__ import annotations

import numpy as np

from bidual.atoms import Neurons, Relu
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.solvers.reduce import basis


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
