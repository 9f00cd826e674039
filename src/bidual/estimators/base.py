"""What the regressor and the classifier share: from arrays to a certified network."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags, indexable
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import (
    as_bias,
    check_flag,
    check_number,
    check_prove,
    check_seed,
    check_time_limit,
    check_verbose,
)
from bidual._util.data import check_weights, validate_data
from bidual._util.progress import note, result, task
from bidual._util.sparse import is_sparse
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import current, watching
from bidual.architectures import Architecture, Standardised, get_architecture
from bidual.estimators.certified import Certified
from bidual.losses import Loss
from bidual.networks import Network
from bidual.solvers import METHODS, Options
from bidual.solvers.blocks.trained_gates import TRAINED
from bidual.training.activations import ACTIVATIONS
from bidual.training.objective import Objective
from bidual.training.routing import Backend, pose
from bidual.training.targets import is_dask
from bidual.training.train import Trainable, Trained

#: What is left to the method or to the data.
AUTO = "auto"
#: Largest share of a time limit for the choice of beta.
_CHOOSING = 0.5
#: The time limit "auto": seconds, up to so many entries of X; beyond, they grow with the root of their number.
_SECONDS, _ENTRIES = 10.0, 200_000

#: Rows, encoded targets, loss and sample weights, as a training problem takes them.
Encoded: TypeAlias = tuple[Any, FloatArray, Loss, Array | None]


class BaseReLU(Certified):
    """Parameters, validation and training of all estimators of this family."""

    loss_: Loss
    beta_: float
    tol_: float

    def __init__(
        self,
        beta: float | str = "auto",
        *,
        loss: str | Loss = "squared",
        architecture: str | Architecture = "two_layer",
        scale: bool | str = "auto",
        activation: str = "relu",
        method: str = "adaptive",
        n_patterns: int | None = None,
        gates: Array | Network | BaseReLU | str | None = None,
        bias: bool | str = True,
        fit_intercept: bool = True,
        tol: float | str = "auto",
        max_iter: int = 200,
        time_limit: float | str | None = "auto",
        max_neurons: int | None = None,
        audit: bool | str = "auto",
        prove: float | bool | str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        backend: str = "auto",
        device: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.beta = beta
        self.loss = loss
        self.architecture = architecture
        self.scale = scale
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

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Train on rows ``X`` and ``y``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Images and sequences have more axes. A large sparse matrix is trained on as it is where products with it are
            all that training needs (two layers, "adaptive", beta > 0), else a dense copy is made if there is memory.
        y : array of shape (n,) or (n, C)
            Targets; of a classifier labels of any type.
        sample_weight : array of shape (n,) or None
        """
        self._check_parameters()
        how = self._how(X)
        with watching(how["options"].time_limit):
            data = self._pose(X, y, sample_weight)
            self.beta_ = self._chosen(X, y, sample_weight)
            if self.beta == AUTO:
                data = data.at(self.beta_)
            if self.verbose and getattr(self, "sample_shape_", None) is None and self.n_features_in_ == 1:
                note("one input: SplineRegressor and SplineClassifier solve this with free biases, in moments")
            trained = data.train(**how)
        return self._finish(trained)

    @abstractmethod
    def _encode(self, architecture: Architecture, X: Array, y: Array, sample_weight: Array | None) -> Encoded:
        """Validate the arguments of fit, and note what prediction needs to know of them."""

    def _pose(self, X: Array, y: Array, sample_weight: Array | None) -> Trainable:
        """The training problem of the arguments of fit."""
        architecture = get_architecture(self.architecture)
        if self._standardises and not isinstance(architecture, Standardised):
            architecture = Standardised(architecture, centred=not is_sparse(X))
        rows, Y, loss, sample_weight = self._encode(architecture, X, y, sample_weight)
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, rows, ensure_non_negative=True)
        self.loss_ = loss
        if architecture.tensors:
            self.sample_shape_ = tuple(rows.shape[1:])
        return pose(
            Objective(
                loss,
                1.0 if self.beta == AUTO else float(self.beta),
                architecture,
                as_bias(self.bias),
                bool(self.fit_intercept),
            ),
            rows,
            Y,
            sample_weight,
            activation=self.activation,
            method=self.method,
            backend=Backend(self.backend, self.device, self.checkpoint),
            trained_gates=isinstance(self.gates, str),
        )

    def _weigh(self, X: Array, y: Array, sample_weight: Array | None) -> Array | None:
        """What rows count in the objective."""
        return sample_weight

    def _chosen(self, X: Array, y: Array, sample_weight: Array | None) -> float:
        """The beta to train with."""
        if self.beta != AUTO:
            return float(self.beta)
        from bidual.estimators.choosing import chosen_beta

        if is_dask(X):
            raise ValueError("beta='auto' holds rows out, which are on a cluster here: give beta a number")
        X, y = indexable(X, y)
        weight = self._weigh(X, y, sample_weight)
        weight = None if weight is None else check_weights(weight, X)
        plain = clone(self).set_params(
            beta=1.0, scale=self._standardises, warm_start=False, checkpoint=None, time_limit=None
        )
        if "class_weight" in plain.get_params(deep=False):
            plain.set_params(class_weight=None)  # it is in the weights
        left = current().left
        share = None if left == np.inf else _CHOOSING * left
        with watching(share), task("choice of beta", self.verbose):
            return chosen_beta(plain, X, y, weight)

    @property
    def _standardises(self) -> bool:
        """Whether columns are brought to mean zero and deviation one."""
        if self.scale != AUTO:
            return bool(self.scale)
        return self.beta == AUTO and not ACTIVATIONS[self.activation].gated

    @property
    def _accuracy(self) -> tuple[float, float | None]:
        """``tol`` and ``enough`` of :class:`~bidual.solvers.Options`."""
        if self.tol == AUTO:
            return ACTIVATIONS[self.activation].solver(self.method).accuracy
        return float(self.tol), None

    def _seconds(self, X: Any) -> float | None:
        """The time limit: "auto" has one where ``tol`` is left to the method."""
        if self.time_limit != AUTO:
            return None if self.time_limit is None else float(self.time_limit)
        if self.tol != AUTO:
            return None
        shape = X.shape if hasattr(X, "shape") else np.asarray(X, dtype=object).shape
        entries = X.nnz if is_sparse(X) else np.prod(shape)
        return _SECONDS * float(np.sqrt(max(1.0, entries / _ENTRIES)))

    def _how(self, X: Any = ()) -> dict[str, Any]:
        """How to train on such rows, as :meth:`bidual.training.train.Trainable.train` takes it."""
        tol, enough = self._accuracy
        options = Options(
            tol=tol,
            enough=enough,
            max_iter=self.max_iter,
            time_limit=self._seconds(X),
            n_patterns=self.n_patterns,
            random_state=self.random_state,
            max_neurons=self.max_neurons,
            audit=tol <= 1e-3 if self.audit == AUTO else bool(self.audit),
            prove=self.prove,
            verbose=int(self.verbose),
        )
        start = self.network_ if self.warm_start and hasattr(self, "network_") else None
        gates = _with_networks(self.gates)
        return {
            "method": self.method, "options": options, "start": start, "activation": self.activation, "gates": gates
        }  # fmt: skip

    def _finish(self, trained: Trained) -> Self:
        """Set the fitted attributes, and say how it went."""
        self._adopt(trained)
        tol, enough = self._accuracy
        self.tol_ = tol if enough is None else enough
        trained.warn_unless(self.tol_, stacklevel=3)
        if self.verbose:
            result(str(self.certificate_))
        return self

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
        Backend(self.backend, self.device, self.checkpoint).check(self.activation)
        as_bias(self.bias)
        for name in ("fit_intercept", "warm_start"):
            check_flag(name, getattr(self, name))
        if self.scale != AUTO:
            check_flag("scale", self.scale)
        for name in ("beta", "tol"):
            if getattr(self, name) != AUTO:
                check_number(name, getattr(self, name), at_least=0.0)
        check_number("max_iter", self.max_iter, at_least=1, integer=True)
        if self.n_patterns is not None:
            check_number("n_patterns", self.n_patterns, at_least=1, integer=True)
        if self.time_limit != AUTO:
            check_time_limit(self.time_limit)
        check_seed(self.random_state)
        check_verbose(self.verbose)
        if self.max_neurons is not None:
            check_number("max_neurons", self.max_neurons, at_least=1, integer=True)
        solver = ACTIVATIONS[self.activation].solver(self.method)
        solver.check_options(Options(n_patterns=self.n_patterns, max_neurons=self.max_neurons))
        check_prove(self.prove)
        if self.audit != "auto" and not isinstance(self.audit, bool | np.bool_):
            raise ValueError(f"audit must be True, False or 'auto', got {self.audit!r}")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---- prediction ----------------------------------------------------------------------------

    def _outputs(self, X: Array) -> FloatArray:
        """Network outputs ``(n, C)`` for new rows; with outputs at several places of a sample ``(n, *places, C)``."""
        check_is_fitted(self, "network_")
        tensors = get_architecture(self.architecture).tensors
        X = validate_data(self, X, reset=False, dtype=np.float64, allow_nd=tensors, accept_sparse="csr")
        F = self.network_.forward(self.network_.check_inputs(X))
        return F.reshape(*self.network_.output_shape(X.shape), F.shape[1])

    def _stacked(self, X: Array, y: Array, sample_weight: Array | None) -> tuple[Array, Array, Array | None] | None:
        """Targets, predictions and weights with a row for each place with outputs; None if samples have one."""
        architecture = get_architecture(self.architecture)
        rows = architecture.stack(np.asarray(X).shape, y) if architecture.tensors else None
        if rows is None:
            return None
        if sample_weight is not None:
            sample_weight = np.repeat(np.asarray(sample_weight), len(rows) // len(sample_weight))
        predictions: Array = self.predict(X)
        return rows, predictions.reshape(rows.shape), sample_weight


def _with_networks(gates: Any) -> Any:
    """Gates as training takes them: networks in the place of estimators."""
    if isinstance(gates, list | tuple):
        return [_with_networks(source) for source in gates]
    if isinstance(gates, BaseReLU):
        check_is_fitted(gates, "network_")
        return gates.network_
    return gates
