r"""Training to a small, audited duality gap: column generation with neurons that move.

The loop alternates three steps on a network in reduced coordinates:

1. *move*: Newton steps on the smoothed problem, in which neurons cross hyperplanes by themselves;
2. *correct*: the exact convex problem in the magnitudes of all neurons and cuts, which gives a primal point (its
   objective is the true one) and a dual point feasible at every neuron and cut;
3. *price*: search for neurons that violate the dual constraint; they become cuts, and step 2 is repeated until few are
   left. Adding them in bulk matters: the landscape has hundreds of local maxima within a percent of the best.

The gap is (objective - bound) / objective with the bound from the best dual point. It rests on local search for
:math:`g = \max_u \|(A^T V)^T (M u)_+\|`, so that before the loop ends the dual point is priced again with many more
starts and from families of starts that the loop never uses; if that raises g, the loop goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from bidual._typing import FloatArray
from bidual._watch import INTERRUPTED, Stopped, checkpoint, current, last_look, watching
from bidual.certificates import Bound, lower_bound, relative_gap
from bidual.losses import Loss
from bidual.problem import Neurons, Problem
from bidual.progress import closed, note
from bidual.solvers.adaptive.box_corrective import best_magnitudes
from bidual.solvers.adaptive.corrective import Corrected, fit_intercept, merged
from bidual.solvers.adaptive.fast_start import ProximalGradient, fast_start
from bidual.solvers.adaptive.newton import SmoothedNewton
from bidual.solvers.adaptive.pair_gradient import PairGradient, pair_start
from bidual.solvers.adaptive.pricing import Candidates, Pricer, unit_rows
from bidual.solvers.adaptive.smoothing import SmoothedLoss, first_epsilon, output_scale, sharper
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.reduce import reduce_neurons

#: Largest number of entries in the Hessian blocks of all neurons; beyond it, neurons move by gradients.
_NEWTON_ENTRIES = 20_000_000


#: Share of the time limit that is kept for an audit of what there is by then, and seconds for it after Ctrl-C.
_RESERVE, _LAST_LOOK = 0.15, 0.5
#: A method of :class:`Pricer`: dual point, neurons, effort, deadline, value known to be attained.
Search = Callable[[FloatArray, FloatArray, int, float, float], Candidates]


class _Engine:
    """State of one run: the best primal point, the best dual point, and the cuts."""

    def __init__(
        self,
        problem: Problem,
        tol: float,
        deadline: float,
        rng: np.random.Generator,
        verbose: int,
    ) -> None:
        self.problem, self.tol, self.deadline, self.rng, self.verbose = problem, tol, deadline, rng, verbose
        self.began = time.perf_counter()
        self.pricer = Pricer(problem, rng)
        # As many starts in the final search as are cheap: a missed narrow maximum makes the gap a lie.
        # (Few dimensions have few maxima.)
        final = int(np.clip(4_000_000 / max(problem.reduced.size, 1), 128, 1024))
        final = min(final, 40 * max(problem.reduced.shape[1], 1))
        self.efforts = (final // 4, final)
        # With several outputs corrective steps are dear, and moving the neurons does more.
        self.most_cuts = 300 if problem.n_coefficients == 1 else 100
        self.history: list[HistoryEntry] = []
        self.epsilon = first_epsilon(problem)
        self.loss: Loss = SmoothedLoss(problem.loss, self.epsilon) if self.epsilon else problem.loss
        b = fit_intercept(problem, self.loss)
        self.neurons = problem.no_neurons(problem.reduced.shape[1], b)
        self.objective = self._objective(self.neurons)
        self.V = np.zeros_like(problem.Y)
        self.g = 0.0
        self.zero = self.dual = Bound.nothing(problem)
        self.cuts = Candidates.none(problem.reduced.shape[1], problem.n_coefficients)

    # ---- bookkeeping ---------------------------------------------------------------------------

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.dual.value)

    @property
    def resolution(self) -> float:
        """What is worth telling apart, relative to the objective.

        A gap of many percents is mostly that of a poor dual point: it says little about the network.
        """
        return max(min(self.gap, 0.01), self.tol)

    def _objective(self, neurons: Neurons) -> float:
        activations = np.maximum(self.problem.reduced @ neurons.U.T, 0.0)
        F = self.problem.combine(activations, neurons.alpha) + neurons.intercept
        return self.problem.loss_value(F) + self.problem.beta * float(neurons.costs.sum())

    def offer(self, neurons: Neurons) -> float:
        """Keep the network if it is the best so far."""
        value = self._objective(neurons)
        if value < self.objective:
            self.objective, self.neurons = value, neurons
        return value

    def dual_point(self, F: FloatArray, V: FloatArray | None = None) -> FloatArray:
        """A point of the dual domain: V, or minus the gradient at F, moved into it."""
        p = self.problem
        V = -self.loss.gradient(F, p.Y, p.w) if V is None else V
        return p.loss.dual_point(V, p.Y, p.w, centred=p.fit_intercept)

    def correct(self, atoms: Neurons, t: FloatArray) -> Corrected:
        """The corrective step, by its dual if the loss has kinks."""
        tol = 0.01 * min(max(self.gap, self.tol), 0.1)
        return best_magnitudes(self.problem, self.epsilon, atoms, t, tol)

    def note(self) -> None:
        entry = HistoryEntry(time.perf_counter() - self.began, self.objective, self.dual.value, len(self.neurons))
        self.history.append(entry)
        if self.verbose:
            note(
                f"{entry.elapsed:8.2f} s  {entry.n_neurons:5d} neurons  objective {entry.objective:.8g}  "
                f"gap {self.gap:.1e} (before the audit)",
                closed(self.gap, self.tol),
            )

    def bounded(self, V: FloatArray, found: Candidates) -> None:
        """Keep the dual point if its bound is the best so far."""
        dual = lower_bound(self.problem, V, found.best, found.best)
        if dual.value > self.dual.value:
            self.dual, self.V, self.g = dual, V, found.best

    # ---- the steps -------------------------------------------------------------------------------

    def price(self, V: FloatArray, directions: FloatArray, enough: float) -> Candidates:
        """Quick search first; a wider one if it finds no violation above ``enough``."""
        effort = int(np.clip(0.25 / max(self.gap, self.tol, 1e-4), 32, 64))
        found = self.pricer.quick(V, directions, effort, self.deadline)
        if found.best <= self.problem.beta * (1.0 + enough):
            found = found.joined(self.pricer.strong(V, directions, effort // 2, self.deadline))
        checkpoint()  # a search that was cut short says nothing about the bound
        return found

    def correct_and_price(self, neurons: Neurons, rounds: int) -> Neurons:
        """Alternate corrective steps and pricing; returns the neurons in use."""
        p = self.problem
        atoms = Neurons(
            np.vstack([neurons.U, self.cuts.directions]),
            np.vstack([neurons.alpha, self.cuts.outputs]),
            neurons.intercept,
        )
        t = np.concatenate([np.ones(len(neurons)), np.zeros(len(self.cuts))])
        for k in range(rounds):
            step = self.correct(atoms, t)
            t, atoms = step.t, replace(atoms, intercept=step.intercept)
            used = step.neurons(atoms)
            self.offer(used)
            V = self.dual_point(step.F, step.V)
            checkpoint()
            found = self.price(V, used.U, 0.3 * self.resolution)
            self.bounded(V, found)
            self.note()
            violation = found.best / p.beta - 1.0
            if self.gap <= self.tol or violation <= 0.2 * self.gap or k == rounds - 1:
                break
            self.cuts = found.take(found.values > p.beta * (1.0 + 0.02 * violation)).distinct(self.most_cuts, 0.9995)
            kept = np.flatnonzero((t > 0) | (self.constraint_values(V, atoms) > 0.95 * p.beta))
            atoms = replace(
                atoms,
                U=np.vstack([atoms.U[kept], self.cuts.directions]),
                alpha=np.vstack([atoms.alpha[kept], self.cuts.outputs]),
            )
            t = np.concatenate([t[kept], np.zeros(len(self.cuts))])
        used = self.sparse(used, step.value)
        idle = atoms.take(t == 0)
        values = self.constraint_values(V, idle)
        close = values > 0.98 * p.beta
        self.cuts = Candidates(unit_rows(idle.U[close]), idle.alpha[close], values[close]).joined(
            found.take(found.values > p.beta)
        )
        return used

    def constraint_values(self, V: FloatArray, atoms: Neurons) -> FloatArray:
        """The dual constraint at each atom; its limit is beta."""
        H = np.maximum(self.problem.reduced @ atoms.U.T, 0.0)
        return np.asarray(np.einsum("kc,kc->k", H.T @ self.problem.spread(V), atoms.alpha) / atoms.costs)

    def sparse(self, neurons: Neurons, value: float) -> Neurons:
        """Without small neurons, the others adjusted to their absence, while the objective hardly rises.

        The interior point method spreads weight over many nearly equal atoms; few are needed.
        """
        allowed = value + 0.03 * self.resolution * self.objective
        order = np.argsort(-neurons.costs, kind="stable")
        share = np.cumsum(neurons.costs[order]) / max(float(neurons.costs.sum()), np.finfo(float).tiny)
        for dropped in (0.3, 0.1, 0.03, 0.01):
            checkpoint()
            kept = np.sort(order[: int(np.searchsorted(share, 1.0 - dropped)) + 1])
            if len(kept) < len(neurons):
                rest = neurons.take(kept)
                step = self.correct(rest, np.ones(len(rest)))
                if step.value <= allowed:
                    return step.neurons(rest)
        return neurons

    def confirm(self, efforts: tuple[int, ...], warm: bool = False) -> bool:
        """Price the best dual point again, from ever more starts and from other families; True if the gap stands.

        A run that was given a good network to start from (``warm``) makes small rounds, until one finds nothing new.
        """
        for effort in efforts:
            before = self.g  # finding less than the tolerance can tell is finding nothing
            for search in self.searches:
                self.reprice(search, effort)
                checkpoint()
                if self.gap > self.tol:
                    return False
            if warm and self.g <= before * (1.0 + 0.02 * self.tol):
                break
        return True

    @property
    def searches(self) -> tuple[Search, ...]:
        """What an audit consists of."""
        return self.pricer.audit, self.pricer.strong

    def reprice(self, search: Search, effort: int) -> None:
        """Search again at the best dual point, and lower its bound by what is found."""
        found = search(self.V, self.neurons.U, effort, self.deadline, self.g)
        if found.best > self.g:
            self.g = found.best
            dual = lower_bound(self.problem, self.V, self.g, self.g)
            self.dual = dual if dual.value > self.zero.value else self.zero
            self.cuts = self.cuts.joined(found.take(found.values > self.problem.beta).distinct(200, 0.9995))

    def audit_until(self, deadline: float) -> bool:
        """Audit a run that was stopped, whatever its gap; True if there was time for all of it."""
        self.deadline = deadline
        for search in self.searches:
            self.reprice(search, self.efforts[0])
        return time.perf_counter() < deadline

    def trivial(self) -> bool:
        """Whether the network without neurons is optimal."""
        V = self.dual_point(np.zeros_like(self.problem.Y) + self.neurons.intercept)
        found = self.pricer.quick(V, self.neurons.U, 32, self.deadline)
        if found.best <= self.problem.beta * (1.0 + self.tol):
            found = found.joined(self.pricer.strong(V, self.neurons.U, 32, self.deadline))
        checkpoint()
        self.bounded(V, found)
        return self.gap <= self.tol

    def run(self, max_iter: int, audit: bool, start: Neurons | None) -> tuple[int, bool]:
        """Returns the number of iterations and whether the gap is reached."""
        warm = start is not None and len(start) > 0
        if not warm and self.trivial() and (not audit or self.confirm((64,))):
            return 0, True
        p = self.problem
        neurons = self.begin(start)
        self.offer(neurons)
        self.note()
        efforts = (self.efforts[0],) * 5 if warm else self.efforts
        if warm and self.gap <= self.tol and (not audit or self.confirm(efforts, warm)):
            return 0, True
        delta = 0.02
        for k in range(1, max_iter + 1):
            before = self.objective
            neurons = self.move(neurons, delta)
            self.watch(neurons)
            neurons = merged(p, neurons, 0.02 * self.resolution * self.objective)
            neurons = self.correct_and_price(neurons, 6 if p.n_coefficients == 1 else 2)
            if self.gap <= self.tol and (not audit or self.confirm(efforts, warm)):
                return k, True
            delta = max(delta * (0.7 if self.objective < before * (1.0 - 0.02 * self.resolution) else 0.4), 1e-4)
            self.sharpen()
        return max_iter, False

    def sharpen(self) -> None:
        """Follow a loss with kinks by smooth ones, ever closer."""
        if self.epsilon:
            self.epsilon = sharper(self.epsilon, self.gap, self.objective, self.tol)
            self.loss = SmoothedLoss(self.problem.loss, self.epsilon)

    def move(self, neurons: Neurons, delta: float) -> Neurons:
        """Let the neurons move to where the objective is lower."""
        p = self.problem
        if not len(neurons):
            return neurons
        m, r = neurons.U.shape
        if p.n_coefficients > 1:
            pairs = PairGradient(p, self.loss, neurons)
            if p.pools:
                pairs.bfgs(300, 0.01 * self.resolution, self.deadline)
            pairs.nesterov(300, 0.01 * self.resolution, self.deadline)  # kinks end a quasi-Newton method early
            return pairs.result()
        if m * r * r > _NEWTON_ENTRIES:
            flow = ProximalGradient(p, self.loss, neurons.U, neurons.alpha[:, 0], float(neurons.intercept[0]))
            flow.run(200, 0.01 * self.resolution, self.deadline)
            return flow.neurons()
        newton = SmoothedNewton(p, self.loss)
        return newton.run(neurons, delta, 6, 0.05 * self.resolution * self.objective, deadline=self.deadline)[0]

    def narrow(self, width: int) -> None:
        """Replace the best network by one of at most ``width`` neurons."""
        rank = np.argsort(-self.neurons.costs, kind="stable")[:width]
        neurons = self.neurons.take(np.sort(rank))
        self.objective = np.inf
        for k in range(5):
            neurons = self.correct(neurons, np.ones(len(neurons))).neurons(neurons)
            self.offer(neurons)
            if k and current().late():
                return
            neurons = self.move(neurons, 0.01)
        self.offer(self.correct(neurons, np.ones(len(neurons))).neurons(neurons))

    def begin(self, start: Neurons | None) -> Neurons:
        """A first network: the given one, or the fast start."""
        p, b = self.problem, self.neurons.intercept
        if start is not None and len(start):
            U = start.U @ p.basis
            size = np.linalg.norm(start.alpha, axis=1)
            alive = (size > 0) & (U != 0).any(axis=1)
            given = Neurons(U[alive] * size[alive, None], start.alpha[alive] / size[alive, None], start.intercept)
            return self.correct_and_price(given, 2)
        scale = output_scale(p)
        if p.n_coefficients > 1 or p.pools:
            return pair_start(p, self.loss, b, self.rng, scale=scale, deadline=self.deadline)
        start = fast_start(p, self.loss, b, self.rng, tol=1e-3, deadline=self.deadline, watch=self.watch)
        return merged(p, start, 0.02 * self.resolution * self.objective)

    def watch(self, neurons: Neurons) -> None:
        """Keep and note a network on the way."""
        self.offer(neurons)
        self.note()


def run(problem: Problem, options: Options) -> Solution:
    """Train until the audited relative gap is at most ``options.tol``.

    Any loss: one with kinks is followed through its Moreau envelopes; objective and bound are of the loss itself. The
    result is a function of ``random_state`` (unless time runs out), whatever the number of threads.
    """
    began = time.perf_counter()
    deadline = min(current().deadline, np.inf if options.time_limit is None else began + options.time_limit)
    reserve = _RESERVE * (deadline - began) if options.audit and deadline < np.inf else 0.0
    n_iter, audited, status = 0, False, "stopped at max_iter"
    # Our own threads do the searching; BLAS threads on small matrices mostly wait for each other.
    with threadpool_limits(1, user_api="blas"), watching(deadline - reserve - began) as watch:
        rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
        engine = _Engine(problem, options.tol, watch.deadline, rng, options.verbose)
        if options.directions is not None:
            engine.pricer.pool = unit_rows(options.directions @ problem.basis)
        try:
            n_iter, converged = engine.run(options.max_iter, options.audit, options.start)  # type: ignore[arg-type]
            status = "converged" if converged else status
            audited = options.audit and converged
        except Stopped:
            status = watch.status
    with threadpool_limits(1, user_api="blas"):
        if options.audit and not audited:
            with last_look(_LAST_LOOK) if status == INTERRUPTED else watching() as watch:
                audited = engine.audit_until(min(deadline, watch.deadline))
    if options.max_neurons is not None and len(engine.neurons) > options.max_neurons:
        engine.narrow(options.max_neurons)
        status = f"limited to max_neurons={options.max_neurons}"
    neurons = replace(engine.neurons, U=engine.neurons.U @ problem.basis.T)
    with threadpool_limits(1, user_api="blas"):
        neurons = reduce_neurons(problem, neurons, 0.01 * options.tol)
    engine.history.append(
        HistoryEntry(time.perf_counter() - began, problem.objective(neurons), engine.dual.value, len(neurons))
    )
    return Solution(
        neurons=neurons,
        bound=engine.dual,
        scope="global",
        method="local search, audited" if audited else "local search",
        status=status,
        n_iter=max(1, n_iter),
        history=engine.history,
        directions=engine.pricer.pool @ problem.basis.T,
    )
