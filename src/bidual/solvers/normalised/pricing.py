"""Pricing: search for the normalised neuron that violates the dual constraint most.

On the pattern of a direction q the best direction is a least-squares fit of the dual point, towards which q moves,
crossing hyperplanes; the best ones are then followed from cone to cone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.arrangements import Patterns, patterns_of
from bidual.arrangements.cones import projected
from bidual.atoms import Normalised
from bidual.atoms.white_blocks import WhiteBlocks
from bidual.problem import Problem
from bidual.solvers.run import generator

#: Directions that pricing starts from and how many it polishes, in every round and in the audit at the end.
ROUND, AUDIT = (64, 8), (512, 64)
#: Moves of a polish from cone to cone, and cones it looks at around each direction.
HOPS, NEIGHBOURS = 20, 8
#: Steps of the ascent, and their lengths.
STEPS, LENGTHS = 20, (1.0, 0.5, 0.2, 0.05, 0.01)
#: Relative gains below which an ascent and a polish end: rounding.
GAIN, FINE_GAIN = 1e-9, 1e-7
#: Noise on directions in use, relative to their length, and on those of a polish, to reach the cones around.
SPREAD, AROUND = (0.01, 0.1, 0.5), 1e-4
#: What is free costs next to nothing in a projection that needs a price on everything.
FREE = 1e4
#: Directions among which those to polish are found: many lie on one pattern.
AMONG = 8


class Search:
    r"""Local search for :math:`\max_q |v^T h(q)|` over normalised neurons h of unit cost."""

    def __init__(self, problem: Problem[Normalised], rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        self.inputs = problem.atoms.relu_inputs
        self.inverse = np.linalg.pinv(self.inputs)
        one = self.inverse @ np.ones(len(self.inputs))
        #: Weights that add a constant, if there are any.
        self.one = one if np.allclose(self.inputs @ one, 1.0, rtol=0, atol=1e-9) else None

    def _pieces(self, count: int, each: int) -> Iterator[slice]:
        """So many directions, a few at a time, when every one of them takes ``each`` entries."""
        size = max(1, tuning().priced_entries // max(1, each))
        for start in range(0, count, size):
            checkpoint()
            yield slice(start, start + size)

    def values(self, Q: FloatArray, V: FloatArray) -> FloatArray:
        """The constraint at directions ``Q (m, p)``, with the best shift, signed by the part without it."""
        parts = [self._values(Q[piece], V) for piece in self._pieces(len(Q), len(self.inputs))]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _values(self, Q: FloatArray, V: FloatArray) -> FloatArray:
        lengths = np.linalg.norm(Q, axis=1, keepdims=True)
        U = np.column_stack([Q / np.where(lengths > 0, lengths, 1.0), np.zeros(len(Q))])
        scaled = self.problem.atoms.hidden(U).T @ V[:, 0]
        return np.where(scaled < 0, -1.0, 1.0) * np.hypot(scaled, self.problem.atoms.M[0, -1] * V.sum())

    def ascend(self, Q: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Directions reached from ``Q``, and the values there, both up and down."""
        best = self.values(Q, V)
        sign = np.where(best < 0, -1.0, 1.0)
        best = np.abs(best)
        moving = np.arange(len(Q))
        Q = Q.copy()
        for _ in range(STEPS):
            pieces = self._pieces(len(moving), self.inputs.size)
            target = np.concatenate([self._target(Q[moving[i]], sign[moving[i]], V) for i in pieces])
            trials = Q[moving] + np.array(LENGTHS)[:, None, None] * (target - Q[moving])
            flat = trials.reshape(-1, Q.shape[1])
            values = np.tile(sign[moving], len(LENGTHS)) * self.values(flat, V)
            values = values.reshape(len(LENGTHS), -1)
            k = values.argmax(axis=0)
            found, each = values.max(axis=0), np.arange(len(moving))
            better = found > best[moving] * (1 + GAIN)
            Q[moving[better]] = trials[k, each][better]
            best[moving[better]] = found[better]
            moving = moving[better]
            if not len(moving):
                break
        return Q, best

    def _target(self, Q: FloatArray, sign: FloatArray, V: FloatArray) -> FloatArray:
        """The best direction on the pattern of each of ``Q``, at the scale of that direction, cones ignored."""
        blocks, gradient = self._blocks(Q, sign, V)
        q = Q @ blocks.plain.basis
        z = np.linalg.solve(blocks.E, q[..., None])[..., 0]
        live = blocks.charged[:, :-1]
        size = np.linalg.norm(z * live, axis=1) / np.maximum(np.linalg.norm(gradient, axis=1), 1e-300)
        z = np.where(live, gradient * size[:, None], z)
        return np.einsum("pkj,pj->pk", blocks.E, z) @ blocks.plain.basis.T

    def run(self, V: FloatArray, near: FloatArray, starts: int, polished: int) -> tuple[FloatArray, FloatArray]:
        """Directions and values, best first, from Gaussians, data rows and the neighbourhood of ``near``.

        Those on the best so many patterns are polished.
        """
        p = self.inputs.shape[1]
        noise = self.rng.standard_normal((starts, p))
        pairs = self.rng.integers(len(self.inputs), size=(2, starts // 2))
        families = [noise[: starts // 2], self.inputs[pairs[0]] - self.inputs[pairs[1]], self._towards_few(V, starts)]
        families += [] if self.one is None else [self.with_few_active(Q) for Q in families]
        if len(near):
            units = near / np.linalg.norm(near, axis=1, keepdims=True)
            chosen = self.rng.integers(len(units), size=starts)
            spread = self.rng.choice(SPREAD, size=(starts, 1))
            families += [units, units[chosen] + spread * noise / np.sqrt(p)]
        Q = np.concatenate(families)
        Q = Q[np.linalg.norm(Q, axis=1) > 0]
        Q, values = self.ascend(np.concatenate([Q, -Q]), V)
        order = np.argsort(-values, kind="stable")
        # Of directions on one pattern, one is enough to be polished.
        best = patterns_of(self.inputs, Q[order[: AMONG * polished]]).witnesses[:polished]
        best, top = self.polish(best, V)
        Q, values = np.concatenate([best, Q]), np.concatenate([top, values])
        order = np.argsort(-values, kind="stable")
        return Q[order], values[order]

    def _towards_few(self, V: FloatArray, count: int) -> FloatArray:
        """Least-squares fits of the dual point on a few rows of one sign, the largest most often."""
        n, p = self.inputs.shape
        v = V[:, 0] * self.rng.choice([-1.0, 1.0], size=(count, 1))
        # the smallest of exponential variables with these rates are a weighted sample
        times = self.rng.exponential(size=(count, n)) / np.maximum(v, 1e-300)
        size = self.rng.integers(1, min(n, 2 * p) + 1, size=count)
        chosen = times.argsort(axis=1).argsort(axis=1) < size[:, None]
        return np.where(chosen, np.maximum(v, 0.0), 0.0) @ self.inverse.T

    def with_few_active(self, Q: FloatArray) -> FloatArray:
        """The same directions with a bias that leaves few rows active: their cones are narrow, and easily missed."""
        assert self.one is not None
        heights = np.sort(Q @ self.inputs.T, axis=1)
        n, each = len(self.inputs), np.arange(len(Q))
        top = n - 1 - ((n - 1) * self.rng.random(len(Q)) ** 2).astype(int)
        middle = (heights[each, top] + heights[each, top - 1]) / 2
        return Q - middle[:, None] * self.one

    def polish(self, Q: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Directions no worse than ``Q`` that are the best of their own cone and of those they touch."""
        values = self.values(Q, V)
        sign, values, Q = np.where(values < 0, -1.0, 1.0), np.abs(values), Q / np.linalg.norm(Q, axis=1, keepdims=True)
        moving = np.arange(len(Q))
        for _ in range(HOPS):
            if not len(moving):
                break
            # the cones around each direction, its own among them
            noise = AROUND * self.rng.standard_normal((NEIGHBOURS, *Q[moving].shape))
            noise[0] = 0.0
            owner = np.tile(moving, NEIGHBOURS)
            near = (Q[moving] + noise).reshape(-1, Q.shape[1])
            pieces = self._pieces(len(near), self.inputs.size)
            trials = np.concatenate([self._best_of_cones(near[i], sign[owner[i]], V) for i in pieces])
            found = sign[owner] * self.values(trials, V)
            better = np.zeros(len(Q), dtype=bool)
            for i in np.argsort(found, kind="stable"):  # the best comes last
                if found[i] > values[owner[i]] * (1 + FINE_GAIN):
                    Q[owner[i]], values[owner[i]], better[owner[i]] = trials[i], found[i], True
            moving = np.flatnonzero(better)
        return Q, values

    def _best_of_cones(self, Q: FloatArray, sign: FloatArray, V: FloatArray) -> FloatArray:
        """The best direction in the cone of each of ``Q``: the gradient projected on it (the null space at a price)."""
        blocks, gradient = self._blocks(Q, sign, V)
        n = len(self.inputs)
        best = np.empty((len(Q), blocks.E.shape[1]))
        price = np.where(blocks.charged[:, :-1], 1.0, FREE)
        for i in range(len(Q)):
            checkpoint()
            rows = blocks.normals(np.full(n, i), np.arange(n)) * price[i]
            best[i] = blocks.E[i] @ (price[i] * projected(gradient[i], rows))
        best = best @ blocks.plain.basis.T
        lengths = np.linalg.norm(best, axis=1, keepdims=True)
        return np.where(lengths > 0, best / np.where(lengths > 0, lengths, 1.0), Q)

    def _blocks(self, Q: FloatArray, sign: FloatArray, V: FloatArray) -> tuple[WhiteBlocks, FloatArray]:
        """White coordinates on the patterns of ``Q``, and the gradients there."""
        blocks = WhiteBlocks(self.problem.atoms, Patterns(np.asarray(Q @ self.inputs.T >= 0), Q))
        return blocks, blocks.k * sign[:, None] * np.einsum("pnk,n->pk", blocks.B, V[:, 0])


def search_normalised(
    problem: Problem[Normalised], V: FloatArray, random_state: int | np.random.RandomState | None
) -> float:
    """The largest value of the dual constraint at ``V`` that local search finds."""
    none = np.zeros((0, problem.atoms.relu_inputs.shape[1]))
    return float(Search(problem, generator(random_state)).run(V, none, *AUDIT)[1][0])
