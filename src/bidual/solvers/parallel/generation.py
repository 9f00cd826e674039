"""Column generation: descend, re-optimise on the cells at hand, price, add the violating branches, repeat."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual._watch import Stopped, Watch, current, watching
from bidual.certificates import Bound, bound_by_norms, lower_bound, relative_gap
from bidual.certificates.layered import LayeredBounds
from bidual.losses import Loss
from bidual.problem import ParallelProblem, SubNetworks
from bidual.progress import closed, note
from bidual.solvers.adaptive.corrective import Columns, corrected
from bidual.solvers.adaptive.smoothing import SmoothedLoss
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.constant import solve_constant
from bidual.solvers.finite import dual_point, solve_finite, solve_program
from bidual.solvers.parallel.cells import all_cells, cells_of, few_cells, random_branches
from bidual.solvers.parallel.descent import descend
from bidual.solvers.parallel.pricing import AUDIT, CAREFUL, ROUND, Effort, Search, distinct, found_again, unit_cost
from bidual.solvers.parallel.program import LayeredProgram
from bidual.solvers.reduce import reduce_neurons

#: Up to this many cells are enumerated: no need to search for them.
PROOF_CELLS = 3_000
#: Branches that may enter in one round, and the number of rounds without use after which they leave.
BATCH, REST = 16, 4
#: Branches to begin with, steps of a descent, and the range of relative decreases at which it stops.
BEGIN, DESCENT, PRECISION = 32, 300, (1e-9, 3e-6)
#: Cone rows up to which weights are re-optimised on fixed cells by the conic solver: of a smooth loss, and of one with
#: kinks, whose smoothed versions have poor dual points.
CONIC_ROWS, KINKED_ROWS = 12_000, 36_000
#: Gap below which descending is rarely of use, and pricing takes more care.
NEAR = 0.02
#: Descents of a network that was made narrow.
NARROW = 4
#: Most pairs of blind searches in an audit, the share of the network's branches that all of them may miss, and the
#: branches of a search among which they must be.
PAIRS, MISSED, LISTED = 2, 0.05, 512
#: Share of the time limit that is kept for the audit.
RESERVE = 0.15
#: The status of a run that finds no more, with searches that find too little.
UNSURE = "stopped: the searches of the audit miss too much to tell a gap"
#: Rounds without progress after which there will be none.
PATIENCE = 15


def solve_parallel(problem: ParallelProblem, options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``; on all cells where they are few."""
    if not problem.M.any():  # every branch is zero
        return solve_constant(problem, options)
    began = time.perf_counter()
    # of few branches the convex programs know nothing
    small = problem.n_outputs == 1 and options.max_neurons is None
    with watching(options.time_limit):
        every = few_cells(problem, PROOF_CELLS) if small else None
    if every is not None:
        return solve_finite(problem, every, options, began)  # type: ignore[arg-type]
    # rows in few coordinates: the norm of the leaves is the same there
    reduced = replace(problem, M=problem.reduced)
    start = options.start
    if isinstance(start, SubNetworks):
        options = replace(options, start=_mapped(start, problem.basis))
    left = None if options.time_limit is None else options.time_limit - (time.perf_counter() - began)
    with watching(left) as watch:
        generation = Generation(reduced, options, began, watch)
        status, n_iter = generation.run()
    solution = generation.solution(status, n_iter)
    assert isinstance(solution.neurons, SubNetworks)
    return replace(solution, neurons=_mapped(solution.neurons, problem.basis.T))


def solve_several_outputs(problem: ParallelProblem, options: Options) -> Solution:
    """Several outputs: column generation, and a proven bound over all cells (of more than two outputs a loose one)."""
    began = time.perf_counter()
    every = all_cells(problem)
    found = solve_parallel(problem, replace(options, audit=False))
    bound = LayeredBounds(problem, every).lower_bound(dual_point(problem, found.bound.V))
    last = replace(found.history[-1], elapsed=time.perf_counter() - began, likely_bound=bound.value)
    return replace(
        found,
        bound=bound,
        method=f"all {len(every)} activation patterns",
        n_patterns=len(every),
        history=[*found.history, last],
    )


def _mapped(branches: SubNetworks, basis: FloatArray) -> SubNetworks:
    """Leaves in other coordinates."""
    T = branches.U.shape[1] // len(basis) if len(basis) else 0
    leaves = branches.U.reshape(len(branches), T, len(basis)) @ basis
    return replace(branches, U=leaves.reshape(len(branches), T * basis.shape[1]))


def believed(tops: list[float]) -> float:
    """The largest value there is, judged by the largest ones that at least two independent searches have found.

    Where the best two agree there is hardly more to find. Where they do not, the maximum is expected as far above the
    best as that is above the second (the estimate of an end point of Robson and Whitlock, 1964).
    """
    *_, second, first = sorted(tops)
    return 2.0 * first - second


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

    def __init__(self, problem: ParallelProblem, options: Options, began: float, watch: Watch) -> None:
        self.problem, self.options, self.began, self.watch = problem, options, began, watch
        rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        self.search = Search(problem, rng)
        self.bound = Bound.nothing(problem)
        self.centre: FloatArray | None = None  # the dual point of the bound
        self.history: list[HistoryEntry] = []
        self.epsilon = 1e-2
        self.branches = problem.no_neurons(problem.M.shape[1], np.zeros(problem.n_outputs))
        self.objective = problem.objective(self.branches)
        # branches at hand, rounds since their last use, and their magnitudes in the network that came last
        self.pool, self.age, self.size = self.branches, np.zeros(0, dtype=np.int64), np.zeros(0)
        self.used = self.branches  # the network of the last dual point
        self.sure = True  # whether the last audit found what there is to be found
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

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    @property
    def limit(self) -> float:
        """Seconds that there are."""
        return np.inf if self.options.time_limit is None else self.options.time_limit

    def over(self) -> bool:
        """Whether all time is up, or Ctrl-C was pressed."""
        return self.watch.late()

    def late(self) -> bool:
        """Whether to stop: what is left of the time is for the audit, or Ctrl-C was pressed."""
        return self.watch.interrupted or self.elapsed > (1.0 - RESERVE * self.options.audit) * self.limit

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

    def run(self) -> tuple[str, int]:
        """Rounds until the audited gap is closed; why they ended, and how many there were."""
        status, n_iter, since, reached = "stopped at max_iter", 0, 0, np.inf
        try:
            for _ in range(self.options.max_iter):
                n_iter += 1
                self.round()
                # rounds miss violations now and then: no gap is believed unseen
                if self.gap <= self.options.tol and self.audit():
                    return ("converged" if self.sure else UNSURE), n_iter
                since, reached = (0, self.gap) if self.gap < 0.97 * reached else (since + 1, reached)
                if self.late():
                    status = self.watch.status
                    break
                if since >= PATIENCE:
                    status = "stopped: no further progress"
                    break
            self.audit(to_the_end=True)
        except Stopped as stopped:
            status = str(stopped)
        return status, n_iter

    def solution(self, status: str, n_iter: int) -> Solution:
        """The best network, made narrow if that was asked for, with few branches."""
        width = self.options.max_neurons
        if status == UNSURE:  # no likely bound: norms say what is left, at the same dual point
            self.bound = replace(bound_by_norms(self.problem, self.bound.V), proof=None)
        if width is not None and len(self.branches.balanced()) > width:
            self.narrow(width)
            status = f"limited to max_neurons={width}"
        branches = reduce_neurons(self.problem, self.branches, 0.01 * self.options.tol)
        objective = self.problem.objective(branches)
        self.history.append(HistoryEntry(self.elapsed, objective, self.bound.value, len(branches)))
        return Solution(
            neurons=branches,
            bound=self.bound,
            scope="global",
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
        entry = HistoryEntry(self.elapsed, self.objective, self.bound.value, len(self.branches))
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
            few = descend(self.problem, self.loss, few, DESCENT, PRECISION[0], current().late)
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
        most = CONIC_ROWS if self.problem.loss.smooth else KINKED_ROWS
        return self.problem.n_outputs == 1 and 0 < self.pool_rows <= most

    def correct(self) -> FloatArray:
        """The best weights on the cells at hand if they are small, else the best magnitudes; the dual point there."""
        problem = self.problem
        if self.conic:
            program = LayeredProgram(problem, cells_of(problem, self.pool))
            result = solve_program(program, self.options, self.began)
            self.used = program.neurons(result)
            used = program.costs(result.Z).max(axis=(0, 1))
            V = dual_point(problem, result.V)
        else:
            loss = self.loss
            step = corrected(problem, loss, self.pool, self.size)
            found = step.neurons(self.pool)
            assert isinstance(found, SubNetworks)
            self.used = found
            used = step.t
            V = dual_point(problem, -loss.gradient(step.F, problem.Y, problem.w))
        self.offer(self.used)
        self.used = self.used.take(self.used.costs > 1e-6 * self.used.costs.max(initial=0.0))
        self.age = np.where(used > 1e-6 * used.max(initial=0.0), 0, self.age + 1)
        kept = self.age < REST
        self.pool, self.age, self.size = self.pool.take(kept), self.age[kept], self.size[kept]
        return V

    @property
    def near(self) -> SubNetworks:
        """Where to look for more: the branches of the last network, at the maximum of their cones, and all at hand."""
        return self.used.joined(self.pool)

    @property
    def pool_rows(self) -> int:
        """Cone rows of the program on the cells at hand."""
        return 2 * len(self.pool) * len(self.problem.M) * self.problem.tree.nodes

    def price(self, V: FloatArray, effort: Effort) -> None:
        """Look for violating branches, take those on cells of their own, and keep the bound if it is the best."""
        found, values = self.search.run(V, self.near, effort)
        top = float(values.max(initial=0.0))
        bound = lower_bound(self.problem, V, top, top)
        if bound.value > self.bound.value:
            self.bound, self.centre = bound, V
        self.cut(found, values)

    def cut(self, found: SubNetworks, values: FloatArray) -> None:
        """Take the best of the branches that violate the constraint, one for each cell."""
        violating = found.take(values > self.problem.beta * (1 + 1e-9))
        self.take(violating.take(distinct(self.problem, violating)[:BATCH]))

    def audit(self, *, to_the_end: bool = False) -> bool:
        """Search again at the dual point of the bound, which falls by what is found and missed; whether the gap stands.

        Ends at the first search that opens the gap, as the rounds go on then, unless asked to go on ``to_the_end``.
        That searches find nothing says something only if they find what there is. After a first one they are blind to
        one half of the network's branches each, which are maxima at the limit: a branch that none has found again
        stands for others that nobody knows. If many are missed, we are not ``sure``.
        """
        problem, options = self.problem, self.options
        # what the rounds have found at this point is the first of the tops
        V, tops, effort = self.bound.feasible, [problem.beta], AUDIT if options.audit else CAREFUL

        def quiet(near: SubNetworks) -> SubNetworks | None:
            """What a search finds; None if that opens the gap or time is up."""
            if self.over():
                return None
            found, values = self.search.run(V, near, effort, self.over)
            tops.append(max(float(values.max(initial=0.0)), problem.beta))
            self.cut(found, values)
            self.bound, self.centre = lower_bound(problem, V, max(tops), believed(tops)), V
            return found if self.gap <= options.tol or to_the_end else None

        if quiet(self.near) is None:
            return False
        if options.audit:
            few = reduce_neurons(problem, self.branches, 0.01 * options.tol)
            assert isinstance(few, SubNetworks)
            known = unit_cost(few)
            missed = np.ones(len(known), dtype=bool)
            for _ in range(PAIRS):
                told = self.search.rng.permutation(len(known)) % 2 == 0
                for half in (told, ~told):
                    found = quiet(known.take(half))
                    if found is None:
                        return False
                    missed &= half | ~found_again(problem, known, found.take(np.arange(min(LISTED, len(found)))))
                self.sure = bool(missed.sum() <= MISSED * len(known))
                if self.sure:
                    break
        # a bound above the objective is refuted: something was missed
        return self.gap <= options.tol and self.bound.value <= (1.0 + 1e-9) * self.objective

    def recheck(self) -> None:
        """Lower the bound if a branch that has come to hand violates the dual point it rests on by more than known.

        The best of many bounds is the one whose search missed most: this holds it against all other searches.
        """
        if self.centre is None:
            return
        top = float(self.search.values(self.pool, self.centre)[0].max(initial=0.0))
        if top > self.bound.attained:
            self.bound = lower_bound(self.problem, self.centre, top, top)
