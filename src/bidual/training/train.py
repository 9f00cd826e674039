"""From a posed problem to a certified network: the one road that estimators, paths and cross-validation take."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bidual._util.clock import clock
from bidual._util.progress import task
from bidual._util.ranges import check_columns
from bidual._util.typing import FloatArray
from bidual._util.watch import INTERRUPTED, Stopped, Watch, checkpoint, current, watching
from bidual.architectures import Lift
from bidual.bounds import Bound, Certificate
from bidual.networks import Network
from bidual.problem import Problem
from bidual.solvers import Constant, HistoryEntry, Options, Solution, Solver, gates_of
from bidual.solvers.constant import nothing
from bidual.solvers.proving import proven, seconds_for
from bidual.training.activations import ACTIVATIONS, gate_vectors
from bidual.training.posed import Posed

if TYPE_CHECKING:
    from bidual.training.objective import Objective

#: Share of the time limit for training, where a proof is to follow, and where the network only has to be looked at.
_TRAINING, _ALONE = 0.7, 0.9


@dataclass(frozen=True)
class Trained:
    """A network, its certificate, and how it came about."""

    network: Network
    certificate: Certificate
    objective: Objective
    history: list[HistoryEntry]
    n_iter: int
    status: str
    directions: FloatArray | None = None  # see Solution; of gated networks all gates

    def warn_unless(self, tol: float, stacklevel: int = 2) -> None:
        """Say so, with the numbers, when the likely gap is larger than asked for."""
        certificate = self.certificate
        if certificate.likely_gap <= tol:
            return
        advice = "raise max_iter or time_limit, standardise the columns of X, or use a larger beta"
        warnings.warn(
            f"the likely gap {certificate.likely_gap:.2e} is above tol={tol:g} ({self.status}): objective "
            f"{certificate.objective:.6g}, likely bound {certificate.likely_bound:.6g}, proven lower bound "
            f"{certificate.lower_bound:.6g}; {advice}",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


#: How much more, relatively, a network may cost on the data than its weights say: its statistics are sums that round.
_SAME_COST = 1e-6
#: What training may start from.
Start: TypeAlias = Network | Trained | None


class Trainable(ABC):
    """Data with a training problem posed on them, wherever the rows are."""

    objective: Objective
    lift: Lift

    @abstractmethod
    def at(self, beta: float) -> Trainable:
        """The same data with another positive ``beta``."""

    @abstractmethod
    def beta_max(self, options: Options) -> float:
        """The smallest beta at which the network without neurons is optimal."""

    @abstractmethod
    def value(self, network: Network) -> float:
        """The objective of a network on all rows of the user, evaluated from scratch."""

    def train(
        self,
        method: str | Solver,
        options: Options,
        start: Start = None,
        *,
        activation: str = "relu",
        gates: Any = None,
    ) -> Trained:
        """Train by ``method`` (or the one named so), from ``start`` if given, and certify the result.

        ``gates`` are those of a gated network, or the patterns to use, as :func:`gate_vectors` takes them.
        """
        return watched(options, lambda watch: self._trained(watch, method, options, start, activation, gates))

    @abstractmethod
    def _trained(
        self, watch: Watch, method: str | Solver, options: Options, start: Start, activation: str, gates: Any
    ) -> Trained: ...


def watched(options: Options, train: Callable[[Watch], Trained]) -> Trained:
    """Train within the time limit; Ctrl-C ends it with what there is."""
    with watching(options.time_limit) as watch:
        trained = train(watch)
    return replace(trained, status=INTERRUPTED) if watch.interrupted else trained


def solved(
    problem: Problem,
    method: Callable[[Problem, Options], Solution],
    options: Options,
    instead: Callable[[Problem, str], Solution],
) -> Solution:
    """What ``method`` finds, or what there is ``instead`` when it was stopped before it had anything."""
    try:
        checkpoint()  # what came before may have taken all the time
        if _nothing_to_learn(problem):
            return instead(problem, "the network without neurons fits")
        return method(problem, options)
    except Stopped as stopped:
        return instead(problem, str(stopped))


def _nothing_to_learn(problem: Problem) -> bool:
    """Whether zero outputs are known to be optimal beforehand.

    Conic solvers fit zeros, but not exactly; and a tube that holds all targets may be so much wider than they are that
    the solvers see nothing else.
    """
    if not problem.loss.finite:
        return not problem.Y.any()
    return bool(problem.Y.any()) and problem.loss_value(np.zeros_like(problem.Y)) == 0.0


@dataclass(frozen=True)
class TrainingSet(Posed, Trainable):
    """Data in memory, lifted by an architecture, with the problem posed on them: what ``Objective.pose`` returns.

    Attributes
    ----------
    lift : Lift
    """

    lift: Lift

    @property
    def restriction(self) -> str:
        """What the networks are restricted to beyond their architecture, as a scope names it."""
        return self.lift.restriction

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""
        neurons = (self.lift.gated_neurons if gated else self.lift.neurons)(network)
        cost, said = float(np.sum(neurons.costs)), network.penalty()
        if not cost <= said * (1.0 + _SAME_COST):
            raise ValueError(
                f"it costs {said:.9g}, and networks that compute the same on these data cost {cost:.9g}: its "
                "normalisation is not that of the data"
            )

    def accounted(self, bound: Bound) -> Bound:
        """A bound on the problem as posed as one on that of exact features."""
        sizes = np.linalg.norm(self.problem.atoms.spread(bound.V), axis=1)
        return bound.loosened(self.problem.beta, float((sizes * self.lift.rounding).sum()))

    def at(self, beta: float) -> TrainingSet:
        """The same data with another positive ``beta``."""
        problem, objective = self.problem, replace(self.objective, beta=float(beta))
        settled = objective.architecture.settled(
            self.X,
            problem.Y,
            problem.w,
            loss=objective.loss,
            beta=objective.beta,
            fit_intercept=objective.fit_intercept,
        )
        if settled != objective.architecture:
            return replace(objective.pose(self.X, problem.Y, problem.w), faint=self.faint)
        posed = replace(problem, loss=objective.acting_loss, beta=objective.acting_beta)
        return replace(self, problem=posed, objective=objective)

    def beta_max(self, options: Options) -> float:
        """The largest value of the dual constraint at the network without neurons; a bound by norms if time is over."""
        try:
            constant = Constant()(self.natural, Options(random_state=options.random_state, audit=options.audit))
        except Stopped as stopped:
            if current().interrupted:
                raise KeyboardInterrupt from None
            return self.units.restore_bound(nothing(self.natural, str(stopped)).bound).limit
        return self.units.restore_bound(constant.bound).attained

    def _trained(
        self, watch: Watch, method: str | Solver, options: Options, start: Start, activation: str, gates: Any
    ) -> Trained:
        began = clock()
        self.objective.check(self.problem.n_outputs, activation, method if isinstance(method, str) else None)
        act, units, natural = ACTIVATIONS[activation], self.units, self.natural
        if (vectors := gate_vectors(self.lift, gates)) is not None:
            # on the data as they are: scaling could move a row across a gate it touches
            options = replace(options, gates=gates_of(self.lift.M, vectors))
        if isinstance(start, Trained):
            options, start = replace(options, directions=start.directions), start.network
        if start is not None:
            neurons = act.neurons(self.lift, self.lift.restarted(start))
            options = replace(options, start=units.normalise_neurons(neurons))
        if self.objective.beta > 0 and not self.lift.scale_free and self.X.ndim == 2:
            check_columns(self.X, units.inputs, natural.beta)
        with task("training", options.verbose, units.value):
            by = act.solver(method) if isinstance(method, str) else method
            solution = solved(natural, by, replace(options, time_limit=_training_share(options, watch)), act.nothing)
            seconds = seconds_for(options.prove, clock() - began, watch.left)
            bound, how = solution.proven or (solution.bound, solution.method)
            unknown = not bound.V.any() or seconds > 0  # a bound by norms costs little
            if not bound.proven or (solution.scope == "global" and unknown):
                bound, how = proven(natural, solution, options.tol, seconds)
            bound = bound.settle(natural)
        restored = units.restore(solution)
        network = act.recover(self.lift, restored.neurons)
        certificate = self.certificate(
            network,
            bound,
            method=how,
            likely=solution.bound,
            likely_method=solution.method,
            scope=solution.scope,
            neurons=restored.neurons,
            n_patterns=solution.n_patterns,
            began=began,
        )
        last = replace(restored.history[-1], objective=certificate.objective, likely_bound=certificate.likely_bound)
        history = [*restored.history[:-1], last]
        return Trained(
            network, certificate, self.objective, history, solution.n_iter, solution.status, solution.directions
        )


def _training_share(options: Options, watch: Watch) -> float | None:
    """Seconds for training: some of the time limit is left for a proof, if there is to be one."""
    if watch.deadline == np.inf:
        return None
    return (_ALONE if options.prove is False else _TRAINING) * watch.left
