"""Column generation: descend, correct the output weights of all neurons at hand, price, add the violating ones, repeat.

Neurons are in reduced coordinates: a direction before the ReLU, whose length is the scale, and the shift.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bidual._util.clock import clock
from bidual._util.tuning import tuning
from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual._util.watch import checkpoint, watching
from bidual.arrangements import few_patterns
from bidual.arrangements.patterns import unique_rows
from bidual.atoms import Neurons, Normalised
from bidual.bounds import lower_bound
from bidual.closed_form import ConditionError
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.programs.outputs_corrective import corrected_outputs
from bidual.programs.smoothing import first_epsilon, sharper, smoothed
from bidual.solvers.base import Options, Solution
from bidual.solvers.finite import solve_finite
from bidual.solvers.formula import solve_closed_form
from bidual.solvers.generation import UNSEEN, Generation
from bidual.solvers.normalised.descent import descend
from bidual.solvers.normalised.pricing import AUDIT, ROUND, Search
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.run import Run
from bidual.solvers.shared import apart

#: Neurons that may enter in one round, and the number of rounds without use after which they leave.
BATCH, REST = 100, 2
#: Neurons to begin with, iterations of the descent from them and of those that follow.
BEGIN, FIRST, DESCENT = 96, 400, 100
#: Neurons of a descent come to hand above this share of the largest cost.
LIVING = 1e-4
#: Neurons of a corrective step count as used above this one: it ends before the others are zero.
USED = 1e-3
#: A violation is none up to rounding.
ROUNDING = 1e-9
#: Relative decrease of a step at which a descent ends: this share of the gap, within a range.
SHARE, PRECISION = 1e-4, (1e-9, 1e-7)
#: Size of all new neurons in the descent that follows, relative to the gap.
SMALL = 0.1
#: Neurons at hand that are nearer to each other than this share of the gap are one.
ALIKE = 0.1
#: Neurons up to which those on one pattern are merged.
MERGED = 300
#: Accuracy of the corrective step, relative to the gap, which counts as this at most.
ACCURACY, ROUGH = 0.001, 0.1


def solve_normalised(problem: Problem[Normalised], options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``.

    A formula where one holds; with one output all patterns where they are few.
    """
    solution = _unlimited(problem, options)
    assert isinstance(solution.neurons, Neurons)
    run = Run(problem, options, solution.neurons, solution.history[-1].objective)

    def descended(few: Neurons) -> list[Neurons]:
        basis = problem.atoms.basis
        moved = descend(problem, problem.loss, replace(few, U=few.U @ basis), FIRST)
        return [replace(moved, U=moved.U @ basis.T)]

    if not run.narrow(descended):
        return solution
    neurons = run.neurons.balanced()
    last = replace(solution.history[-1], objective=problem.objective(neurons), n_neurons=len(neurons))
    return replace(solution, neurons=neurons, status=run.status, history=[*solution.history, last])


def _unlimited(problem: Problem[Normalised], options: Options) -> Solution:
    with suppress(ConditionError):
        return solve_closed_form(problem, options)
    began = clock()
    if problem.n_outputs == 1:
        with watching(options.time_limit):
            every = few_patterns(problem.atoms.relu_inputs, tuning().normalised_patterns)
        if every is not None:
            return solve_finite(problem, every, options, began)
    run = _Neurons(problem, options, began)
    with run.going():
        run.generate()
    basis = problem.atoms.basis
    run.adopt(replace(run.neurons, U=run.neurons.U @ basis.T))
    return run.solution(
        "local search, audited" if run.confirmed else "local search",
        run.slim(run.neurons),
        directions=run.hand.U @ basis.T,
    )


class _Neurons(Generation):
    """State of column generation: beyond the best of it, the neurons at hand, of unit cost and unit output weights."""

    problem: Problem[Normalised]

    def __init__(self, problem: Problem[Normalised], options: Options, began: float) -> None:
        r, C = problem.atoms.basis.shape[1], problem.n_outputs
        nothing = Neurons.none(r, np.zeros(C))
        super().__init__(problem, options, nothing, np.inf, began)
        self.adopt(nothing, self.evaluate(nothing))
        self.search = Search(problem, self.rng)
        self.epsilon = first_epsilon(problem)
        self.hand, self.size, self.age = nothing, np.zeros(0), np.zeros(0, dtype=np.int64)
        if options.directions is not None:
            U = options.directions @ problem.atoms.basis
            self._take(Neurons(U, np.ones((len(U), C)), self.neurons.intercept))

    def slim(self, neurons: Neurons) -> Neurons:
        """See :meth:`Run.slim`; mergers are looked for among few neurons only, pair by pair."""
        few = reduce_neurons(self.problem, neurons, merging=False)
        return super().slim(few) if len(few) <= MERGED else few

    def evaluate(self, neurons: Neurons) -> float:
        """The objective of neurons in reduced coordinates."""
        problem = self.problem
        F = problem.atoms.activations(neurons.U) @ neurons.alpha + neurons.intercept
        return problem.loss_value(F) + problem.beta * float(neurons.costs.sum())

    def predictions(self) -> FloatArray:
        """Outputs of the best network."""
        return self.problem.atoms.activations(self.neurons.U) @ self.neurons.alpha + self.neurons.intercept

    @property
    def loss(self) -> Loss:
        """The loss, smoothed if it has kinks."""
        return smoothed(self.problem.loss, self.epsilon)

    def begin(self) -> bool:
        """Descend from the given network, or from random neurons."""
        start, r = self.options.start, self.problem.atoms.plain.reduced.shape[1]
        if isinstance(start, Neurons) and len(start):
            start = replace(start, U=start.U @ self.problem.atoms.basis)
        else:
            Q = self.rng.standard_normal((BEGIN, r))
            Q[::2] = self.search.with_few_active(Q[::2]) if self.search.one is not None else Q[::2]
            heads = self.rng.standard_normal((BEGIN, self.problem.n_outputs))
            heads /= np.linalg.norm(heads, axis=1, keepdims=True)
            start = self._small(np.column_stack([Q, np.zeros(BEGIN)]), heads, 1.0)
            self._take(start)  # of which none may live
        self.move(start, FIRST)
        return False

    def audit(self) -> bool:
        """Price the dual point of the bound again, from many more starts."""
        self.price(self.bound.feasible, *AUDIT)
        return self.closed

    def prepare(self) -> str | None:
        """Nothing is left to do."""
        return None

    def _small(self, U: FloatArray, heads: FloatArray, size: float) -> Neurons:
        """Neurons in these directions that together have about this size."""
        each = np.sqrt(size / (len(U) * self.problem.atoms.k))
        U = each * U / np.linalg.norm(U, axis=1, keepdims=True)
        return Neurons(U, each * heads, self.neurons.intercept)

    def move(self, neurons: Neurons, steps: int) -> None:
        """Descend from these neurons; those that live come to hand."""
        moved = descend(self.problem, self.loss, neurons, steps, float(np.clip(SHARE * self.gap, *PRECISION)))
        self.offer(moved)
        self.size[:] = 0.0
        self._take(moved.take(moved.costs > LIVING * moved.costs.max(initial=0.0)), moved.intercept)

    def round(self) -> None:
        """Correct the output weights of all neurons at hand, price the dual point, descend with what violates it."""
        problem, tol = self.problem, self.options.tol
        order = np.argsort(-self.size, kind="stable")  # of those that are alike, the largest
        self._keep(order[apart(self.hand.U[order], ALIKE * max(min(self.gap, ROUGH), tol))])
        hand = replace(self.hand, intercept=self.neurons.intercept)
        accuracy = ACCURACY * max(min(self.gap, ROUGH), tol)
        found, step = corrected_outputs(problem, self.epsilon, hand, self.size, accuracy)
        checkpoint()  # a step that was cut short leaves all neurons in use
        self.hand, self.size = replace(found, intercept=step.intercept), step.t
        self.offer(step.neurons(self.hand))
        living = step.t > USED * step.t.max(initial=0.0)
        self.age = np.where(living, 0, self.age + 1)
        assert step.V is not None
        used = self.hand.U[living]
        stays = self.age < REST
        stays[:1] = True  # at least one
        self._keep(stays)
        self.price(problem.dual_point(step.V), *ROUND, near=used[:, :-1])
        self.note(len(used), UNSEEN)
        if self.epsilon:
            self.epsilon = sharper(self.epsilon, self.gap, self.objective, tol)

    def price(self, V: FloatArray, starts: int, kept: int, polished: int, *, near: FloatArray | None = None) -> None:
        """Look for violating neurons, take them up, descend with them, and update the bound.

        Without ``near`` this is the audit of the bound itself, which may fall.
        """
        problem = self.problem
        around = self.neurons.U[:, :-1] if near is None else near
        around = around[np.linalg.norm(around, axis=1) > 0]
        Q, values = self.search.run(V, around, starts, kept, polished)
        bound = lower_bound(problem, V, float(values[0]), float(values[0]))
        if near is None:
            self.bound = bound
        else:
            self.bounded(bound)
        violating = Q[values > problem.beta * (1 + ROUNDING)]
        if len(violating):
            first, _ = unique_rows(violating @ self.search.rows.T >= 0)
            U, heads = self.search.neurons(violating[first[:BATCH]], V)
            self._take(Neurons(U, heads, self.neurons.intercept))
            extra, best = self._small(U, heads, SMALL * self.gap), self.neurons
            joined = replace(best, U=np.vstack([best.U, extra.U]), alpha=np.vstack([best.alpha, extra.alpha]))
            self.move(joined, DESCENT)

    def _take(self, neurons: Neurons, intercept: FloatArray | None = None) -> None:
        """More neurons at hand; with an ``intercept`` they are the network to start from."""
        u, a = np.linalg.norm(neurons.U, axis=1), np.linalg.norm(neurons.alpha, axis=1)
        alive = (u > 0) & (a > 0)
        units = replace(
            self.hand,
            U=np.concatenate([self.hand.U, neurons.U[alive] / u[alive, None]]),
            alpha=np.concatenate([self.hand.alpha, neurons.alpha[alive] / a[alive, None]]),
        )
        self.hand = units if intercept is None else replace(units, intercept=intercept)
        costs = (u * a)[alive] if intercept is not None else np.zeros(int(alive.sum()))
        self.size = np.concatenate([self.size, costs])
        self.age = np.concatenate([self.age, np.zeros(len(costs), dtype=np.int64)])

    def _keep(self, kept: BoolArray | IntArray) -> None:
        self.hand, self.size, self.age = self.hand.take(kept), self.size[kept], self.age[kept]
