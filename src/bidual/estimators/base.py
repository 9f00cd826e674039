"""What the regressor and the classifier share: from arrays to a certified network."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bidual._typing import Array, FloatArray
from bidual.architectures import Architecture, Lift, get_architecture
from bidual.arrangements import Patterns
from bidual.certificates import Certificate
from bidual.estimators.activations import ACTIVATIONS
from bidual.losses import Loss
from bidual.networks import Network, normalise_weights
from bidual.problem import Problem
from bidual.solvers import METHODS, HistoryEntry, Options, Solution, gates_of
from bidual.units import Units


class BaseReLU(BaseEstimator):
    """Parameters, validation and training of all estimators of this family."""

    loss_: Loss
    network_: Network
    certificate_: Certificate
    history_: list[HistoryEntry]
    n_iter_: int

    def __init__(
        self,
        beta: float,
        loss: str | Loss,
        architecture: str | Architecture,
        activation: str,
        method: str,
        n_patterns: int | None,
        gates: Array | Network | BaseReLU | None,
        bias: bool,
        fit_intercept: bool,
        tol: float,
        max_iter: int,
        time_limit: float | None,
        warm_start: bool,
        random_state: int | np.random.RandomState | None,
        verbose: int,
    ) -> None:
        self.beta = beta
        self.loss = loss
        self.architecture = architecture
        self.activation = activation
        self.method = method
        self.n_patterns = n_patterns
        self.gates = gates
        self.bias = bias
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # ---- results -------------------------------------------------------------------------------

    @property
    def objective_(self) -> float:
        """Regularised training objective of :attr:`network_`, evaluated on the network itself."""
        return self._certificate().objective

    @property
    def lower_bound_(self) -> float:
        """Lower bound on the optimum (see ``certificate_.scope`` for which)."""
        return self._certificate().lower_bound

    @property
    def gap_(self) -> float:
        """``(objective_ - lower_bound_) / objective_``."""
        return self._certificate().gap

    @property
    def n_neurons_(self) -> int:
        """Number of hidden neurons."""
        self._certificate()
        return self.network_.n_neurons

    def _certificate(self) -> Certificate:
        # Properties must look absent, not broken, before fit (hasattr is how scikit-learn asks).
        if not hasattr(self, "certificate_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.certificate_

    # ---- training ------------------------------------------------------------------------------

    def _train(self, X: FloatArray, Y: FloatArray, loss: Loss, sample_weight: Array | None) -> None:
        """Train on encoded targets ``Y (n, C)`` and set the fitted attributes."""
        began = time.perf_counter()
        self._check_parameters()
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X, Y, w = distinct_rows(X, Y, sample_weight)
        activation = ACTIVATIONS[self.activation]
        lift = get_architecture(self.architecture).lift(X, bias=self.bias)
        problem = Problem(
            M=lift.M,
            A=lift.A,
            Y=Y,
            w=w,
            loss=loss if self.beta > 0 else loss.limit(),
            beta=float(self.beta) if self.beta > 0 else 1.0,
            fit_intercept=self.fit_intercept,
        )
        if not np.isfinite(problem.row_norms**2).all():
            raise ValueError("X has entries too large to square in floating point: rescale its columns")
        units = Units.of(problem)
        start = None
        if self.warm_start and hasattr(self, "network_"):
            start = units.normalise_neurons(activation.neurons(lift, self.network_))
        options = Options(
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            n_patterns=self.n_patterns,
            random_state=self.random_state,
            start=start,
            gates=self._gates(lift),
            verbose=int(self.verbose),
        )
        solution = units.restore(activation.solver(self.method)(units.normalise(problem), options))
        self.loss_ = loss
        self.network_ = activation.recover(lift, solution.neurons)
        self.n_iter_ = solution.n_iter
        self.certificate_ = self._certify(problem, solution, X, began)
        self.history_ = [*solution.history[:-1], self._last_entry(solution)]
        self._warn(solution)
        if self.verbose:
            print(self.certificate_, flush=True)

    def _gates(self, lift: Lift) -> Patterns | None:
        """The gates the user gave, on the data as they are: scaling could move a row across a gate it touches."""
        if self.gates is None:
            return None
        source = self.gates
        if isinstance(source, BaseReLU):
            check_is_fitted(source, "network_")
            source = source.network_
        return gates_of(lift.M, lift.gates(source))

    def _certify(self, problem: Problem, solution: Solution, X: FloatArray, began: float) -> Certificate:
        """The certificate of the network as returned, its objective evaluated from scratch."""
        outputs = self.network_.forward(X)
        objective = problem.loss_value(outputs) + problem.beta * self.network_.penalty()
        # An exact fit is judged with a tolerance and may undercut the optimum by as much. (A network trained on some
        # patterns may beat all networks on these patterns: merging neurons can lead out of them.)
        allowed = (1e-6 if problem.loss.finite else 1e-3) * abs(objective) + np.finfo(float).tiny
        if solution.rigorous and solution.bound.value > objective + allowed:
            raise RuntimeError(
                f"contradiction: the lower bound {solution.bound.value:.9g} is above the network's objective "
                f"{objective:.9g}. If the loss {problem.loss!r} is your own, check its gradient and conjugate; "
                "else please report this"
            )
        return Certificate(
            objective=objective,
            lower_bound=min(solution.bound.value, objective),
            rigorous=solution.rigorous,
            scope=solution.scope,
            method=solution.method,
            oracle_value=solution.bound.oracle_value,
            oracle_bound=solution.bound.oracle_bound,
            beta=float(self.beta),
            loss=problem.loss.name,
            n_patterns=solution.n_patterns,
            elapsed=time.perf_counter() - began,
        )

    def _last_entry(self, solution: Solution) -> HistoryEntry:
        return replace(
            solution.history[-1], objective=self.certificate_.objective, lower_bound=self.certificate_.lower_bound
        )

    def _warn(self, solution: Solution) -> None:
        """Say so when the gap is larger than asked for."""
        gap = self.certificate_.gap
        if gap <= self.tol:
            return
        if self.network_.n_outputs > 1 and solution.scope == "global":
            advice = "with several outputs this method trains one neuron per output and bounds the rest loosely"
        else:
            advice = "raise max_iter or time_limit, or standardise the columns of X, or use a larger beta"
        warnings.warn(
            f"the relative gap {gap:.2e} is above tol={self.tol:g} ({solution.status}): objective "
            f"{self.certificate_.objective:.6g}, lower bound {self.certificate_.lower_bound:.6g}; {advice}",
            ConvergenceWarning,
            stacklevel=4,
        )

    def _check_parameters(self) -> None:
        """One sentence for each parameter that cannot be."""
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}: use one of {', '.join(map(repr, METHODS))}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {self.activation!r}: use one of {', '.join(map(repr, ACTIVATIONS))}")
        if self.gates is not None and not ACTIVATIONS[self.activation].gated:
            raise ValueError(f"gates are for activation='gated'; activation={self.activation!r} has none")
        for name in ("bias", "fit_intercept", "warm_start"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        _check_number("beta", self.beta, at_least=0.0)
        _check_number("tol", self.tol, at_least=0.0)
        _check_number("max_iter", self.max_iter, at_least=1, integer=True)
        if self.n_patterns is not None:
            _check_number("n_patterns", self.n_patterns, at_least=1, integer=True)
        if self.time_limit is not None:
            _check_number("time_limit", self.time_limit, at_least=0.0)

    # ---- prediction ----------------------------------------------------------------------------

    def _outputs(self, X: Array) -> FloatArray:
        """Network outputs ``(n, C)`` for new rows."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.network_.forward(X)


def distinct_rows(
    X: FloatArray, Y: FloatArray, sample_weight: Array | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Training rows in a canonical order, equal ones taken together, with weights that sum to one.

    Rows of weight zero, or lost in rounding beside the others, are left out: they must not even influence which
    patterns there are. Repeating a row, giving it more weight, and reordering rows thus lead to the same digits.
    """
    weights = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    normalise_weights(weights, len(X))  # raises on weights that cannot be
    used = weights > 1e-30 * weights.max()
    table = np.column_stack([X[used], Y[used]]) + 0.0  # -0.0 equals 0.0
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    summed = np.bincount(inverse.ravel(), weights=weights[used])
    d = X.shape[1]
    return np.ascontiguousarray(rows[:, :d]), np.ascontiguousarray(rows[:, d:]), summed / summed.sum()


def _check_number(name: str, value: Any, *, at_least: float, integer: bool = False) -> None:
    kind = Integral if integer else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not at_least <= float(value) < np.inf:
        noun = "an integer" if integer else "a number"
        raise ValueError(f"{name} must be {noun} >= {at_least:g}, got {value!r}")
