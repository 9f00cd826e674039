"""Column generation: descend, correct the scales of all directions at hand, price, add the violating ones, repeat."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual._watch import Stopped, checkpoint, watching
from bidual.arrangements import few_patterns
from bidual.arrangements.patterns import unique_rows
from bidual.certificates import Bound, lower_bound, relative_gap
from bidual.closed_form import ConditionError
from bidual.problem import Neurons, NormalisedProblem
from bidual.progress import closed, note
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.closed_form import solve_closed_form
from bidual.solvers.finite import STATUS, STOPPED, dual_point, solve_finite, solve_program
from bidual.solvers.normalised.descent import descend
from bidual.solvers.normalised.pricing import AUDIT, ROUND, Search
from bidual.solvers.normalised.program import AtomProgram
from bidual.solvers.reduce import reduce_neurons

#: Up to this many activation patterns are enumerated: no need to search for them.
PROOF_PATTERNS = 5_000
#: Directions that may enter in one round, and the number of rounds without use after which they leave.
BATCH, REST = 24, 5
#: Neurons to begin with, and iterations of the descent from them.
BEGIN, DESCENT = 64, 500


def solve_normalised(problem: NormalisedProblem, options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``.

    A formula where one holds; all patterns where they are few.
    """
    solution, width = _unlimited(problem, options), options.max_neurons
    return solution if width is None or len(solution.neurons) <= width else _narrowed(problem, solution, width)


def _unlimited(problem: NormalisedProblem, options: Options) -> Solution:
    with suppress(ConditionError):
        return solve_closed_form(problem, options)
    began = time.perf_counter()
    with watching(options.time_limit):
        every = few_patterns(problem.relu_inputs, PROOF_PATTERNS)
    if every is not None:
        return solve_finite(problem, every, options, began)
    generation = Generation(problem, options, began)
    left = None if options.time_limit is None else options.time_limit - (time.perf_counter() - began)
    with watching(left):
        status, n_iter = generation.run()
    return generation.solution(status, n_iter)


def _narrowed(problem: NormalisedProblem, solution: Solution, width: int) -> Solution:
    """The same with at most ``width`` neurons: those that cost most, moved again."""
    assert isinstance(solution.neurons, Neurons)
    rank = np.argsort(-solution.neurons.costs, kind="stable")[:width]
    kept = solution.neurons.take(np.sort(rank))
    neurons = min(kept, descend(problem, kept, DESCENT), key=problem.objective).balanced()
    last = replace(solution.history[-1], objective=problem.objective(neurons), n_neurons=len(neurons))
    status = f"limited to max_neurons={width}"
    return replace(solution, neurons=neurons, status=status, history=[*solution.history, last])


class Generation:
    """State of column generation: the directions at hand, the best network and the best bound."""

    def __init__(self, problem: NormalisedProblem, options: Options, began: float) -> None:
        self.problem, self.options, self.began = problem, options, began
        rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        self.search = Search(problem, rng)
        self.bound = Bound.nothing(problem)
        self.history: list[HistoryEntry] = []
        p = problem.relu_inputs.shape[1]
        self.neurons = Neurons.none(p + 1, np.zeros(1))
        self.objective = problem.objective(self.neurons)
        self.directions, self.age = np.zeros((0, p)), np.zeros(0, dtype=np.int64)
        self._take(self.directions if options.directions is None else options.directions[:, :p])
        self.rng = rng

    def begin(self) -> None:
        """Descend from the given network, or from random neurons."""
        start = self.options.start
        if not isinstance(start, Neurons):
            Q = self.rng.standard_normal((BEGIN, self.problem.relu_inputs.shape[1]))
            Q[::2] = self.search.with_few_active(Q[::2]) if self.search.one is not None else Q[::2]
            start = self._small(Q, np.where(np.arange(BEGIN) % 4 < 2, 1.0, -1.0), 1.0)
        self.move(start)

    def _small(self, Q: FloatArray, sign: FloatArray, size: float) -> Neurons:
        """Neurons in these directions that together have about this size."""
        each = np.sqrt(size / (len(Q) * self.problem.M[0, -1]))
        Q = each * Q / np.linalg.norm(Q, axis=1, keepdims=True)
        return Neurons(np.column_stack([Q, np.zeros(len(Q))]), each * sign[:, None], self.neurons.intercept)

    def move(self, neurons: Neurons) -> None:
        """Descend from these neurons; the directions of those that live come to hand."""
        moved = descend(self.problem, neurons, DESCENT)
        self.offer(moved)
        self._take(moved.U[moved.costs > 1e-4 * moved.costs.max(initial=0.0), :-1])

    def offer(self, neurons: Neurons) -> None:
        """Keep the network if it is the best so far."""
        objective = self.problem.objective(neurons)
        if objective < self.objective:
            self.objective, self.neurons = objective, neurons

    @property
    def gap(self) -> float:
        """Relative gap of the best network and the best bound."""
        return relative_gap(self.objective, self.bound.value)

    def run(self) -> tuple[str, int]:
        """Rounds until the audited gap is closed; why they ended, and how many there were."""
        n_iter = 0
        try:
            self.begin()
            for _ in range(self.options.max_iter):
                n_iter += 1
                stopped = self.round()
                if self.gap <= self.options.tol:
                    self.price(self.bound.feasible, *AUDIT)
                    if self.gap <= self.options.tol:
                        return "converged", n_iter
                if stopped is not None:
                    return stopped, n_iter
        except Stopped as late:
            return str(late), n_iter
        return "stopped at max_iter", n_iter

    def solution(self, status: str, n_iter: int) -> Solution:
        """The best network, with few neurons."""
        neurons = reduce_neurons(self.problem, self.neurons, 0.01 * self.options.tol)
        objective = self.problem.objective(neurons)
        elapsed = time.perf_counter() - self.began
        self.history.append(HistoryEntry(elapsed, objective, self.bound.value, len(neurons)))
        return Solution(
            neurons=neurons,
            bound=self.bound,
            scope="global",
            method="local search, audited" if status == "converged" else "local search",
            status=status,
            n_iter=max(1, n_iter),
            history=self.history,
            directions=np.column_stack([self.directions, np.zeros(len(self.directions))]),
        )

    def round(self) -> str | None:
        """Correct the scales of all directions at hand and price the dual point; a status if there is no more to do."""
        problem, options = self.problem, self.options
        program = AtomProgram(problem, self.directions)
        result = solve_program(program, options, self.began)
        neurons = program.neurons(result)
        self.offer(neurons)
        costs = program.costs(result.Z)[:, 0]
        alive = costs > 1e-6 * costs.max(initial=0.0)
        self.age = np.where(alive.any(axis=0), 0, self.age + 1)
        self.directions, self.age = self.directions[self.age < REST], self.age[self.age < REST]
        self.price(dual_point(problem, result.V), *ROUND, near=neurons.U[alive.ravel(), :-1])
        entry = HistoryEntry(time.perf_counter() - self.began, self.objective, self.bound.value, int(alive.sum()))
        self.history.append(entry)
        if options.verbose:
            note(
                f"{entry.elapsed:8.2f} s  {entry.n_neurons:5d} neurons  objective {self.objective:.8g}  "
                f"gap {self.gap:.1e} (before the audit)",
                closed(self.gap, options.tol),
            )
        checkpoint()
        return STATUS[result.status] if result.status in STOPPED else None

    def price(self, V: FloatArray, starts: int, polished: int, *, near: FloatArray | None = None) -> None:
        """Look for violating neurons, take up their directions, descend with them, and update the bound.

        Without ``near`` this is the audit of the bound itself, which may fall.
        """
        problem = self.problem
        around = self.neurons.U[:, :-1] if near is None else near
        Q, values = self.search.run(V, around[np.linalg.norm(around, axis=1) > 0], starts, polished)
        bound = lower_bound(problem, V, float(values[0]), float(values[0]))
        if near is None or bound.value > self.bound.value:
            self.bound = bound
        violating = Q[values > problem.beta * (1 + 1e-9)]
        if len(violating):
            first, _ = unique_rows(violating @ problem.relu_inputs.T >= 0)
            found = violating[first[:BATCH]]
            self._take(found)
            extra = self._small(found, np.sign(self.search.values(found, V)), 0.1 * self.gap)
            best = self.neurons
            self.move(replace(best, U=np.vstack([best.U, extra.U]), alpha=np.vstack([best.alpha, extra.alpha])))

    def _take(self, Q: FloatArray) -> None:
        """More directions at hand."""
        Q = Q[np.linalg.norm(Q, axis=1) > 0]
        self.directions = np.concatenate([self.directions, Q])
        self.age = np.concatenate([self.age, np.zeros(len(Q), dtype=np.int64)])
