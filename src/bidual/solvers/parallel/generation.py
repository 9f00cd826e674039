"""Column generation: descend, re-optimise on the cells at hand, price, add the violating branches, repeat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bidual._util.clock import clock
from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual._util.watch import current, watching
from bidual.atoms import Branches, Neurons, SubNetworks
from bidual.atoms.branches import random_branches
from bidual.bounds import bound_by_norms, lower_bound
from bidual.bounds.branches import LayeredBounds
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.programs.conic import ConicFailure, FiniteProgram
from bidual.programs.corrective import corrected
from bidual.programs.smoothing import smoothed
from bidual.solvers.base import Options, Solution
from bidual.solvers.constant import solve_constant
from bidual.solvers.finite import solve_finite, solve_program
from bidual.solvers.generation import UNSEEN, Generation
from bidual.solvers.parallel.descent import descend
from bidual.solvers.parallel.pricing import AUDIT, CAREFUL, ROUND, Effort, Search, distinct, found_again, unit_cost
from bidual.solvers.run import Status

#: Branches that may enter in one round, and the number of rounds without use after which they leave.
BATCH, REST = 16, 4
#: Branches to begin with, steps of a descent, and the relative decrease at which it stops: this share of the gap,
#: within a range.
BEGIN, DESCENT, SHARE, PRECISION = 32, 300, 1e-4, (1e-9, 3e-6)
#: Cone rows up to which weights are re-optimised on fixed cells by the conic solver: of a smooth loss, and of one with
#: kinks, whose smoothed versions have poor dual points. For that branches of the latter leave early, as long as so many
#: for each row can stay (one for each row can be in use).
CONIC_ROWS, KINKED_ROWS, STAY = 12_000, 36_000, 2
#: Gap below which descending is rarely of use, and pricing takes more care.
NEAR = 0.02
#: Descents of a network that was made narrow.
NARROW = 4
#: Pairs of blind searches in an audit, and the most there are while each of them finds more of what was missed; the
#: share of the network's branches that all of them may miss, and the branches of a search among which they must be.
PAIRS, MOST_PAIRS, MISSED, LISTED = 2, 8, 0.05, 512
#: Pairs more for each audit that opened the gap: where violations hide from the rounds, one search in four finds them.
AGAIN = 2
#: Share of the time limit that is kept for the audit.
RESERVE = 0.15
#: Rounds without progress after which there will be none, and the factor of the gap that is progress.
PATIENCE, PROGRESS = 15, 0.97
#: How much a loss with kinks is smoothed: at first, by which factor from round to round, and at last.
EPSILON, SHARPER, SHARPEST = 1e-2, 0.5, 1e-5
#: Branches of a descent come to hand above this share of the largest cost; those of a program count as used above that.
LIVING, USED = 1e-5, 1e-6
#: Steps of the correction that joins branches to a network: the descent that follows does the rest.
JOINING = 3
#: Near the optimum only every so many rounds descend.
RARELY = 6
#: A violation is none, and a bound above the objective no contradiction, up to rounding.
ROUNDING = 1e-9


def solve_parallel(problem: Problem[Branches], options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``; on all cells where they are few."""
    if not problem.atoms.M.any():  # every branch is zero
        return solve_constant(problem, options)
    began = clock()
    # of few branches the convex programs know nothing
    small = problem.n_outputs == 1 and options.max_neurons is None
    with watching(options.time_limit):
        every = problem.atoms.few_cells(tuning().parallel_cells) if small else None
    if every is not None:
        return solve_finite(problem, every, options, began)
    # rows in few coordinates: the norm of the leaves is the same there
    reduced = replace(problem, atoms=replace(problem.atoms, M=problem.atoms.reduced))
    start = options.start
    if isinstance(start, SubNetworks):
        options = replace(options, start=_mapped(start, problem.atoms.basis))
    run = _Pool(reduced, options, began)
    with run.going():
        run.generate()
        if not run.confirmed:
            run.audit(to_the_end=True)
        elif not run.sure:
            run.status = Status.UNSURE
    solution = run.finish()
    assert isinstance(solution.neurons, SubNetworks)
    return replace(solution, neurons=_mapped(solution.neurons, problem.atoms.basis.T))


def solve_several_outputs(problem: Problem[Branches], options: Options) -> Solution:
    """Several outputs: column generation, and a proven bound over all cells (of more than two outputs a loose one)."""
    began = clock()
    every = problem.atoms.cells()
    found = solve_parallel(problem, replace(options, audit=False))
    bound = LayeredBounds(problem, every).lower_bound(problem.dual_point(found.bound.V))
    last = replace(found.history[-1], elapsed=clock() - began, likely_bound=bound.value)
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


class _Pool(Generation):
    """State of column generation: beyond the best of it, the branches at hand.

    The branches at hand (``pool``, of unit cost, one for each cell) stay for a few rounds after their last use: those
    of magnitude zero are cuts that keep the dual point away from what has been priced before.
    """

    problem: Problem[Branches]
    neurons: SubNetworks
    what = "branches"

    def __init__(self, problem: Problem[Branches], options: Options, began: float) -> None:
        none = problem.atoms.none(problem.atoms.M.shape[1], np.zeros(problem.n_outputs))
        super().__init__(problem, options, none, began=began)
        self.search = Search(problem, self.rng)
        self.centre: FloatArray | None = None  # the dual point of the bound
        self.epsilon = EPSILON
        self.scaled = True  # as far as the conic solver has told
        # branches at hand, rounds since their last use, and their magnitudes in the network that came last
        self.pool, self.age, self.size = none, np.zeros(0, dtype=np.int64), np.zeros(0)
        self.used = none  # the network of the last dual point
        self.opened = 0  # audits that opened the gap
        self.sure = True  # whether the last audit found what there is to be found
        self.since, self.reached = 0, np.inf  # rounds without progress, and the gap before them

    @property
    def loss(self) -> Loss:
        """The loss, smoothed if it has kinks."""
        return smoothed(self.problem.loss, self.epsilon)

    def over(self) -> bool:
        """Whether what is left of the time is for the audit, or Ctrl-C was pressed."""
        limit = np.inf if self.options.time_limit is None else self.options.time_limit
        return current().interrupted or self.elapsed > (1.0 - RESERVE * self.options.audit) * limit

    def begin(self) -> bool:
        """Descend from random branches, or from the given network and a few of them."""
        some = random_branches(self.problem.atoms, BEGIN, self.problem.n_outputs, self.rng)
        some = replace(some, U=some.U / np.sqrt(BEGIN), alpha=some.alpha / np.sqrt(BEGIN))
        start = self.options.start
        if isinstance(start, SubNetworks):
            some = self.extended(start, unit_cost(some).take(np.arange(BEGIN // 4)))
        self.move(some)
        return False

    def prepare(self) -> str | None:
        """Nothing is left to do, unless time is up but for the audit, or nothing has changed for long."""
        progress = self.gap < PROGRESS * self.reached
        self.since, self.reached = (0, self.gap) if progress else (self.since + 1, self.reached)
        if self.over():
            return current().status
        return Status.IDLE if self.since >= PATIENCE else None

    def move(self, branches: SubNetworks) -> None:
        """Descend from these branches, the closer the smaller the gap is; those that live come to hand."""
        tol = float(np.clip(SHARE * self.gap, *PRECISION))
        moved = descend(self.problem, self.loss, branches, DESCENT, tol, self.over)
        self.offer(moved)
        moved = moved.take(moved.costs > LIVING * moved.costs.max(initial=0.0))
        self.size[:] = 0.0
        self.gather(moved, moved.costs)

    def gather(self, branches: SubNetworks, size: FloatArray | float = 0.0) -> None:
        """More branches at hand, before the old ones; one for each cell and side of the output."""
        units = unit_cost(branches)
        joined = replace(units.joined(self.pool), intercept=self.neurons.intercept)
        age = np.concatenate([np.zeros(len(units), dtype=np.int64), self.age])
        sizes = np.concatenate([np.broadcast_to(size, len(units)), self.size])
        first = distinct(self.problem, joined)
        self.pool, self.age, self.size = joined.take(first), age[first], sizes[first]

    def finish(self) -> Solution:
        """The best network, made narrow if that was asked for, with few branches."""
        if not self.sure:  # no likely bound: norms say what is left, at the same dual point
            self.bound = replace(bound_by_norms(self.problem, self.bound.V), proof=None)
        self.narrow(self.refined)
        audited = self.confirmed and self.sure and self.options.audit
        return self.solution("local search, audited" if audited else "local search", self.slim(self.neurons))

    def round(self) -> None:
        """Re-optimise with the branches at hand, price the dual point, and descend with what violates it."""
        V = self.correct()
        effort = ROUND if self.gap > NEAR else CAREFUL
        self.price(V, effort)
        if self.centre is not None and not self.closed and not self.over():
            self.price(0.5 * (V + self.centre), effort)  # dual points jump: between them it is often better
        self.recheck()
        self.epsilon = max(SHARPER * self.epsilon, SHARPEST)
        self.note(words=UNSEEN)
        rarely = self.conic and self.gap <= NEAR
        if not (rarely and len(self.history) % RARELY) and not self.over():
            self.move(self.extended(self.neurons, self.pool.take(self.age == 0)))

    def refined(self, few: Neurons) -> Iterator[SubNetworks]:
        """Networks as wide as this one, ever better ones."""
        assert isinstance(few, SubNetworks)
        for _ in range(NARROW):
            yield (few := self.extended(few, few.take(np.arange(0))))
            yield (few := descend(self.problem, self.loss, few, DESCENT, PRECISION[0], self.late))

    def extended(self, branches: SubNetworks, extra: SubNetworks) -> SubNetworks:
        """The network with as much of the branches ``extra``, which have unit cost, as is best."""
        units = unit_cost(branches)
        size = np.concatenate([branches.balanced().costs, np.zeros(len(extra))])
        step = corrected(self.problem, self.loss, units.joined(extra), size, steps=JOINING)
        found = step.neurons(units.joined(extra))
        assert isinstance(found, SubNetworks)
        return found

    @property
    def conic(self) -> bool:
        """Whether weights are re-optimised on the cells at hand by the conic solver."""
        most = CONIC_ROWS if self.problem.loss.smooth else KINKED_ROWS
        return self.scaled and self.problem.n_outputs == 1 and 0 < self.pool_rows <= most

    def correct(self) -> FloatArray:
        """The best weights on the cells at hand if they are small, else the best magnitudes; the dual point there."""
        self.trim()
        try:
            V, used = self.best_weights() if self.conic else self.best_magnitudes()
        except ConicFailure:  # magnitudes need no cones, and the branches found so far are not lost
            self.scaled = False
            V, used = self.best_magnitudes()
        self.offer(self.used)
        self.used = self.used.take(self.used.costs > USED * self.used.costs.max(initial=0.0))
        self.age = np.where(used > USED * used.max(initial=0.0), 0, self.age + 1)
        kept = self.age < REST
        self.pool, self.age, self.size = self.pool.take(kept), self.age[kept], self.size[kept]
        return V

    def best_weights(self) -> tuple[FloatArray, FloatArray]:
        """By the conic solver: the dual point, and how much of each branch at hand is used."""
        problem = self.problem
        blocks = problem.atoms.blocks(problem.atoms.cells_of(self.pool))
        program = FiniteProgram(problem, blocks)
        result = solve_program(program, self)
        self.used = blocks.neurons(result.Z, result.intercept)
        return problem.dual_point(result.V), program.costs(result.Z).max(axis=(0, 1))

    def best_magnitudes(self) -> tuple[FloatArray, FloatArray]:
        """Of the branches as they are: the dual point, and how much of each is used."""
        problem = self.problem
        step = corrected(problem, self.loss, self.pool, self.size)
        found = step.neurons(self.pool)
        assert isinstance(found, SubNetworks)
        self.used = found
        return problem.dual_point(-self.loss.gradient(step.F, problem.Y, problem.w)), step.t

    def trim(self) -> None:
        """Of a loss with kinks: the branches at hand that were of use last, as many as the conic solver can take."""
        if self.problem.loss.smooth or self.problem.n_outputs > 1:
            return
        n = len(self.problem.atoms.M)
        most = KINKED_ROWS // (2 * n * self.problem.atoms.tree.nodes)
        if STAY * n <= most < len(self.pool):
            kept = np.sort(np.lexsort((-self.size, self.age))[:most])
            self.pool, self.age, self.size = self.pool.take(kept), self.age[kept], self.size[kept]

    @property
    def near(self) -> SubNetworks:
        """Where to look for more: the branches of the last network, at the maximum of their cones, and all at hand."""
        return self.used.joined(self.pool)

    @property
    def pool_rows(self) -> int:
        """Cone rows of the program on the cells at hand."""
        return 2 * len(self.pool) * len(self.problem.atoms.M) * self.problem.atoms.tree.nodes

    def price(self, V: FloatArray, effort: Effort) -> None:
        """Look for violating branches, take those on cells of their own, and keep the bound if it is the best."""
        found, values = self.search.run(V, self.near, effort)
        top = float(values.max(initial=0.0))
        bound = lower_bound(self.problem, V, top, top)
        if self.bounded(bound):
            self.centre = V
        self.cut(found, values)

    def cut(self, found: SubNetworks, values: FloatArray) -> None:
        """Take the best of the branches that violate the constraint, one for each cell."""
        violating = found.take(values > self.problem.beta * (1 + ROUNDING))
        self.gather(violating.take(distinct(self.problem, violating)[:BATCH]))

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
            if self.late():
                return None
            found, values = self.search.run(V, near, effort, self.late)
            tops.append(max(float(values.max(initial=0.0)), problem.beta))
            self.cut(found, values)
            self.bound, self.centre = lower_bound(problem, V, max(tops), believed(tops)), V
            return found if self.closed or to_the_end else None

        if quiet(self.near) is None:
            self.opened += 1
            return False
        if options.audit:
            few = self.slim(self.neurons)
            assert isinstance(few, SubNetworks)
            known = unit_cost(few)
            missed = np.ones(len(known), dtype=bool)
            for pair in range(MOST_PAIRS):
                before = missed.sum()
                told = self.rng.permutation(len(known)) % 2 == 0
                for half in (told, ~told):
                    found = quiet(known.take(half))
                    if found is None:
                        self.opened += 1
                        return False
                    missed &= half | ~found_again(problem, known, found.take(np.arange(min(LISTED, len(found)))))
                self.sure = bool(missed.sum() <= MISSED * len(known))
                # the first of many audits to find nothing is the unluckiest: it must do so again and again
                if pair >= AGAIN * self.opened if self.sure else pair + 1 >= PAIRS and missed.sum() == before:
                    break
        # a bound above the objective is refuted: something was missed
        return self.closed and self.bound.value <= (1.0 + ROUNDING) * self.objective

    def recheck(self) -> None:
        """Lower the bound if a branch that has come to hand violates the dual point it rests on by more than known.

        The best of many bounds is the one whose search missed most: this holds it against all other searches.
        """
        if self.centre is None:
            return
        top = float(self.search.values(self.pool, self.centre)[0].max(initial=0.0))
        if top > self.bound.attained:
            self.bound = lower_bound(self.problem, self.centre, top, top)
