r"""Pricing: search for the branch of unit cost that violates the dual constraint most.

On the cell of a branch the best leaves are parallel to the gradient, towards which they move, crossing hyperplanes;
the best branches are then put at the maximum of their cone and of the cones it touches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import nnls
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual.problem import ParallelProblem, SubNetworks
from bidual.solvers.parallel.cells import cells_of, random_branches, random_signs

#: Branches that pricing starts from and how many it polishes: in the first rounds, the later ones and the audit.
ROUND, CAREFUL, AUDIT = (64, 8), (128, 16), (384, 48)
#: First lengths of the steps of an ascent (each branch has one of them), by how much all steps are shortened in how
#: many steps, and after which steps only the best go on, with their share. Steps that shrink whatever they bring get
#: across kinks, at which steps that must bring something end; too long ones lead all branches to the same few.
FIRST, SHRINK, STEPS, SIEVES = (0.2, 0.5), 1 / 40, 60, {6: 0.5, 15: 0.4, 30: 0.5}
#: Moves of a polish from cone to cone, cones it looks at around each branch, and entries of all cones that it can
#: afford in a round.
HOPS, NEIGHBOURS, ENTRIES = 12, 6, 40_000
#: Entries of the arrays of one batch of the ascent.
BATCH_ENTRIES = 4_000_000


class Search:
    r"""Local search for :math:`\max \|V^T \phi(W)\|` over branches with :math:`\|W\|_F \le 1`.

    Branches are held as :class:`SubNetworks` of unit cost, whose output weights are the direction of
    :math:`V^T \phi`: the head with which the branch helps most.
    """

    def __init__(self, problem: ParallelProblem, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng

    def values(self, branches: SubNetworks, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The constraint at ``branches``, and the heads, ``(K,)`` and ``(K, C)``."""
        heads = self.problem.hidden_of(branches).T @ V
        values = np.linalg.norm(heads, axis=1)
        return values, heads / np.where(values > 0, values, 1.0)[:, None]

    def ascend(self, branches: SubNetworks, V: FloatArray) -> tuple[SubNetworks, FloatArray]:
        """Branches reached from these, each towards its own head, and the values there."""
        problem = self.problem
        some = max(1, BATCH_ENTRIES // max(len(problem.M) * problem.tree.leaves, 1))
        if len(branches) > some:
            index = np.array_split(np.arange(len(branches)), -(-len(branches) // some))
            parts = [self.ascend(branches.take(i), V) for i in index]
            joined = parts[0][0]
            for part, _ in parts[1:]:
                joined = joined.joined(part)
            return joined, np.concatenate([values for _, values in parts])
        U, pull = branches.U.copy(), (branches.alpha @ V.T).T
        best, towards = self._slopes(U, branches.signs, pull)
        top, first = U.copy(), self.rng.choice(FIRST, size=(len(U), 1))
        moving = np.arange(len(U))
        for step in range(STEPS):
            length = first[moving] * SHRINK ** (step / STEPS)
            trial = (1.0 - length) * U[moving] + length * towards[moving]
            trial /= np.maximum(np.linalg.norm(trial, axis=1, keepdims=True), 1e-300)
            U[moving] = trial
            values, towards[moving] = self._slopes(trial, branches.signs[moving], pull[:, moving])
            better = values > best[moving]
            top[moving[better]], best[moving[better]] = trial[better], values[better]
            if step in SIEVES:  # most of the hopeless can be told by now
                moving = moving[best[moving] >= np.quantile(best[moving], 1.0 - SIEVES[step])]
        moved = replace(branches, U=top)
        values, heads = self.values(moved, V)
        return replace(moved, alpha=heads), values

    def _slopes(self, U: FloatArray, signs: FloatArray, pull: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What branches with leaves ``U`` are worth to the rows ``pull``, and the unit vectors of steepest ascent."""
        problem = self.problem
        phi, gates = problem.tree.gates(problem.leaves(U), signs)
        gates *= pull[:, :, None]
        gradient = (gates.transpose(1, 2, 0).reshape(-1, len(problem.M)) @ problem.M).reshape(U.shape)
        norms = np.linalg.norm(gradient, axis=1, keepdims=True)
        return (phi * pull).sum(axis=0), np.where(norms > 0, gradient / np.where(norms > 0, norms, 1.0), U)

    def starts(self, V: FloatArray, near: SubNetworks, count: int) -> SubNetworks:
        """Random branches with heads up and down, and the neighbourhood of ``near``."""
        problem, rng = self.problem, self.rng
        found = self._headed(random_branches(problem, count, rng), V)
        found = found.joined(replace(found, alpha=-found.alpha))
        if len(near):
            units = unit_cost(near)
            some = units.take(rng.integers(len(units), size=count))
            spread = rng.choice([0.01, 0.1, 0.5], size=(len(some), 1))
            noise = rng.standard_normal(some.U.shape) / np.sqrt(some.U.shape[1])
            # other signs on the same leaves are another branch
            signs = np.where(rng.random((len(some), 1)) < 0.3, random_signs(problem, len(some), rng), some.signs)
            moved = unit_cost(replace(some, U=some.U + spread * noise, signs=signs))
            found = found.joined(self._headed(units.joined(moved), V))
        return found

    def _headed(self, branches: SubNetworks, V: FloatArray) -> SubNetworks:
        """The same branches with the heads that help most; any for those that compute nothing."""
        values, heads = self.values(branches, V)
        return replace(branches, alpha=np.where((values > 0)[:, None], heads, np.eye(1, V.shape[1])))

    def run(self, V: FloatArray, near: SubNetworks, starts: int, polished: int) -> tuple[SubNetworks, FloatArray]:
        """Branches and values, best first; the best so many are polished."""
        found, values = self.ascend(self.starts(V, near, starts), V)
        order = np.argsort(-values, kind="stable")
        found, values = found.take(order), values[order]
        some = min(polished, len(found), self.affordable * polished // ROUND[1])
        if some:
            best, top = self.polish(found.take(np.arange(some)), V)
            found, values = best.joined(found), np.concatenate([top, values])
            order = np.argsort(-values, kind="stable")
            found, values = found.take(order), values[order]
        return found, values

    @property
    def affordable(self) -> int:
        """Branches that a round can polish."""
        n, p = self.problem.M.shape
        return ENTRIES // max(n * self.problem.tree.nodes * p * self.problem.tree.leaves, 1)

    def polish(self, branches: SubNetworks, V: FloatArray) -> tuple[SubNetworks, FloatArray]:
        """Branches no worse than these that are the best of their own cone and of those around."""
        values, heads = self.values(branches, V)
        branches = replace(branches, alpha=heads)
        moving = np.arange(len(branches))
        for _ in range(HOPS):
            if not len(moving):
                break
            owner = np.tile(moving, NEIGHBOURS)
            near = branches.take(owner)
            noise = 1e-4 * self.rng.standard_normal(near.U.shape)
            noise[: len(moving)] = 0.0
            trials = self._best_of_cones(replace(near, U=near.U + noise), V)
            found, heads = self.values(trials, V)
            better = np.zeros(len(branches), dtype=bool)
            for i in np.argsort(found, kind="stable"):  # the best comes last
                o = owner[i]
                if found[i] > values[o] * (1 + 1e-8):
                    branches.U[o], branches.alpha[o], values[o], better[o] = trials.U[i], heads[i], found[i], True
            moving = np.flatnonzero(better)
        return branches, values

    def _best_of_cones(self, branches: SubNetworks, V: FloatArray) -> SubNetworks:
        """The best leaves in the cone of each branch: the gradient projected on it."""
        problem = self.problem
        U = np.empty_like(branches.U)
        for k in range(len(branches)):
            cell = cells_of(problem, branches.take(np.array([k])))
            pull = V @ branches.alpha[k]
            gradient = np.einsum("nt,n,np->tp", cell.gates[0], pull, problem.M).ravel()
            U[k] = _project(gradient, cell.normals(problem.M)[2])
        lengths = np.linalg.norm(U, axis=1, keepdims=True)
        return replace(branches, U=np.where(lengths > 0, U / np.where(lengths > 0, lengths, 1.0), branches.U))


def unit_cost(branches: SubNetworks) -> SubNetworks:
    """The same branches with leaves and heads of unit length; those that do nothing are removed."""
    u, a = np.linalg.norm(branches.U, axis=1), np.linalg.norm(branches.alpha, axis=1)
    alive = (u > 0) & (a > 0)
    kept = branches.take(alive)
    return replace(kept, U=kept.U / u[alive, None], alpha=kept.alpha / a[alive, None])


def search_parallel(problem: ParallelProblem, V: FloatArray, random_state: int | np.random.RandomState | None) -> float:
    """The largest value of the dual constraint at ``V`` that local search finds."""
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    reduced = replace(problem, M=problem.reduced)
    nothing = reduced.no_neurons(reduced.M.shape[1], np.zeros(problem.n_outputs))
    if not reduced.M.size:
        return 0.0
    return float(Search(reduced, rng).run(V, nothing, *ROUND)[1].max(initial=0.0))


def _project(point: FloatArray, normals: FloatArray) -> FloatArray:
    """The nearest point in the cone ``normals @ z >= 0``; the point itself if the search for it fails."""
    scale = float(np.linalg.norm(point))
    if scale == 0.0:
        return point
    try:
        return point / scale + normals.T @ nnls(normals.T, -point / scale)[0]
    except RuntimeError:
        return point
