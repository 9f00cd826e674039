r"""Training gated networks: a group lasso with a proof.

For fixed gates :math:`D_i = \mathrm{diag}(1[M g_i \ge 0])` the program

.. math:: \min_{W, b} \; L\Big(\sum_i A D_i M W_i + 1 b^T\Big) + \beta \sum_i \|W_i\|_F

is convex without cones, and its dual constraint is checked exactly with one matrix product:
:math:`\max_i \|M^T D_i A^T V\|_F \le \beta`. The method takes proximal steps
(:mod:`bidual.solvers.gated.proximal`) over a working set of gates, along a decreasing sequence of penalties.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.typing import FloatArray, IntArray
from bidual._util.watch import checkpoint
from bidual.arrangements import Patterns, sample_patterns
from bidual.arrangements.patterns import unique_rows
from bidual.atoms import GatedNeurons
from bidual.bounds import Bound, lower_bound, relative_gap, slack
from bidual.bounds.stored import GateProof
from bidual.problem import Problem
from bidual.programs.gated.design import GatedDesign
from bidual.solvers.base import Options, Solution
from bidual.solvers.gated.proximal import Point, ProximalStep
from bidual.solvers.run import Run, Status

#: Gates drawn when the user does not say how many.
DEFAULT_GATES = 100
#: Gap to end with in units of ``tol``: the intercept is fitted once more at the end, and the objective summed anew.
TARGET = 0.5
#: Factor between two penalties of the continuation, and the gap at which the next one follows.
SHRINK, LOOSE = 0.3, 3e-2
#: Gates that may always enter the working set; beyond it grows by half. Gates whose constraint is closer to beta than
#: this share may.
GROWTH, NEAR = 64, 0.99
#: First proximal length, in units of the inverse curvature, and the factor by which it grows.
LENGTH, LENGTHEN = 100.0, 3.0
#: Newton steps of a proximal step up to which the next one is longer, and beyond which it has half its length.
QUICK, SLOW = 3, 8
#: Factor by which the length of a coupled loss falls at a new penalty. Its Newton systems are solved by iteration,
#: which takes longer for longer steps; other losses are quicker without.
RESTART = 100.0
#: Proximal length of the intercept, relative to the others.
RHO = 10.0
#: Accuracy of a proximal step in units of the gap aimed at, and what it is multiplied by when that suffices for the
#: objective but not for the bound.
PRECISION = 0.1
#: Gap above which scans of all gates are done in single precision, if their rounding is less than this share of beta.
SINGLE, NOISE = 1e-4, 1e-2
#: Steps in a row without progress after which there will be none, and the share of the gap that is left without it.
PATIENCE, PROGRESS = 20, 0.999
#: Newton steps for the intercept, their decrease relative to the loss that is rounding, and the share of the promised
#: decrease that is enough, with the dampings to try in units of the largest curvature: the last always decreases it.
STEPS, LEAST, ENOUGH, DAMPINGS = 100, 1e-15, 1e-4, (1e-10, 1e-4, 1e-2, 1.0)
#: Rows up to which matrix products stay on one thread.
SMALL = 2000


def solve_gated(problem: Problem, options: Options) -> Solution:
    """Train a gated network, with a smooth loss, on the gates of ``options`` (drawn at random if it has none)."""
    start = options.start if isinstance(options.start, GatedNeurons) else None
    # Matrices this small gain little from threads, and on a busy machine waiting for each other costs them everything.
    threads = 1 if len(problem.Y) <= SMALL else None
    with threadpool_limits(threads, user_api="blas"):
        return _Path(problem, options, start).solve()


def no_gates(problem: Problem, status: str) -> Solution:
    """The network without gates that do anything: the answer of a run that was stopped before it had another."""
    b = np.zeros(problem.n_outputs)
    if problem.fit_intercept:
        b = best_intercept(problem, np.zeros_like(problem.Y), b)
    neurons = replace(_no_neurons(problem), intercept=b)
    run = Run(problem, Options(), neurons, problem.loss_value(np.zeros_like(problem.Y) + b))
    run.status = status
    none = Patterns(np.zeros((0, len(problem.atoms.M)), dtype=bool), neurons.gates)
    run.bound = Bound.nothing(problem, GateProof(none))
    return run.solution("the least loss there can be", scope="gates")


def _no_neurons(problem: Problem) -> GatedNeurons:
    p, C = problem.atoms.M.shape[1], problem.n_outputs
    return GatedNeurons(np.zeros((0, p)), np.zeros((0, p, C)), np.zeros(C))


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
        patterns = sample_patterns(problem.atoms.M, count, options.random_state)
    if start is not None and len(start) and options.gates is None:
        mine = gates_of(problem.atoms.M, start.gates)
        active = np.concatenate([mine.active, patterns.active])
        first, _ = unique_rows(active)
        patterns = Patterns(active[first], np.concatenate([mine.witnesses, patterns.witnesses])[first])
    return patterns


def best_intercept(problem: Problem, F: FloatArray, intercept: FloatArray) -> FloatArray:
    """The intercept that minimises the loss of ``F`` plus it, by Newton steps from ``intercept``."""
    loss, Y, w = problem.loss, problem.Y, problem.w
    value = problem.loss_value(F + intercept)
    for _ in range(STEPS):
        gradient = loss.gradient(F + intercept, Y, w).sum(axis=0)
        hessian = np.einsum("n,nab->ab", w, loss.row_hessians(F + intercept, Y))
        for damping in DAMPINGS:
            step = np.linalg.solve(hessian + damping * _lipschitz(problem) * np.eye(len(intercept)), -gradient)
            trial, slope = problem.loss_value(F + intercept + step), float(gradient @ step)
            if trial <= value + ENOUGH * slope:
                break
        else:
            break
        intercept, value = intercept + step, trial
        if -slope <= LEAST * abs(value):
            break
    return intercept


def _lipschitz(problem: Problem) -> float:
    """Largest curvature of the loss; one where a loss of the user's does not say."""
    return problem.loss.lipschitz if np.isfinite(problem.loss.lipschitz) else 1.0


class _Path(Run[GatedNeurons]):
    """A run along decreasing penalties: which gates work, and their weights."""

    def __init__(self, problem: Problem, options: Options, start: GatedNeurons | None) -> None:
        super().__init__(problem, options, _no_neurons(problem), np.inf)
        self.status = Status.CONVERGED
        self.patterns = _gates(problem, options, start)
        self.design = GatedDesign(problem, self.patterns.active)
        self.shape = (len(self.patterns), problem.atoms.reduced.shape[1], problem.n_outputs)
        self.working: IntArray = np.zeros(0, dtype=np.int64)
        squares = problem.atoms.unsigned.pool((problem.atoms.reduced**2).sum(axis=1))
        self.rho = RHO * float(problem.w @ squares) * problem.fit_intercept
        mean_square = float(np.mean(problem.atoms.row_norms**2)) or 1.0
        self.sigma = self.first_sigma = LENGTH / (mean_square * _lipschitz(problem))
        self.target = TARGET * options.tol
        self.bound = Bound.nothing(problem, GateProof(self.patterns))
        self.dtype: type = np.float32
        self.point = self._start(start)
        self.first = problem.beta  # penalty to begin with
        if start is None:
            self.first = max(self.first, float(self.design.norms(self._V(), np.float32).max(initial=0.0)))

    # ---- the loop ------------------------------------------------------------------------------

    def solve(self) -> Solution:
        """Follow the penalties down to the problem's and certify."""
        beta, last = self.first, self.problem.beta
        with self.going():
            while beta > last:
                beta = max(SHRINK * beta, last)
                if beta > last and not self._descend(beta, LOOSE):
                    break
            else:
                self._descend(last, self.target)
        return self._solution()

    def _descend(self, beta: float, target: float) -> bool:
        """Proximal steps at penalty ``beta`` until the gap is ``target``; False if the solver has to stop."""
        problem = self.problem
        final = beta == problem.beta
        self.point = replace(self.point, objective=self._objective(beta))
        if problem.loss.coupled:
            self.sigma = max(self.first_sigma, self.sigma / RESTART)
        self.precision = PRECISION
        gap, before = np.inf, np.inf
        stalled = 0
        while True:
            exact = final and gap <= max(SINGLE, 10 * target)
            norms, bound = self._price(beta, exact)
            gap = relative_gap(self.point.objective, bound)
            if final:
                self.objective = self.point.objective
                n_used = int((np.abs(self.point.W).max(axis=(1, 2), initial=0.0) > 0).sum())
                self.note(n_used, size=f"{len(self.working):6d} of {len(self.patterns)} gates")
            if gap <= target and (exact or not final):
                return True
            if gap <= target:
                continue  # once more, in double precision
            stalled = stalled + 1 if gap >= PROGRESS * before else 0
            before = min(gap, before)
            if stalled >= PATIENCE:
                self.status = Status.STALLED
                return False
            if self.n_iter >= self.options.max_iter:
                self.status = Status.MAX_ITER
                return False
            checkpoint()
            self._step(beta, norms, target)

    def _step(self, beta: float, norms: FloatArray, target: float) -> None:
        """Update the working set and take one proximal step."""
        grown = self._select(beta, norms)
        design = self.design.take(self.working)
        step = ProximalStep(self.problem, beta, design, self.point, self.sigma, self.rho, self.dtype)
        point = step.solve(self.precision * target * abs(self.point.objective), self.late)
        self.n_iter += 1
        if point.n_newton == 0:  # good enough for the objective, not for the bound
            self.precision *= PRECISION
        if not point.converged:  # too long a step, or too long for single precision
            if self.dtype is np.float64:
                self.sigma /= LENGTHEN**2
            self.dtype = np.float64
            if not point.objective < self.point.objective:
                return
        self.point = point
        if not point.converged:
            return
        if self.point.n_newton <= QUICK and not grown:
            self.sigma *= LENGTHEN
        elif self.point.n_newton > SLOW:
            self.sigma /= 2

    def _select(self, beta: float, norms: FloatArray) -> bool:
        """Working set: gates with weight, and the worst violators. Whether more of them were left out."""
        used = self.working[np.abs(self.point.W).max(axis=(1, 2), initial=0.0) > 0]
        outside = np.setdiff1d(np.flatnonzero(norms > NEAR * beta), used)
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
            keys = [row.tobytes() for row in np.packbits(start.gates @ problem.atoms.M.T >= 0, axis=1)]
            found = [(here[key], j) for j, key in enumerate(keys) if key in here]
            index = np.array([i for i, _ in found], dtype=np.int64)
            self.working, inverse = np.unique(index, return_inverse=True)
            weights = start.W[[j for _, j in found]]
            if problem.atoms.reduced is not problem.atoms.M:
                weights = np.einsum("pr,mpc->mrc", problem.atoms.basis, weights)
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
        V = problem.dual_point(self._V())
        noise = np.finfo(np.float32).eps * float(
            np.linalg.norm(problem.atoms.spread(V), axis=1) @ problem.atoms.row_norms
        )
        norms = self.design.norms(V, np.float64 if exact or noise > NOISE * beta else np.float32)
        worst = float(norms.max(initial=0.0))
        if not exact:
            return norms, problem.dual_value(min(1.0, beta / max(worst, 1e-300)) * V)
        bound = lower_bound(problem, V, worst, worst + slack(problem, self.patterns, V), GateProof(self.patterns))
        self.bounded(bound)
        return norms, self.bound.value

    def _solution(self) -> Solution:
        problem = self.problem
        outputs = self._outputs()
        intercept = self.point.intercept
        if problem.fit_intercept:
            intercept = best_intercept(problem, outputs - intercept, intercept)
        self.point = replace(self.point, intercept=intercept, objective=np.inf)
        self.point = replace(self.point, objective=self._objective(problem.beta))
        if relative_gap(self.point.objective, self.bound.value) > self.target:
            self._price(problem.beta, exact=True)
            self.point = replace(self.point, F=self._outputs())  # the gradient at the network itself may do better
            self._price(problem.beta, exact=True)
        W = self.point.W
        if problem.atoms.reduced is not problem.atoms.M:
            W = np.einsum("pr,mrc->mpc", problem.atoms.basis, W)
        found = GatedNeurons(self.patterns.witnesses[self.working], W, intercept)
        self.adopt(found.balanced(), self.point.objective)
        return self.solution(f"all {len(self.patterns)} gates", scope="gates", n_patterns=len(self.patterns))
