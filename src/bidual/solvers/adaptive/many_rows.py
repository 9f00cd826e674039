r"""Two-layer ReLU networks with several outputs on many rows.

On tens of thousands of rows the corrective steps of :mod:`bidual.solvers.adaptive.engine` (a convex program in all
neurons) cost more than they bring; what moves the objective is moving the neurons. So: Adam on small batches of rows
with a wide network, quasi-Newton steps on all rows until they gain little, then rounds of pricing on all
rows, whose violators join the network as small neurons. The bound rests on local search, as in the engine; it is a
bound on the dual constraint at the network's own residual, and says honestly how much is left.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import Array, FloatArray
from bidual._watch import Stopped, Watch, checkpoint, current, watching
from bidual.certificates import Bound, lower_bound, relative_gap
from bidual.problem import Neurons, Problem
from bidual.progress import note
from bidual.solvers.adam import adam_step, relu_gradients
from bidual.solvers.adaptive.corrective import fit_intercept
from bidual.solvers.adaptive.pair_gradient import PairGradient
from bidual.solvers.adaptive.pricing import Candidates, Pricer
from bidual.solvers.adaptive.smoothing import output_scale
from bidual.solvers.base import HistoryEntry, Options, Solution

#: Entries of the targets from which this is the better way.
MANY = 100_000
#: Rows of a batch, passes over the rows, width, and first rate.
BATCH, EPOCHS, WIDTH, RATE = 256, 30, 1000, 3e-3
#: Quasi-Newton steps of a round.
STEPS = 300
#: Neurons that may join in a round.
JOIN = 100


def suits(problem: Problem) -> bool:
    """Whether the problem is for this module."""
    return type(problem) is Problem and problem.A is None and problem.n_outputs > 1 and problem.Y.size >= MANY


def run_many_rows(problem: Problem, options: Options) -> Solution:
    """Train until the gap by local search is ``options.tol``, or little changes."""
    with watching(options.time_limit) as watch:
        run = _Run(problem, options, watch)
        try:
            run.solve()
        except Stopped:
            run.status = watch.status
        run.finish()
        if options.max_neurons is not None and len(run.neurons) > options.max_neurons:
            run.narrow(options.max_neurons)
    return run.solution()


class _Run:
    def __init__(self, problem: Problem, options: Options, watch: Watch) -> None:
        self.problem, self.options, self.watch = problem, options, watch
        self.loss = problem.loss
        self.began = time.perf_counter()
        self.deadline = watch.deadline
        self.rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        self.status, self.n_iter = "converged", 0
        self.history: list[HistoryEntry] = []
        self.neurons = Neurons.none(problem.reduced.shape[1], fit_intercept(problem, problem.loss))
        self.objective = np.inf
        self.F = np.zeros_like(problem.Y) + self.neurons.intercept
        self.dual = Bound.nothing(problem)
        self.pricer: Pricer | None = None

    def solve(self) -> None:
        """The start, then rounds of pricing and moving."""
        self.watch.check()
        self.pricer = Pricer(self.problem, self.rng)
        self.watch.check()
        pairs = self._start()
        while True:
            # keep time for the bound: without one the network is worth little to a user
            pairs.bfgs(STEPS, 1e-4, self._until(0.75))
            self._offer(pairs.result())
            found = self._price()
            self._note()
            self.n_iter += 1
            gap = relative_gap(self.objective, self.dual.value)
            if gap <= self.options.tol:
                return
            if self.n_iter >= self.options.max_iter:
                self.status = "stopped at max_iter"
            elif self.watch.late() or time.perf_counter() > self._until(0.75):
                self.status = self.watch.status
            elif self._still(found):
                self.status = "stopped: little changes"
            else:
                pairs = PairGradient(self.problem, self.loss, self._joined(found))
                continue
            return

    def _until(self, share: float) -> float:
        return self.began + share * (self.deadline - self.began)

    def _start(self) -> PairGradient:
        """The given network, or a wide random one trained on batches."""
        p, start = self.problem, self.options.start
        if isinstance(start, Neurons) and len(start):
            return PairGradient(p, self.loss, Neurons(start.U @ p.basis, start.alpha, start.intercept))
        r, C = p.reduced.shape[1], p.n_outputs
        unit, scale = float(np.sqrt((p.reduced**2).mean())), output_scale(p)
        width = int(np.clip(len(p.Y) // 50, 100, WIDTH))
        U = self.rng.standard_normal((width, r)) * np.sqrt(2.0 / r) / unit
        alpha = self.rng.standard_normal((width, C)) * np.sqrt(1.0 / width) * scale
        pairs = PairGradient(p, self.loss, Neurons(U, alpha, self.neurons.intercept))
        adam_on_batches(pairs, EPOCHS, RATE, self.rng, self._until(0.35))
        return pairs

    def _offer(self, neurons: Neurons) -> None:
        p = self.problem
        F = batched_outputs(p.reduced, neurons)
        objective = p.loss_value(F) + p.beta * float(neurons.costs.sum())
        if objective < self.objective:
            self.objective, self.neurons, self.F = objective, neurons, F

    def _price(self) -> Candidates:
        p = self.problem
        assert self.pricer is not None
        V = p.loss.dual_point(-p.loss.gradient(self.F, p.Y, p.w), p.Y, p.w, centred=p.fit_intercept)
        found = self.pricer.quick(V, self.neurons.U, 32, self.deadline)
        checkpoint()  # a search that was cut short says nothing about the bound
        bound = lower_bound(p, V, found.best, found.best)
        self.dual = max(self.dual, bound, key=lambda b: b.value)
        return found

    def _still(self, found: Candidates) -> bool:
        """Whether the last round brought next to nothing."""
        if found.best <= self.problem.beta:
            return True
        before = self.history[-2] if len(self.history) > 1 else None
        if before is None:
            return False
        gained = before.objective - self.objective
        return gained <= 0.01 * (self.objective - self.dual.value)

    def _joined(self, found: Candidates) -> Neurons:
        """The network with the worst violators as small neurons."""
        new = found.take(found.values > self.problem.beta).distinct(JOIN, 0.99)
        size = 0.1 * float(np.median(self.neurons.costs)) if len(self.neurons) else 1e-2
        return Neurons(
            np.vstack([self.neurons.U, size * new.directions]),
            np.vstack([self.neurons.alpha, new.outputs]),
            self.neurons.intercept,
        )

    def _note(self) -> None:
        entry = HistoryEntry(time.perf_counter() - self.began, self.objective, self.dual.value, len(self.neurons))
        self.history.append(entry)
        if self.options.verbose:
            note(
                f"{entry.elapsed:8.2f} s  {entry.n_neurons:5d} neurons  objective {entry.objective:.8g}  gap "
                f"{relative_gap(entry.objective, entry.likely_bound):.1e} (by local search)"
            )

    def finish(self) -> None:
        """A network in any case, if only the constant one."""
        if not np.isfinite(self.objective):
            self._offer(self.neurons)
        if not self.history:
            self._note()

    def narrow(self, width: int) -> None:
        """Replace the best network by one of at most ``width`` neurons: those that cost most, moved again."""
        rank = np.argsort(-self.neurons.costs, kind="stable")[:width]
        kept = self.neurons.take(np.sort(rank))
        self.objective = np.inf
        self._offer(kept)
        pairs = PairGradient(self.problem, self.loss, kept)
        pairs.bfgs(STEPS, 1e-4, self.deadline)
        self._offer(pairs.result())
        self.status = f"limited to max_neurons={width}"
        self._note()

    def solution(self) -> Solution:
        """In the coordinates of the problem."""
        U = self.neurons.U @ self.problem.basis.T
        return Solution(
            neurons=Neurons(U, self.neurons.alpha, self.neurons.intercept).balanced(),
            bound=self.dual,
            scope="global",
            method="local search",
            status=self.status,
            n_iter=max(1, self.n_iter),
            history=self.history,
            directions=None if self.pricer is None else self.pricer.pool @ self.problem.basis.T,
        )


def batched_outputs(X: FloatArray, neurons: Neurons, piece: int = 8192) -> FloatArray:
    """Outputs in double precision, some rows at a time."""
    parts = [np.maximum(X[i : i + piece] @ neurons.U.T, 0.0) @ neurons.alpha for i in range(0, len(X), piece)]
    return np.concatenate(parts) + neurons.intercept


def adam_on_batches(pairs: PairGradient, epochs: int, rate: float, rng: np.random.Generator, deadline: float) -> None:
    """Adam on batches of rows, with a rate that falls like a cosine; ``pairs`` then holds the result."""
    p, X = pairs.problem, pairs.X
    n_batches = max(1, round(len(X) / BATCH))
    x: list[Array] = [np.array(v, dtype=np.float32) for v in pairs.state]
    first, second = [np.zeros_like(v) for v in x], [np.zeros_like(v) for v in x]
    began, step, watch = time.perf_counter(), 0, current()
    done = 0.0
    for _ in range(epochs):
        order = rng.permutation(len(X))
        for index in np.array_split(order, n_batches):
            step += 1
            done = max(step / (epochs * n_batches), (time.perf_counter() - began) / max(deadline - began, 1e-9))
            if done > 1.0 or watch.late():
                break
            w = p.w[index] / p.w[index].sum()
            gradients = relu_gradients(x, pairs.loss, X[index], p.Y[index], w, pairs.beta, p.fit_intercept)
            adam_step(x, gradients, first, second, 0.5 * rate * (1 + np.cos(np.pi * done)), step)
    pairs.state = (x[0], x[1], x[2].astype(np.float64))
