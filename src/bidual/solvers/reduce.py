"""Fewer neurons for the same objective."""

from __future__ import annotations

import numpy as np

from bidual.problem import Neurons, Problem

#: Relative rise of the objective that removing or merging neurons may cost.
BUDGET = 1e-8
#: Pre-activations this small, relative to the row and the neuron, are zero.
ZERO = 1e-7


def reduce_neurons(problem: Problem, neurons: Neurons) -> Neurons:
    """Prune neurons that carry nothing, and merge those that share a cone (003 Thm 1)."""
    objective = problem.objective(neurons)
    if not np.isfinite(objective):  # nothing to compare with
        return neurons.balanced()
    nothing = Neurons.none(neurons.U.shape[1], np.zeros_like(neurons.intercept))
    if problem.objective(nothing) <= objective:
        return nothing
    return merge(problem, prune(problem, neurons.balanced()))


def prune(problem: Problem, neurons: Neurons) -> Neurons:
    """Drop the cheapest neurons as long as the objective does not rise by more than the budget."""
    if not len(neurons):
        return neurons
    costs = neurons.costs
    ceiling = _ceiling(problem.objective(neurons))
    for threshold in (1.0, *10.0 ** np.arange(-2, -14, -1)):  # 1 drops them all
        kept = neurons.take(costs > threshold * costs.max())
        if problem.objective(kept) <= ceiling:
            return kept
    return neurons


def merge(problem: Problem, neurons: Neurons) -> Neurons:
    """Merge neurons with parallel output weights that lie in the closure of one cell.

    There the activation is linear, so that the sum of two weight vectors computes the sum of the two neurons, and
    its norm is no larger than the sum of the norms.
    """
    if len(neurons) < 2:
        return neurons
    norms = np.linalg.norm(neurons.alpha, axis=1, keepdims=True)
    U, heads = neurons.U * norms, neurons.alpha / norms
    ceiling = _ceiling(problem.objective(neurons))
    rows = problem.M / np.where(problem.row_norms > 0, problem.row_norms, 1.0)[:, None]

    def signs(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = rows @ weights.T
        zero = ZERO * np.linalg.norm(weights, axis=1)
        return (hidden > zero).astype(np.float32), (hidden < -zero).astype(np.float32)

    i = 0
    while i < len(U):
        positive, negative = signs(U)
        conflicts = positive[:, i] @ negative + negative[:, i] @ positive
        partners = np.flatnonzero((conflicts == 0) & (heads @ heads[i] > 1 - 1e-12))
        for j in partners[partners > i]:
            together = U.copy()
            together[i] += together[j]
            candidate = Neurons(np.delete(together, j, axis=0), np.delete(heads, j, axis=0), neurons.intercept)
            if problem.objective(candidate) <= ceiling:
                U, heads = candidate.U, candidate.alpha
                break
        else:
            i += 1
    return Neurons(U, heads, neurons.intercept).balanced()


def _ceiling(objective: float) -> float:
    return objective + BUDGET * abs(objective)
