"""Column generation: descend, re-optimise on the cells at hand, price, add the violating branches, repeat."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import FloatArray, IntArray
from bidual.arrangements.patterns import unique_rows
from bidual.certificates import DualBound, lower_bound, relative_gap
from bidual.certificates.layered import LayeredBounds
from bidual.losses import Loss
from bidual.problem import ParallelProblem, SubNetworks
from bidual.progress import closed, note
from bidual.solvers.adaptive.corrective import Columns, corrected
from bidual.solvers.adaptive.smoothing import SmoothedLoss
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.finite import STATUS, dual_point, solve_finite, solve_program
from bidual.solvers.interrupt import InterruptFlag
from bidual.solvers.parallel.cells import all_cells, cells_of, few_cells, random_branches
from bidual.solvers.parallel.descent import descend
from bidual.solvers.parallel.pricing import AUDIT, CAREFUL, ROUND, Search, unit_cost
from bidual.solvers.parallel.program import LayeredProgram
from bidual.solvers.reduce import reduce_neurons

#: Up to this many cells are enumerated: no need to search for them.
PROOF_CELLS = 3_000
#: Branches that may enter in one round, and the number of rounds without use after which they leave.
BATCH, REST = 16, 4
#: Branches to begin with, steps of a descent, and the range of relative decreases at which it stops.
BEGIN, DESCENT, PRECISION = 32, 300, (1e-9, 3e-6)
#: Cone rows up to which weights are re-optimised on fixed cells by the conic solver.
CONIC_ROWS = 12_000
#: Gap below which descending is rarely of use, and pricing takes more care.
NEAR = 0.02
#: Descents of a network that was made narrow.
NARROW = 4
#: Rounds without progress after which there will be none.
PATIENCE = 15


def solve_parallel(problem: ParallelProblem, options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``; on all cells where they are few."""
    began = time.perf_counter()
    # of few branches the convex programs know nothing
    small = problem.n_outputs == 1 and options.max_neurons is None
    every = few_cells(problem, PROOF_CELLS) if small else None
    if every is not None:
        return solve_finite(problem, every, options, began)  # type: ignore[arg-type]
    if not problem.loss.finite:
        raise ValueError("beta=0 asks for an exact fit: use method='exact' (or 'sampled'), or beta > 0")
    # rows in few coordinates: the norm of the leaves is the same there
    reduced = replace(problem, M=problem.reduced)
    start = options.start
    if isinstance(start, SubNetworks):
        options = replace(options, start=_mapped(start, problem.basis))
    with InterruptFlag() as interrupt:
        solution = Generation(reduced, options, began, interrupt).run()
    assert isinstance(solution.neurons, SubNetworks)
    return replace(solution, neurons=_mapped(solution.neurons, problem.basis.T))


def solve_several_outputs(problem: ParallelProblem, options: Options) -> Solution:
    """Several outputs: column generation, and a proven bound over all cells (of more than two outputs a loose one)."""
    began = time.perf_counter()
    every = all_cells(problem)
    found = solve_parallel(problem, replace(options, audit=False))
    bound = LayeredBounds(problem, every).lower_bound(dual_point(problem, found.bound.V))
    last = replace(found.history[-1], elapsed=time.perf_counter() - began, lower_bound=bound.value)
    return replace(
        found,
        bound=bound,
        rigorous=True,
        method=f"all {len(every)} activation patterns",
        n_patterns=len(every),
        history=[*found.history, last],
    )


def _mapped(branches: SubNetworks, basis: FloatArray) -> SubNetworks:
    """Leaves in other coordinates."""
    T = branches.U.shape[1] // len(basis) if len(basis) else 0
    leaves = branches.U.reshape(len(branches), T, len(basis)) @ basis
    return replace(branches, U=leaves.reshape(len(branches), T * basis.shape[1]))


class BranchColumns(Columns):
    """What given branches contribute to the outputs, in terms of their magnitudes."""

    def __init__(self, problem: ParallelProblem, neurons: SubNetworks) -> None:
        self.H = problem.hidden_of(neurons)
        self.alpha = neurons.alpha


class Generation:
    """State of column generation: the branches at hand, the best network and the best bound.

    The branches at hand (``pool``, of unit cost, one for each cell) stay for a few rounds after their last use: those
    of magnitude zero are cuts that keep the dual point away from what has been priced before.
    """

    def __init__(self, problem: ParallelProblem, options: Options, began: float, interrupt: InterruptFlag) -> None:
        self.problem, self.options, self.began, self.interrupt = problem, options, began, interrupt
        rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        self.search = Search(problem, rng)
        V = np.zeros_like(problem.Y)
        self.bound = DualBound(problem.dual_value(V), V, 0.0, 0.0, proven=False)
        self.centre: FloatArray | None = None  # the dual point of the bound
        self.history: list[HistoryEntry] = []
        self.epsilon = 1e-2
        self.branches = problem.no_neurons(problem.M.shape[1], np.zeros(problem.n_outputs))
        self.objective = problem.objective(self.branches)
        # branches at hand, rounds since their last use, and their magnitudes in the network that came last
        self.pool, self.age, self.size = self.branches, np.zeros(0, dtype=np.int64), np.zeros(0)
        some = random_branches(problem, BEGIN, rng)
        some = replace(some, U=some.U / np.sqrt(BEGIN), alpha=some.alpha / np.sqrt(BEGIN))
        start = options.start
        if isinstance(start, SubNetworks):
            some = self.extended(start, unit_cost(some).take(np.arange(BEGIN // 4)))
        self.move(some)

    @property
    def loss(self) -> Loss:
        """The loss, smoothed if it has kinks."""
        loss = self.problem.loss
        return loss if loss.smooth else SmoothedLoss(loss, self.epsilon)

    @property
    def gap(self) -> float:
        """Relative gap of the best network and the best bound."""
        return relative_gap(self.objective, self.bound.value)

    def late(self) -> bool:
        """Whether to stop: time is up, or Ctrl-C was pressed."""
        limit = self.options.time_limit
        return self.interrupt.is_set() or (limit is not None and time.perf_counter() - self.began > limit)

    def move(self, branches: SubNetworks) -> None:
        """Descend from these branches, the closer the smaller the gap is; those that live come to hand."""
        tol = float(np.clip(1e-4 * self.gap, *PRECISION))
        moved = descend(self.problem, self.loss, branches, DESCENT, tol, self.late)
        self.offer(moved)
        moved = moved.take(moved.costs > 1e-5 * moved.costs.max(initial=0.0))
        self.size[:] = 0.0
        self.take(moved, moved.costs)

    def offer(self, branches: SubNetworks) -> None:
        """Keep the network if it is the best so far."""
        objective = self.problem.objective(branches)
        if objective < self.objective:
            self.objective, self.branches = objective, branches

    def take(self, branches: SubNetworks, size: FloatArray | float = 0.0) -> None:
        """More branches at hand, before the old ones; one for each cell and side of the output."""
        units = unit_cost(branches)
        joined = replace(units.joined(self.pool), intercept=self.branches.intercept)
        age = np.concatenate([np.zeros(len(units), dtype=np.int64), self.age])
        sizes = np.concatenate([np.broadcast_to(size, len(units)), self.size])
        first = distinct(self.problem, joined)
        self.pool, self.age, self.size = joined.take(first), age[first], sizes[first]

    def run(self) -> Solution:
        """Rounds until the audited gap is closed."""
        status, n_iter, since, reached = "stopped at max_iter", 0, 0, np.inf
        for _ in range(self.options.max_iter):
            n_iter += 1
            self.round()
            if self.gap <= self.options.tol:
                if not self.late():  # rounds miss violations now and then: no gap is believed unseen
                    self.price(self.bound.V, AUDIT if self.options.audit else CAREFUL, audit=True)
                if self.gap <= self.options.tol:
                    status = "converged"
                    break
            since, reached = (0, self.gap) if self.gap < 0.97 * reached else (since + 1, reached)
            if self.late():
                status = "interrupted" if self.interrupt.is_set() else STATUS["MaxTime"]
                break
            if since >= PATIENCE:
                status = "stopped: no further progress"
                break
        width = self.options.max_neurons
        if width is not None and len(self.branches.balanced()) > width:
            self.narrow(width)
            status = f"limited to max_neurons={width}"
        branches = reduce_neurons(self.problem, self.branches, 0.01 * self.options.tol)
        objective = self.problem.objective(branches)
        elapsed = time.perf_counter() - self.began
        self.history.append(HistoryEntry(elapsed, objective, self.bound.value, len(branches)))
        return Solution(
            neurons=branches,
            bound=self.bound,
            scope="global",
            rigorous=False,
            method="local search, audited" if status == "converged" and self.options.audit else "local search",
            status=status,
            n_iter=n_iter,
            history=self.history,
        )

    def round(self) -> None:
        """Re-optimise with the branches at hand, price the dual point, and descend with what violates it."""
        V = self.correct()
        effort = ROUND if self.gap > NEAR else CAREFUL
        self.price(V, effort)
        if self.centre is not None and self.gap > self.options.tol and not self.late():
            self.price(0.5 * (V + self.centre), effort)  # dual points jump: between them it is often better
        self.recheck()
        self.epsilon = max(0.5 * self.epsilon, 1e-5)
        entry = HistoryEntry(time.perf_counter() - self.began, self.objective, self.bound.value, len(self.branches))
        self.history.append(entry)
        if self.options.verbose:
            note(
                f"{entry.elapsed:8.2f} s  {len(self.branches):5d} branches  objective {self.objective:.8g}  "
                f"gap {self.gap:.1e} (before the audit)",
                closed(self.gap, self.options.tol),
            )
        rarely = self.conic and self.gap <= NEAR
        if not (rarely and len(self.history) % 6) and not self.late():
            self.move(self.extended(self.branches, self.pool.take(self.age == 0)))

    def narrow(self, width: int) -> None:
        """Replace the best network by one of at most ``width`` branches."""
        rank = np.argsort(-self.branches.costs, kind="stable")[:width]
        few = self.branches.take(np.sort(rank))
        self.objective = np.inf
        for _ in range(NARROW):
            few = self.extended(few, few.take(np.arange(0)))
            self.offer(few)
            few = descend(self.problem, self.loss, few, DESCENT, PRECISION[0])
            self.offer(few)

    def extended(self, branches: SubNetworks, extra: SubNetworks) -> SubNetworks:
        """The network with as much of the branches ``extra``, which have unit cost, as is best."""
        units = unit_cost(branches)
        size = np.concatenate([branches.balanced().costs, np.zeros(len(extra))])
        step = corrected(self.problem, self.loss, units.joined(extra), size, steps=3)
        found = step.neurons(units.joined(extra))
        assert isinstance(found, SubNetworks)
        return found

    @property
    def conic(self) -> bool:
        """Whether weights are re-optimised on the cells at hand by the conic solver."""
        return self.problem.n_outputs == 1 and 0 < self.pool_rows <= CONIC_ROWS

    def correct(self) -> FloatArray:
        """The best weights on the cells at hand if they are small, else the best magnitudes; the dual point there."""
        problem = self.problem
        if self.conic:
            program = LayeredProgram(problem, cells_of(problem, self.pool))
            result = solve_program(program, self.options, self.began)
            self.offer(program.neurons(result))
            used = program.costs(result.Z).max(axis=(0, 1))
            V = dual_point(problem, result.V)
        else:
            loss = self.loss
            step = corrected(problem, loss, self.pool, self.size)
            found = step.neurons(self.pool)
            assert isinstance(found, SubNetworks)
            self.offer(found)
            used = step.t
            V = dual_point(problem, -loss.gradient(step.F, problem.Y, problem.w))
        self.age = np.where(used > 1e-6 * used.max(initial=0.0), 0, self.age + 1)
        kept = self.age < REST
        self.pool, self.age, self.size = self.pool.take(kept), self.age[kept], self.size[kept]
        return V

    @property
    def pool_rows(self) -> int:
        """Cone rows of the program on the cells at hand."""
        return 2 * len(self.pool) * len(self.problem.M) * self.problem.tree.nodes

    def price(self, V: FloatArray, effort: tuple[int, int], *, audit: bool = False) -> None:
        """Look for violating branches, take those on cells of their own, and update the bound.

        In an audit ``V`` is the dual point of the bound, which may fall.
        """
        problem = self.problem
        found, values = self.search.run(V, self.pool, *effort)
        top = max(float(values.max(initial=0.0)), problem.beta if audit else 0.0)
        bound = replace(lower_bound(problem, V, top, top), proven=False)
        if audit or bound.value > self.bound.value:
            self.bound, self.centre = bound, V
        violating = found.take(values > problem.beta * (1 + 1e-9))
        self.take(violating.take(distinct(problem, violating)[:BATCH]))

    def recheck(self) -> None:
        """Lower the bound if a branch that has come to hand violates the dual point it rests on by more than known.

        The best of many bounds is the one whose search missed most: this holds it against all other searches.
        """
        if self.centre is None:
            return
        top = float(self.search.values(self.pool, self.centre)[0].max(initial=0.0))
        if top > self.bound.oracle_value:
            self.bound = replace(lower_bound(self.problem, self.centre, top, top), proven=False)


def distinct(problem: ParallelProblem, branches: SubNetworks) -> IntArray:
    """Index of the first branch in each cell."""
    masks = problem.tree.masks(problem.leaves(branches.U), branches.signs).swapaxes(0, 1)
    masks = masks.reshape(len(branches), len(problem.M) * problem.tree.nodes)
    return unique_rows(np.column_stack([masks, branches.signs > 0]))[0]
