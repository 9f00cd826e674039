"""After training: the best lower bound that can be proven in the time there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidual._util.clock import clock
from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped, current, watching
from bidual.atoms import Directional, FreeBias, Neurons
from bidual.bounds import Bound, bound_by_norms, cone_bounds, lower_bound, relative_gap, sufficient
from bidual.bounds.free_bias import BRANCHING, RELAXED, Priced
from bidual.bounds.oracle import CONE_RANK, SharedSearch, bound_oracle
from bidual.bounds.oracle.joint import relaxed_dual
from bidual.problem import Problem
from bidual.solvers.base import PROOF_PATTERNS, Solution
from bidual.solvers.blending import Blend

#: What bounds by norms are called.
NORMS = "norms of rows"
#: Directions of neurons that an oracle starts from, at most.
_INCUMBENTS = 50
#: Seconds that prove="auto" takes at least.
LEAST = 1.0
#: Share of that after which a search comes to its end by itself; what goes on after all of it is abandoned.
SEARCH = 0.8
#: Multiplications of a second, on a slow machine.
SPEED = 1e10


def seconds_for(prove: float | str | bool, training: float, left: float) -> float:
    """Seconds for a proof: as ``prove`` says, at most ``left``; zero for none."""
    if prove is False:
        return 0.0
    wanted = max(LEAST, tuning().proof_share * training) if prove == "auto" else float(prove)
    return max(0.0, min(wanted, left))


def proven(problem: Problem, solution: Solution, tol: float, seconds: float) -> tuple[Bound, str]:
    """The best lower bound on the problem of ``solution`` that can be proven in so much time, and how it was proven."""
    neurons = solution.neurons
    assert isinstance(neurons, Neurons)
    F, found = problem.outputs(neurons), solution.bound.V
    lowest = problem.loss_value(F) + problem.beta * float(neurons.costs.sum())
    if solution.bound.proven and relative_gap(lowest, solution.bound.value) <= tol:
        return solution.bound, solution.method
    if not found.any() and problem.loss.smooth:  # nothing is known yet: the residual is a dual point, too
        found = -problem.loss.gradient(F, problem.Y, problem.w)
    deadline = clock() + SEARCH * seconds
    with watching(seconds):
        prover = Prover(problem, found, lowest, tol, deadline, incumbents=neurons.U)
        if solution.bound.proven:
            prover.offer(solution.bound, solution.method)
        if solution.proven is not None:
            prover.offer(*solution.proven)
        prover.run()
    return prover.best, prover.how


@dataclass
class Prover:
    """The search for the best provable lower bound, in natural units.

    Parameters
    ----------
    problem : Problem
    found : ndarray, shape (n, C)
        The best dual point known.
    lowest : float
        The lowest objective known.
    tol : float
        Stop when this relative gap is proven.
    deadline : float
        Moment of :func:`~bidual._util.clock.clock` at which to stop.
    method : str
        See :func:`bidual.bounds.oracle.bound_oracle`; "local" proves by norms only.
    incumbents : ndarray, shape (k, p)
        Hidden weights of neurons worth a look.
    others : tuple of ndarray
        Further dual points.
    say : callable
        Is told what was proven, and how.
    """

    problem: Problem
    found: FloatArray
    lowest: float
    tol: float
    deadline: float
    method: str = "auto"
    incumbents: FloatArray | None = None
    others: tuple[FloatArray, ...] = ()
    say: Callable[[str, float], None] = lambda how, value: None
    best: Bound = field(init=False)
    how: str = field(init=False, default=NORMS)
    blend: Blend | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.found = self._point(self.found)
        self.best = bound_by_norms(self.problem, self.found)

    @property
    def done(self) -> bool:
        """Whether the bound is as good as asked for: close to the lowest objective known."""
        return relative_gap(self.lowest, self.best.value) <= self.tol

    def offer(self, bound: Bound, how: str) -> bool:
        """Keep the bound if it is the best so far; whether it is good enough."""
        self.say(how, bound.value)
        if bound.proven and bound.value > self.best.value:
            self.best, self.how = bound, how
        return self.done

    def begin(self) -> None:
        """Prove what takes little time and no good dual point, before others look for one."""
        with suppress(Stopped):
            if self._blends and "plain oracle" in self.problem.atoms.can and self._affordable:
                self._blended().begin(self.deadline, self.offer)

    def run(self) -> None:
        """Bound the dual constraint at one point after the other until the gap is proven or the time is up."""
        late = current().late() or clock() >= self.deadline
        with suppress(Stopped):  # the deadline ends a search that goes on; the limits of the run end any
            if self.done or self.method == "local" or late or self._by_patterns():
                return
            if not self._affordable:
                return
            free = self.problem.of(FreeBias)
            if free is not None:
                self._at_prices(free)
            elif "plain oracle" in self.problem.atoms.can:  # the oracle knows nothing of neurons of other kinds
                self._by_oracle()

    @property
    def _affordable(self) -> bool:
        """Whether there is time to write down the dual constraint, two products with all rows."""
        N, p = self.problem.atoms.M.shape
        return 2.0 * N * p**2 <= SPEED * (self.deadline - clock())

    def _by_oracle(self) -> None:
        incumbents = self._heaviest()
        if self._blends:
            self._blended().run(self.deadline, self.offer)
            return
        for V in self._points():
            now = clock()
            if self.done or now >= self.deadline:
                return
            until = now + 0.5 * (self.deadline - now) if np.isfinite(self.deadline) else np.inf
            self.offer(*self._asked(self.problem, V, incumbents, until))

    def _asked(self, problem: Problem, V: FloatArray, incumbents: FloatArray | None, until: float) -> tuple[Bound, str]:
        """The oracle's answer at V: a bound, and how it was found."""
        oracle = bound_oracle(
            problem,
            V,
            method=self.method,
            target=sufficient(problem, V, (1.0 - self.tol) * self.lowest),
            rtol=0.1 * self.tol,
            deadline=until,
            incumbent=incumbents,
        )
        return lower_bound(problem, V, oracle.value, oracle.bound, oracle.proof), oracle.method

    def _at_prices(self, free: Problem[FreeBias]) -> None:
        """Free biases by ordinary neurons; branch and bound where it covers their cones, else the relaxation."""
        cones = self.method == "cones" or (self.method == "auto" and free.atoms.reduced.shape[1] <= CONE_RANK)
        incumbents = self._heaviest()
        for multiple in BRANCHING if cones else RELAXED:
            if self.done or clock() >= self.deadline:
                return
            priced = Priced.at(free, multiple)
            U = None if incumbents is None else priced.ordinary(incumbents)
            if cones:
                bound, how = self._asked(priced.problem, self.found, U, self.deadline)
            else:  # other dual points suit the relaxation better
                prover = Prover(
                    priced.problem, self.found, self.lowest, self.tol, self.deadline, self.method, U, self.others
                )
                prover.run()
                bound, how = prover.best, prover.how
            self.offer(priced.proven(bound), how)

    def _blended(self) -> Blend:
        """The search between the easy point and the best one, as far as it has come, for what is known now."""
        incumbents, goal = self._heaviest(), (1.0 - self.tol) * self.lowest
        known = np.zeros((0, self.problem.atoms.M.shape[1])) if incumbents is None else incumbents
        if self.blend is None:
            self.blend = Blend(self.problem, self._easy, self.found, goal, 0.1 * self.tol, known)
        self.blend.best, self.blend.goal, self.blend.incumbents = self.found, goal, known
        return self.blend

    def _by_patterns(self) -> bool:
        """Over all activation patterns, if they are few; whether that was the way.

        Several outputs of neurons that the oracles do not know: over directions of these outputs as well.
        """
        if self.method not in ("auto", "patterns"):
            return False
        several = None
        if self.problem.n_coefficients > 1:
            several = self.problem.of(Directional)  # type: ignore[type-abstract]
            can = frozenset[str]() if several is None else several.atoms.can
            if "plain oracle" in can or "shared neurons" not in can:
                return False
        patterns = self.problem.atoms.few_cells(PROOF_PATTERNS)
        if patterns is None:
            return False
        if several is not None:
            return self._by_outputs(several, patterns)
        bound = cone_bounds(self.problem, patterns).lower_bound(self.found)
        self.offer(bound, f"all {len(patterns)} activation patterns")
        return bound.proven

    def _by_outputs(self, problem: Problem[Directional], patterns: Any) -> bool:
        target = sufficient(problem, self.found, (1.0 - self.tol) * self.lowest)
        search = SharedSearch(problem, patterns, self.found)
        goal = -np.inf
        while search.value > goal and clock() < self.deadline:  # a larger value is a new goal
            goal = max(-np.inf if target is None else target, (1.0 + 0.1 * self.tol) * search.value)
            search.run(goal, self.deadline)
        how = f"{len(search.cover.directions)} directions of outputs on all {len(patterns)} activation patterns"
        self.offer(lower_bound(problem, self.found, search.value, search.bound, search.proof()), how)
        return True

    def _points(self) -> Iterator[FloatArray]:
        """Dual points, the most promising first; where the relaxation stays loose, one that suits it."""
        yield self.found
        if self._relaxes:
            now = clock()
            yield self._easy(now + 0.4 * (self.deadline - now))
        for V in self.others:
            yield self._point(V)
            yield self._point(0.5 * (V + self.found))

    def learn(self, V: FloatArray, lowest: float, incumbents: FloatArray) -> None:
        """Of a better dual point, a lower objective and more neurons."""
        self.found, self.lowest = self._point(V), min(self.lowest, lowest)
        self.incumbents = incumbents if self.incumbents is None else np.vstack([self.incumbents, incumbents])
        bound = bound_by_norms(self.problem, self.found)
        if bound.value > self.best.value:
            self.best, self.how = bound, NORMS

    def _point(self, V: FloatArray) -> FloatArray:
        p = self.problem
        return p.loss.dual_point(V, p.Y, p.w, centred=p.fit_intercept)

    def _easy(self, until: float) -> FloatArray:
        return relaxed_dual(self.problem, self.found, deadline=until)

    def _heaviest(self) -> FloatArray | None:
        if self.incumbents is None or not len(self.incumbents):
            return None
        order = np.argsort(-np.linalg.norm(self.incumbents, axis=1), kind="stable")
        return self.incumbents[order[:_INCUMBENTS]]

    @property
    def _relaxes(self) -> bool:
        """Whether there is a relaxed problem."""
        p = self.problem
        return p.n_coefficients == 1 and p.loss.smooth and self.method in ("auto", "compact", "signs")

    @property
    def _blends(self) -> bool:
        """Whether points between the relaxed one and the best one are worth a try."""
        rank = self.problem.atoms.reduced.shape[1]
        branches = self.method == "signs" or (self.method == "auto" and rank > CONE_RANK)
        return self._relaxes and branches and np.isfinite(self.deadline)
