r"""Pricing: search for the branch of unit cost that violates the dual constraint most.

On the cell of a branch the best leaves are parallel to the gradient, towards which they move, crossing hyperplanes.
There are very many local maxima, and one start in a thousand ends at one that matters; but the good ones have leaves in
common with each other. The best branches therefore have offspring, which differ from them in a leaf or a sign, for some
generations; the best of all are then put at the maximum of their cone and of the cones it touches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual._util.watch import checkpoint
from bidual.arrangements.cones import projected
from bidual.arrangements.patterns import unique_rows
from bidual.atoms import Branches, SubNetworks
from bidual.atoms.branch_cells import LayeredPatterns
from bidual.atoms.branches import random_branches
from bidual.problem import Problem
from bidual.solvers.run import generator


class Effort(NamedTuple):
    """How much searching: branches to start from, generations of as many offspring, and what follows.

    ``cones`` branches are put at the maximum of their cone, the best ``polished`` of which go on from cone to cone.
    """

    starts: int
    generations: int
    cones: int
    polished: int


#: The first rounds, the later ones, and each search of an audit.
ROUND, CAREFUL, AUDIT = Effort(64, 2, 16, 8), Effort(128, 4, 48, 16), Effort(1024, 10, 300, 24)
#: Parents of a generation for each of its offspring: with more of them most are hopeless, with fewer all are alike.
PARENTS = 0.5
#: Entries of M for all leaves of all starts that a search can afford, and starts that it has at least.
STARTS_ENTRIES, FEWEST = 8_000_000, 192
#: Branches are alike whose outputs exceed this share of their largest one at the same rows.
ALIKE = 0.125
#: Cosine of the outputs from which on a branch is taken for another one.
SAME = 0.99
#: Share of the offspring that are tried with the opposite head.
OPPOSITE = 0.25
#: Lengths of a leaf that is drawn anew relative to the longest leaf of its branch, and of the noise on all leaves.
FRESH, NOISE = (0.2, 1.0), (0.05, 0.2, 0.5)
#: First length of the steps of an ascent, by how much they are shortened in how many steps, and after which steps only
#: the best go on, with their share. Steps that shrink whatever they bring get across kinks, at which steps that must
#: bring something end. Long ones leave the basin of a maximum they begin in: from a tenth of its length beside a branch
#: that mattered, first steps of .2 and .5 led back to it once in a hundred times, those of .1 ten times as often.
FIRST, SHRINK, STEPS, SIEVES = 0.1, 1 / 40, 60, {6: 0.5, 15: 0.4}
#: Moves of a polish from cone to cone, cones it looks at around each branch, and entries of all cones that it can
#: afford in a round.
HOPS, NEIGHBOURS, ENTRIES = 12, 6, 40_000
#: Noise that reaches the cones around, and the relative gain below which a polish ends.
AROUND, GAIN = 1e-4, 1e-8
#: Entries of the arrays of one batch of the ascent.
BATCH_ENTRIES = 4_000_000


class Search:
    r"""Local search for :math:`\max \|V^T \phi(W)\|` over branches with :math:`\|W\|_F \le 1`.

    Branches are held as :class:`SubNetworks` of unit cost, whose output weights are the direction of
    :math:`V^T \phi`: the head with which the branch helps most.
    """

    def __init__(self, problem: Problem[Branches], rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng

    def values(self, branches: SubNetworks, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The constraint at ``branches``, and the heads, ``(K,)`` and ``(K, C)``."""
        heads = self.problem.atoms.hidden_of(branches).T @ V
        values = np.linalg.norm(heads, axis=1)
        return values, heads / np.where(values > 0, values, 1.0)[:, None]

    def ascend(self, branches: SubNetworks, V: FloatArray) -> tuple[SubNetworks, FloatArray]:
        """Branches reached from these, each towards its own head, and the values there."""
        problem = self.problem
        if not len(branches):
            return branches, np.zeros(0)
        some = max(1, BATCH_ENTRIES // max(len(problem.atoms.M) * problem.atoms.tree.leaves, 1))
        if len(branches) > some:
            index = np.array_split(np.arange(len(branches)), -(-len(branches) // some))
            parts = [self.ascend(branches.take(i), V) for i in index]
            joined = parts[0][0]
            for part, _ in parts[1:]:
                joined = joined.joined(part)
            return joined, np.concatenate([values for _, values in parts])
        # those that still move, by themselves
        moving, U, signs, pull = np.arange(len(branches)), branches.U, branches.signs, branches.alpha @ V.T
        best, towards = self._slopes(U, signs, pull)
        top = U.copy()
        for step in range(STEPS):
            checkpoint()
            length = FIRST * SHRINK ** (step / STEPS)
            U = (1.0 - length) * U + length * towards
            U /= np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-300)
            values, towards = self._slopes(U, signs, pull)
            better = values > best[moving]
            top[moving[better]], best[moving[better]] = U[better], values[better]
            if step in SIEVES:  # most of the hopeless can be told by now
                kept = best[moving] >= np.quantile(best[moving], 1.0 - SIEVES[step])
                moving, signs, pull = moving[kept], signs[kept], pull[kept]
                U, towards = U[kept], towards[kept]
        moved = replace(branches, U=top)
        values, heads = self.values(moved, V)
        return replace(moved, alpha=heads), values

    def _slopes(self, U: FloatArray, signs: FloatArray, pull: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What branches with leaves ``U`` are worth to the rows ``pull (K, n)``, and the directions of steepest ascent.

        Directions are unit vectors, or zero.
        """
        atoms = self.problem.atoms
        phi, gates = atoms.tree.gates(atoms.leaves(U), signs)
        gates = gates.transpose(1, 2, 0)  # as they are in memory: so is ``pull``
        gates *= pull[:, None, :]
        gradient = (gates.reshape(-1, len(atoms.M)) @ atoms.M).reshape(U.shape)
        norms = np.linalg.norm(gradient, axis=1, keepdims=True)
        return np.einsum("nk,kn->k", phi, pull), gradient / np.maximum(norms, 1e-300)

    def strangers(self, V: FloatArray, count: int) -> SubNetworks:
        """Random branches with heads up and down."""
        found = self._headed(random_branches(self.problem.atoms, count, self.problem.n_outputs, self.rng), V)
        return found.joined(replace(found, alpha=-found.alpha))

    def offspring(self, parents: SubNetworks, V: FloatArray, count: int) -> SubNetworks:
        """Branches like ``parents``, of unit cost, but for one of four differences.

        A leaf drawn anew, a leaf of another parent (both with another sign, half of them), another sign, or noise on
        all leaves.
        """
        problem, rng = self.problem, self.rng
        T, p, each = problem.atoms.tree.leaves, problem.atoms.M.shape[1], np.arange(count)
        born = parents.take(rng.integers(len(parents), size=count))
        W, signs = born.U.reshape(count, T, p).copy(), born.signs.copy()
        kind, leaf = rng.integers(4, size=count), rng.integers(T, size=count)
        drawn = random_branches(problem.atoms, count, problem.n_outputs, rng).U.reshape(count, T, p)[:, 0]
        drawn /= np.maximum(np.linalg.norm(drawn, axis=1, keepdims=True), 1e-300)
        drawn *= (np.linalg.norm(W, axis=2).max(axis=1) * rng.uniform(*FRESH, size=count))[:, None]
        others = parents.U.reshape(-1, p)[rng.integers(T * len(parents), size=count)]
        for which, leaves in enumerate((drawn, others)):
            W[each[kind == which], leaf[kind == which]] = leaves[kind == which]
        flipped = each[(kind == 2) | ((kind < 2) & (rng.random(count) < 0.5))]
        signs[flipped, rng.integers(signs.shape[1], size=len(flipped))] *= -1.0
        noise = rng.choice(NOISE, size=(count, 1, 1)) * rng.standard_normal(W.shape) / np.sqrt(T * p)
        W[kind == 3] += noise[kind == 3]
        heads = np.ones_like(born.alpha)  # their own are zero for those that compute nothing; new ones follow
        born = self._headed(unit_cost(replace(born, U=W.reshape(count, T * p), alpha=heads, signs=signs)), V)
        opposite = rng.random((len(born), 1)) < OPPOSITE
        return replace(born, alpha=np.where(opposite, -born.alpha, born.alpha))

    def _headed(self, branches: SubNetworks, V: FloatArray) -> SubNetworks:
        """The same branches with the heads that help most; any for those that compute nothing."""
        values, heads = self.values(branches, V)
        return replace(branches, alpha=np.where((values > 0)[:, None], heads, np.eye(1, V.shape[1])))

    def run(
        self, V: FloatArray, near: SubNetworks, effort: Effort, stop: Callable[[], bool] = lambda: False
    ) -> tuple[SubNetworks, FloatArray]:
        """Branches and values, best first, from strangers and from ``near`` with their offspring, until ``stop()``."""
        size = len(self.problem.atoms.M) * self.problem.atoms.tree.leaves * self.problem.atoms.M.shape[1]
        starts = min(effort.starts, max(STARTS_ENTRIES // max(size, 1), FEWEST))
        found, values = self.ascend(self.strangers(V, starts), V)
        if len(near):
            units = self._headed(unit_cost(near), V)
            units = units.take(unlike(self.problem, units))
            # by themselves: beside those in use, which are at the limit, all others would seem hopeless
            others, theirs = self.ascend(units.joined(self.offspring(units, V, starts)), V)
            found, values = found.joined(others), np.concatenate([values, theirs])
        for _ in range(effort.generations):
            if stop():
                break
            # unlike each other: those in use and their likes, all at the limit, must not be the only ones
            found, values = _best(found, values, len(found))
            parents = found.take(unlike(self.problem, found)[: int(PARENTS * starts)])
            others, theirs = self.ascend(self.offspring(parents, V, starts), V)
            found, values = found.joined(others), np.concatenate([values, theirs])
        found, values = _best(found, values, len(found))
        share = min(1.0, self.affordable / ROUND.polished)
        for count, finish in ((effort.cones, self.settle), (effort.polished, self.polish)):
            some = int(share * count)
            if some and len(found) and not stop():
                # an ascent ends percents below its maximum, so that many must be put there to know the best
                first = unlike(self.problem, found)[:some]
                best, top = finish(found.take(first), V)
                found, values = _best(best.joined(found), np.concatenate([top, values]), len(found))
        return found, values

    @property
    def affordable(self) -> int:
        """Branches that a round can polish."""
        n, p = self.problem.atoms.M.shape
        return ENTRIES // max(n * self.problem.atoms.tree.nodes * p * self.problem.atoms.tree.leaves, 1)

    def settle(self, branches: SubNetworks, V: FloatArray) -> tuple[SubNetworks, FloatArray]:
        """The best branches of the cones of these."""
        best = self._best_of_cones(branches, V)
        values, heads = self.values(best, V)
        return replace(best, alpha=heads), values

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
            noise = AROUND * self.rng.standard_normal(near.U.shape)
            noise[: len(moving)] = 0.0
            trials = self._best_of_cones(replace(near, U=near.U + noise), V)
            found, heads = self.values(trials, V)
            better = np.zeros(len(branches), dtype=bool)
            for i in np.argsort(found, kind="stable"):  # the best comes last
                o = owner[i]
                if found[i] > values[o] * (1 + GAIN):
                    branches.U[o], branches.alpha[o], values[o], better[o] = trials.U[i], heads[i], found[i], True
            moving = np.flatnonzero(better)
        return branches, values

    def _best_of_cones(self, branches: SubNetworks, V: FloatArray) -> SubNetworks:
        """The best leaves in the cone of each branch: the gradient projected on it."""
        M, tree = self.problem.atoms.M, self.problem.atoms.tree
        masks = np.ascontiguousarray(tree.masks(self.problem.atoms.leaves(branches.U), branches.signs).swapaxes(0, 1))
        cells = LayeredPatterns(tree, masks, branches.signs)  # one for each branch, equal or not
        gradients = np.einsum("knt,kn->ktn", cells.gates, branches.alpha @ V.T) @ M
        cell, _, normals = cells.normals(M)
        ends = np.searchsorted(cell, np.arange(len(branches) + 1))
        U = np.empty_like(branches.U)
        for k in range(len(branches)):
            checkpoint()
            gradient = gradients[k].ravel()
            length = float(np.linalg.norm(gradient))
            U[k] = projected(gradient / length, normals[ends[k] : ends[k + 1]]) if length > 0 else gradient
        lengths = np.linalg.norm(U, axis=1, keepdims=True)
        return replace(branches, U=np.where(lengths > 0, U / np.where(lengths > 0, lengths, 1.0), branches.U))


def unit_cost(branches: SubNetworks) -> SubNetworks:
    """The same branches with leaves and heads of unit length; those that do nothing are removed."""
    u, a = np.linalg.norm(branches.U, axis=1), np.linalg.norm(branches.alpha, axis=1)
    alive = (u > 0) & (a > 0)
    kept = branches.take(alive)
    return replace(kept, U=kept.U / u[alive, None], alpha=kept.alpha / a[alive, None])


def search_parallel(
    problem: Problem[Branches], V: FloatArray, random_state: int | np.random.RandomState | None
) -> float:
    """The largest value of the dual constraint at ``V`` that local search finds."""
    reduced = replace(problem, atoms=replace(problem.atoms, M=problem.atoms.reduced))
    nothing = reduced.atoms.none(reduced.atoms.M.shape[1], np.zeros(problem.n_outputs))
    if not reduced.atoms.M.size:
        return 0.0
    return float(Search(reduced, generator(random_state)).run(V, nothing, AUDIT)[1].max(initial=0.0))


def distinct(problem: Problem[Branches], branches: SubNetworks) -> IntArray:
    """Index of the first branch in each cell."""
    masks = problem.atoms.tree.masks(problem.atoms.leaves(branches.U), branches.signs).swapaxes(0, 1)
    masks = masks.reshape(len(branches), len(problem.atoms.M) * problem.atoms.tree.nodes)
    return unique_rows(np.column_stack([masks, branches.signs > 0]))[0]


def unlike(problem: Problem[Branches], branches: SubNetworks) -> IntArray:
    """Index of the first of all branches that are alike.

    A maximum at the edge of its cone is in many cells, so that cells do not tell one from another.
    """
    outputs = problem.atoms.hidden_of(branches).T
    large = outputs > ALIKE * outputs.max(axis=1, keepdims=True, initial=0.0)
    return unique_rows(np.column_stack([large, branches.alpha > 0]))[0]


def found_again(problem: Problem[Branches], known: SubNetworks, found: SubNetworks) -> BoolArray:
    """Which of the ``known`` branches are among the ``found`` ones, by their heads and outputs."""
    outputs = [problem.atoms.hidden_of(branches).T for branches in (known, found)]
    outputs = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300) for rows in outputs]
    same = (outputs[0] @ outputs[1].T > SAME) & (known.alpha @ found.alpha.T > 0)
    return np.asarray(same.any(axis=1), dtype=bool)


def _best(branches: SubNetworks, values: FloatArray, count: int) -> tuple[SubNetworks, FloatArray]:
    """The best so many, best first."""
    order = np.argsort(-values, kind="stable")[:count]
    return branches.take(order), values[order]
