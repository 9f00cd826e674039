"""Fewer neurons for the same objective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bidual._util.typing import FloatArray, IntArray
from bidual._util.watch import current
from bidual.atoms import Neurons
from bidual.problem import Problem

#: Pre-activations this small, relative to the row and the neuron, are zero.
ZERO = 1e-7
#: The size of neurons that vanish together with another one, relative to what it was: not too small to divide by.
VANISHED = 1e-150
#: Entries of a dependence this small, relative to its largest, are rounding.
NOISE = 1e-12


def reduce_neurons(problem: Problem, neurons: Neurons, budget: float = 1e-8, *, merging: bool = True) -> Neurons:
    """Prune neurons that carry nothing, merge those that share a cone (003 Thm 1), keep a basis of the rest.

    ``budget`` is the relative rise of the objective that all of this may cost. Without ``merging`` no neuron changes
    its direction. When it is time to stop, more neurons are left than there need be.
    """
    objective = problem.objective(neurons)
    if not np.isfinite(objective):  # nothing to compare with
        return neurons.balanced()
    nothing = problem.atoms.none(neurons.U.shape[1], np.zeros_like(neurons.intercept))
    if problem.objective(nothing) <= objective:
        return nothing
    ceiling = objective + budget * abs(objective)
    pruned = prune(problem, neurons.balanced(), ceiling)
    merged = merge(problem, pruned, ceiling) if merging and not current().late() else pruned
    return merged if current().late() else basis(problem, merged, ceiling)


def prune(problem: Problem, neurons: Neurons, ceiling: float) -> Neurons:
    """Drop the cheapest neurons as long as the objective does not rise above ``ceiling``."""
    if not len(neurons):
        return neurons
    costs = neurons.costs
    for threshold in (1.0, *10.0 ** np.arange(-2, -14, -1)):  # 1 drops them all
        kept = neurons.take(costs > threshold * costs.max())
        if problem.objective(kept) <= ceiling:
            return kept
    return neurons


def merge(problem: Problem, neurons: Neurons, ceiling: float) -> Neurons:
    """Merge neurons with parallel output weights that lie in the closure of one cell.

    There the activation is linear, so that the sum of two weight vectors computes the sum of the two neurons, and
    its norm is no larger than the sum of the norms.
    """
    if len(neurons) < 2 or not problem.atoms.merges:
        return neurons
    norms = np.linalg.norm(neurons.alpha, axis=1, keepdims=True)
    U, heads = neurons.U * norms, neurons.alpha / norms
    rows = problem.atoms.M / np.where(problem.atoms.row_norms > 0, problem.atoms.row_norms, 1.0)[:, None]

    hidden = rows @ U.T
    zero = ZERO * np.linalg.norm(U, axis=1)
    positive, negative = (hidden > zero).astype(np.float32), (hidden < -zero).astype(np.float32)
    # The objective is followed by what a merger changes: one neuron instead of two.
    costs = neurons.costs.copy()

    def contributions(u: FloatArray, head: FloatArray) -> FloatArray:
        return problem.atoms.contributions_of(problem.atoms.neurons(u, head, neurons.intercept))

    Phi = contributions(U, heads)
    F, total = Phi.sum(axis=2) + neurons.intercept, float(costs.sum())
    alive = np.ones(len(U), dtype=bool)
    i, watch = 0, current()
    while i < len(U) and not watch.late():
        conflicts = positive[:, i] @ negative + negative[:, i] @ positive
        partners = np.flatnonzero(alive & (conflicts == 0) & (heads @ heads[i] > 1 - 1e-12))
        for j in partners[partners > i] if alive[i] else ():
            u = U[i] + U[j]
            phi = contributions(u[None], heads[i : i + 1])[:, :, 0]
            cost = float(problem.atoms.neurons(u[None], heads[i : i + 1], neurons.intercept).costs[0])
            F_new = F + phi - Phi[:, :, i] - Phi[:, :, j]
            total_new = total + cost - costs[i] - costs[j]
            if problem.loss_value(F_new) + problem.beta * total_new <= ceiling:
                U[i], Phi[:, :, i], costs[i], alive[j] = u, phi, cost, False
                F, total = F_new, total_new
                positive[:, i] = np.maximum(positive[:, i], positive[:, j])
                negative[:, i] = np.maximum(negative[:, i], negative[:, j])
                break
        else:
            i += 1
    merged = problem.atoms.neurons(U[alive], heads[alive], neurons.intercept).balanced()
    return merged if problem.objective(merged) <= ceiling else neurons


def gathered(neurons: Neurons, width: int) -> Neurons:
    """A network of so many neurons that computes nearly the same: step by step the two most alike become their sum.

    Small neurons go to the nearest large ones; whatever the sum misses is left to the steps that follow.
    """
    sizes = np.linalg.norm(neurons.alpha, axis=1, keepdims=True)
    alive = (sizes[:, 0] > 0) & neurons.U.any(axis=1)
    U, alpha = (neurons.U * sizes)[alive], neurons.alpha[alive] / sizes[alive]
    costs = np.linalg.norm(U, axis=1)

    def unlike(i: IntArray) -> FloatArray:
        cosines = (U[i] @ U.T) / np.maximum(np.outer(costs[i], costs), VANISHED) * (alpha[i] @ alpha.T)
        away = np.minimum(costs[i][:, None], costs) * (1.0 - cosines)
        away[np.arange(len(i)), i] = np.inf
        return away

    away = unlike(np.arange(len(U)))
    left = len(U)
    while left > max(width, 1):
        a, b = divmod(int(np.argmin(away)), len(U))
        out = costs[a] * alpha[a] + costs[b] * alpha[b]
        out /= max(float(np.linalg.norm(out)), VANISHED)
        U[a], alpha[a] = U[a] * (alpha[a] @ out) + U[b] * (alpha[b] @ out), out
        costs[a], costs[b] = max(float(np.linalg.norm(U[a])), VANISHED), 0.0
        away[b], away[:, b] = np.inf, np.inf
        row = unlike(np.array([a]))[0]
        row[~np.isfinite(away).any(axis=1)] = np.inf
        away[a], away[:, a] = row, row
        left -= 1
    kept = costs > VANISHED  # opposites have cancelled
    return replace(neurons, U=U[kept], alpha=alpha[kept])


def basis(problem: Problem, neurons: Neurons, ceiling: float) -> Neurons:
    r"""The same outputs at the same cost with fewer neurons: at most one more than there are outputs in all.

    Caratheodory's argument (003 sec. 2, :math:`m^* \le n + 1`): as long as the vectors (outputs of a neuron, its cost)
    are linearly dependent, magnitudes can move along the dependence until one of them is zero.
    """
    m = len(neurons)
    if m < 2:
        return neurons
    vectors = problem.atoms.contributions_of(neurons).reshape(-1, m)
    vectors = np.vstack([vectors, neurons.costs])
    lengths = np.linalg.norm(vectors, axis=0)
    # Few neurons on many rows are independent as a rule, and finding out would cost more than it is worth.
    if not lengths.all() or (m <= len(vectors) and vectors.size > 40_000):
        return neurons
    units, t = vectors / lengths, lengths.copy()
    active = np.arange(m)
    watch = current()
    while len(active) > 1 and not watch.late():
        # A few more vectors than dimensions at a time are sure to be dependent, and cheap to decompose.
        some = active[: len(vectors) + 64]
        matrix = units[:, some]
        if len(matrix) > len(some):  # the left singular vectors would fill a square of the number of rows
            matrix = np.linalg.qr(matrix, mode="r")
        _, sigma, Vt = np.linalg.svd(matrix)
        dependences = Vt[int((sigma > 1e-13 * sigma[0]).sum()) :].T
        if not dependences.shape[1]:
            break
        for _ in range(dependences.shape[1]):
            first = dependences[:, 0]
            change = first / t[some]
            # this neuron is the first to vanish; where equals vanish together, rounding is no dependence of the others
            k = int(np.argmax(np.where(np.abs(first) > NOISE * np.abs(first).max(), np.abs(change), 0.0)))
            t[some] = np.maximum(t[some] * (1.0 - change / change[k]), VANISHED * lengths[some])
            active = active[active != some[k]]
            # the other dependences, without that neuron
            dependences = dependences[:, 1:] - np.outer(first, dependences[k, 1:] / first[k])
            dependences, some = np.delete(dependences, k, axis=0), np.delete(some, k)
    t = t / lengths
    kept = neurons.take(active)
    kept = replace(kept, U=kept.U * t[active, None]).balanced()
    return kept if problem.objective(kept) <= ceiling else neurons
