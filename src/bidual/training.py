"""From arrays to a certified network: the one road that estimators, paths and cross-validation take."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bidual._typing import Array, FloatArray
from bidual.activations import ACTIVATIONS
from bidual.architectures import Architecture, Lift, get_architecture
from bidual.certificates import Certificate
from bidual.certificates.evidence import Evidence
from bidual.certificates.oracle import Proof
from bidual.losses import Loss
from bidual.networks import Network, normalise_weights
from bidual.problem import Problem
from bidual.progress import task
from bidual.solvers import HistoryEntry, Method, Options, Solution
from bidual.units import Units


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
        """Say so, with the numbers, when the gap is larger than asked for."""
        certificate = self.certificate
        if certificate.gap <= tol:
            return
        advice = "raise max_iter or time_limit, standardise the columns of X, or use a larger beta"
        warnings.warn(
            f"the relative gap {certificate.gap:.2e} is above tol={tol:g} ({self.status}): objective "
            f"{certificate.objective:.6g}, lower bound {certificate.lower_bound:.6g}; {advice}",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


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
    """

    X: FloatArray
    lift: Lift
    problem: Problem
    beta: float
    architecture: Architecture
    bias: bool

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
    ) -> TrainingSet:
        """Pose the training problem on rows ``X (n, d)`` and encoded targets ``Y (n, C)``.

        Images and sequences have more axes. ``Y``, and then ``sample_weight``, may have several rows for each sample.
        """
        X, Y, counts = distinct_rows(X, Y, sample_weight)
        architecture = get_architecture(architecture)
        w = counts / counts.sum()
        settled = architecture.settled(X, Y, w, loss=loss, beta=float(beta), fit_intercept=bool(fit_intercept))
        lift = settled.lift(X, bias=bias, counts=counts)
        problem = lift.problem_type(
            M=lift.M,
            A=lift.A,
            Y=Y,
            w=w,
            loss=loss if beta > 0 else loss.limit(),
            beta=float(beta) if beta > 0 else 1.0,
            fit_intercept=bool(fit_intercept),
        )
        if not np.isfinite(problem.row_norms**2).all():
            raise ValueError("X has entries too large to square in floating point: rescale its columns")
        return cls(X, lift, problem, float(beta), architecture, bool(bias))

    def at(self, beta: float) -> TrainingSet:
        """The same data with another positive ``beta``."""
        problem = self.problem
        where: dict[str, Any] = {"loss": problem.loss, "beta": float(beta), "fit_intercept": problem.fit_intercept}
        if self.architecture.settled(self.X, problem.Y, problem.w, **where) != self.architecture:
            return TrainingSet.pose(
                self.X, problem.Y, problem.w, architecture=self.architecture, bias=self.bias, **where
            )
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
        began = time.perf_counter()
        act = ACTIVATIONS[activation]
        units = Units.of(self.problem)
        if isinstance(start, Trained):
            options, start = replace(options, directions=start.directions), start.network
        if start is not None:
            options = replace(options, start=units.normalise_neurons(act.neurons(self.lift, start)))
        solve = act.solver(method) if isinstance(method, str) else method
        with task("training", options.verbose):
            solution = units.restore(solve(units.normalise(self.problem), options))
        network = act.recover(self.lift, solution.neurons)
        certificate = self._certify(network, solution, time.perf_counter() - began)
        last = replace(solution.history[-1], objective=certificate.objective, lower_bound=certificate.lower_bound)
        history = [*solution.history[:-1], last]
        return Trained(network, certificate, history, solution.n_iter, solution.status, solution.directions)

    def _certify(self, network: Network, solution: Solution, elapsed: float) -> Certificate:
        """The certificate of the network as returned, its objective evaluated from scratch."""
        problem, bound = self.problem, solution.bound
        objective = problem.loss_value(network.forward(self.X)) + problem.beta * network.penalty()
        # An exact fit is judged with a tolerance and may undercut the optimum by as much. (A network trained on some
        # patterns may beat all networks on these patterns: merging neurons can lead out of them.)
        allowed = (1e-6 if problem.loss.finite else 1e-3) * abs(objective) + np.finfo(float).tiny
        if solution.rigorous and bound.value > objective + allowed:
            raise RuntimeError(
                f"contradiction: the lower bound {bound.value:.9g} is above the network's objective "
                f"{objective:.9g}. If the loss {problem.loss!r} is your own, check its gradient and conjugate; "
                "else please report this"
            )
        return Certificate(
            objective=objective,
            lower_bound=min(bound.value, objective),
            rigorous=solution.rigorous,
            scope=solution.scope,
            method=solution.method,
            oracle_value=bound.oracle_value,
            oracle_bound=bound.oracle_bound,
            beta=self.beta,
            loss=problem.loss.name,
            n_patterns=solution.n_patterns,
            elapsed=elapsed,
            evidence=self.evidence(*solution.proof) if solution.proof is not None and self.beta > 0 else None,
        )

    def evidence(self, V: FloatArray, proof: Proof, classes: tuple[Any, ...] | None = None) -> Evidence:
        """What it takes to check a bound again: a dual point in natural units, a proof, and how this was posed."""
        return Evidence(
            V=V,
            proof=proof,
            loss=self.problem.loss,
            classes=classes,
            architecture=self.architecture.name,
            options=dict(vars(self.architecture)),
            bias=self.bias,
            fit_intercept=self.problem.fit_intercept,
        )


def distinct_rows(
    X: FloatArray, Y: FloatArray, sample_weight: Array | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Training samples in a canonical order, equal ones taken together, with the sums of their weights.

    Rows of weight zero, or lost in rounding beside the others, are left out: they must not even influence which
    patterns there are. Repeating a row, giving it more weight, and reordering rows thus lead to the same digits.
    """
    n, each = len(X), len(Y) // len(X)  # targets of a sample
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    normalise_weights(weights, n if len(weights) == n else len(Y))  # raises on weights that cannot be
    weights = np.tile(weights.reshape(n, -1), (1, each * n // len(weights)))
    used = weights.max(axis=1) > 1e-30 * weights.max()
    if not (weights[used] > 1e-30 * weights.max()).all():
        raise ValueError("the places of a sample must all have weight, or none of them (a class_weight of zero?)")
    d = int(np.prod(X.shape[1:]))
    table = np.column_stack([X[used].reshape(-1, d), Y.reshape(n, -1)[used]]) + 0.0  # -0.0 equals 0.0
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    summed: FloatArray = np.zeros((len(rows), each))
    np.add.at(summed, inverse.ravel(), weights[used])
    samples = np.ascontiguousarray(rows[:, :d]).reshape(len(rows), *X.shape[1:])
    return samples, np.ascontiguousarray(rows[:, d:]).reshape(-1, Y.shape[1]), summed.ravel()
