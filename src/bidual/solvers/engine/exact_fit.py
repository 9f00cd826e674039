r"""The smallest network that fits exactly (beta = 0), by column generation: 003 eq. 6-7, 004 eq. 4 and 12.

With the loss an indicator of outputs that fit, training and its dual are

.. math:: \min \; \sum_j \|\alpha_j\| \quad \text{s.t.} \quad F = \sum_j \phi(\theta_j) \alpha_j^T + 1 b^T \text{ fits},
          \qquad \max \; -L^*(-V) \quad \text{s.t.} \quad \|V^T \phi(\theta)\| \le 1 \; \forall \theta, \; 1^T V = 0.

Cuts alone would do (the method of 004), but slowly: the constraint is curved, and without a fit nothing keeps V from
jumping. A term :math:`\tfrac{1}{2\mu} \|V - V_k\|^2` does, and what it makes of the primal is a training problem with a
smooth loss, as all others are: the squared distance to the outputs that fit, with the multipliers added to the targets,

.. math:: \min \; \tfrac{1}{2n} \operatorname{dist}^2(F, \mathcal{F}(Y + S_k)) + \mu \sum_j \|\alpha_j\|, \qquad
          S_{k+1} = Y + S_k - F_k \text{ where that is missed},

the method of multipliers. Its network fits but for a residual that vanishes, and is made to fit by the smallest change
of its weights (:mod:`bidual.programs.restore`): that is the objective; :math:`S_{k+1} / n \mu` is the dual point.
With one output, and data of a size at which that is cheap, the last digits come from the programs on the patterns found
(:mod:`bidual.programs.walls`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped, checkpoint
from bidual.atoms import Neurons, Relu
from bidual.bounds import lower_bound
from bidual.problem import Problem
from bidual.programs.conic import ConicFailure, InfeasibleError
from bidual.programs.restore import restored
from bidual.programs.shared import SharedProgram
from bidual.programs.smoothing import SmoothedLoss
from bidual.programs.walls import Walls
from bidual.solvers.base import Options, Solution
from bidual.solvers.engine.candidates import unit_rows
from bidual.solvers.engine.loop import Engine, run
from bidual.solvers.engine.searching import SAME, Searching
from bidual.solvers.engine.several import SeveralOutputs
from bidual.solvers.finite import repair, solve_program
from bidual.solvers.generation import UNSEEN
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.run import Status

#: The first mu, as a share of the one from which on no neuron is of use: residuals are then a few percent.
_FIRST = 1e-3
#: Starts of the search that tells that one.
_EFFORT = 8
#: Gap of the first smooth problem, and of the others in units of the gap and of the tolerance.
_ROUGH, _FINER, _FINEST = 1e-2, 0.1, 0.3
#: Rounds of each of them.
_ROUNDS = 30
#: A gap that falls by less than this factor: mu has been too large, or the problems too rough; and by what both change.
_SLOW, _SHARPER = 0.5, 0.3
#: Rounds without any progress after which it ends.
_PATIENCE = 4
#: The gap below which programs on patterns are worth it, the entries up to which they are cheap, and the patterns that
#: may enter one at a time; what violates the dual constraint by less is rounding.
_CLOSE, _CHEAP, _ENTER, _ROUNDING = 1e-2, 300_000, 200, 1e-9
#: Times as many random directions as targets among which a fit is looked for where no other is at hand.
_MANY = (0, 1, 2, 4)
#: What fewer neurons may cost, relative to the tolerance.
_SLIMMING = 0.01
#: Share of the time limit that is kept for an audit of what there is by then.
_RESERVE = 0.15


class ExactFit(Searching):
    """Rounds of smooth problems, in reduced coordinates; the network is the best one that fits."""

    def __init__(self, problem: Problem[Relu], options: Options) -> None:
        rank = problem.atoms.reduced.shape[1]
        nothing = problem.atoms.none(rank, np.zeros(problem.n_outputs))
        super().__init__(problem, options, nothing, clock())
        self.shift, self.mu, self.inner = np.zeros_like(problem.Y), 0.0, _ROUGH
        self.at_hand: Neurons | None = self.given
        self.slow = 0
        self.walls: Walls | None = None

    def begin(self) -> bool:
        """Choose the first mu by the multiplier of the network without neurons."""
        p = self.problem
        V = replace(p, loss=self._loss, w=self._w).dual_point(self._w[:, None] * p.Y)
        largest = self.pricer.quick(V, self.pricer.pool, _EFFORT).best
        self.mu = _FIRST * (largest or 1.0) / p.beta
        return False

    @property
    def _loss(self) -> SmoothedLoss:
        """Half the squared distance to outputs that fit."""
        return SmoothedLoss(self.problem.loss, 1.0)

    @property
    def _w(self) -> FloatArray:
        """Exact fits know no weights."""
        return np.full(len(self.problem.Y), 1.0 / len(self.problem.Y))

    def round(self) -> None:
        """On the patterns at hand if that is cheap and the rest is done, else a smooth problem."""
        if self.walls is None:
            self.smooth_round()
        else:
            self.pattern_round(self.walls)

    def pattern_round(self, walls: Walls) -> None:
        """The program on the patterns at hand, and which are missing."""
        p = self.problem
        neurons, V = walls.solve(partial(solve_program, log=self))
        V = p.dual_point(V)
        self.take(neurons, V)
        found = self.price(V, unit_rows(neurons.U), _ROUNDING)
        self.bounded(lower_bound(p, V, found.best, found.best))
        self.cuts = found.take(found.values > p.beta * (1.0 + _ROUNDING)).distinct(_ENTER, SAME)

    def smooth_round(self) -> None:
        """A smooth problem, the multipliers of its solution, and the network made to fit."""
        p = self.problem
        q = replace(p, loss=self._loss, w=self._w, Y=p.Y + self.shift, beta=self.mu * p.beta)
        options = replace(
            self.options, tol=self.inner, max_iter=_ROUNDS, time_limit=None, tidy=False, prove=False,
            audit=self.options.audit and self.inner <= self.options.tol,  # the dual points of exact fits are ragged
            verbose=0, random_state=int(self.rng.integers(2**31)), start=self.at_hand,
            directions=self.pricer.pool @ p.atoms.basis.T,
        )  # fmt: skip
        found = run(SeveralOutputs if p.n_outputs > 1 else Engine, q, options)
        assert isinstance(found.neurons, Neurons)
        self.at_hand = found.neurons
        if found.directions is not None:
            self.pricer.pool = unit_rows(found.directions @ p.atoms.basis)
        neurons = replace(found.neurons, U=found.neurons.U @ p.atoms.basis)
        F = self.outputs(neurons)
        self.shift = -self._loss.row_gradients(F, q.Y)
        if found.bound.attained > 0:
            self.bounded(lower_bound(p, p.dual_point(found.bound.V), found.bound.attained, found.bound.attained))
        self.take(neurons, self.shift)

    def take(self, neurons: Neurons, V: FloatArray) -> None:
        """The network, made to fit."""
        fit = restored(self.problem, neurons, V)
        if fit is None:
            fit = self.fitting(neurons)
        if fit is not None:
            self.offer(fit)
        if np.isfinite(self.objective):
            self.note(words=UNSEEN)
        checkpoint()

    def fitting(self, neurons: Neurons) -> Neurons | None:
        """A small network that fits, made of these neurons and of earlier maxima; of random directions if need be."""
        p = self.problem
        directions = unit_rows(np.concatenate([neurons.U, self.pricer.pool]))
        for many in _MANY:
            program = SharedProgram(p, np.concatenate([directions, self.pricer.gaussians(many * p.Y.size)]))
            with suppress(InfeasibleError, ConicFailure):
                found = program.neurons(solve_program(program, self))
                mended = repair(p, replace(found, U=found.U @ p.atoms.basis.T))
                return replace(mended, U=mended.U @ p.atoms.basis)
            if np.isfinite(self.objective):
                break
        return None

    def audit(self) -> bool:
        """See :meth:`confirm`."""
        return not self.options.audit or self.confirm(self.efforts)

    def prepare(self) -> Status | None:
        """Sharper problems, by mu where the gap does not follow them; or the patterns that are missing."""
        if self.walls is not None:
            return None if self.walls.add(self.cuts.directions) else Status.STALLED
        last = self.history[-2].gap if len(self.history) > 1 else np.inf
        self.slow = self.slow + 1 if self.gap > _SLOW * last else 0
        p = self.problem
        width = 2 * max(len(self.neurons), len(self.pricer.pool) // 2)
        if p.n_outputs == 1 and width * p.atoms.reduced.size <= _CHEAP and (self.gap <= _CLOSE or self.slow):
            self.walls = Walls(p)
            self.walls.add(unit_rows(np.concatenate([self.neurons.U, self.pricer.pool])))
            return None
        if self.slow > _PATIENCE:
            return Status.STALLED
        finest = _FINEST * self.options.tol
        self.inner = max(finest, min(_FINER * self.gap, self.inner * (_SHARPER if self.slow else 1.0)))
        if self.slow > 1 or not np.isfinite(self.gap):
            self.mu, self.shift = self.mu * _SHARPER, self.shift * _SHARPER
        return None

    def fewer(self) -> Neurons:
        """The best network in the coordinates of the features, with fewer neurons where that costs nothing."""
        p = self.problem
        neurons = replace(self.neurons, U=self.neurons.U @ p.atoms.basis.T)
        few = repair(p, reduce_neurons(p, neurons, merging=False))
        return few if p.objective(few) <= self.objective * (1.0 + _SLIMMING * self.options.tol) else neurons


def solve_exact_fit(problem: Problem[Relu], options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``."""
    if options.max_neurons is not None:
        raise ValueError("max_neurons does not go with beta=0: an exact fit has as many neurons as it takes")
    options = replace(options, enough=None)  # predictions never change
    with threadpool_limits(1, user_api="blas"):
        fit = ExactFit(problem, options)
        with fit.going(1.0 - _RESERVE if options.audit else 1.0):
            fit.generate()
        if not np.isfinite(fit.objective):
            raise Stopped(fit.status)
        audited = options.audit and (fit.confirmed or fit.last_audit())
        neurons = fit.fewer()
    directions = fit.pricer.pool @ problem.atoms.basis.T
    return fit.solution("local search, audited" if audited else "local search", neurons, directions=directions)
