"""Column generation: descend, correct the scales of all directions at hand, price, add the violating ones, repeat."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bidual._util.clock import clock
from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint, watching
from bidual.arrangements import few_patterns
from bidual.arrangements.patterns import unique_rows
from bidual.atoms import Neurons, Normalised
from bidual.atoms.white_blocks import DirectionBlocks
from bidual.bounds import lower_bound
from bidual.closed_form import ConditionError
from bidual.problem import Problem
from bidual.programs.conic import FiniteProgram
from bidual.solvers.base import Options, Solution
from bidual.solvers.finite import STOPPED, solve_finite, solve_program
from bidual.solvers.formula import solve_closed_form
from bidual.solvers.generation import UNSEEN, Generation
from bidual.solvers.normalised.descent import descend
from bidual.solvers.normalised.pricing import AUDIT, ROUND, Search
from bidual.solvers.run import Run

#: Directions that may enter in one round, and the number of rounds without use after which they leave.
BATCH, REST = 24, 5
#: Neurons to begin with, and iterations of the descent from them.
BEGIN, DESCENT = 64, 500
#: Neurons of a descent come to hand above this share of the largest cost; those of a program count as used above that.
LIVING, USED = 1e-4, 1e-6
#: A violation is none up to rounding.
ROUNDING = 1e-9
#: Size of all new neurons in the descent that follows, relative to the gap.
SMALL = 0.1


def solve_normalised(problem: Problem[Normalised], options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``.

    A formula where one holds; all patterns where they are few.
    """
    solution = _unlimited(problem, options)
    assert isinstance(solution.neurons, Neurons)
    run = Run(problem, options, solution.neurons, solution.history[-1].objective)
    if not run.narrow(lambda few: [descend(problem, few, DESCENT)]):
        return solution
    neurons = run.neurons.balanced()
    last = replace(solution.history[-1], objective=problem.objective(neurons), n_neurons=len(neurons))
    return replace(solution, neurons=neurons, status=run.status, history=[*solution.history, last])


def _unlimited(problem: Problem[Normalised], options: Options) -> Solution:
    with suppress(ConditionError):
        return solve_closed_form(problem, options)
    began = clock()
    with watching(options.time_limit):
        every = few_patterns(problem.atoms.relu_inputs, tuning().normalised_patterns)
    if every is not None:
        return solve_finite(problem, every, options, began)
    run = _Directions(problem, options, began)
    with run.going():
        run.generate()
    return run.solution(
        "local search, audited" if run.confirmed else "local search",
        run.slim(run.neurons),
        directions=np.column_stack([run.directions, np.zeros(len(run.directions))]),
    )


class _Directions(Generation):
    """State of column generation: beyond the best of it, the directions at hand."""

    problem: Problem[Normalised]

    def __init__(self, problem: Problem[Normalised], options: Options, began: float) -> None:
        p = problem.atoms.relu_inputs.shape[1]
        super().__init__(problem, options, Neurons.none(p + 1, np.zeros(1)), began=began)
        self.search = Search(problem, self.rng)
        self.directions, self.age = np.zeros((0, p)), np.zeros(0, dtype=np.int64)
        self._take(self.directions if options.directions is None else options.directions[:, :p])
        self.ended: str | None = None  # why the conic solver did not finish

    def begin(self) -> bool:
        """Descend from the given network, or from random neurons."""
        start = self.options.start
        if not isinstance(start, Neurons):
            Q = self.rng.standard_normal((BEGIN, self.problem.atoms.relu_inputs.shape[1]))
            Q[::2] = self.search.with_few_active(Q[::2]) if self.search.one is not None else Q[::2]
            start = self._small(Q, np.where(np.arange(BEGIN) % 4 < 2, 1.0, -1.0), 1.0)
        self.move(start)
        return False

    def audit(self) -> bool:
        """Price the dual point of the bound again, from many more starts."""
        self.price(self.bound.feasible, *AUDIT)
        return self.closed

    def prepare(self) -> str | None:
        """Nothing is left to do, unless the conic solver has no time or no iterations left."""
        return self.ended

    def _small(self, Q: FloatArray, sign: FloatArray, size: float) -> Neurons:
        """Neurons in these directions that together have about this size."""
        each = np.sqrt(size / (len(Q) * self.problem.atoms.M[0, -1]))
        Q = each * Q / np.linalg.norm(Q, axis=1, keepdims=True)
        return Neurons(np.column_stack([Q, np.zeros(len(Q))]), each * sign[:, None], self.neurons.intercept)

    def move(self, neurons: Neurons) -> None:
        """Descend from these neurons; the directions of those that live come to hand."""
        moved = descend(self.problem, neurons, DESCENT)
        self.offer(moved)
        self._take(moved.U[moved.costs > LIVING * moved.costs.max(initial=0.0), :-1])

    def round(self) -> None:
        """Correct the scales of all directions at hand, price the dual point, and descend with what violates it."""
        problem = self.problem
        program = FiniteProgram(problem, DirectionBlocks(problem.atoms, self.directions))
        result = solve_program(program, self)
        neurons = program.neurons(result)
        self.offer(neurons)
        costs = program.costs(result.Z)[:, 0]
        alive = costs > USED * costs.max(initial=0.0)
        self.age = np.where(alive.any(axis=0), 0, self.age + 1)
        self.directions, self.age = self.directions[self.age < REST], self.age[self.age < REST]
        self.price(problem.dual_point(result.V), *ROUND, near=neurons.U[alive.ravel(), :-1])
        self.note(int(alive.sum()), UNSEEN)
        checkpoint()
        self.ended = result.status if result.status in STOPPED else None

    def price(self, V: FloatArray, starts: int, polished: int, *, near: FloatArray | None = None) -> None:
        """Look for violating neurons, take up their directions, descend with them, and update the bound.

        Without ``near`` this is the audit of the bound itself, which may fall.
        """
        problem = self.problem
        around = self.neurons.U[:, :-1] if near is None else near
        Q, values = self.search.run(V, around[np.linalg.norm(around, axis=1) > 0], starts, polished)
        bound = lower_bound(problem, V, float(values[0]), float(values[0]))
        if near is None:
            self.bound = bound
        else:
            self.bounded(bound)
        violating = Q[values > problem.beta * (1 + ROUNDING)]
        if len(violating):
            first, _ = unique_rows(violating @ problem.atoms.relu_inputs.T >= 0)
            found = violating[first[:BATCH]]
            self._take(found)
            extra = self._small(found, np.sign(self.search.values(found, V)), SMALL * self.gap)
            best = self.neurons
            self.move(replace(best, U=np.vstack([best.U, extra.U]), alpha=np.vstack([best.alpha, extra.alpha])))

    def _take(self, Q: FloatArray) -> None:
        """More directions at hand."""
        Q = Q[np.linalg.norm(Q, axis=1) > 0]
        self.directions = np.concatenate([self.directions, Q])
        self.age = np.concatenate([self.age, np.zeros(len(Q), dtype=np.int64)])
