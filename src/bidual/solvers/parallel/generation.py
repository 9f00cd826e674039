"""Column generation: descend, re-optimise on the cells at hand, price, add the violating branches, repeat."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual.arrangements.layered import LayeredPatterns
from bidual.certificates import DualBound, lower_bound, relative_gap
from bidual.problem import ParallelProblem, SubNetworks
from bidual.solvers.adaptive.corrective import corrected
from bidual.solvers.adaptive.smoothing import SmoothedLoss
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.finite import STATUS, dual_point, solve_finite, solve_program
from bidual.solvers.interrupt import InterruptFlag
from bidual.solvers.parallel.cells import cells_of, few_cells, random_branches
from bidual.solvers.parallel.descent import descend
from bidual.solvers.parallel.pricing import AUDIT, ROUND, Search, unit_cost
from bidual.solvers.parallel.program import LayeredProgram
from bidual.solvers.reduce import reduce_neurons

#: Up to this many cells are enumerated: no need to search for them.
PROOF_CELLS = 3_000
#: Branches that may enter in one round, branches to begin with, and steps of a descent.
BATCH, BEGIN, DESCENT = 16, 40, 400
#: Cone rows up to which weights are re-optimised on fixed cells by the conic solver.
CONIC_ROWS = 12_000
#: Rounds without progress after which there will be none.
PATIENCE = 8


def solve_parallel(problem: ParallelProblem, options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``; on all cells where they are few."""
    if options.max_neurons is not None:
        raise ValueError("max_neurons is for two-layer networks: use None with parallel ones")
    began = time.perf_counter()
    every = few_cells(problem, PROOF_CELLS) if problem.n_outputs == 1 else None
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


def _mapped(branches: SubNetworks, basis: FloatArray) -> SubNetworks:
    """Leaves in other coordinates."""
    T = branches.U.shape[1] // len(basis) if len(basis) else 0
    leaves = branches.U.reshape(len(branches), T, len(basis)) @ basis
    return replace(branches, U=leaves.reshape(len(branches), T * basis.shape[1]))


class Generation:
    """State of column generation: the branches at hand, the best network and the best bound."""

    def __init__(self, problem: ParallelProblem, options: Options, began: float, interrupt: InterruptFlag) -> None:
        self.problem, self.options, self.began, self.interrupt = problem, options, began, interrupt
        rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        self.search = Search(problem, rng)
        V = np.zeros_like(problem.Y)
        self.bound = DualBound(problem.dual_value(V), V, 0.0, 0.0, proven=False)
        self.history: list[HistoryEntry] = []
        self.epsilon = 1e-2
        self.branches = problem.no_neurons(np.zeros(problem.n_outputs))
        self.objective = problem.objective(self.branches)
        self.atoms = self.branches
        start = options.start
        if not isinstance(start, SubNetworks):
            start = random_branches(problem, BEGIN, rng)
            start = replace(start, U=start.U / np.sqrt(BEGIN), alpha=start.alpha / np.sqrt(BEGIN))
        self.move(start)

    @property
    def loss(self) -> SmoothedLoss:
        """The loss, smoothed if it has kinks."""
        loss = self.problem.loss
        return loss if loss.smooth else SmoothedLoss(loss, self.epsilon)  # type: ignore[return-value]

    @property
    def gap(self) -> float:
        """Relative gap of the best network and the best bound."""
        return relative_gap(self.objective, self.bound.value)

    def late(self) -> bool:
        """Whether to stop: time is up, or Ctrl-C was pressed."""
        limit = self.options.time_limit
        return self.interrupt.is_set() or (limit is not None and time.perf_counter() - self.began > limit)

    def move(self, branches: SubNetworks) -> None:
        """Descend from these branches; those that live come to hand."""
        moved = descend(self.problem, self.loss, branches, DESCENT, self.late)
        self.offer(moved)
        self.atoms = _alive(moved)

    def offer(self, branches: SubNetworks) -> None:
        """Keep the network if it is the best so far."""
        objective = self.problem.objective(branches)
        if objective < self.objective:
            self.objective, self.branches = objective, branches

    def run(self) -> Solution:
        """Rounds until the audited gap is closed."""
        status, n_iter, since, reached = "stopped at max_iter", 0, 0, np.inf
        for _ in range(self.options.max_iter):
            n_iter += 1
            self.round()
            if self.gap <= self.options.tol:
                if self.options.audit and not self.late():
                    self.audit()
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
        branches = reduce_neurons(self.problem, self.branches, 0.01 * self.options.tol)
        objective = self.problem.objective(branches)
        self.history.append(
            HistoryEntry(time.perf_counter() - self.began, objective, self.bound.value, len(branches))
        )
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
        """Re-optimise on the cells at hand, price the dual point, and descend with what violates it."""
        V = self.correct()
        self.price(V)
        self.epsilon = max(0.5 * self.epsilon, 1e-5)
        entry = HistoryEntry(time.perf_counter() - self.began, self.objective, self.bound.value, len(self.branches))
        self.history.append(entry)
        if self.options.verbose:
            print(
                f"bidual: {entry.elapsed:8.2f} s  {len(self.branches):5d} branches  objective {self.objective:.8g}  "
                f"gap {self.gap:.1e} (before the audit)",
                flush=True,
            )

    def correct(self) -> FloatArray:
        """The best weights on the cells at hand if they are small, else the best magnitudes; the dual point there."""
        problem = self.problem
        cells = cells_of(problem, self.atoms)
        if self._conic(cells):
            program = LayeredProgram(problem, cells)
            result = solve_program(program, self.options, self.began)
            found = _alive(program.neurons(result))
            self.offer(found)
            self.atoms = found
            return dual_point(problem, result.V)
        atoms = unit_cost(self.atoms)
        loss, t = self.loss, self.atoms.costs
        step = corrected(problem, loss, atoms, t, hidden=problem.hidden_of(atoms))
        found = step.neurons(atoms)
        assert isinstance(found, SubNetworks)
        self.offer(found)
        self.atoms = found
        return dual_point(problem, -loss.gradient(step.F, problem.Y, problem.w))

    def _conic(self, cells: LayeredPatterns) -> bool:
        n, T = len(self.problem.M), self.problem.tree.nodes
        return self.problem.n_outputs == 1 and 2 * len(cells) * n * T <= CONIC_ROWS

    def price(self, V: FloatArray) -> None:
        """Look for violating branches, update the bound, and descend with them."""
        problem = self.problem
        found, values = self.search.run(V, self.atoms, *ROUND)
        top = float(values.max(initial=0.0))
        bound = replace(lower_bound(problem, V, top, top), proven=False)
        if bound.value > self.bound.value:
            self.bound = bound
        if self.gap > self.options.tol:
            self._enter(found.take(values > problem.beta * (1 + 1e-9)))

    def audit(self) -> None:
        """Look harder at the dual point of the bound, which may fall."""
        V = self.bound.V
        found, values = self.search.run(V, self.atoms, *AUDIT)
        top = max(float(values.max(initial=0.0)), self.problem.beta)
        self.bound = replace(lower_bound(self.problem, V, top, top), proven=False)
        if self.gap > self.options.tol:
            self._enter(found.take(values > self.problem.beta * (1 + 1e-9)))

    def _enter(self, violating: SubNetworks) -> None:
        """Descend from the branches at hand and the best of these on cells of their own."""
        problem = self.problem
        extra = violating.take(_distinct(problem, violating)[:BATCH])
        # together about as large as what is missing
        share = np.sqrt(max(0.1 * self.gap, 1e-6) / max(len(extra), 1))
        small = replace(extra, U=share * extra.U, alpha=share * extra.alpha, intercept=self.atoms.intercept)
        atoms = self.atoms.joined(small)
        if self._conic(cells_of(problem, atoms)) and self.gap < 0.03:
            self.atoms = atoms  # the conic solver takes it from here
        else:
            self.move(atoms)


def _alive(branches: SubNetworks) -> SubNetworks:
    """Those that carry something."""
    costs = branches.costs
    return branches.take(costs > 1e-5 * costs.max(initial=0.0))


def _distinct(problem: ParallelProblem, branches: SubNetworks) -> FloatArray:
    """Index of the first branch in each cell."""
    if not len(branches):
        return np.zeros(0, dtype=np.int64)
    from bidual.arrangements.patterns import unique_rows

    masks = problem.tree.masks(problem.leaves(branches.U), branches.signs).swapaxes(0, 1).reshape(len(branches), -1)
    first, _ = unique_rows(np.column_stack([masks, branches.signs > 0]))
    return first
