r"""Training neurons that are normalised after the ReLU (000 sec. 6).

The convex program is that of 000 Theorem 6.1 in the coordinates of :class:`~bidual.certificates.WhiteBlocks`. Where the
patterns are too many, they are found by pricing the normalised neuron: on the pattern of a direction q the best
direction is a least-squares fit of the dual point, towards which q moves, crossing hyperplanes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual.arrangements import Patterns, few_patterns, patterns_of
from bidual.certificates import DualBound, NormalisedBounds, WhiteBlocks, lower_bound, relative_gap
from bidual.closed_form import ConditionError
from bidual.problem import Neurons, NormalisedProblem
from bidual.solvers.adaptive import solve_adaptive
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.closed_form import solve_closed_form
from bidual.solvers.conic import ConicResult, FiniteProgram
from bidual.solvers.constant import search
from bidual.solvers.finite import (
    STATUS,
    STOPPED,
    cone_bounds,
    dual_point,
    finite_program,
    solve_finite,
    solve_program,
)
from bidual.solvers.reduce import reduce_neurons

#: Up to this many activation patterns are enumerated: no need to search for them.
PROOF_PATTERNS = 5_000
#: Directions that pricing starts from and how many it polishes, in every round and in the audit at the end.
ROUND, AUDIT = (64, 8), (512, 64)
#: Moves of a polish from cone to cone, and cones it looks at around each direction.
HOPS, NEIGHBOURS = 20, 8
#: Patterns that may enter in one round, and number beyond which those without use leave.
BATCH, CROWD = 24, 100
#: Random patterns to begin with.
GAUSSIAN = 16
#: Steps of the ascent, and their lengths.
STEPS, LENGTHS = 20, (1.0, 0.5, 0.2, 0.05, 0.01)


class NormalisedProgram(FiniteProgram):
    r"""The convex program of 000 Theorem 6.1 on fixed patterns, with the null spaces that eq. 20 leaves out.

    .. math:: \min \; L\Big(\sum_{i, \pm} \pm k (B_i s_i^\pm + a_i^\pm 1) + 1 b\Big)
              + \beta \sum_{i, \pm} \|(s_i^\pm, a_i^\pm)\|
              \quad \text{s.t.} \quad (2 D_i - I) X (V_i \Sigma_i^{-1} s_i^\pm + N_i t_i^\pm) \ge 0 .
    """

    def __init__(self, problem: NormalisedProblem, patterns: Patterns) -> None:
        self.blocks = WhiteBlocks(problem, patterns)
        super().__init__(self.blocks.plain, patterns)
        self.charged = self.blocks.charged

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the block weights: signs, outputs, patterns, coordinates (s, t, a)."""
        return 2, 1, len(self.patterns), self.rows.shape[1] + 1

    def design(self) -> sp.csc_array:
        """``k [B_i, 1]`` of all patterns, coordinate-major: ``(n, (r + 1) P)``."""
        P, n, r = self.blocks.B.shape
        columns = np.concatenate([self.blocks.B.transpose(2, 0, 1).reshape(r * P, n), np.ones((P, n))])
        return sp.csc_array(self.blocks.k * columns.T)

    def cone_matrix(self) -> sp.csc_array:
        """Inward normals of the cones, ``(Q, (r + 1) P)``."""
        pattern, row = self.cone_pairs
        normals = self.blocks.normals(pattern, row)
        Q, r = normals.shape
        P = len(self.patterns)
        columns = np.arange(r) * P + pattern[:, None]
        rows = np.repeat(np.arange(Q), r)
        return sp.csc_array((normals.ravel(), (rows, columns.ravel())), shape=(Q, (r + 1) * P))

    def neurons(self, result: ConicResult) -> Neurons:
        """One neuron per block: the direction of q with length ``norm(s)``, and the shift a."""
        blocks = self.blocks
        z = result.Z[:, 0]  # (2, P, r + 1)
        q = np.einsum("pkj,spj->spk", blocks.E, z[..., :-1])
        gamma = np.linalg.norm(z[..., :-1] * blocks.charged[:, :-1], axis=-1, keepdims=True)
        lengths = np.linalg.norm(q, axis=-1, keepdims=True)
        q = q * gamma / np.where(lengths > 0, lengths, 1.0)
        U = np.concatenate([q @ blocks.plain.basis.T, z[..., -1:]], axis=-1)
        signs = np.repeat([1.0, -1.0], len(blocks.E))[:, None]
        return Neurons(U.reshape(len(signs), U.shape[-1]), signs, result.intercept)

    def known_bounds(self, V: FloatArray, result: ConicResult) -> FloatArray:
        """None: multipliers of the solver leave the null spaces only approximately free."""
        return np.full(self.shape[:3], np.inf)


class Search:
    r"""Local search for :math:`\max_q |v^T h(q)|` over normalised neurons h of unit cost."""

    def __init__(self, problem: NormalisedProblem, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        self.inputs = problem.relu_inputs
        one = np.linalg.lstsq(self.inputs, np.ones(len(self.inputs)), rcond=None)[0]
        #: Weights that add a constant, if there are any.
        self.one = one if np.allclose(self.inputs @ one, 1.0, rtol=0, atol=1e-9) else None

    def values(self, Q: FloatArray, V: FloatArray) -> FloatArray:
        """The constraint at directions ``Q (m, p)``, with the best shift, signed by the part without it."""
        lengths = np.linalg.norm(Q, axis=1, keepdims=True)
        U = np.column_stack([Q / np.where(lengths > 0, lengths, 1.0), np.zeros(len(Q))])
        scaled = self.problem.hidden(U).T @ V[:, 0]
        return np.where(scaled < 0, -1.0, 1.0) * np.hypot(scaled, self.problem.M[0, -1] * V.sum())

    def ascend(self, Q: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Directions reached from ``Q``, and the values there, both up and down."""
        best = self.values(Q, V)
        sign = np.where(best < 0, -1.0, 1.0)
        best = np.abs(best)
        moving = np.arange(len(Q))
        Q = Q.copy()
        for _ in range(STEPS):
            target = self._target(Q[moving], sign[moving], V)
            trials = Q[moving] + np.array(LENGTHS)[:, None, None] * (target - Q[moving])
            flat = trials.reshape(-1, Q.shape[1])
            values = np.tile(sign[moving], len(LENGTHS)) * self.values(flat, V)
            values = values.reshape(len(LENGTHS), -1)
            k = values.argmax(axis=0)
            found, each = values.max(axis=0), np.arange(len(moving))
            better = found > best[moving] * (1 + 1e-9)
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
        families = [noise[: starts // 2], self.inputs[pairs[0]] - self.inputs[pairs[1]]]
        families = [*families, *map(self._with_few_active, families)]
        if len(near):
            units = near / np.linalg.norm(near, axis=1, keepdims=True)
            chosen = self.rng.integers(len(units), size=starts)
            spread = self.rng.choice([0.01, 0.1, 0.5], size=(starts, 1))
            families += [units, units[chosen] + spread * noise / np.sqrt(p)]
        Q = np.concatenate(families)
        Q = Q[np.linalg.norm(Q, axis=1) > 0]
        Q, values = self.ascend(np.concatenate([Q, -Q]), V)
        order = np.argsort(-values, kind="stable")
        # Of directions on one pattern, one is enough to be polished.
        best = patterns_of(self.inputs, Q[order[: 8 * polished]]).witnesses[:polished]
        best, top = self.polish(best, V)
        Q, values = np.concatenate([best, Q]), np.concatenate([top, values])
        order = np.argsort(-values, kind="stable")
        return Q[order], values[order]

    def _with_few_active(self, Q: FloatArray) -> FloatArray:
        """The same directions with a bias that leaves few rows active: their cones are narrow, and easily missed."""
        if self.one is None:
            return Q[:0]
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
            noise = 1e-4 * self.rng.standard_normal((NEIGHBOURS, *Q[moving].shape))
            noise[0] = 0.0
            owner = np.tile(moving, NEIGHBOURS)
            trials = self._best_of_cones((Q[moving] + noise).reshape(-1, Q.shape[1]), sign[owner], V)
            found = sign[owner] * self.values(trials, V)
            better = np.zeros(len(Q), dtype=bool)
            for i in np.argsort(found, kind="stable"):  # the best comes last
                if found[i] > values[owner[i]] * (1 + 1e-7):
                    Q[owner[i]], values[owner[i]], better[owner[i]] = trials[i], found[i], True
            moving = np.flatnonzero(better)
        return Q, values

    def _best_of_cones(self, Q: FloatArray, sign: FloatArray, V: FloatArray) -> FloatArray:
        """The best direction in the cone of each of ``Q``: the gradient projected on it (the null space at a price)."""
        blocks, gradient = self._blocks(Q, sign, V)
        n = len(self.inputs)
        best = np.empty((len(Q), blocks.E.shape[1]))
        price = np.where(blocks.charged[:, :-1], 1.0, 1e4)
        for i in range(len(Q)):
            rows = blocks.normals(np.full(n, i), np.arange(n)) * price[i]
            best[i] = blocks.E[i] @ (price[i] * _project(gradient[i], rows))
        best = best @ blocks.plain.basis.T
        lengths = np.linalg.norm(best, axis=1, keepdims=True)
        return np.where(lengths > 0, best / np.where(lengths > 0, lengths, 1.0), Q)

    def _blocks(self, Q: FloatArray, sign: FloatArray, V: FloatArray) -> tuple[WhiteBlocks, FloatArray]:
        """White coordinates on the patterns of ``Q``, and the gradients there."""
        blocks = WhiteBlocks(self.problem, Patterns(np.asarray(Q @ self.inputs.T >= 0), Q))
        return blocks, blocks.k * sign[:, None] * np.einsum("pnk,n->pk", blocks.B, V[:, 0])


def search_normalised(
    problem: NormalisedProblem, V: FloatArray, random_state: int | np.random.RandomState | None
) -> float:
    """The largest value of the dual constraint at ``V`` that local search finds."""
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    none = np.zeros((0, problem.relu_inputs.shape[1]))
    return float(Search(problem, rng).run(V, none, *AUDIT)[1][0])


def _project(point: FloatArray, normals: FloatArray) -> FloatArray:
    """The nearest point in the cone ``normals @ z >= 0``; the point itself if the search for it fails."""
    try:
        return point + normals.T @ nnls(normals.T, -point)[0]
    except RuntimeError:
        return point


def solve_normalised(problem: NormalisedProblem, options: Options) -> Solution:
    """Column generation over patterns: solve on those at hand, price, add the violating ones.

    A formula where one holds; all patterns where they are few.
    """
    with suppress(ConditionError):
        return solve_closed_form(problem, options)
    began = time.perf_counter()
    every = few_patterns(problem.relu_inputs, PROOF_PATTERNS)
    if every is not None:
        return solve_finite(problem, every, options, began)
    return _Generation(problem, options, began).run()


class _Generation:
    """State of column generation: the patterns at hand, the best network and the best bound."""

    def __init__(self, problem: NormalisedProblem, options: Options, began: float) -> None:
        self.problem, self.options, self.began = problem, options, began
        rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        self.search = Search(problem, rng)
        p = problem.relu_inputs.shape[1]
        known = [options.start.U[:, :p]] if isinstance(options.start, Neurons) else []
        known += [] if options.directions is None else [options.directions[:, :p]]
        self.directions = np.concatenate([*known, rng.standard_normal((GAUSSIAN, p))])
        self.neurons = Neurons.none(p + 1, np.zeros(1))
        self.objective = problem.objective(self.neurons)
        V = np.zeros_like(problem.Y)
        self.bound = DualBound(problem.dual_value(V), V, 0.0, 0.0, proven=False)
        self.history: list[HistoryEntry] = []

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.bound.value)

    def run(self) -> Solution:
        """Rounds until the audited gap is closed."""
        status, n_iter = "stopped at max_iter", 0
        for _ in range(self.options.max_iter):
            n_iter += 1
            stopped = self.round()
            if self.gap <= self.options.tol:
                self.price(self.bound.V, *AUDIT)
                if self.gap <= self.options.tol:
                    status = "converged"
                    break
            if stopped is not None:
                status = stopped
                break
        neurons = reduce_neurons(self.problem, self.neurons, 0.01 * self.options.tol)
        objective = self.problem.objective(neurons)
        elapsed = time.perf_counter() - self.began
        self.history.append(HistoryEntry(elapsed, objective, self.bound.value, len(neurons)))
        return Solution(
            neurons=neurons,
            bound=self.bound,
            scope="global",
            rigorous=False,
            method="local search, audited" if status == "converged" else "local search",
            status=status,
            n_iter=n_iter,
            history=self.history,
            directions=np.column_stack([self.directions, np.zeros(len(self.directions))]),
        )

    def round(self) -> str | None:
        """Solve on the patterns at hand and price the dual point; a status if there is nothing more to do."""
        problem, options = self.problem, self.options
        patterns = patterns_of(problem.relu_inputs, self.directions)
        program = NormalisedProgram(problem, patterns)
        program.check_memory()
        result = solve_program(program, options, self.began)
        neurons = program.neurons(result)
        objective = problem.objective(neurons)
        if objective < self.objective:
            self.objective, self.neurons = objective, neurons
        costs = program.costs(result.Z).ravel()
        alive = costs > 1e-6 * costs.max(initial=0.0)
        V = dual_point(problem, result.V)
        before = len(patterns)
        self.directions = patterns.witnesses
        if before > CROWD:
            self.directions = patterns.witnesses[alive.reshape(2, -1).any(axis=0)]
        within = NormalisedBounds(problem, patterns, program.blocks).lower_bound(V).oracle_value
        self.price(V, *ROUND, near=neurons.U[alive, :-1], within=within)
        entry = HistoryEntry(time.perf_counter() - self.began, self.objective, self.bound.value, int(alive.sum()))
        self.history.append(entry)
        if options.verbose:
            print(
                f"bidual: {entry.elapsed:8.2f} s  {before:6d} patterns  objective {self.objective:.8g}  "
                f"gap {self.gap:.1e} (before the audit)",
                flush=True,
            )
        if result.status in STOPPED:
            return STATUS[result.status]
        if options.time_limit is not None and entry.elapsed > options.time_limit:
            return STATUS["MaxTime"]
        return None

    def price(
        self, V: FloatArray, starts: int, polished: int, *, near: FloatArray | None = None, within: float = 0.0
    ) -> None:
        """Look for violating neurons, note their patterns, and update the bound."""
        problem = self.problem
        audit = near is None
        near = self.neurons.U[:, :-1] if near is None else near
        Q, values = self.search.run(V, near[np.linalg.norm(near, axis=1) > 0], starts, polished)
        g = max(float(values[0]), within)
        bound = replace(lower_bound(problem, V, g, g), proven=False)
        if audit or bound.value > self.bound.value:
            self.bound = bound
        violating = Q[values > problem.beta * (1 + 1e-9)]
        found = patterns_of(problem.relu_inputs, violating) if len(violating) else None
        if found is not None:
            self.directions = np.concatenate([self.directions, found.witnesses[:BATCH]])


finite_program.register(NormalisedProblem, NormalisedProgram)
cone_bounds.register(NormalisedProblem, NormalisedBounds)
search.register(NormalisedProblem, search_normalised)
solve_adaptive.register(NormalisedProblem, solve_normalised)
