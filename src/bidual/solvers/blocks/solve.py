r"""Training gated networks on many rows.

Three phases, all on sums over blocks of rows (:mod:`bidual.programs.gated`):

1. proximal steps on small batches (:mod:`bidual.solvers.blocks.minibatch`): a good point after a few passes;
2. Newton steps from samples of rows (:mod:`bidual.solvers.blocks.newton`), with exact gradients: the gap falls
   by about a third per step, and a step costs a few gradients;
3. the certificate in double precision (:meth:`bidual.solvers.blocks.problem.LargeProblem.certify`).

Groups may vanish on the way: one whose step leads through zero is shortened, then set to zero, and comes back if it
violates the dual constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bidual._util.tuning import tuning
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import checkpoint
from bidual.bounds import relative_gap
from bidual.programs.gated import block as on
from bidual.solvers.base import HistoryEntry, Options
from bidual.solvers.blocks.checkpoint import Checkpoint
from bidual.solvers.blocks.minibatch import BATCH, epoch, first_state
from bidual.solvers.blocks.newton import Sample, newton_direction
from bidual.solvers.blocks.problem import Bound, LargeProblem, Point, group_norms
from bidual.solvers.run import Log, Status

#: Gap to end with in units of ``tol``: the certificate accounts for rounding, and may be a little worse.
TARGET = 0.7
#: Shares of the time limit for the first phase and for both; the rest is for the certificate.
BATCHES_SHARE, SHARE = 0.4, 0.9
#: Passes over the rows in the first phase at most, where rows are few.
MOST_EPOCHS = 40
#: Rate of the first phase for 100 gates; that of P gates (at least 25) is times (100 / P)^(3/4).
RATE, RATE_GATES, LEAST_GATES, RATE_POWER = 0.01, 100.0, 25, 0.75
#: Entries of the curvatures of a sample.
CURVATURES = 2**25
#: First Levenberg damping in units of beta / (a typical norm), and its changes after good and bad steps.
DAMPING, RELAX, STIFFEN = 1.0, 0.4, 3.0
#: Bounds of the damping when it grows.
LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e6
#: Ratios of true to predicted decrease below which the model is bad, above which it is good, and beyond which it sees
#: too much curvature.
BAD, GOOD, TIMID = 0.5, 0.8, 1.2
#: Share of the radial curvature of the ridge that is kept at first: the norm itself has none, and steps overshoot.
RADIAL = 0.2
#: What it, and the rows of a sample, are multiplied by after a bad step, and the former where the model is timid.
MORE, LESS = 1.5, 0.7
#: Size of groups at zero in units of a typical norm (without any: of one), as the ridge needs one.
BORN, TYPICAL = 0.02, 1e-2
#: Share of the promised decrease that is enough, and the length below which no step brings it.
ENOUGH, SHORTEST = 1e-4, 1e-4
#: Relative decrease below which a step has stalled; so many of these in a row end single precision, and all.
NOTHING, PATIENCE_SINGLE, PATIENCE = 1e-9, 2, 5
#: What remains of a group whose step leads through zero, and its share in the largest one below which it is zero.
REMAINS, VANISHED = 0.2, 1e-3
#: Gap below which sums are taken in double precision.
SINGLE = 2e-4
#: What a checkpoint keeps of a run.
KEPT = ("n_iter", "n_epochs", "seed", "damping", "radial", "rows", "lower", "stalled")


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
) -> LargeSolution:
    """Train from ``start`` (weights and intercept), from a checkpoint, or from nothing, until the gap is small."""
    return _Run(problem, options, checkpoint or Checkpoint(None, {})).solve(start)


class _Run(Log):
    def __init__(self, problem: LargeProblem, options: Options, file: Checkpoint) -> None:
        super().__init__(options)
        self.problem, self.file = problem, file
        self.status = Status.CONVERGED
        self.n_epochs = 0
        self.damping, self.radial, self.rows = DAMPING, RADIAL, float(tuning().sample_rows)
        self.lower = -np.inf
        self.dtype: type = np.float32
        self.stalled = 0

    # ---- the phases ----------------------------------------------------------------------------

    def solve(self, start: tuple[Array, FloatArray] | None) -> LargeSolution:
        """All phases."""
        problem = self.problem
        stored = self.file.read()
        if stored is not None:
            W, b = self._resume(stored)
        elif start is not None:
            W, b = np.asarray(start[0]), np.asarray(start[1], dtype=np.float64)
        else:
            W, b = np.zeros(problem.shape, dtype=np.float32), problem.best_constant()
        self.point = problem.evaluate(W.astype(self.dtype), b)
        with self.going(SHARE):
            if start is None and self.n_iter == 0 and self._gap() > self.options.tol:
                self._batches(stored)
            self._descend()
        point = self.point
        bound = problem.certify(point.W, point.intercept)
        self._note(bound.objective, bound.value)
        self.file.offer(partial(self._state, point.W, point.intercept), force=True)
        return LargeSolution(
            point.W.astype(np.float64), point.intercept, bound, self.status, max(1, self.n_iter), self.history
        )

    def _batches(self, stored: dict[str, Any] | None) -> None:
        """The first phase."""
        problem, shards = self.problem, self.problem.shards
        P = problem.shape[0]
        steps, epochs = tuning().block_steps, tuning().block_epochs
        n_epochs = int(np.clip(np.ceil(steps * BATCH / problem.n_rows), epochs, MOST_EPOCHS))
        rate = RATE * (RATE_GATES / max(P, LEAST_GATES)) ** RATE_POWER
        state = first_state(self.point.W, self.point.intercept)
        if stored is not None and "mean" in stored:
            W, b = state[0], state[3]
            state = (W, stored["mean"], stored["square"], b, stored["b_mean"], stored["b_square"], int(stored["step"]))
        done = self.n_epochs / n_epochs
        while done < 1.0 and not self.late():
            following = max((self.n_epochs + 1) / n_epochs, self.share_of_time(BATCHES_SHARE))
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
            self.say(f"pass {self.n_epochs} of {n_epochs} over batches of rows")
            names = ("mean", "square", "b_mean", "b_square", "step")
            extra = dict(zip(names, (state[1], state[2], state[4], state[5], int(state[6])), strict=True))
            self.file.offer(partial(self._state, state[0], state[3], **extra))
        better = problem.evaluate(state[0], state[3])
        if better.objective < self.point.objective:
            self.point = better

    def _descend(self) -> None:
        """The second phase."""
        target = TARGET * self.options.tol
        while True:
            gap = self._gap()
            self._note(self.point.objective, self.lower)
            if gap <= target and (self.dtype is np.float64 or gap > SINGLE):
                return
            if self.dtype is np.float32 and (gap <= max(SINGLE, target) or self.stalled >= PATIENCE_SINGLE):
                self.dtype = np.float64
                self.point = self.problem.evaluate(self.point.W.astype(np.float64), self.point.intercept)
                if gap > target:
                    self.stalled = 0
                continue
            if self.stalled >= PATIENCE:
                self.status = Status.STALLED
                return
            if self.n_iter >= self.options.max_iter:
                self.status = Status.MAX_ITER
                return
            checkpoint()
            self.point = self._step(self.point)
            self.n_iter += 1
            self.file.offer(partial(self._state, self.point.W, self.point.intercept))

    # ---- a Newton step -------------------------------------------------------------------------

    def _step(self, point: Point) -> Point:
        problem, shards = self.problem, self.problem.shards
        beta, W, G = problem.beta, point.W, point.G
        norms, pulls = group_norms(W), group_norms(G)
        active = np.flatnonzero((norms > 0) | (pulls > beta))
        used = norms > 0
        typical = float(np.median(norms[used])) if used.any() else TYPICAL
        sizes = np.where(used, norms, BORN * typical)[active]
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
        while length > SHORTEST:
            moved = Wa + W.dtype.type(length) * Z
            through = np.flatnonzero(np.einsum("ijk,ijk->i", moved, ahead) <= 0)
            moved[through] = np.where(large[through], W.dtype.type(REMAINS), 0)[:, None, None] * Wa[through]
            new = W.copy()
            new[active] = moved
            trial = problem.evaluate(new, point.intercept + length * z)
            if trial.objective <= point.objective + ENOUGH * length * slope:
                self._adapt(length, (trial.objective - point.objective) / (slope * (length - 0.5 * length**2)))
                gained = point.objective - trial.objective
                self.stalled = self.stalled + 1 if gained <= NOTHING * abs(point.objective) else 0
                return trial
            length /= 2
        self._adapt(0.0, 0.0)
        self.stalled += 1
        return point

    def _adapt(self, length: float, ratio: float) -> None:
        """How much to trust the next model, from what this one predicted."""
        if length < 1.0 or ratio < BAD:
            self.damping = min(STIFFEN * max(self.damping, LEAST_DAMPING), MOST_DAMPING)
            self.radial = min(1.0, MORE * self.radial)
            self.rows *= MORE
        elif ratio > GOOD:
            self.damping *= RELAX
            if ratio > TIMID:
                self.radial *= LESS

    # ---- reports -------------------------------------------------------------------------------

    def _gap(self) -> float:
        self.lower = max(self.lower, self.problem.steering_bound(self.point))
        return relative_gap(self.point.objective, self.lower)

    def _note(self, objective: float, lower: float) -> None:
        n_used = int((group_norms(self.point.W) > 0).sum())
        self.write(objective, lower, n_used, f"{n_used} of {len(self.point.W)} gates")

    def _state(self, W: Array, intercept: FloatArray, **extra: Any) -> dict[str, Any]:
        """What :meth:`_resume` needs to go on as if nothing had happened."""
        state = {name: getattr(self, name) for name in KEPT}
        state["lower"] = max(float(self.lower), -1e300)
        return {**state, "elapsed": self.elapsed, "W": W, "intercept": intercept, **extra}

    def _resume(self, stored: dict[str, Any]) -> tuple[Array, FloatArray]:
        for name in KEPT:
            setattr(self, name, stored[name])
        self.began -= float(stored["elapsed"])
        self.dtype = stored["W"].dtype.type
        return stored["W"], stored["intercept"]
