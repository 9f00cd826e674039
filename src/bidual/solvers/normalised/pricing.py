r"""Pricing: search for the normalised neuron that violates the dual constraint most.

On the pattern of a direction q, and for an output direction a, the best direction is a least-squares fit of the dual
point: with :math:`v = V a` and D the pattern it solves :math:`H q = b` for

.. math:: H = X^T D (\mathrm{diag}(w) - w w^T) D X, \qquad b = X^T D (v - w \, 1^T v).

Directions move towards it, crossing hyperplanes, by turns with the output direction; the best ones are then followed
from cone to cone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bidual._util.tuning import tuning
from bidual._util.typing import BoolArray, FloatArray
from bidual._util.watch import checkpoint
from bidual.arrangements import patterns_of
from bidual.arrangements.cones import nearest_rowwise
from bidual.arrangements.patterns import unique_rows
from bidual.atoms import Normalised
from bidual.problem import Problem
from bidual.solvers.run import generator

#: Directions that pricing starts from in each family, how many of all go on, and how many it polishes, in every round
#: and in the audit at the end.
ROUND, AUDIT = (64, 64, 4), (512, 1024, 32)
#: Moves of a polish from cone to cone, and cones it looks at around each direction.
HOPS, NEIGHBOURS = 10, 6
#: Steps of the ascent, and their lengths.
STEPS, LENGTHS = 20, (1.0, 0.4, 0.1, 0.02)
#: Relative gains below which an ascent and a polish end.
GAIN, FINE_GAIN = 1e-6, 1e-7
#: Noise on directions in use, relative to their length, and on those of a polish, to reach the cones around.
SPREAD, AROUND = (0.01, 0.1, 0.5), 1e-4
#: Directions among which those to polish are found: many lie on one pattern.
AMONG = 8
#: What keeps Gram matrices regular, and eigenvalues of them that count as zero, relative to the largest possible one.
RIDGE, NULL = 1e-13, 1e-12
#: What is free costs next to nothing in a projection that needs a price on everything.
FREE = 1e4


class Search:
    r"""Local search for :math:`\max \|V^T h\|` over normalised neurons h of unit cost, in reduced coordinates."""

    def __init__(self, problem: Problem[Normalised], rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        self.rows, self.w, self.k = problem.atoms.plain.reduced, problem.w, problem.atoms.k
        self.weighted = self.w[:, None] * self.rows
        self.inverse = np.linalg.pinv(self.rows)
        one = self.inverse @ np.ones(len(self.rows))
        #: Weights that add a constant, if there are any.
        self.one = one if np.allclose(self.rows @ one, 1.0, rtol=0, atol=1e-9) else None
        self._norm = float(np.einsum("nk,nk->", self.weighted, self.rows))

    def _pieces(self, count: int) -> Iterator[slice]:
        """So many directions, a few at a time."""
        size = max(1, tuning().priced_entries // max(1, len(self.rows)))
        for start in range(0, count, size):
            checkpoint()
            yield slice(start, start + size)

    # ---- values --------------------------------------------------------------------------------

    def pulls(self, heights: FloatArray, V: FloatArray) -> FloatArray:
        r""":math:`V^T \hat z` of directions with these inputs of the ReLU, ``(m, C)``."""
        z = np.maximum(heights, 0.0)
        mean = self.w @ z
        square = np.einsum("n,nm,nm->m", self.w, z, z)
        variance = square - mean**2
        live = variance > 1e-12 * square
        G = z.T @ V - mean[:, None] * V.sum(axis=0)
        return np.where(live, 1.0, 0.0)[:, None] * G / np.sqrt(np.where(live, variance, 1.0))[:, None]

    def best(self, G: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of the best scales and shifts at pulls G: the constraint, (scale, shift), and the directions of outputs."""
        s = V.sum(axis=0)
        A, B, D = (G**2).sum(axis=1), float(s @ s), G @ s
        half = 0.5 * (A - B)
        root = np.hypot(half, D)
        top = np.stack([half + root, D])  # an eigenvector, but where it is zero
        top = np.where(half + root > 0, top, np.array([[0.0], [1.0]]))
        top = top / np.linalg.norm(top, axis=0)
        heads = top[0][:, None] * G + top[1][:, None] * s
        sizes = np.linalg.norm(heads, axis=1, keepdims=True)
        values = self.k * np.sqrt(np.maximum(0.5 * (A + B) + root, 0.0))
        return values, top.T, heads / np.where(sizes > 0, sizes, 1.0)

    def values(self, Q: FloatArray, V: FloatArray) -> FloatArray:
        """The constraint at directions ``Q (m, r)`` before the ReLU, with the best scales and shifts."""
        parts = [self.best(self.pulls(self.rows @ Q[i].T, V), V)[0] for i in self._pieces(len(Q))]
        return np.concatenate(parts) if parts else np.zeros(0)

    def neurons(self, Q: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Directions of unit cost, with scales and shifts, ``(m, r + 1)``, and those of their outputs, ``(m, C)``."""
        _, scales, heads = self.best(self.pulls(self.rows @ Q.T, V), V)
        units = Q / np.linalg.norm(Q, axis=1, keepdims=True)
        return np.column_stack([units * scales[:, :1], scales[:, 1]]), heads

    # ---- ascents -------------------------------------------------------------------------------

    def ascend(self, Q: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Directions reached from ``Q``, and the values there."""
        found = [self._ascend(Q[i], V) for i in self._pieces(len(Q))]
        return np.concatenate([q for q, _ in found]), np.concatenate([value for _, value in found])

    def _ascend(self, Q: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        Q, heights = Q.copy(), self.rows @ Q.T
        values, _, heads = self.best(self.pulls(heights, V), V)
        moving = np.arange(len(Q))
        for _ in range(STEPS):
            checkpoint()
            step = self._target(Q[moving], heights[:, moving] >= 0, V @ heads[moving].T) - Q[moving]
            rise, left = self.rows @ step.T, np.arange(len(moving))
            better = np.zeros(len(moving), dtype=bool)
            for length in LENGTHS:
                trial = heights[:, moving[left]] + length * rise[:, left]
                found, _, turned = self.best(self.pulls(trial, V), V)
                up = found > values[moving[left]] * (1 + GAIN)
                i, at = left[up], moving[left[up]]
                Q[at] += length * step[i]
                heights[:, at], values[at], heads[at], better[i] = trial[:, up], found[up], turned[up], True
                left = left[~up]
                if not len(left):
                    break
            moving = moving[better]
            if not len(moving):
                break
        return Q, values

    def _target(self, Q: FloatArray, active: BoolArray, v: FloatArray) -> FloatArray:
        """The best direction on the pattern of each of ``Q``, at the scale of that direction, cones ignored."""
        b = ((v - self.w[:, None] * v.sum(axis=0)) * active).T @ self.rows
        H = np.stack([self._gram(a) for a in active.T])
        lift = RIDGE * self._norm * np.eye(H.shape[1])
        now = np.einsum("mij,mj->mi", H, Q)
        solved = np.linalg.solve(H + lift, np.stack([b, now], axis=2))
        size = np.sqrt(np.maximum((now * Q).sum(axis=1), 0.0))
        reached = np.sqrt(np.maximum((b * solved[..., 0]).sum(axis=1), 1e-300))
        return Q - solved[..., 1] + (size / reached)[:, None] * solved[..., 0]

    def _gram(self, active: BoolArray) -> FloatArray:
        """H of a pattern."""
        rows, weighted = self.rows[active], self.weighted[active]
        mean = weighted.sum(axis=0)
        return rows.T @ weighted - np.outer(mean, mean)

    # ---- from cone to cone ---------------------------------------------------------------------

    def polish(self, Q: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Directions no worse than ``Q`` that are the best of their own cone and of those they touch."""
        Q = Q / np.linalg.norm(Q, axis=1, keepdims=True)
        values = self.values(Q, V)
        moving = np.arange(len(Q))
        for _ in range(HOPS):
            if not len(moving):
                break
            # the cones around each direction, its own among them
            near = Q[moving] + AROUND * self.rng.standard_normal((NEIGHBOURS, *Q[moving].shape))
            near[0] = Q[moving]
            near, owner = near.reshape(-1, Q.shape[1]), np.tile(moving, NEIGHBOURS)
            active = near @ self.rows.T >= 0
            first, _ = unique_rows(np.column_stack([active, owner[:, None] == moving]))
            trials = np.stack([self._best_of_cone(near[i], active[i], V) for i in first])
            found, owner = self.values(trials, V), owner[first]
            better = np.zeros(len(Q), dtype=bool)
            for i in np.argsort(found, kind="stable"):  # the best comes last
                if found[i] > values[owner[i]] * (1 + FINE_GAIN):
                    Q[owner[i]], values[owner[i]], better[owner[i]] = trials[i], found[i], True
            moving = np.flatnonzero(better)
        return Q, values

    def _best_of_cone(self, q: FloatArray, active: BoolArray, V: FloatArray) -> FloatArray:
        """The best direction in the cone of a pattern: the gradient, projected on it in white coordinates."""
        checkpoint()
        v = V @ self.neurons(q[None], V)[1][0]
        sigma, axes = np.linalg.eigh(self._gram(active))
        live = sigma > NULL * self._norm
        E = axes * np.where(live, 1.0 / np.sqrt(np.where(live, sigma, 1.0)), FREE)
        c = np.where(live, ((v - self.w * v.sum()) * active) @ self.rows @ E, 0.0)
        normals = np.where(active, 1.0, -1.0)[:, None] * (self.rows @ E)
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        size = float(np.linalg.norm(c))
        if size == 0.0:
            return q
        z = nearest_rowwise(c / size, normals / np.where(lengths > 0, lengths, 1.0))
        best = E @ z
        length = float(np.linalg.norm(best))
        return np.asarray(best / length) if length > 0 else q

    # ---- all of it -----------------------------------------------------------------------------

    def run(
        self, V: FloatArray, near: FloatArray, starts: int, kept: int, polished: int
    ) -> tuple[FloatArray, FloatArray]:
        """Directions and values, best first, from Gaussians, data rows and the neighbourhood of ``near``.

        Of all starts the best ``kept`` and as many of ``near`` ascend; those on the best so many patterns are polished.
        """
        n, r = self.rows.shape
        noise = self.rng.standard_normal((starts, r))
        pairs = self.rng.integers(n, size=(2, starts // 2))
        families = [noise[: starts // 2], self.rows[pairs[0]] - self.rows[pairs[1]], self._towards_few(V, starts)]
        families += [] if self.one is None else [self.with_few_active(Q) for Q in families]
        units = near / np.linalg.norm(near, axis=1, keepdims=True)
        if len(near):
            chosen = self.rng.integers(len(units), size=starts)
            spread = self.rng.choice(SPREAD, size=(starts, 1))
            families += [units[chosen] + spread * noise / np.sqrt(r)]
        Q = np.concatenate(families)
        Q = Q[np.linalg.norm(Q, axis=1) > 0]
        Q = np.concatenate([Q, -Q])
        some = self.rng.permutation(len(units))[:kept]
        Q = np.concatenate([Q[np.argsort(-self.values(Q, V), kind="stable")[:kept]], units[some]])
        Q, values = self.ascend(Q, V)
        order = np.argsort(-values, kind="stable")
        # Of directions on one pattern, one is enough to be polished.
        best = patterns_of(self.rows, Q[order[: AMONG * polished]]).witnesses[:polished]
        best, top = self.polish(best, V)
        Q, values = np.concatenate([best, Q]), np.concatenate([top, values])
        order = np.argsort(-values, kind="stable")
        return Q[order], values[order]

    def _towards_few(self, V: FloatArray, count: int) -> FloatArray:
        """Least-squares fits of the dual point, for some output, on a few rows of one sign, the largest most often."""
        n, r = self.rows.shape
        v = (V @ self.rng.standard_normal((V.shape[1], count))).T
        # the smallest of exponential variables with these rates are a weighted sample
        times = self.rng.exponential(size=(count, n)) / np.maximum(v, 1e-300)
        size = self.rng.integers(1, min(n, 2 * r) + 1, size=count)
        chosen = times.argsort(axis=1).argsort(axis=1) < size[:, None]
        return np.where(chosen, np.maximum(v, 0.0), 0.0) @ self.inverse.T

    def with_few_active(self, Q: FloatArray) -> FloatArray:
        """The same directions with a bias that leaves few rows active: their cones are narrow, and easily missed."""
        assert self.one is not None
        heights = np.sort(Q @ self.rows.T, axis=1)
        n, each = len(self.rows), np.arange(len(Q))
        top = n - 1 - ((n - 1) * self.rng.random(len(Q)) ** 2).astype(int)
        middle = (heights[each, top] + heights[each, top - 1]) / 2
        return Q - middle[:, None] * self.one


def search_normalised(
    problem: Problem[Normalised], V: FloatArray, random_state: int | np.random.RandomState | None
) -> float:
    """The largest value of the dual constraint at ``V`` that local search finds."""
    none = np.zeros((0, problem.atoms.plain.reduced.shape[1]))
    return float(Search(problem, generator(random_state)).run(V, none, *AUDIT)[1][0])
