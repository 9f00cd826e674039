"""The best last two layers of deep torch networks: 000 Theorems 5.1 and 5.2."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from bidual.closed_form import ConditionError
from bidual.study.last_layers import optimal_last_layers


def deep(outputs=1, bias=True, width=20, seed=0):
    """A deep network with batch normalisation, trained for a little while."""
    torch.manual_seed(seed)
    body = [torch.nn.Linear(2, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU()]
    end = [torch.nn.Linear(width, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, outputs, bias=bias)]
    module = torch.nn.Sequential(torch.nn.Sequential(*body), *end).double()
    X, Y = rows(outputs)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(50):
        optimiser.zero_grad()
        ((module(torch.tensor(X)) - torch.tensor(Y)) ** 2).mean().backward()
        optimiser.step()
    return module, X, Y


def rows(outputs, n=6):
    rng = np.random.default_rng(1)
    Y = rng.standard_normal((n, 1)) if outputs == 1 else np.eye(outputs)[np.arange(n) % outputs]
    return rng.standard_normal((n, 2)), Y


def objective(module, X, Y, beta, training=False):
    """Mean loss and weight decay of the last two layers, by torch; in training mode with the statistics of the rows."""
    module = copy.deepcopy(module)
    if training:
        module[-3].train()
    norm, last = module[-3], module[-1]
    with torch.no_grad():
        F = module(torch.tensor(X))
        decay = sum(float((p**2).sum()) for p in (norm.weight, norm.bias, last.weight))
        return 0.5 * float(((F - torch.tensor(Y)) ** 2).sum()) / len(X) + 0.5 * beta * decay


@pytest.mark.parametrize(("outputs", "bias"), [(1, True), (1, False), (3, False)])
def test_the_formula_gives_the_best_last_two_layers_and_their_objective_is_that_of_torch(outputs, bias):
    module, X, Y = deep(outputs, bias)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    found = optimal_last_layers(module, X, Y, beta=0.05)
    assert "Theorem 2" in found.certificate.method
    assert found.certificate.gap < 1e-7
    assert found.certificate.verify(found.features, Y)
    for training in (False, True):  # what is normalised by are the statistics of the rows
        assert objective(found.module, X, Y, 0.05, training) == pytest.approx(found.objective, rel=1e-6)
    assert found.before == pytest.approx(objective(module.eval(), X, Y, 0.05), rel=1e-9)
    assert found.objective < found.before
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


def test_no_training_of_the_last_two_layers_gets_below():
    module, X, Y = deep()
    found = optimal_last_layers(module, X, Y, beta=0.05)
    torch.manual_seed(1)
    A, target = torch.tensor(found.features), torch.tensor(Y)
    wide = 12
    hidden, norm = torch.nn.Linear(A.shape[1], wide).double(), torch.nn.BatchNorm1d(wide, eps=1e-12).double()
    last = torch.nn.Linear(wide, 1).double()
    parameters = [*hidden.parameters(), *norm.parameters(), *last.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 800)
    for _ in range(800):
        optimiser.zero_grad()
        decay = sum((p**2).sum() for p in (norm.weight, norm.bias, last.weight))
        value = 0.5 * ((last(torch.relu(norm(hidden(A)))) - target) ** 2).mean() + 0.025 * decay
        value.backward()
        optimiser.step()
        schedule.step()
    reached = float(value.detach())
    assert found.objective <= reached * (1 + 1e-9)
    assert reached == pytest.approx(found.objective, rel=1e-2)


def test_conditions_of_the_theorems_are_named_and_other_methods_need_none():
    module, X, Y = deep(width=3)
    with pytest.raises(ConditionError, match="rank of the features"):
        optimal_last_layers(module, X, Y, beta=0.05)
    found = optimal_last_layers(module, X, Y, beta=0.05, method="exact", normalisation="norm")
    assert found.certificate.gap < 1e-3
    assert "last two layers" in str(found)
    with pytest.raises(ValueError, match=r"use .*fit_intercept=False"):
        optimal_last_layers(*deep(3), beta=0.05, method="closed_form")


def test_modules_that_end_otherwise_are_refused():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    with pytest.raises(ValueError, match="ends in Linear, BatchNorm1d, ReLU, Linear"):
        optimal_last_layers(module, *rows(1), beta=0.1)
    bare = torch.nn.Sequential(
        torch.nn.Linear(2, 9), torch.nn.BatchNorm1d(9, affine=False), torch.nn.ReLU(), torch.nn.Linear(9, 1)
    )
    with pytest.raises(ValueError, match="statistics and weights"):
        optimal_last_layers(bare, *rows(1), beta=0.1, method="exact")
