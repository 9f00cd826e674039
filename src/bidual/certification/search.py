"""The search for the best lower bound on a network that somebody made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bidual._util.clock import clock
from bidual._util.progress import closed, note
from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped, checkpoint
from bidual.atoms import Neurons
from bidual.bounds import Bound, Certificate, relative_gap
from bidual.certification.case import Case
from bidual.networks import Network
from bidual.solvers import Options, Solution, solve_adaptive
from bidual.solvers.constant import nothing
from bidual.solvers.engine.pricing import Pricer
from bidual.solvers.proving import NORMS, Prover
from bidual.solvers.reduce import merge
from bidual.training.train import TrainingSet, solved

#: Share of the time limit for a better dual point.
_DUAL_SHARE = 0.4
#: Its tolerance, relative to that of the proof, and its rounds.
_DUAL_TOL, _DUAL_ROUNDS = 0.3, 1000


@dataclass
class Search:
    """The best lower bound so far, in natural units, and where it comes from."""

    case: Case
    options: Options
    deadline: float
    method: str
    began: float
    better: Solution | None = None
    best: Bound | None = None
    how: str = NORMS

    @cached_property
    def data(self) -> TrainingSet:
        """The training problem, on rows in memory."""
        assert isinstance(self.case.data, TrainingSet)
        return self.case.data

    @cached_property
    def neurons(self) -> Neurons:
        """Of the given network, in natural units."""
        return self.data.units.normalise_neurons(self.data.lift.neurons(self.case.network))  # type: ignore[return-value]

    @cached_property
    def objective(self) -> float:
        """Of the given network, in natural units."""
        return self.data.value(self.case.network) / self.data.units.value

    @cached_property
    def residual(self) -> FloatArray:
        """The dual point of the given network."""
        p = self.data.natural
        return -p.loss.gradient(p.outputs(self.neurons), p.Y, p.w)

    def say(self, what: str, value: float) -> None:
        """A line of progress."""
        if self.options.verbose:
            gap = relative_gap(self.objective, value)
            note(f"{clock() - self.began:8.2f} s  {what}: gap {gap:.2e}", closed(gap, self.options.tol))

    def improve(self) -> None:
        """A better dual point, and a better network, by column generation from the given one."""
        limit = max(0.0, self.deadline - clock())
        share = 1.0 if self.method == "local" else _DUAL_SHARE
        options = Options(
            tol=_DUAL_TOL * self.options.tol,
            max_iter=_DUAL_ROUNDS,
            time_limit=None if limit == np.inf else share * limit,
            random_state=self.options.random_state,
            start=self.neurons if self.neurons.U.any() and self.neurons.alpha.any() else None,  # none is no start
        )
        self.better = solved(self.data.natural, solve_adaptive, options, nothing)
        self.say(f"{self.better.method}{'' if self.better.bound.proven else ', likely'}", self.better.bound.value)

    @cached_property
    def better_network(self) -> Network:
        """The network that column generation has found."""
        assert self.better is not None
        return self.data.lift.recover(self.data.units.restore(self.better).neurons)  # type: ignore[arg-type]

    @cached_property
    def prover(self) -> Prover:
        """The search for the best provable bound, which begins before there is a better dual point."""
        p = self.data.natural
        return Prover(
            p,
            self.residual,
            self.objective,
            self.options.tol,
            self.deadline,
            self.method,
            self.neurons.U,
            (self.residual,),
            self.say,
        )

    def prove(self) -> None:
        """The best provable bound; see :class:`bidual.solvers.proving.Prover`."""
        p, found, prover = self.data.natural, self.better, self.prover
        assert found is not None
        assert isinstance(found.neurons, Neurons)
        V = found.bound.V if found.bound.V.any() else self.residual
        prover.learn(V, p.objective(found.neurons), found.neurons.U)
        if found.bound.proven:
            prover.offer(found.bound, found.method)
        prover.run()
        self.best, self.how = prover.best.settle(p), prover.how

    def certificate(self, network: Network) -> Certificate:
        """What is known about ``network``, which is the given one or a better one."""
        assert self.better is not None
        assert self.best is not None
        certificate = self.data.certificate(
            network,
            self.best,
            method=self.how,
            likely=self.better.bound,
            likely_method=self.better.method,
            scope=self.better.scope,
            classes=self.case.classes,
            began=self.began,
        )
        if network is not self.case.network:
            return certificate
        return replace(certificate, witness=self._witness(), rescaled_objective=self._rescaled_objective())

    def _witness(self) -> tuple[float, ...] | None:
        """The neuron that helps the given network most, in the coordinates of M; None if there is no time for it."""
        p = self.data.natural
        if "plain oracle" not in p.atoms.can:
            return None
        try:
            checkpoint()
            found = Pricer(p, np.random.default_rng(0)).quick(self.residual, self.neurons.U @ p.atoms.basis, 32)
        except Stopped:
            return None
        return tuple(map(float, p.atoms.basis @ found.directions[0])) if len(found) else None

    def _rescaled_objective(self) -> float:
        """After balancing the layers and merging parallel neurons: nothing but bookkeeping."""
        problem = self.data.problem
        balanced = self.data.lift.neurons(self.case.network).balanced()
        now = problem.objective(balanced)
        return problem.objective(merge(problem, balanced, now * (1 + 1e-9)))
