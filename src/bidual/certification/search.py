"""The search for the best lower bound on a network that somebody made."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bidual._typing import FloatArray
from bidual._watch import Stopped, checkpoint
from bidual.certificates import Bound, Certificate, joined_scope, relative_gap
from bidual.certification.case import Case
from bidual.networks import Network
from bidual.problem import Neurons
from bidual.progress import closed, note
from bidual.solvers import Options, Solution, solve_adaptive
from bidual.solvers.adaptive.pricing import Pricer
from bidual.solvers.constant import nothing
from bidual.solvers.proving import NORMS, Prover

#: Share of the time limit for a better dual point.
_DUAL_SHARE = 0.4


@dataclass
class Search:
    """The best lower bound so far, in natural units, and where it comes from."""

    case: Case
    tol: float
    deadline: float
    method: str
    random_state: int | np.random.RandomState | None
    verbose: int
    began: float = field(default_factory=time.perf_counter)
    better: Solution | None = None
    best: Bound | None = None
    how: str = NORMS

    @cached_property
    def objective(self) -> float:
        """Of the network, in natural units."""
        return self.case.objective(self.case.network) / self.case.scale

    def say(self, what: str, value: float) -> None:
        """A line of progress."""
        if self.verbose:
            gap = relative_gap(self.objective, value)
            note(f"{time.perf_counter() - self.began:8.2f} s  {what}: gap {gap:.2e}", closed(gap, self.tol))

    def improve(self) -> None:
        """A better dual point, and a better network, by column generation from the given one."""
        limit = max(0.0, self.deadline - time.perf_counter())
        share = 1.0 if self.method == "local" else _DUAL_SHARE
        options = Options(
            tol=0.3 * self.tol,
            max_iter=1000,
            time_limit=None if limit == np.inf else share * limit,
            random_state=self.random_state,
            start=self.case.neurons,
        )
        try:
            self.better = solve_adaptive(self.case.problem, options)
        except Stopped as stopped:
            self.better = nothing(self.case.problem, str(stopped))
        self.say(f"{self.better.method}{'' if self.better.bound.proven else ', likely'}", self.better.bound.value)

    def prove(self) -> None:
        """The best provable bound; see :class:`bidual.solvers.proving.Prover`."""
        p, found = self.case.problem, self.better
        assert found is not None
        assert isinstance(found.neurons, Neurons)
        own = -p.loss.gradient(p.outputs(self.case.neurons), p.Y, p.w)
        prover = Prover(
            p,
            found.bound.V if found.bound.V.any() else own,
            min(self.objective, p.objective(found.neurons)),
            self.tol,
            self.deadline,
            self.method,
            np.vstack([self.case.neurons.U, found.neurons.U]),
            (own,),
            self.say,
        )
        if found.bound.proven:
            prover.offer(found.bound, found.method)
        prover.run()
        self.best, self.how = prover.best.settle(p), prover.how

    def witness(self) -> FloatArray | None:
        """The neuron that helps the given network most, in the coordinates of M; None if there is no time for it."""
        p = self.case.problem
        V = -p.loss.gradient(p.outputs(self.case.neurons), p.Y, p.w)
        try:
            checkpoint()
            found = Pricer(p, np.random.default_rng(0)).quick(V, self.case.neurons.U @ p.basis, 32)
        except Stopped:
            return None
        return p.basis @ found.directions[0] if len(found) else None

    def certificate(self, network: Network) -> Certificate:
        """What is known about ``network``, which is the given one or a better one."""
        case = self.case
        assert self.better is not None
        assert self.best is not None
        data, F = case.data, network.evaluate(case.data.X)
        bound, likely = (
            data.accounted(case.units.restore_bound(b)).fitting(data.problem.loss, F, data.problem.Y)
            for b in (self.best, self.better.bound)
        )
        given = network is case.network
        witness = self.witness() if given and case.problem.plain else None
        return Certificate(
            objective=case.objective(network),
            lower_bound=bound.value,
            scope=joined_scope(self.better.scope, case.data.lift.restriction),
            method=self.how,
            attained=bound.attained,
            limit=bound.limit,
            beta=case.data.beta,
            loss=case.data.problem.loss.name,
            elapsed=time.perf_counter() - self.began,
            witness=None if witness is None else tuple(map(float, witness)),
            likely_bound=likely.value,
            likely_method=self.better.method,
            rescaled_objective=case.rescaled_objective() if given else None,
            evidence=case.data.evidence(self.best, case.classes),
        )
