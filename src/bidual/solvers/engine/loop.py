r"""Training to a small, audited duality gap: column generation with neurons that move.

The loop alternates three steps on a network in reduced coordinates:

1. *move*: Newton steps on the smoothed problem, in which neurons cross hyperplanes by themselves;
2. *correct*: the exact convex problem in the magnitudes of all neurons and cuts, which gives a primal point (its
   objective is the true one) and a dual point feasible at every neuron and cut;
3. *price*: search for neurons that violate the dual constraint; they become cuts, and step 2 is repeated until few are
   left. Adding them in bulk matters: the landscape has hundreds of local maxima within a percent of the best.

The gap is (objective - bound) / objective with the bound from the best dual point. It rests on local search for
:math:`g = \max_u \|(A^T V)^T (M u)_+\|`, so that before the loop ends the dual point is priced again with many more
starts and from families of starts that the loop never uses; if that raises g, the loop goes on. What is done otherwise
with several outputs is in :mod:`bidual.solvers.engine.several`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.atoms import Neurons, Relu
from bidual.bounds import lower_bound
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.programs.box_corrective import best_magnitudes
from bidual.programs.corrective import Corrected, fit_intercept, merged
from bidual.programs.smoothing import first_epsilon, output_scale, sharper, smoothed
from bidual.solvers.base import Options, Solution
from bidual.solvers.engine.candidates import Candidates, unit_rows
from bidual.solvers.engine.fast_start import ProximalGradient, fast_start
from bidual.solvers.engine.newton import SmoothedNewton
from bidual.solvers.engine.pair_gradient import GAIN, SCHEDULE, WIDTH, PairGradient, PairSpace, random_pairs
from bidual.solvers.engine.searching import SAME, Searching
from bidual.solvers.generation import UNSEEN
from bidual.solvers.run import Status

# ---- time
#: Share of the time limit that is kept for an audit of what there is by then.
_RESERVE = 0.15

# ---- accuracies, relative to what can be told apart (:attr:`Engine.resolution`) unless said otherwise
#: Corrective steps are this much more accurate than the gap, or than this where the gap is larger.
_CORRECTIVE, _LARGE_GAP = 0.01, 0.1
#: What merging neurons may cost, and dropping small ones: less than the next move brings.
_MERGING, _DROPPING = 0.02, 0.03
#: Shares of the cost that small neurons may have together to be dropped, largest first.
_DROPPED = (0.3, 0.1, 0.03, 0.01)

# ---- moves
#: Largest number of entries in the Hessian blocks of all neurons; beyond it, neurons move by gradients.
_NEWTON_ENTRIES = 20_000_000
#: Newton steps of a move and where they end; a few do between two corrective steps.
_NEWTON_STEPS, _NEWTON_TOL = 6, 0.05
#: Gradient steps of a move (one output), and the gain of fifty at which they end.
_FLOW_STEPS, _FLOW_TOL = 200, 0.01
#: Gain at which the fast start ends, relative to the objective: pricing does more from there.
_START_TOL = 1e-3
#: Neurons of the fast start (one output); and of one that is all there is, or is followed by few rounds.
_START_WIDTH, _ROUGH_WIDTH = 400, 100
#: Stages of the fast start of several outputs where it is all there is: predictions change little after them.
_ROUGH_STAGES = ((0.1, 100), (0.02, 100))
#: Width of the smoothed kinks, and its last value; it falls slowly while moves gain so much, else fast.
_DELTA, SHARPEST, _GAINING, _SLOWLY, _FAST = 0.02, 1e-4, 0.02, 0.7, 0.4
#: Moves of a network that was made narrow, and the width of the kinks in them.
_NARROW_MOVES, _NARROW_DELTA = 5, 0.01

# ---- searches
#: Starts of the searches for any neuron of use at all, and of their audit.
_TRIVIAL, _TRIVIAL_AUDIT = 32, 64
#: A violation below this calls for a wider search: it may be all that the quick one has missed.
WIDER = 0.3

# ---- corrective steps and cuts
#: Corrective steps in a round, and of a network that was given.
_CORRECTIONS, _CORRECTIONS_GIVEN = 6, 2
#: Cuts that may enter at a time.
CUTS = 300
#: A violation below this share of the gap is not what keeps it open: time to move.
_SMALL = 0.2
#: Share of the largest violation that a cut has at least.
_WORTHWHILE = 0.02
#: Idle neurons stay at this share of the dual constraint's limit, within a round and beyond it.
_STAYS, _OUTLASTS = 0.95, 0.98


class Engine(Searching):
    """State of one run, in reduced coordinates: beyond the best of it, the neurons at hand and the cuts."""

    problem: Problem[Relu]
    #: Width of the smoothed kinks of the first round.
    first_delta: ClassVar[float] = _DELTA

    def __init__(self, problem: Problem[Relu], options: Options) -> None:
        began = clock()
        rank = problem.atoms.reduced.shape[1]
        self.epsilon = first_epsilon(problem)
        b = fit_intercept(problem, smoothed(problem.loss, self.epsilon))
        super().__init__(problem, options, problem.atoms.none(rank, b), began=began)
        self.at_hand, self.before = self.neurons, np.inf
        self.delta = self.first_delta
        self.corrections = _CORRECTIONS

    @property
    def loss(self) -> Loss:
        """The loss, smoothed as far as it is by now."""
        return smoothed(self.problem.loss, self.epsilon)

    @cached_property
    def space(self) -> PairSpace:
        """Where pairs move."""
        return PairSpace.of(self.problem)

    def watch(self, neurons: Neurons) -> None:
        """Keep and note a network on the way."""
        self.offer(neurons)
        self.note(words=UNSEEN)

    def dual_point(self, F: FloatArray, V: FloatArray | None = None) -> FloatArray:
        """A point of the dual domain: V, or minus the gradient at F, moved into it."""
        p = self.problem
        return p.dual_point(-self.loss.gradient(F, p.Y, p.w) if V is None else V)

    # ---- the loop --------------------------------------------------------------------------------

    def begin(self) -> bool:
        """The given network, or the fast start, unless the network without neurons is optimal."""
        if self.given is None and self.options.enough is None and self.needless():
            return True
        self.at_hand = self.started() if self.given is None else self.taken(self.given)
        self.watch(self.at_hand)
        if self.given is None and not len(self.at_hand) and self.needless():
            return True
        self.look(self.outputs(self.at_hand))
        return self.given is not None and self.closed and self.audit()

    def round(self) -> None:
        """Move the neurons at hand, correct and price."""
        self.before = self.objective
        self.corrected_round(self.at_hand)

    def corrected_round(self, neurons: Neurons) -> None:
        """All of it, from these neurons."""
        moved = self.move(neurons, self.delta)
        self.watch(moved)
        self.at_hand = self.correct_and_price(self.merged(moved), self.corrections)

    def merged(self, neurons: Neurons) -> Neurons:
        """The network with nearly parallel neurons made one, at a cost below what can be told apart."""
        return merged(self.problem, self.problem.atoms.settled(neurons), _MERGING * self.resolution * self.objective)

    def audit(self) -> bool:
        """See :meth:`confirm`."""
        return not self.options.audit or self.confirm(self.efforts)

    def prepare(self) -> None:
        """Follow the kinks of the ReLU and of the loss more closely."""
        gaining = self.objective < self.before * (1.0 - _GAINING * self.resolution)
        self.delta = max(self.delta * (_SLOWLY if gaining else _FAST), SHARPEST)
        if self.epsilon:
            self.epsilon = sharper(self.epsilon, self.gap, self.objective, self.options.tol)

    def needless(self) -> bool:
        """Whether neurons are, audited."""
        return self.trivial() and (not self.options.audit or self.confirm((_TRIVIAL_AUDIT,)))

    def trivial(self) -> bool:
        """Whether the network without neurons is optimal."""
        V = self.dual_point(np.zeros_like(self.problem.Y) + self.neurons.intercept)
        found = self.pricer.quick(V, self.neurons.U, _TRIVIAL)
        if found.best <= self.problem.beta * (1.0 + self.options.tol):
            found = found.joined(self.pricer.strong(V, self.neurons.U, _TRIVIAL))
        checkpoint()
        self.bounded(lower_bound(self.problem, V, found.best, found.best))
        return self.closed

    def started(self, width: int | None = None) -> Neurons:
        """The fast start, of so many neurons."""
        p, b = self.problem, self.neurons.intercept
        if p.n_coefficients > 1 or p.atoms.pools:
            pairs = PairGradient(self.space, self.loss, random_pairs(p, width or WIDTH, b, self.rng, output_scale(p)))
            pairs.descend(_ROUGH_STAGES if width else SCHEDULE, GAIN, self.watch)
            return pairs.result()
        width = width or (_START_WIDTH if self.options.enough is None else _ROUGH_WIDTH)
        return self.merged(fast_start(p, self.loss, b, self.rng, width=width, tol=_START_TOL, watch=self.watch))

    def taken(self, start: Neurons) -> Neurons:
        """A network that was given, corrected."""
        U = start.U @ self.problem.atoms.basis
        size = np.linalg.norm(start.alpha, axis=1)
        alive = (size > 0) & (U != 0).any(axis=1)
        given = self.problem.atoms.neurons(
            U[alive] * size[alive, None], start.alpha[alive] / size[alive, None], start.intercept
        )
        return self.correct_and_price(self.problem.atoms.settled(given), _CORRECTIONS_GIVEN)

    # ---- the steps -------------------------------------------------------------------------------

    def correct(self, atoms: Neurons, t: FloatArray) -> Corrected:
        """The best magnitudes, by their dual if the loss has kinks."""
        tol = _CORRECTIVE * min(max(self.gap, self.options.tol), _LARGE_GAP)
        return best_magnitudes(self.problem, self.epsilon, atoms, t, tol)

    def correct_outputs(self, atoms: Neurons, t: FloatArray) -> tuple[Neurons, Corrected]:
        """The corrective step, which may turn the output weights of the atoms."""
        return atoms, self.correct(atoms, t)

    def correct_and_price(self, neurons: Neurons, rounds: int) -> Neurons:
        """Alternate corrective steps and pricing; returns the neurons in use."""
        p = self.problem
        atoms = p.atoms.neurons(
            np.vstack([neurons.U, self.cuts.directions]),
            np.vstack([neurons.alpha, self.cuts.outputs]),
            neurons.intercept,
        )
        t = np.concatenate([np.ones(len(neurons)), np.zeros(len(self.cuts))])
        for k in range(rounds):
            atoms, step = self.correct_outputs(atoms, t)
            t, atoms = step.t, replace(atoms, intercept=step.intercept)
            used = step.neurons(atoms)
            self.offer(used)
            self.look(step.F)
            V = self.dual_point(step.F, step.V)
            checkpoint()
            found = self.price(V, used.U, WIDER * self.resolution)
            self.bounded(lower_bound(p, V, found.best, found.best))
            self.note(words=UNSEEN)
            violation = found.best / p.beta - 1.0
            if self.closed or violation <= _SMALL * self.gap or k == rounds - 1:
                break
            worth = found.values > p.beta * (1.0 + _WORTHWHILE * violation)
            self.cuts = found.take(worth).distinct(CUTS, SAME)
            kept = np.flatnonzero((t > 0) | (self.constraint_values(V, atoms) > _STAYS * p.beta))
            atoms = replace(
                atoms,
                U=np.vstack([atoms.U[kept], self.cuts.directions]),
                alpha=np.vstack([atoms.alpha[kept], self.cuts.outputs]),
            )
            t = np.concatenate([t[kept], np.zeros(len(self.cuts))])
        used = self.sparse(used, step.value)
        idle = atoms.take(t == 0)
        values = self.constraint_values(V, idle)
        close = values > _OUTLASTS * p.beta
        self.cuts = Candidates(unit_rows(idle.U[close]), idle.alpha[close], values[close]).joined(
            found.take(found.values > p.beta)
        )
        return used

    def constraint_values(self, V: FloatArray, atoms: Neurons) -> FloatArray:
        """The dual constraint at each atom; its limit is beta."""
        H = np.maximum(self.problem.atoms.reduced @ atoms.U.T, 0.0)
        return np.asarray(np.einsum("kc,kc->k", H.T @ self.problem.atoms.spread(V), atoms.alpha) / atoms.costs)

    def sparse(self, neurons: Neurons, value: float) -> Neurons:
        """Without small neurons, the others adjusted to their absence, while the objective hardly rises.

        The interior point method spreads weight over many nearly equal atoms; few are needed.
        """
        allowed = value + _DROPPING * self.resolution * self.objective
        order = np.argsort(-neurons.costs, kind="stable")
        share = np.cumsum(neurons.costs[order]) / max(float(neurons.costs.sum()), np.finfo(float).tiny)
        for dropped in _DROPPED:
            checkpoint()
            kept = np.sort(order[: int(np.searchsorted(share, 1.0 - dropped)) + 1])
            if len(kept) < len(neurons):
                rest = neurons.take(kept)
                rest, step = self.correct_outputs(rest, np.ones(len(rest)))
                if step.value <= allowed:
                    return step.neurons(rest)
        return neurons

    def move(self, neurons: Neurons, delta: float) -> Neurons:
        """Let the neurons move to where the objective is lower."""
        p = self.problem
        if not len(neurons):
            return neurons
        m, r = neurons.U.shape
        if m * r * r > _NEWTON_ENTRIES:
            flow = ProximalGradient(p, self.loss, neurons.U, neurons.alpha[:, 0], float(neurons.intercept[0]))
            flow.run(_FLOW_STEPS, _FLOW_TOL * self.resolution)
            return flow.neurons()
        target = _NEWTON_TOL * self.resolution * self.objective
        return SmoothedNewton(p, self.loss).run(neurons, delta, _NEWTON_STEPS, target)[0]

    def tidy(self) -> None:
        """Look once more at the best network, when all else is done."""

    def refined(self, neurons: Neurons) -> Iterator[Neurons]:
        """Networks as wide as this one, ever better ones."""
        neurons = self.problem.atoms.settled(neurons)
        for _ in range(_NARROW_MOVES):
            yield (neurons := self.correct(neurons, np.ones(len(neurons))).neurons(neurons))
            neurons = self.move(neurons, _NARROW_DELTA)
        yield self.correct(neurons, np.ones(len(neurons))).neurons(neurons)


def run(kind: type[Engine], problem: Problem[Relu], options: Options) -> Solution:
    """Train by an engine of this kind until the audited relative gap is at most ``options.tol``.

    Any loss: one with kinks is followed through its Moreau envelopes; objective and bound are of the loss itself. The
    result is a function of ``random_state`` (unless time runs out), whatever the number of threads.
    """
    # Our own threads do the searching; BLAS threads on small matrices mostly wait for each other.
    with threadpool_limits(1, user_api="blas"):
        engine = kind(problem, options)
        with engine.going(1.0 - _RESERVE if options.audit else 1.0):
            engine.generate()
        audited = options.audit and (engine.confirmed or engine.last_audit())
        if options.tidy:
            with engine.going():
                engine.tidy()
        engine.narrow(engine.refined)
        basis = problem.atoms.basis
        neurons = engine.slim(replace(engine.neurons, U=engine.neurons.U @ basis.T))
    return engine.solution(
        "local search, audited" if audited else "local search", neurons, directions=engine.pricer.pool @ basis.T
    )


def run_start(kind: type[Engine], problem: Problem[Relu], options: Options) -> Solution:
    """The fast start of few neurons alone, without a bound."""
    with threadpool_limits(1, user_api="blas"):
        engine = kind(problem, options)
        with engine.going():
            engine.watch(engine.started(_ROUGH_WIDTH))
            engine.status = Status.START
    neurons = replace(engine.neurons, U=engine.neurons.U @ problem.atoms.basis.T)
    return engine.solution("no search", neurons)
