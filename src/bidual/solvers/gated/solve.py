r"""Training gated networks: a group lasso with a proof.

For fixed gates :math:`D_i = \mathrm{diag}(1[M g_i \ge 0])` the program

.. math:: \min_{W, b} \; L\Big(\sum_i A D_i M W_i + 1 b^T\Big) + \beta \sum_i \|W_i\|_F

is convex without cones, and its dual constraint is checked exactly with one matrix product:
:math:`\max_i \|M^T D_i A^T V\|_F \le \beta`. The method takes proximal steps
(:mod:`bidual.solvers.gated.proximal`) over a working set of gates, along a decreasing sequence of penalties.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._typing import FloatArray, IntArray
from bidual._watch import Watch, watching
from bidual.arrangements import Patterns, sample_patterns
from bidual.arrangements.patterns import unique_rows
from bidual.certificates import Bound, lower_bound, relative_gap, slack
from bidual.certificates.stored import GateProof
from bidual.problem import GatedNeurons, Problem
from bidual.progress import closed, note
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.gated.design import GatedDesign
from bidual.solvers.gated.proximal import Point, ProximalStep

#: Gates drawn when the user does not say how many.
DEFAULT_GATES = 100
#: Factor between two penalties of the continuation, and the gap at which the next one follows.
SHRINK, LOOSE = 0.3, 3e-2
#: Gates that may always enter the working set; beyond it grows by half.
GROWTH = 64
#: First proximal length, in units of the inverse curvature, and the factor by which it grows.
LENGTH, LENGTHEN = 100.0, 3.0
#: Factor by which the length of a coupled loss falls at a new penalty. Its Newton systems are solved by iteration,
#: which takes longer for longer steps; other losses are quicker without.
RESTART = 100.0
#: Proximal length of the intercept, relative to the others.
RHO = 10.0
#: Gap above which scans of all gates are done in single precision.
SINGLE = 1e-4
#: Rows up to which matrix products stay on one thread.
SMALL = 2000


def solve_gated(problem: Problem, options: Options) -> Solution:
    """Train a gated network, with a smooth loss, on the gates of ``options`` (drawn at random if it has none)."""
    began = time.perf_counter()
    start = options.start if isinstance(options.start, GatedNeurons) else None
    patterns = _gates(problem, options, start)
    # Matrices this small gain little from threads, and on a busy machine waiting for each other costs them everything.
    threads = 1 if len(problem.Y) <= SMALL else None
    with watching(options.time_limit) as watch, threadpool_limits(threads, user_api="blas"):
        return _Path(problem, patterns, options, began, watch).run(start)


def no_gates(problem: Problem, status: str) -> Solution:
    """The network without gates that do anything: the answer of a run that was stopped before it had another."""
    began = time.perf_counter()
    p, C = problem.M.shape[1], problem.n_outputs
    b = best_intercept(problem, np.zeros_like(problem.Y), np.zeros(C)) if problem.fit_intercept else np.zeros(C)
    objective, bound = problem.loss_value(np.zeros_like(problem.Y) + b), Bound.nothing(problem)
    return Solution(
        neurons=GatedNeurons(np.zeros((0, p)), np.zeros((0, p, C)), b),
        bound=bound,
        scope="gates",
        method="the least loss there can be",
        status=status,
        n_iter=1,
        history=[HistoryEntry(time.perf_counter() - began, objective, bound.value, 0)],
    )


def gates_of(M: FloatArray, gates: FloatArray) -> Patterns:
    """Gates ``1[M g >= 0]`` of the given vectors, in their order; of equal ones the first.

    Unlike :func:`bidual.arrangements.patterns_of` this keeps zero vectors, whose gate is always open, and the
    vectors as they are.
    """
    active = np.asarray(gates @ M.T >= 0)
    first, _ = unique_rows(active)
    return Patterns(active=active[first], witnesses=gates[first])


def _gates(problem: Problem, options: Options, start: GatedNeurons | None) -> Patterns:
    """The gates of the options, or random ones; those of a network to start from come first."""
    patterns = options.gates
    if patterns is None:
        count = DEFAULT_GATES if options.n_patterns is None else options.n_patterns
        patterns = sample_patterns(problem.M, count, options.random_state)
    if start is not None and len(start) and options.gates is None:
        mine = gates_of(problem.M, start.gates)
        active = np.concatenate([mine.active, patterns.active])
        first, _ = unique_rows(active)
        patterns = Patterns(active[first], np.concatenate([mine.witnesses, patterns.witnesses])[first])
    return patterns


def best_intercept(problem: Problem, F: FloatArray, intercept: FloatArray) -> FloatArray:
    """The intercept that minimises the loss of ``F`` plus it, by Newton steps from ``intercept``."""
    loss, Y, w = problem.loss, problem.Y, problem.w
    value = problem.loss_value(F + intercept)
    for _ in range(100):
        gradient = loss.gradient(F + intercept, Y, w).sum(axis=0)
        hessian = np.einsum("n,nab->ab", w, loss.row_hessians(F + intercept, Y))
        for damping in (1e-10, 1e-4, 1e-2, 1.0):  # the last one always decreases the loss
            step = np.linalg.solve(hessian + damping * _lipschitz(problem) * np.eye(len(intercept)), -gradient)
            trial, slope = problem.loss_value(F + intercept + step), float(gradient @ step)
            if trial <= value + 1e-4 * slope:
                break
        else:
            break
        intercept, value = intercept + step, trial
        if -slope <= 1e-15 * abs(value):
            break
    return intercept


def _lipschitz(problem: Problem) -> float:
    """Largest curvature of the loss; one where a loss of the user's does not say."""
    return problem.loss.lipschitz if np.isfinite(problem.loss.lipschitz) else 1.0


@dataclass
class _Path:
    """The state of a fit: which gates work, their weights, and the best bound."""

    problem: Problem
    patterns: Patterns
    options: Options
    began: float
    watch: Watch
    history: list[HistoryEntry] = field(default_factory=list)
    status: str = "solved"
    n_iter: int = 0

    def __post_init__(self) -> None:
        problem = self.problem
        self.design = GatedDesign(problem, self.patterns.active)
        self.shape = (len(self.patterns), problem.reduced.shape[1], problem.n_outputs)
        self.working: IntArray = np.zeros(0, dtype=np.int64)
        self.rho = RHO * float(problem.w @ problem.pool((problem.reduced**2).sum(axis=1))) * problem.fit_intercept
        mean_square = float(np.mean(problem.row_norms**2)) or 1.0
        self.sigma = self.first_sigma = LENGTH / (mean_square * _lipschitz(problem))
        self.best = Bound.nothing(problem)
        self.target = 0.5 * self.options.tol
        self.dtype: type = np.float32

    # ---- the loop ------------------------------------------------------------------------------

    def run(self, start: GatedNeurons | None) -> Solution:
        """Follow the penalties down to the problem's and certify."""
        problem = self.problem
        self.point = self._start(start)
        beta = problem.beta
        if start is None:
            beta = max(beta, float(self.design.norms(self._V(), np.float32).max(initial=0.0)))
        while beta > problem.beta:
            beta = max(SHRINK * beta, problem.beta)
            if beta > problem.beta and not self._descend(beta, LOOSE):
                break
        else:
            self._descend(problem.beta, self.target)
        return self._solution()

    def _descend(self, beta: float, target: float) -> bool:
        """Proximal steps at penalty ``beta`` until the gap is ``target``; False if the solver has to stop."""
        problem = self.problem
        final = beta == problem.beta
        self.point = replace(self.point, objective=self._objective(beta))
        if problem.loss.coupled:
            self.sigma = max(self.first_sigma, self.sigma / RESTART)
        self.precision = 0.1  # of a proximal step, relative to the target
        gap, before = np.inf, np.inf
        stalled = 0
        while True:
            exact = final and gap <= max(SINGLE, 10 * target)
            norms, bound = self._price(beta, exact)
            gap = relative_gap(self.point.objective, bound)
            if final:
                self._record()
            if gap <= target and (exact or not final):
                return True
            if gap <= target:
                continue  # once more, in double precision
            stalled = stalled + 1 if gap >= 0.999 * before else 0
            before = min(gap, before)
            if stalled >= 20:
                self.status = "stopped: no further progress in floating point"
                return False
            if self.n_iter >= self.options.max_iter:
                self.status = "stopped at max_iter"
                return False
            if self._stop():
                return False
            self._step(beta, norms, target)

    def _step(self, beta: float, norms: FloatArray, target: float) -> None:
        """Update the working set and take one proximal step."""
        grown = self._select(beta, norms)
        design = self.design.take(self.working)
        step = ProximalStep(self.problem, beta, design, self.point, self.sigma, self.rho, self.dtype)
        point = step.solve(self.precision * target * abs(self.point.objective), self._stop)
        self.n_iter += 1
        if point.n_newton == 0:  # good enough for the objective, not for the bound
            self.precision *= 0.1
        if not point.converged:  # too long a step, or too long for single precision
            if self.dtype is np.float64:
                self.sigma /= LENGTHEN**2
            self.dtype = np.float64
            if not point.objective < self.point.objective:
                return
        self.point = point
        if not point.converged:
            return
        if self.point.n_newton <= 3 and not grown:
            self.sigma *= LENGTHEN
        elif self.point.n_newton > 8:
            self.sigma /= 2

    def _select(self, beta: float, norms: FloatArray) -> bool:
        """Working set: gates with weight, and the worst violators. Whether more of them were left out."""
        used = self.working[np.abs(self.point.W).max(axis=(1, 2), initial=0.0) > 0]
        outside = np.setdiff1d(np.flatnonzero(norms > 0.99 * beta), used)
        room = max(GROWTH, len(used) // 2)
        chosen = outside[np.argsort(-norms[outside], kind="stable")[:room]]
        working = np.union1d(used, chosen)
        W = np.zeros((len(working), *self.shape[1:]))
        W[np.searchsorted(working, used)] = self.point.W[np.searchsorted(self.working, used)]
        self.working, self.point = working, replace(self.point, W=W)
        return len(outside) > room

    # ---- values --------------------------------------------------------------------------------

    def _start(self, start: GatedNeurons | None) -> Point:
        """The weights of ``start`` on the gates that are here, or none."""
        problem = self.problem
        C = problem.n_outputs
        W, F = np.zeros((0, *self.shape[1:])), np.zeros_like(problem.Y)
        intercept = np.zeros(C) if start is None or not problem.fit_intercept else start.intercept
        if start is not None and len(start):
            here = {row.tobytes(): i for i, row in enumerate(np.packbits(self.patterns.active, axis=1))}
            keys = [row.tobytes() for row in np.packbits(start.gates @ problem.M.T >= 0, axis=1)]
            found = [(here[key], j) for j, key in enumerate(keys) if key in here]
            index = np.array([i for i, _ in found], dtype=np.int64)
            self.working, inverse = np.unique(index, return_inverse=True)
            weights = start.W[[j for _, j in found]]
            if problem.reduced is not problem.M:
                weights = np.einsum("pr,mpc->mrc", problem.basis, weights)
            W = np.zeros((len(self.working), *self.shape[1:]))
            np.add.at(W, inverse, weights)
            F = self.design.take(self.working).outputs(W)
        if problem.fit_intercept:
            intercept = best_intercept(problem, F, intercept)
        return Point(W, intercept, F + intercept, np.inf)

    def _V(self) -> FloatArray:
        return -self.problem.loss.gradient(self.point.F, self.problem.Y, self.problem.w)

    def _outputs(self) -> FloatArray:
        return self.design.take(self.working).outputs(self.point.W) + self.point.intercept

    def _objective(self, beta: float) -> float:
        penalty = float(np.sqrt((self.point.W**2).sum(axis=(1, 2))).sum())
        return self.problem.loss_value(self._outputs()) + beta * penalty

    def _price(self, beta: float, exact: bool) -> tuple[FloatArray, float]:
        """The dual constraint of all gates at the current V, and the lower bound that follows.

        Quick where it only steers; with all rounding accounted for if ``exact``.
        """
        problem = self.problem
        V = problem.loss.dual_point(self._V(), problem.Y, problem.w, centred=problem.fit_intercept)
        noise = np.finfo(np.float32).eps * float(np.linalg.norm(problem.spread(V), axis=1) @ problem.row_norms)
        norms = self.design.norms(V, np.float64 if exact or noise > 1e-2 * beta else np.float32)
        worst = float(norms.max(initial=0.0))
        if not exact:
            return norms, problem.dual_value(min(1.0, beta / max(worst, 1e-300)) * V)
        bound = lower_bound(problem, V, worst, worst + slack(problem, self.patterns, V), GateProof(self.patterns))
        self.best = max(self.best, bound, key=lambda b: b.value)
        return norms, self.best.value

    # ---- reports -------------------------------------------------------------------------------

    def _stop(self) -> bool:
        if self.watch.late():
            self.status = self.watch.status
            return True
        return False

    def _record(self) -> None:
        n_used = int((np.abs(self.point.W).max(axis=(1, 2), initial=0.0) > 0).sum())
        entry = HistoryEntry(time.perf_counter() - self.began, self.point.objective, self.best.value, n_used)
        self.history.append(entry)
        if self.options.verbose:
            gap = relative_gap(entry.objective, entry.likely_bound)
            note(
                f"{entry.elapsed:8.2f} s  {len(self.working):6d} of {len(self.patterns)} gates  objective "
                f"{entry.objective:.8g}  gap {gap:.1e}",
                closed(gap, self.options.tol),
            )

    def _solution(self) -> Solution:
        problem = self.problem
        outputs = self._outputs()
        intercept = self.point.intercept
        if problem.fit_intercept:
            intercept = best_intercept(problem, outputs - intercept, intercept)
        self.point = replace(self.point, intercept=intercept, objective=np.inf)
        self.point = replace(self.point, objective=self._objective(problem.beta))
        if relative_gap(self.point.objective, self.best.value) > self.target:
            self._price(problem.beta, exact=True)
            self.point = replace(self.point, F=self._outputs())  # the gradient at the network itself may do better
            self._price(problem.beta, exact=True)
        self._record()
        W = self.point.W
        if problem.reduced is not problem.M:
            W = np.einsum("pr,mrc->mpc", problem.basis, W)
        return Solution(
            neurons=GatedNeurons(self.patterns.witnesses[self.working], W, intercept).balanced(),
            bound=self.best,
            scope="gates",
            method=f"all {len(self.patterns)} gates",
            status=self.status,
            n_iter=self.n_iter,
            n_patterns=len(self.patterns),
            history=self.history,
        )
