r"""Training gated networks on many rows.

Three phases, all on sums over blocks of rows (:mod:`bidual.operators`):

1. proximal steps on small batches (:mod:`bidual.solvers.large.minibatch`): a good point after a few passes;
2. Newton steps from samples of rows (:mod:`bidual.solvers.large.newton`), with exact gradients: the gap falls
   by about a third per step, and a step costs a few gradients;
3. the certificate in double precision (:meth:`bidual.solvers.large.problem.LargeProblem.certify`).

Groups may vanish on the way: one whose step leads through zero is shortened, then set to zero, and comes back if it
violates the dual constraint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import Array, FloatArray
from bidual._watch import current
from bidual.certificates import relative_gap
from bidual.operators import block as on
from bidual.progress import note
from bidual.solvers.base import HistoryEntry, Options
from bidual.solvers.large.checkpoint import Checkpoint
from bidual.solvers.large.minibatch import BATCH, epoch, first_state
from bidual.solvers.large.newton import Sample, newton_direction
from bidual.solvers.large.problem import Bound, LargeProblem, Point, group_norms

#: Passes over the rows in the first phase: at least, and at most where rows are few; steps aimed at.
EPOCHS, MOST_EPOCHS, STEPS = 8, 40, 1000
#: Rate of the first phase for 100 gates; that of P gates is times (100 / P)^(3/4).
RATE = 0.01
#: Rows of a sample in the beginning.
SAMPLE = 12_000
#: Entries of the curvatures of a sample.
CURVATURES = 2**25
#: First Levenberg damping in units of beta / (a typical norm), and its changes after good and bad steps.
DAMPING, RELAX, STIFFEN = 1.0, 0.4, 3.0
#: Share of the radial curvature of the ridge that is kept at first: the norm itself has none, and steps overshoot.
RADIAL = 0.2
#: What remains of a group whose step leads through zero, and its share in the largest one below which it is zero.
REMAINS, VANISHED = 0.2, 1e-3
#: Gap below which sums are taken in double precision.
SINGLE = 2e-4


@dataclass(frozen=True)
class LargeSolution:
    """Weights in the units of the problem, and what is proven about them."""

    W: FloatArray
    intercept: FloatArray
    bound: Bound
    status: str
    n_iter: int
    history: list[HistoryEntry]


def solve_large(
    problem: LargeProblem,
    options: Options,
    start: tuple[Array, FloatArray] | None = None,
    checkpoint: Checkpoint | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> LargeSolution:
    """Train from ``start`` (weights and intercept), from a checkpoint, or from nothing, until the gap is small."""
    return _Run(problem, options, interrupted, checkpoint or Checkpoint(None, {})).solve(start)


@dataclass
class _Run:
    problem: LargeProblem
    options: Options
    interrupted: Callable[[], bool]
    checkpoint: Checkpoint
    status: str = "converged"
    n_iter: int = 0
    n_epochs: int = 0
    history: list[HistoryEntry] = field(default_factory=list)
    before: float = 0.0  # seconds of the runs that led to the checkpoint

    def __post_init__(self) -> None:
        self.began = time.perf_counter()
        self.seed = int(check_random_state(self.options.random_state).randint(2**31))
        self.damping, self.radial, self.rows = DAMPING, RADIAL, float(SAMPLE)
        self.lower = -np.inf
        self.dtype: type = np.float32
        self.stalled = 0

    # ---- the phases ----------------------------------------------------------------------------

    def solve(self, start: tuple[Array, FloatArray] | None) -> LargeSolution:
        """All phases."""
        problem = self.problem
        stored = self.checkpoint.read()
        if stored is not None:
            W, b = self._resume(stored)
        elif start is not None:
            W, b = np.asarray(start[0]), np.asarray(start[1], dtype=np.float64)
        else:
            W, b = np.zeros(problem.shape, dtype=np.float32), problem.best_constant()
        point = problem.evaluate(W.astype(self.dtype), b)
        if start is None and self.n_iter == 0 and self._gap(point) > self.options.tol:
            point = self._batches(point, stored)
        point = self._descend(point)
        bound = problem.certify(point.W, point.intercept)
        self._note(point, bound.objective, bound.value)
        self.checkpoint.offer(partial(self._state, point.W, point.intercept), force=True)
        return LargeSolution(
            point.W.astype(np.float64), point.intercept, bound, self.status, max(1, self.n_iter), self.history
        )

    def _batches(self, point: Point, stored: dict[str, Any] | None) -> Point:
        """The first phase."""
        problem, shards = self.problem, self.problem.shards
        P = problem.shape[0]
        n_epochs = int(np.clip(np.ceil(STEPS * BATCH / problem.n_rows), EPOCHS, MOST_EPOCHS))
        rate = RATE * (100.0 / max(P, 25)) ** 0.75
        state = first_state(point.W, point.intercept)
        if stored is not None and "mean" in stored:
            W, b = state[0], state[3]
            state = (W, stored["mean"], stored["square"], b, stored["b_mean"], stored["b_square"], int(stored["step"]))
        done = self.n_epochs / n_epochs
        while done < 1.0 and not self._stop():
            following = max((self.n_epochs + 1) / n_epochs, self._share_of_time(0.4))
            rates = tuple(0.5 * rate * (1.0 + np.cos(np.pi * min(x, 1.0))) for x in (done, following))
            state = shards.chain(
                epoch,
                state,
                beta=problem.beta,
                rates=rates,
                free=problem.fit_intercept,
                seed=(self.seed + self.n_epochs) % 2**31,
            )
            self.n_epochs += 1
            done = following
            if self.options.verbose:
                self._say(f"pass {self.n_epochs} of {n_epochs} over batches of rows")
            names = ("mean", "square", "b_mean", "b_square", "step")
            extra = dict(zip(names, (state[1], state[2], state[4], state[5], int(state[6])), strict=True))
            self.checkpoint.offer(partial(self._state, state[0], state[3], **extra))
        better = problem.evaluate(state[0], state[3])
        return better if better.objective < point.objective else point

    def _descend(self, point: Point) -> Point:
        """The second phase."""
        target = 0.7 * self.options.tol
        while True:
            gap = self._gap(point)
            self._note(point, point.objective, self.lower)
            if gap <= target:
                if self.dtype is np.float64 or gap > SINGLE:
                    break
                point = self._in_double(point)
                continue
            if self.dtype is np.float32 and (gap <= SINGLE or self.stalled >= 2):
                point = self._in_double(point)
                self.stalled = 0
                continue
            if self.stalled >= 5:
                self.status = "stopped: no further progress in floating point"
                break
            if self.n_iter >= self.options.max_iter:
                self.status = "stopped at max_iter"
                break
            if self._stop():
                break
            point = self._step(point)
            self.n_iter += 1
            self.checkpoint.offer(partial(self._state, point.W, point.intercept))
        return point

    def _in_double(self, point: Point) -> Point:
        self.dtype = np.float64
        return self.problem.evaluate(point.W.astype(np.float64), point.intercept)

    # ---- a Newton step -------------------------------------------------------------------------

    def _step(self, point: Point) -> Point:
        problem, shards = self.problem, self.problem.shards
        beta, W, G = problem.beta, point.W, point.G
        norms, pulls = group_norms(W), group_norms(G)
        active = np.flatnonzero((norms > 0) | (pulls > beta))
        used = norms > 0
        typical = float(np.median(norms[used])) if used.any() else 1e-2
        sizes = np.where(used, norms, 0.02 * typical)[active]
        Wa, Ga = W[active], G[active]
        # the gradient of the objective; of a group at zero, its steepest descent
        shrink = np.where(used[active], 1.0, 1.0 - beta / np.maximum(pulls[active], 1e-300))
        gradient = shrink[:, None, None] * Ga + (beta / sizes * used[active])[:, None, None] * Wa
        limit = CURVATURES / problem.n_outputs ** (1 + problem.setting.loss.coupled)
        share = min(self.rows, limit) / problem.n_rows
        seed = (self.seed + 7919 * (self.n_iter + 1)) % 2**31
        drawn = shards.gather(on.sample, point.F, count=share, seed=seed)
        Z, z = newton_direction(
            Sample.joined(drawn, active, len(W)),
            problem.setting.products,
            (gradient.astype(np.float32), point.g),
            Wa.astype(np.float32),
            beta / sizes,
            damping=self.damping * beta / typical,
            radial=self.radial,
            free=problem.fit_intercept,
            seed=seed,
        )
        slope = float(np.einsum("ijk,ijk->i", gradient, Z, dtype=np.float64).sum() + point.g @ z)
        if not slope < 0:
            self._adapt(0.0, 0.0)
            self.stalled += 1
            return point
        ahead = np.where(used[active, None, None], Wa, -Ga)
        large = norms[active] > VANISHED * norms.max(initial=0.0)
        length = 1.0
        while length > 1e-4:
            moved = Wa + W.dtype.type(length) * Z
            through = np.flatnonzero(np.einsum("ijk,ijk->i", moved, ahead) <= 0)
            moved[through] = np.where(large[through], W.dtype.type(REMAINS), 0)[:, None, None] * Wa[through]
            new = W.copy()
            new[active] = moved
            trial = problem.evaluate(new, point.intercept + length * z)
            if trial.objective <= point.objective + 1e-4 * length * slope:
                self._adapt(length, (trial.objective - point.objective) / (slope * (length - 0.5 * length**2)))
                gained = point.objective - trial.objective
                self.stalled = self.stalled + 1 if gained <= 1e-9 * abs(point.objective) else 0
                return trial
            length /= 2
        self._adapt(0.0, 0.0)
        self.stalled += 1
        return point

    def _adapt(self, length: float, ratio: float) -> None:
        """How much to trust the next model, from what this one predicted."""
        if length < 1.0 or ratio < 0.5:
            self.damping = min(STIFFEN * max(self.damping, 1e-3), 1e6)
            self.radial = min(1.0, 1.5 * self.radial)
            self.rows *= 1.5
        elif ratio > 0.8:
            self.damping *= RELAX
            if ratio > 1.2:
                self.radial *= 0.7

    # ---- reports -------------------------------------------------------------------------------

    def _gap(self, point: Point) -> float:
        self.lower = max(self.lower, self.problem.steering_bound(point))
        return relative_gap(point.objective, self.lower)

    def _elapsed(self) -> float:
        return self.before + time.perf_counter() - self.began

    def _share_of_time(self, share: float) -> float:
        limit = self.options.time_limit
        return 0.0 if limit is None else self._elapsed() / max(share * limit, 1e-9)

    def _stop(self) -> bool:
        if self.interrupted() or self._share_of_time(0.9) > 1.0:  # the rest is for the certificate
            self.status = current().status
            return True
        return False

    def _note(self, point: Point, objective: float, lower: float) -> None:
        n_used = int((group_norms(point.W) > 0).sum())
        self.history.append(HistoryEntry(self._elapsed(), objective, lower, n_used))
        if self.options.verbose:
            gap = relative_gap(objective, lower)
            self._say(f"{n_used} of {len(point.W)} gates  objective {objective:.8g}  gap {gap:.1e}")

    def _say(self, what: str) -> None:
        note(f"{self._elapsed():8.2f} s  {what}")

    def _state(self, W: Array, intercept: FloatArray, **extra: Any) -> dict[str, Any]:
        """What :meth:`_resume` needs to go on as if nothing had happened."""
        names = ("n_iter", "n_epochs", "seed", "damping", "radial", "rows", "lower", "stalled")
        state = {name: getattr(self, name) for name in names}
        state["lower"] = max(float(self.lower), -1e300)
        return {**state, "elapsed": self._elapsed(), "W": W, "intercept": intercept, **extra}

    def _resume(self, stored: dict[str, Any]) -> tuple[Array, FloatArray]:
        for name in ("n_iter", "n_epochs", "seed", "damping", "radial", "rows", "lower", "stalled"):
            setattr(self, name, stored[name])
        self.before = float(stored["elapsed"])
        self.dtype = stored["W"].dtype.type
        return stored["W"], stored["intercept"]
