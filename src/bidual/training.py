"""From arrays to a certified network: the one road that estimators, paths and cross-validation take."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bidual._typing import Array, FloatArray
from bidual._watch import INTERRUPTED, Stopped, Watch, watching
from bidual.activations import ACTIVATIONS
from bidual.architectures import Architecture, Lift, get_architecture
from bidual.certificates import Bound, Certificate, joined_scope
from bidual.certificates.evidence import Evidence
from bidual.combinations import Combination
from bidual.losses import Loss
from bidual.networks import Network, normalise_weights
from bidual.problem import Neurons, Problem
from bidual.progress import task
from bidual.ranges import check_columns, check_range
from bidual.solvers import HistoryEntry, Method, Options, Solution
from bidual.solvers.proving import proven, seconds_for
from bidual.units import Units

#: Rows of less than this share of the largest weight count in the objective, but not in training.
FAINT = 1e-30
#: Share of the time limit for training, where a proof is to follow, and where the network only has to be looked at.
_TRAINING, _ALONE = 0.7, 0.9


@dataclass(frozen=True)
class Trained:
    """A network, its certificate, and how it came about."""

    network: Network
    certificate: Certificate
    history: list[HistoryEntry]
    n_iter: int
    status: str
    directions: FloatArray | None = None  # see Solution

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


@dataclass(frozen=True)
class Faint:
    """Rows whose weight is lost in rounding beside the others (:data:`FAINT`): no solver sees them.

    Leaving them out can only lower the optimum, so that lower bounds hold with and without them.

    Attributes
    ----------
    X, Y : ndarray, shape (k, ...), (k, C)
    w : ndarray, shape (k,)
        Weights, where those of all rows sum to one.
    """

    X: FloatArray
    Y: FloatArray
    w: FloatArray

    @classmethod
    def of(cls, X: FloatArray, Y: FloatArray, sample_weight: Array | None, beta: float) -> Faint:
        """Those of the data."""
        weights = _weights(sample_weight, len(X), len(Y))
        largest = weights.max(axis=1)
        rows = (largest > 0) & (largest <= FAINT * weights.max())
        if beta == 0 and rows.any():
            raise ValueError(
                f"beta=0 asks for an exact fit of every row, and some weigh less than {FAINT:g} of the others: give "
                "them weight zero to leave them out"
            )
        targets = Y.reshape(*weights.shape, Y.shape[1])[rows]
        return cls(X[rows], targets.reshape(-1, Y.shape[1]), (weights[rows] / weights.sum()).ravel())

    def loss(self, network: Network, loss: Loss) -> float:
        """What they add to the loss of a network."""
        return loss.value(network.evaluate(self.X), self.Y, self.w) if len(self.X) else 0.0


@dataclass(frozen=True)
class TrainingSet:
    """Data lifted by an architecture, with the problem posed on them.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        The distinct samples, in a canonical order (images and sequences: with more axes).
    lift : Lift
    problem : Problem
    beta : float
        As the user gave it: 0 for minimum-norm interpolation, where the problem has the limit loss and beta one.
    architecture : Architecture
    bias : bool
    faint : Faint
        Rows that count in the objective only.
    """

    X: FloatArray
    lift: Lift
    problem: Problem
    beta: float
    architecture: Architecture
    bias: bool
    faint: Faint

    @classmethod
    def pose(
        cls,
        X: FloatArray,
        Y: FloatArray,
        sample_weight: Array | None = None,
        *,
        loss: Loss,
        beta: float,
        architecture: str | Architecture = "two_layer",
        bias: bool = True,
        fit_intercept: bool = True,
        activation: str = "relu",
        method: str | None = None,
    ) -> TrainingSet:
        """Pose the training problem on rows ``X (n, d)`` and encoded targets ``Y (n, C)``.

        Images and sequences have more axes. ``Y``, and then ``sample_weight``, may have several rows for each sample.
        ``activation`` and ``method``, if one is to be used, are checked to go with the rest.
        """
        architecture = get_architecture(architecture)
        wanted = Combination(architecture, loss, beta, Y.shape[1], fit_intercept, activation, method)
        wanted.check()
        check_range(X=X, y=Y)
        faint = Faint.of(X, Y, sample_weight, beta)
        X, Y, counts = distinct_rows(X, Y, sample_weight)
        w = counts / counts.sum()
        settled = architecture.settled(X, Y, w, loss=loss, beta=float(beta), fit_intercept=bool(fit_intercept))
        lift = settled.lift(X, bias=bias, counts=counts)
        problem = lift.problem_type(
            M=lift.M,
            A=lift.A,
            Y=Y,
            w=w,
            loss=wanted.acting_loss,
            beta=float(beta) if beta > 0 else 1.0,
            fit_intercept=bool(fit_intercept),
        )
        return cls(X, lift, problem, float(beta), architecture, bool(bias), faint)

    @property
    def restriction(self) -> str:
        """What the networks are restricted to beyond their architecture, as a scope names it."""
        return self.lift.restriction

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""
        (self.lift.gated_neurons if gated else self.lift.neurons)(network)

    def at(self, beta: float) -> TrainingSet:
        """The same data with another positive ``beta``."""
        problem = self.problem
        where: dict[str, Any] = {"loss": problem.loss, "beta": float(beta), "fit_intercept": problem.fit_intercept}
        if self.architecture.settled(self.X, problem.Y, problem.w, **where) != self.architecture:
            posed = TrainingSet.pose(
                self.X, problem.Y, problem.w, architecture=self.architecture, bias=self.bias, **where
            )
            return replace(posed, faint=self.faint)
        return replace(self, problem=replace(self.problem, beta=float(beta)), beta=float(beta))

    def train(
        self,
        method: str | Method,
        options: Options,
        start: Network | Trained | None = None,
        *,
        activation: str = "relu",
    ) -> Trained:
        """Train by ``method`` (or the one named so), from ``start`` if given, and certify the result."""
        with watching(options.time_limit) as watch:
            trained = self._trained(method, options, start, activation, watch)
        return replace(trained, status=INTERRUPTED) if watch.interrupted else trained

    def _trained(
        self, method: str | Method, options: Options, start: Network | Trained | None, activation: str, watch: Watch
    ) -> Trained:
        began = time.perf_counter()
        problem, named = self.problem, method if isinstance(method, str) else None
        Combination(
            self.architecture, problem.loss, self.beta, problem.n_outputs, problem.fit_intercept, activation, named
        ).check()
        act = ACTIVATIONS[activation]
        units = Units.of(self.problem)
        if isinstance(start, Trained):
            options, start = replace(options, directions=start.directions), start.network
        if start is not None:
            options = replace(options, start=units.normalise_neurons(act.neurons(self.lift, start)))
        solve = act.solver(method) if isinstance(method, str) else method
        natural = units.normalise(self.problem)
        if self.beta > 0 and not self.lift.scale_free and self.X.ndim == 2:
            check_columns(self.X, units.inputs, natural.beta)
        with task("training", options.verbose):
            try:
                watch.check()  # posing the problem may have taken all the time
                solution = solve(natural, replace(options, time_limit=_training_share(options, watch)))
            except Stopped as stopped:  # before there was anything
                solution = act.nothing(natural, str(stopped))
            deadline = time.perf_counter() + seconds_for(options.prove, time.perf_counter() - began, watch.left)
            bound, how = solution.bound, solution.method
            unknown = not bound.V.any() or deadline > time.perf_counter()  # a bound by norms costs nothing
            if not bound.proven or (solution.scope == "global" and unknown):
                bound, how = proven(natural, solution, options.tol, deadline)
            bound = bound.settle(natural)
        solution = units.restore(solution)
        network = act.recover(self.lift, solution.neurons)
        certificate = replace(
            self._certificate(network, solution, units.restore_bound(bound), how),
            elapsed=time.perf_counter() - began,
            evidence=self.evidence(bound),
        )
        last = replace(solution.history[-1], objective=certificate.objective, likely_bound=certificate.likely_bound)
        history = [*solution.history[:-1], last]
        return Trained(network, certificate, history, solution.n_iter, solution.status, solution.directions)

    def _certificate(self, network: Network, solution: Solution, bound: Bound, how: str) -> Certificate:
        """The certificate of the network as returned, its objective evaluated from scratch."""
        problem = self.problem
        bound, likely = (self._within(self.accounted(b), solution, network) for b in (bound, solution.bound))
        return Certificate(
            objective=self.objective(network),
            lower_bound=bound.value,
            scope=joined_scope(solution.scope, self.lift.restriction),
            method=how,
            attained=bound.attained,
            limit=bound.limit,
            beta=self.beta,
            loss=problem.loss.name,
            n_patterns=solution.n_patterns,
            likely_bound=likely.value,
            likely_method=solution.method,
        )

    def objective(self, network: Network) -> float:
        """The objective of a network on all rows of the user, evaluated from scratch."""
        problem = self.problem
        value = problem.loss_value(network.evaluate(self.X)) + problem.beta * network.penalty()
        return value + self.faint.loss(network, problem.loss)

    def accounted(self, bound: Bound) -> Bound:
        """A bound on the problem as posed as one on that of exact features."""
        sizes = np.linalg.norm(self.problem.spread(bound.V), axis=1)
        return bound.loosened(self.problem.beta, float((sizes * self.lift.rounding).sum()))

    def _within(self, bound: Bound, solution: Solution, network: Network) -> Bound:
        r"""The bound with the network itself among those that it speaks of, where solvers end beside them.

        Neurons lie in the cones of patterns up to the accuracy of the conic solver: the constraint is held to what
        they attain. An exact fit is one up to residuals.
        """
        problem, neurons = self.problem, solution.neurons
        if solution.scope.startswith("patterns") and isinstance(neurons, Neurons) and len(neurons):
            pulls = np.einsum("ncm,nc->m", problem.contributions_of(neurons), bound.V) / neurons.costs
            bound = bound.loosened(problem.beta, max(0.0, float(pulls.max()) - bound.limit))
        return bound.fitting(problem.loss, network.evaluate(self.X), problem.Y)

    def evidence(self, bound: Bound, classes: tuple[Any, ...] | None = None) -> Evidence | None:
        """What it takes to check a bound in natural units again: its dual point, its proof, and how this was posed."""
        if bound.proof is None or not bound.proof.stored:
            return None
        return Evidence(
            V=bound.V,
            scale=bound.scale,
            proof=bound.proof,
            loss=self.problem.loss,
            classes=classes,
            architecture=self.architecture.name,
            options=dict(vars(self.architecture)),
            bias=self.bias,
            fit_intercept=self.problem.fit_intercept,
        )


def _training_share(options: Options, watch: Watch) -> float | None:
    """Seconds for training: some of the time limit is left for a proof, if there is to be one."""
    if watch.deadline == np.inf:
        return None
    return (_ALONE if options.prove is False else _TRAINING) * watch.left


def distinct_rows(
    X: FloatArray, Y: FloatArray, sample_weight: Array | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Training samples in a canonical order, equal ones taken together, with the sums of their weights.

    Rows of weight zero, or lost in rounding beside the others, are left out: they must not even influence which
    patterns there are. Repeating a row, giving it more weight, and reordering rows thus lead to the same digits.
    """
    n = len(X)
    weights = _weights(sample_weight, n, len(Y))
    used = weights.max(axis=1) > FAINT * weights.max()
    if not (weights[used] > FAINT * weights.max()).all():
        raise ValueError("the places of a sample must all have weight, or none of them (a class_weight of zero?)")
    d = int(np.prod(X.shape[1:]))
    table = np.column_stack([X[used].reshape(-1, d), Y.reshape(n, -1)[used]]) + 0.0  # -0.0 equals 0.0
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    summed: FloatArray = np.zeros((len(rows), weights.shape[1]))
    np.add.at(summed, inverse.ravel(), weights[used])
    samples = np.ascontiguousarray(rows[:, :d]).reshape(len(rows), *X.shape[1:])
    return samples, np.ascontiguousarray(rows[:, d:]).reshape(-1, Y.shape[1]), summed.ravel()


def _weights(sample_weight: Array | None, n: int, n_targets: int) -> FloatArray:
    """Weights of the targets of ``n`` samples, ``(n, n_targets / n)``; ValueError for weights that cannot be."""
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    normalise_weights(weights, n if len(weights) == n else n_targets)
    return np.tile(weights.reshape(n, -1), (1, n_targets // len(weights)))
