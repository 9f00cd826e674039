"""What the regressor and the classifier share: from arrays to a certified network."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._checks import check_flag, check_number, check_seed, check_time_limit, check_verbose
from bidual._data import check_weights, validate_data
from bidual._typing import Array, FloatArray
from bidual._watch import watching
from bidual.activations import ACTIVATIONS
from bidual.architectures import Architecture, Lift, get_architecture
from bidual.arrangements import Patterns
from bidual.estimators import large
from bidual.estimators.certified import Certified
from bidual.losses import Loss
from bidual.networks import Network
from bidual.progress import note
from bidual.solvers import METHODS, HistoryEntry, Options, gates_of
from bidual.solvers.large.trained_gates import TRAINED
from bidual.solvers.proving import checked_prove
from bidual.targets import check_data
from bidual.training import Trained, TrainingSet

#: Rows, encoded targets, loss and sample weights, as a training problem takes them.
Encoded: TypeAlias = tuple[FloatArray, FloatArray, Loss, Array | None]


class BaseReLU(Certified):
    """Parameters, validation and training of all estimators of this family."""

    loss_: Loss
    history_: list[HistoryEntry]
    n_iter_: int
    status_: str

    def __init__(
        self,
        beta: float,
        loss: str | Loss,
        architecture: str | Architecture,
        activation: str,
        method: str,
        n_patterns: int | None,
        gates: Array | Network | BaseReLU | str | None,
        bias: bool,
        fit_intercept: bool,
        tol: float,
        max_iter: int,
        time_limit: float | None,
        max_neurons: int | None,
        audit: bool | str,
        prove: float | bool | str,
        warm_start: bool,
        random_state: int | np.random.RandomState | None,
        verbose: int,
        backend: str = "auto",
        device: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
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
        self.max_neurons = max_neurons
        self.audit = audit
        self.prove = prove
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.backend = backend
        self.device = device
        self.checkpoint = checkpoint

    # ---- training ------------------------------------------------------------------------------

    @abstractmethod
    def _encode(self, X: Array, y: Array, sample_weight: Array | None) -> Encoded:
        """Validate the arguments of fit, and note what prediction needs to know of them."""

    def _fit(self, X: Array, y: Array, sample_weight: Array | None) -> None:
        """Train on the arguments of fit, by the solver for data of their size."""
        check_time_limit(self.time_limit)
        with watching(self.time_limit):
            if large.applies(self, X, y):
                large.fit(self, X, y, sample_weight)
            else:
                self._train(self._pose(X, y, sample_weight))

    @property
    def _architecture(self) -> Architecture:
        return get_architecture(self.architecture)

    def _check_data(self, X: Array, y: Array, **options: Any) -> tuple[FloatArray, Array]:
        if large.applies(self, X, y):
            return large.check_data(self, X, y, **options)
        return check_data(self._architecture, X, y, partial(validate_data, self), dtype=np.float64, **options)

    def _pose(self, X: Array, y: Array, sample_weight: Array | None) -> TrainingSet:
        """The training problem of the arguments of fit."""
        if large.is_dask(X):
            raise ValueError("X is a dask array, which only the plain estimators train on: use X.compute()")
        rows, Y, loss, sample_weight = self._checked(X, y, sample_weight)
        return TrainingSet.pose(
            rows,
            Y,
            sample_weight,
            loss=loss,
            beta=self.beta,
            architecture=self.architecture,
            bias=self.bias,
            fit_intercept=self.fit_intercept,
            activation=self.activation,
            method=self.method,
        )

    def _checked(self, X: Array, y: Array, sample_weight: Array | None) -> Encoded:
        """The encoded arguments of fit, and parameters that make sense."""
        rows, Y, loss, sample_weight = self._encode(X, y, sample_weight)
        self._check_parameters()
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, rows, ensure_non_negative=True)
        self.loss_ = loss
        if self._architecture.tensors:
            self.sample_shape_ = tuple(rows.shape[1:])
        return rows, Y, loss, sample_weight

    def _train(self, data: TrainingSet) -> None:
        """Train and set the fitted attributes."""
        start = self.network_ if self.warm_start and hasattr(self, "network_") else None
        if self.verbose and data.X.shape[1:] == (1,):
            note("one input: SplineRegressor and SplineClassifier solve this with free biases, in moments")
        options = replace(self._options(), gates=self._gates(data.lift))
        self._finish(data.train(self.method, options, start, activation=self.activation))

    def _finish(self, trained: Trained) -> None:
        """Set the fitted attributes, and say how it went."""
        self._adopt(trained)
        trained.warn_unless(self.tol, stacklevel=5)
        if self.verbose:
            print(self.certificate_, flush=True)

    def _adopt(self, trained: Trained) -> None:
        """Set the fitted attributes."""
        self.network_ = trained.network
        self.certificate_ = trained.certificate.labelled(getattr(self, "classes_", None))
        self.history_ = trained.history
        self.n_iter_ = trained.n_iter
        self.status_ = trained.status

    def _options(self) -> Options:
        """How to solve."""
        return Options(
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            n_patterns=self.n_patterns,
            random_state=self.random_state,
            max_neurons=self.max_neurons,
            audit=self.tol <= 1e-3 if self.audit == "auto" else bool(self.audit),
            prove=self.prove,
            verbose=int(self.verbose),
        )

    def _gates(self, lift: Lift) -> Patterns | None:
        """The gates the user gave, on the data as they are: scaling could move a row across a gate it touches."""
        vectors = self._gate_matrix(lift)
        return None if vectors is None else gates_of(lift.M, vectors)

    def _gate_matrix(self, lift: Lift) -> FloatArray | None:
        """Gate vectors ``(P, p)`` from all that ``gates`` may be."""
        if self.gates is None or isinstance(self.gates, str):
            return None
        several = isinstance(self.gates, list | tuple) and any(np.ndim(g) != 1 for g in self.gates)
        sources: Any = self.gates if several else [self.gates]
        return np.vstack([self._gate_vectors(lift, source) for source in sources])

    @staticmethod
    def _gate_vectors(lift: Lift, source: Any) -> FloatArray:
        if isinstance(source, BaseReLU):
            check_is_fitted(source, "network_")
            source = source.network_
        return lift.gates(source)

    def _check_parameters(self) -> None:
        """One sentence for each parameter that cannot be."""
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}: use one of {', '.join(map(repr, METHODS))}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {self.activation!r}: use one of {', '.join(map(repr, ACTIVATIONS))}")
        if self.gates is not None and not (ACTIVATIONS[self.activation].gated or self.method == "sampled"):
            raise ValueError(
                f"gates are for activation='gated'; activation={self.activation!r} has none (method='sampled' takes "
                "their patterns)"
            )
        if isinstance(self.gates, str) and (self.gates != TRAINED or self.activation != "gated"):
            raise ValueError(f"gates={self.gates!r}: the only name is {TRAINED!r}, with activation='gated'")
        large.check_parameters(self)
        for name in ("bias", "fit_intercept", "warm_start"):
            check_flag(name, getattr(self, name))
        check_number("beta", self.beta, at_least=0.0)
        check_number("tol", self.tol, at_least=0.0)
        check_number("max_iter", self.max_iter, at_least=1, integer=True)
        if self.n_patterns is not None:
            check_number("n_patterns", self.n_patterns, at_least=1, integer=True)
        check_time_limit(self.time_limit)
        check_seed(self.random_state)
        check_verbose(self.verbose)
        if self.max_neurons is not None:
            check_number("max_neurons", self.max_neurons, at_least=1, integer=True)
            if self.method != "adaptive" or ACTIVATIONS[self.activation].gated:
                raise ValueError("max_neurons is for method='adaptive' and activation='relu': use these, or None")
        checked_prove(self.prove)
        if self.audit != "auto" and not isinstance(self.audit, bool | np.bool_):
            raise ValueError(f"audit must be True, False or 'auto', got {self.audit!r}")

    # ---- prediction ----------------------------------------------------------------------------

    def _outputs(self, X: Array) -> FloatArray:
        """Network outputs ``(n, C)`` for new rows; with outputs at several places of a sample ``(n, *places, C)``."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, reset=False, dtype=np.float64, allow_nd=self._architecture.tensors)
        F = self.network_.forward(self.network_.check_inputs(X))
        return F.reshape(*self.network_.output_shape(X.shape), F.shape[1])

    def _stacked(self, X: Array, y: Array, sample_weight: Array | None) -> tuple[Array, Array, Array | None] | None:
        """Targets, predictions and weights with a row for each place with outputs; None if samples have one."""
        rows = self._architecture.stack(np.asarray(X).shape, y) if self._architecture.tensors else None
        if rows is None:
            return None
        if sample_weight is not None:
            sample_weight = np.repeat(np.asarray(sample_weight), len(rows) // len(sample_weight))
        predictions: Array = self.predict(X)
        return rows, predictions.reshape(rows.shape), sample_weight
