"""Independent truth for deep networks: the objectives written out in torch, trained from random starts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch


def white_rows(seed, n, d):
    """Rows with X X^T = I."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, n)))[0].T


def squared(Y):
    """Mean squared loss of outputs."""
    Y = torch.as_tensor(Y)
    return lambda F: 0.5 * ((F - Y) ** 2).sum(dim=1).mean()


def train_dense(X, loss, C, beta, depth, width, *, relu, intercept=False, seeds=2, steps=150):
    """Lowest objective of dense networks by Adam and L-BFGS from a few seeds, in double precision."""

    def start(seed):
        torch.manual_seed(seed)
        widths = [X.shape[1], *[width] * (depth - 1), C]
        layers = [torch.randn(a, b, dtype=torch.float64) * (1.4 / a**0.5) for a, b in pairwise(widths)]
        return layers, [torch.zeros(C, dtype=torch.float64)] if intercept else []

    def forward(layers, biases, A):
        for W in layers[:-1]:
            A = torch.relu(A @ W) if relu else A @ W
        return A @ layers[-1] + (biases[0] if biases else 0.0)

    return min(_minimise(start(seed), forward, X, loss, beta, steps) for seed in range(seeds))


def train_parallel(X, loss, C, beta, depth, width, branches, *, seeds=2, steps=200):
    """The same for 001's parallel ReLU networks, every branch ending in one neuron."""

    def start(seed):
        torch.manual_seed(seed)
        widths = [X.shape[1], *[width] * (depth - 2), 1, C]
        shapes = pairwise(widths)
        return [torch.randn(branches, a, b, dtype=torch.float64) * (1.4 / a**0.5) for a, b in shapes], []

    def forward(layers, _, A):
        A = A.expand(branches, *A.shape)
        for W in layers[:-1]:
            A = torch.relu(A @ W)
        return (A @ layers[-1]).sum(dim=0)

    return min(_minimise(start(seed), forward, X, loss, beta, steps) for seed in range(seeds))


def _minimise(start, forward, X, loss, beta, steps):
    layers, biases = ([W.requires_grad_() for W in part] for part in start)
    inputs = torch.as_tensor(X)

    def objective():
        return loss(forward(layers, biases, inputs)) + 0.5 * beta * sum((W**2).sum() for W in layers)

    adam = torch.optim.Adam([*layers, *biases], lr=0.02)
    for _ in range(steps):
        adam.zero_grad()
        objective().backward()
        adam.step()
    polish = torch.optim.LBFGS(
        [*layers, *biases], max_iter=400, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure():
        polish.zero_grad()
        value = objective()
        value.backward()
        return value

    polish.step(closure)
    return objective().item()
