r"""Two-layer ReLU networks with several outputs on many rows.

On tens of thousands of rows the corrective steps of :mod:`bidual.solvers.engine.loop` (a convex program in all
neurons) cost more than they bring; what moves the objective is moving the neurons. So: Adam on small batches of rows
with a wide network, quasi-Newton steps on all rows until they gain little, then rounds of pricing on all
rows, whose violators join the network as small neurons. The bound rests on local search, as in the engine; it is a
bound on the dual constraint at the network's own residual, and says honestly how much is left.
"""

from __future__ import annotations

import time

import numpy as np

from bidual._util.tuning import tuning
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import checkpoint, current
from bidual.atoms import Neurons, Relu
from bidual.bounds import lower_bound
from bidual.problem import Problem
from bidual.programs.corrective import fit_intercept
from bidual.programs.smoothing import output_scale
from bidual.solvers.adam import adam_step, relu_gradients
from bidual.solvers.base import Options, Solution
from bidual.solvers.engine.pair_gradient import PairGradient
from bidual.solvers.engine.pricing import Candidates, Pricer
from bidual.solvers.generation import Generation
from bidual.solvers.run import Status

#: Rows of a batch, and first rate.
BATCH, RATE = 256, 3e-3
#: Rows for each neuron of the start, and its least width.
EACH, LEAST = 50, 100
#: Quasi-Newton steps of a round, and the gain of ten at which they end.
STEPS, GAIN = 300, 1e-4
#: Shares of the time limit by which batches end, and moves: without a bound the network is worth little to a user.
BATCHING, MOVING = 0.35, 0.75
#: Starts of each family in a search.
EFFORT = 32
#: Neurons that may join in a round, the cosine from which on two are one, their size relative to the network's, and
#: that of the first ones.
JOIN, SAME, SMALL, FIRST = 100, 0.99, 0.1, 1e-2
#: A round that gains less than this share of the gap is the last one.
LITTLE = 0.01


def suits(problem: Problem) -> bool:
    """Whether the problem is for this module."""
    plain = type(problem.atoms) is Relu and problem.atoms.A is None
    return plain and problem.n_outputs > 1 and problem.Y.size >= tuning().batches_from


def run_many_rows(problem: Problem, options: Options) -> Solution:
    """Train until the gap by local search is ``options.tol``, or little changes."""
    run = _ManyRows(problem, options)
    with run.going():
        run.generate()
    return run.finish()


class _ManyRows(Generation):
    """State of one run, in reduced coordinates."""

    def __init__(self, problem: Problem, options: Options) -> None:
        began = time.perf_counter()
        constant = Neurons.none(problem.atoms.reduced.shape[1], fit_intercept(problem, problem.loss))
        super().__init__(problem, options, constant, np.inf, began)
        self.pricer: Pricer | None = None

    def evaluate(self, neurons: Neurons) -> float:
        """The objective, some rows at a time."""
        F = batched_outputs(self.problem.atoms.reduced, neurons)
        return self.problem.loss_value(F) + self.problem.beta * float(neurons.costs.sum())

    def begin(self) -> bool:
        """The given network, or a wide random one trained on batches."""
        checkpoint()
        self.pricer = Pricer(self.problem, self.rng)
        checkpoint()
        p, start = self.problem, self.options.start
        if isinstance(start, Neurons) and len(start):
            self.pairs = PairGradient(p, p.loss, Neurons(start.U @ p.atoms.basis, start.alpha, start.intercept))
            return False
        r, C = p.atoms.reduced.shape[1], p.n_outputs
        unit, scale = float(np.sqrt((p.atoms.reduced**2).mean())), output_scale(p)
        width = int(np.clip(len(p.Y) // EACH, LEAST, tuning().batch_width))
        U = self.rng.standard_normal((width, r)) * np.sqrt(2.0 / r) / unit
        alpha = self.rng.standard_normal((width, C)) * np.sqrt(1.0 / width) * scale
        self.pairs = PairGradient(p, p.loss, Neurons(U, alpha, self.neurons.intercept))
        with self.going(BATCHING):
            adam_on_batches(self.pairs, tuning().batch_epochs, RATE, self.rng)
        return False

    def round(self) -> None:
        """Move, and price where that ends."""
        p = self.problem
        if not self.late():
            with self.going(MOVING):
                self.pairs.bfgs(STEPS, GAIN)
        self.offer(self.pairs.result())
        F = batched_outputs(p.atoms.reduced, self.neurons)
        V = p.dual_point(-p.loss.gradient(F, p.Y, p.w))
        assert self.pricer is not None
        self.found = self.pricer.quick(V, self.neurons.U, EFFORT)
        checkpoint()  # a search that was cut short says nothing about the bound
        self.bounded(lower_bound(p, V, self.found.best, self.found.best))
        self.note(words="by local search")

    def audit(self) -> bool:
        """Not on so many rows: the gap is what the searches of the rounds say."""
        return True

    def prepare(self) -> str | None:
        """What was found joins the network, unless time is up or little changes."""
        with self.going(MOVING) as watch:
            late = watch.late()
        if self.n_iter >= self.options.max_iter:
            return Status.MAX_ITER
        if late:
            return watch.status
        if self._still():
            return Status.SETTLED
        self.pairs = PairGradient(self.problem, self.problem.loss, self._joined(self.found))
        return None

    def _still(self) -> bool:
        """Whether the last round brought next to nothing."""
        if self.found.best <= self.problem.beta:
            return True
        if len(self.history) < 2:
            return False
        gained = self.history[-2].objective - self.objective
        return gained <= LITTLE * (self.objective - self.bound.value)

    def _joined(self, found: Candidates) -> Neurons:
        """The network with the worst violators as small neurons."""
        new = found.take(found.values > self.problem.beta).distinct(JOIN, SAME)
        size = SMALL * float(np.median(self.neurons.costs)) if len(self.neurons) else FIRST
        return Neurons(
            np.vstack([self.neurons.U, size * new.directions]),
            np.vstack([self.neurons.alpha, new.outputs]),
            self.neurons.intercept,
        )

    def _moved(self, neurons: Neurons) -> list[Neurons]:
        pairs = PairGradient(self.problem, self.problem.loss, neurons)
        pairs.bfgs(STEPS, GAIN)
        return [pairs.result()]

    def finish(self) -> Solution:
        """A network in any case, if only the constant one, in the coordinates of the problem."""
        if not np.isfinite(self.objective):
            self.offer(self.neurons)
        with self.going():
            narrowed = self.narrow(self._moved)
        if narrowed or not self.history:
            self.note(words="by local search")
        basis = self.problem.atoms.basis
        neurons = Neurons(self.neurons.U @ basis.T, self.neurons.alpha, self.neurons.intercept).balanced()
        directions = None if self.pricer is None else self.pricer.pool @ basis.T
        return self.solution("local search", neurons, directions=directions, told=True)


def batched_outputs(X: FloatArray, neurons: Neurons, piece: int = 8192) -> FloatArray:
    """Outputs in double precision, some rows at a time."""
    parts = [np.maximum(X[i : i + piece] @ neurons.U.T, 0.0) @ neurons.alpha for i in range(0, len(X), piece)]
    return np.concatenate(parts) + neurons.intercept


def adam_on_batches(pairs: PairGradient, epochs: int, rate: float, rng: np.random.Generator) -> None:
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
            done = max(step / (epochs * n_batches), (time.perf_counter() - began) / max(watch.deadline - began, 1e-9))
            if done > 1.0 or watch.late():
                break
            w = p.w[index] / p.w[index].sum()
            gradients = relu_gradients(x, pairs.loss, X[index], p.Y[index], w, pairs.beta, p.fit_intercept)
            adam_step(x, gradients, first, second, 0.5 * rate * (1 + np.cos(np.pi * done)), step)
    pairs.state = (x[0], x[1], x[2].astype(np.float64))
