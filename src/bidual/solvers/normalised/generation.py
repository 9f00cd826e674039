"""Column generation: descend, solve the convex program on the patterns of the neurons, price, add neurons, repeat."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual.arrangements import few_patterns, patterns_of
from bidual.certificates import DualBound, NormalisedBounds, lower_bound, relative_gap
from bidual.closed_form import ConditionError
from bidual.problem import Neurons, NormalisedProblem
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.closed_form import solve_closed_form
from bidual.solvers.finite import STATUS, STOPPED, dual_point, solve_finite, solve_program
from bidual.solvers.normalised.descent import descend
from bidual.solvers.normalised.program import NormalisedProgram
from bidual.solvers.normalised.pricing import AUDIT, ROUND, Search
from bidual.solvers.reduce import reduce_neurons

#: Up to this many activation patterns are enumerated: no need to search for them.
PROOF_PATTERNS = 5_000
#: Patterns that may enter in one round, and number beyond which those without use leave.
BATCH, CROWD = 24, 60
#: Neurons to begin with, and iterations of the descent from them.
BEGIN, DESCENT = 64, 500


def solve_normalised(problem: NormalisedProblem, options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``.

    A formula where one holds; all patterns where they are few.
    """
    with suppress(ConditionError):
        return solve_closed_form(problem, options)
    began = time.perf_counter()
    every = few_patterns(problem.relu_inputs, PROOF_PATTERNS)
    if every is not None:
        return solve_finite(problem, every, options, began)
    if not problem.loss.finite:
        raise ValueError("beta=0 asks for an exact fit: use method='exact' (or 'sampled'), or beta > 0")
    return Generation(problem, options, began).run()


class Generation:
    """State of column generation: the patterns at hand, the best network and the best bound."""

    def __init__(self, problem: NormalisedProblem, options: Options, began: float) -> None:
        self.problem, self.options, self.began = problem, options, began
        rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        self.search = Search(problem, rng)
        V = np.zeros_like(problem.Y)
        self.bound = DualBound(problem.dual_value(V), V, 0.0, 0.0, proven=False)
        self.history: list[HistoryEntry] = []
        p = problem.relu_inputs.shape[1]
        self.neurons = Neurons.none(p + 1, np.zeros(1))
        self.objective = problem.objective(self.neurons)
        self.directions = np.zeros((0, p)) if options.directions is None else options.directions[:, :p]
        start = options.start
        if not isinstance(start, Neurons):
            Q = rng.standard_normal((BEGIN, p))
            Q[::2] = self.search.with_few_active(Q[::2]) if self.search.one is not None else Q[::2]
            start = self._small(Q, np.where(np.arange(BEGIN) % 4 < 2, 1.0, -1.0), 1.0)
        self.move(start)

    def _small(self, Q: FloatArray, sign: FloatArray, size: float) -> Neurons:
        """Neurons in these directions that together have about this size."""
        each = np.sqrt(size / (len(Q) * self.problem.M[0, -1]))
        Q = each * Q / np.linalg.norm(Q, axis=1, keepdims=True)
        return Neurons(np.column_stack([Q, np.zeros(len(Q))]), each * sign[:, None], self.neurons.intercept)

    def move(self, neurons: Neurons) -> None:
        """Descend from these neurons; the patterns of those that live, and of their neighbours, come to hand."""
        moved = descend(self.problem, neurons, DESCENT)
        self.offer(moved)
        moved = moved.take(moved.costs > 1e-4 * moved.costs.max(initial=0.0))
        Q = moved.U[:, :-1]
        near = Q + 1e-3 * np.linalg.norm(Q, axis=1, keepdims=True) * self.search.rng.standard_normal(Q.shape)
        self.directions = np.concatenate([self.directions, Q, near])

    def offer(self, neurons: Neurons) -> None:
        """Keep the network if it is the best so far."""
        objective = self.problem.objective(neurons)
        if objective < self.objective:
            self.objective, self.neurons = objective, neurons

    @property
    def gap(self) -> float:
        """Relative gap of the best network and the best bound."""
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
        self.offer(neurons)
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
        if len(violating):
            found = patterns_of(problem.relu_inputs, violating).witnesses[:BATCH]
            self.directions = np.concatenate([self.directions, found])
            extra = self._small(found, np.sign(self.search.values(found, V)), 0.1 * self.gap)
            best = self.neurons
            self.move(replace(best, U=np.vstack([best.U, extra.U]), alpha=np.vstack([best.alpha, extra.alpha])))
