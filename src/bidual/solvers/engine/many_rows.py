r"""Two-layer ReLU networks on many rows with several outputs, and on sparse rows.

On tens of thousands of rows the corrective steps of :mod:`bidual.solvers.engine.loop` (a convex program in all
neurons) cost more than they bring; what moves the objective is moving the neurons. So: quasi-Newton steps on all rows
(:mod:`bidual.solvers.engine.pair_gradient`; in the axes of the data forty gradients of large matrix products bring
what forty passes of Adam on small batches do), then rounds of pricing on all rows, whose violators join the network as
small neurons. All of it takes products with the rows only, so that sparse ones stay sparse. The bound rests on local
search, as in the engine; it is a bound on the dual constraint at the network's own residual, and says honestly how much
is left.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.atoms import Neurons, Relu
from bidual.bounds import lower_bound
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.programs.corrective import fit_intercept
from bidual.programs.smoothing import first_epsilon, output_scale, sharper, smoothed
from bidual.solvers.base import Options, Solution
from bidual.solvers.engine.candidates import Candidates, unit_rows
from bidual.solvers.engine.pair_gradient import WIDTH, PairGradient, PairSpace, random_pairs
from bidual.solvers.engine.pricing import Pricer
from bidual.solvers.generation import Generation
from bidual.solvers.run import Status

#: Rows for each neuron of the start.
EACH = 100
#: Widths of the kinks and the most steps at each of them, of the start and of a later round, and the gain of ten steps
#: at which a stage ends.
STAGES, ROUND, GAIN = ((0.1, 40), (0.03, 40), (0.01, 40), (0.003, 40)), ((0.01, 40), (0.003, 40)), 3e-4
#: The same where it is all there is: predictions change little after that.
ROUGH = ((0.1, 60), (0.02, 60))
#: Share of the time limit by which moves end: without a bound the network is worth little to a user.
MOVING = 0.75
#: Fewest and most starts of each family in a search; fewer where a neuron has very many weights.
EFFORTS = (4, 32)
#: The widest network has room for so many neurons at least, however many weights each of them has.
NARROWEST = 16
#: Neurons that may join in a round, the cosine from which on two are one, their size relative to the network's, and
#: that of the first ones.
JOIN, SAME, SMALL, FIRST = 100, 0.99, 0.1, 1e-2
#: What is left of the smoothing of a loss with kinks after a round.
SHARPER = 0.2
#: A round that gains less than this share of the gap is the last one.
LITTLE = 0.01
#: Widths of kinks, and steps at each of them.
Stages: TypeAlias = tuple[tuple[float, int], ...]


def suits(problem: Problem) -> bool:
    """Whether the problem is for this module."""
    plain = type(problem.atoms) is Relu and problem.atoms.A is None
    return plain and problem.n_outputs > 1 and problem.Y.size >= tuning().batches_from


def run_many_rows(problem: Problem[Relu], options: Options) -> Solution:
    """Train until the gap by local search is ``options.tol``, or little changes."""
    # our own threads share the rows: those of BLAS beside them would wait for each other
    with threadpool_limits(1, user_api="blas"):
        run = _ManyRows(problem, options)
        with run.going():
            run.generate()
        return run.finish("local search")


def start_many_rows(problem: Problem[Relu], options: Options) -> Solution:
    """The first moves alone, without a bound."""
    with threadpool_limits(1, user_api="blas"):
        run = _ManyRows(problem, options, ROUGH)
        with run.going():
            run.begin()
            run.move()
            run.status = Status.START
        return run.finish("no search")


def search(problem: Problem, V: FloatArray, rng: np.random.Generator) -> float:
    """The largest value of the dual constraint at ``V`` that such a search finds."""
    rank = problem.atoms.reduced.shape[1]
    found = Pricer(problem, rng).sampled(V, np.zeros((0, rank)), efforts(rank)).best
    checkpoint()  # a search that was cut short says nothing about the bound
    return found


def efforts(rank: int) -> int:
    """Starts of each family in a search for neurons of so many weights."""
    return int(np.clip(tuning().pair_weights // (4 * max(rank, 1)), *EFFORTS))


class _ManyRows(Generation):
    """State of one run, in reduced coordinates."""

    problem: Problem[Relu]

    def __init__(self, problem: Problem[Relu], options: Options, stages: Stages = STAGES) -> None:
        began = clock()
        self.epsilon = first_epsilon(problem)
        rank = problem.atoms.reduced.shape[1]
        b = fit_intercept(problem, smoothed(problem.loss, self.epsilon))
        super().__init__(problem, options, Neurons.none(rank, b), np.inf, began)
        self.pricer: Pricer | None = None
        self.stages = stages
        self.before = np.inf
        self.widest, self.effort = max(NARROWEST, tuning().pair_weights // max(rank, 1)), efforts(rank)

    @property
    def loss(self) -> Loss:
        """The loss, smoothed as far as it is by now."""
        return smoothed(self.problem.loss, self.epsilon)

    def evaluate(self, neurons: Neurons) -> float:
        """The objective, some rows at a time."""
        F = batched_outputs(self.problem.atoms.reduced, neurons)
        return self.problem.loss_value(F) + self.problem.beta * float(neurons.costs.sum())

    def predictions(self) -> FloatArray:
        """Outputs of the best network, some rows at a time."""
        return batched_outputs(self.problem.atoms.reduced, self.neurons)

    def begin(self) -> bool:
        """The given network, or a wide random one."""
        checkpoint()
        self.pricer = Pricer(self.problem, self.rng)
        checkpoint()
        p, start = self.problem, self.options.start
        self.space = PairSpace.of(p)
        checkpoint()
        if isinstance(start, Neurons) and len(start):
            given = Neurons(start.U @ p.atoms.basis, start.alpha, start.intercept)
            self.pairs, self.stages = PairGradient(self.space, self.loss, given), ROUND
            return False
        width = min(int(np.clip(len(p.Y) // EACH, WIDTH, tuning().start_width)), self.widest)
        first = random_pairs(p, width, self.neurons.intercept, self.rng, output_scale(p))
        self.pairs = PairGradient(self.space, self.loss, first)
        return False

    def watch(self, neurons: Neurons) -> None:
        """Keep and note a network on the way."""
        self.offer(neurons)
        self.note(words="by local search")

    def move(self) -> None:
        """All neurons, as far as the time for that goes."""
        if not self.late():
            with self.going(MOVING):
                self.pairs.descend(self.stages, GAIN, self.watch)
        self.offer(self.pairs.result())

    def round(self) -> None:
        """Move, and price where that ends."""
        p, self.before = self.problem, self.objective
        self.move()
        F = self.predictions()
        V = p.dual_point(-self.loss.gradient(F, p.Y, p.w))
        assert self.pricer is not None
        self.found = self.pricer.sampled(V, unit_rows(self.neurons.U), self.effort)
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
        before = self.epsilon
        if before:
            self.epsilon = sharper(SHARPER * before, self.gap, self.objective, self.options.tol)
        if self._still() and self.epsilon >= before:
            return Status.SETTLED
        self.pairs, self.stages = PairGradient(self.space, self.loss, self._joined(self.found)), ROUND
        return None

    def _still(self) -> bool:
        """Whether the last round brought next to nothing."""
        if self.found.best <= self.problem.beta:
            return True
        return self.before - self.objective <= LITTLE * (self.objective - self.bound.value)

    def _joined(self, found: Candidates) -> Neurons:
        """The network with the worst violators as small neurons."""
        room = min(JOIN, max(self.widest - len(self.neurons), 0))
        new = found.take(found.values > self.problem.beta).distinct(room, SAME)
        size = SMALL * float(np.median(self.neurons.costs)) if len(self.neurons) else FIRST
        return Neurons(
            np.vstack([self.neurons.U, size * new.directions]),
            np.vstack([self.neurons.alpha, new.outputs]),
            self.neurons.intercept,
        )

    def _moved(self, neurons: Neurons) -> list[Neurons]:
        pairs = PairGradient(self.space, self.loss, neurons)
        pairs.descend(ROUND, GAIN)
        return [pairs.result()]

    def finish(self, method: str) -> Solution:
        """A network in any case, if only the constant one, in the coordinates of the problem."""
        if not np.isfinite(self.objective):
            self.offer(self.neurons)
        with self.going():
            narrowed = self.narrow(self._moved)
        if narrowed or not self.history:
            self.note(words="by local search" if self.bound.V.any() else "")
        basis = self.problem.atoms.basis
        neurons = Neurons(self.neurons.U @ basis.T, self.neurons.alpha, self.neurons.intercept).balanced()
        directions = None if self.pricer is None else self.pricer.pool @ basis.T
        return self.solution(method, neurons, directions=directions, told=True)


def batched_outputs(X: FloatArray, neurons: Neurons, piece: int = 8192) -> FloatArray:
    """Outputs in double precision, some rows at a time."""
    parts = [np.maximum(X[i : i + piece] @ neurons.U.T, 0.0) @ neurons.alpha for i in range(0, X.shape[0], piece)]
    return np.concatenate(parts) + neurons.intercept
