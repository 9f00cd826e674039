"""A network together with what it takes to use it on raw tables, and the files of both."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite, prod
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.neural_network import MLPClassifier, MLPRegressor

from bidual._util.checks import as_bias, as_numbers, check_flag, check_number, shown
from bidual._util.data import normalise_weights
from bidual._util.files import read_json, reading, write_json
from bidual._util.typing import Array, FloatArray
from bidual._util.version import __version__
from bidual._util.wrapped import inside
from bidual.bounds import Certificate
from bidual.losses import Loss, encode_classes, loss_from_dict
from bidual.networks import (
    FORMAT_VERSION,
    Network,
    from_arrays,
    from_onnx,
    from_sklearn,
    from_torch,
    from_torch_file,
)
from bidual.tables import Label, Table, TableEncoder

if TYPE_CHECKING:
    from bidual.training.objective import Objective

#: What :func:`as_network` takes, in words.
ACCEPTED = (
    "a bidual network or fitted estimator, a torch module that computes Linear, ReLU, Linear (also with BatchNorm, "
    "LeakyReLU, Conv and a pooling or Flatten, more layers, branches: see bidual.networks.from_torch), a fitted "
    "scikit-learn MLPRegressor or MLPClassifier with one ReLU layer (also at the end of a Pipeline, inside a "
    "TransformedTargetRegressor, or chosen by a GridSearchCV), weights (hidden (m, d), output (m, C)) or (hidden, "
    "hidden_bias, output, intercept), or a .json, .pt, .pth or .onnx file"
)


@dataclass(frozen=True)
class Target:
    """The predicted column: the network predicts ``(y - centre) / scale``, or the codes of ``classes``."""

    name: str
    centre: float = 0.0
    scale: float = 1.0
    classes: tuple[Label, ...] | None = None  # in their original type

    def __post_init__(self) -> None:
        numbers = all(isinstance(value, int | float) for value in (self.centre, self.scale))
        if not (numbers and isfinite(self.centre) and isfinite(self.scale) and self.scale > 0):
            raise ValueError("centre and scale of the target must be finite, and the scale positive")
        if self.classes is not None and len(set(self.classes)) != max(2, len(self.classes)):
            raise ValueError("the classes must be two or more different labels")


@dataclass(frozen=True)
class Training:
    """How the network was trained; ``loss`` is the loss as it acted on the encoded targets."""

    loss: Loss
    beta: float
    bias: bool | str
    fit_intercept: bool
    architecture: str
    method: str
    n_rows: int
    version: str
    activation: str = "relu"

    def __post_init__(self) -> None:
        check_number("beta", self.beta)
        check_number("n_rows", self.n_rows, at_least=1, integer=True)
        as_bias(self.bias)
        check_flag("fit_intercept", self.fit_intercept)
        for name in ("architecture", "method", "version", "activation"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a name, got {shown(getattr(self, name))}")

    @classmethod
    def of(cls, estimator: Any, n_rows: int) -> Training:
        """The record of a fitted estimator."""
        return cls.that(estimator._objective, n_rows, method=estimator.method, activation=estimator.activation)

    @classmethod
    def that(cls, minimised: Objective, n_rows: int, *, method: str = "adaptive", activation: str = "relu") -> Training:
        """The record of a training that ``minimised`` this."""
        return cls(
            loss=minimised.loss,
            beta=minimised.beta,
            bias=minimised.bias,
            fit_intercept=minimised.fit_intercept,
            architecture=minimised.architecture.name,
            method=method,
            n_rows=n_rows,
            version=__version__,
            activation=activation,
        )


@dataclass(frozen=True, eq=False)
class Model:
    """A trained network that takes raw columns and answers in the units and labels of the training table.

    Attributes
    ----------
    network : Network
    feature_names : tuple of str
        The columns of numbers, in the order of the network's inputs.
    target : Target
    training : Training
    certificate : Certificate
    centre, scale : ndarray of shape (d,) or None
        The network sees ``(X - centre) / scale``; None is the raw column.
    input_shape : tuple of int or None
        Of a convolutional network: the shape of one sample, whose entries in this order are the columns.
    encoder : TableEncoder or None
        Makes these numbers of the columns of a table; None: they are the columns.
    """

    network: Network
    feature_names: tuple[str, ...]
    target: Target
    training: Training
    certificate: Certificate
    centre: FloatArray | None = None
    scale: FloatArray | None = None
    input_shape: tuple[int, ...] | None = None
    encoder: TableEncoder | None = None

    def __post_init__(self) -> None:
        d, classes = self.network.n_inputs, self.target.classes
        if self.input_shape is not None:
            d = prod(self.input_shape)
            if self.network.output_shape((1, *self.input_shape)) != (1,):
                raise ValueError("a model predicts one target for each sample: pooling=None has one for every patch")
            self.network.check_inputs(np.zeros((1, *self.input_shape)))  # raises if the samples do not fit
        if not d == len(self.feature_names) == len(set(self.feature_names)):
            raise ValueError(f"the network has {d} inputs: it needs as many different feature names")
        for name, values, above in (("centre", self.centre, -np.inf), ("scale", self.scale, 0.0)):
            if values is not None and (values.shape != (d,) or not ((values > above) & (values < np.inf)).all()):
                raise ValueError(f"{name} must hold {d} finite numbers > {above:g}")
        outputs = 1 if classes is None or len(classes) == 2 else len(classes)
        if self.network.n_outputs != outputs:
            raise ValueError(f"the target asks for {outputs} outputs, the network has {self.network.n_outputs}")
        if self.encoder is not None and tuple(self.encoder.get_feature_names_out()) != self.feature_names:
            raise ValueError("the encoder makes other columns than the network takes")

    @classmethod
    def of(cls, estimator: Any, n_rows: int, target: str = "y") -> Model:
        """The model of a fitted ReLURegressor or ReLUClassifier, which takes the columns as they are, or TableModel."""
        if isinstance(getattr(estimator, "model_", None), Model):
            return estimator.model_
        if not hasattr(estimator, "certificate_"):
            raise ValueError(f"this {type(estimator).__name__} is not fitted yet: call fit first")
        if not hasattr(estimator, "activation"):
            raise ValueError(f"a model needs a ReLURegressor or ReLUClassifier, got a {type(estimator).__name__}")
        shape = getattr(estimator, "sample_shape_", None)
        d = estimator.n_features_in_ if shape is None else prod(shape)
        names = getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(d)])
        classes = getattr(estimator, "classes_", None)
        return cls(
            estimator.network_,
            tuple(map(str, names)),
            Target(target, classes=None if classes is None else tuple(classes.tolist())),
            Training.of(estimator, n_rows),
            estimator.certificate_,
            input_shape=shape,
        )

    @property
    def task(self) -> str:
        """``"regression"`` or ``"classification"``."""
        return "regression" if self.target.classes is None else "classification"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a table must have."""
        return self.feature_names if self.encoder is None else tuple(c.name for c in self.encoder.columns_)

    @property
    def on_numbers(self) -> Model:
        """The same model on encoded columns, :attr:`feature_names`."""
        return self if self.encoder is None else replace(self, encoder=None)

    def encode(self, X: Any) -> FloatArray:
        """The columns of a table as numbers ``(n, d)``, not scaled: by name, or by position for an array."""
        if self.encoder is not None:
            return self.encoder.transform(X)
        if isinstance(X, Table):
            return X.matrix(self.feature_names)
        if hasattr(X, "columns"):
            if missing := [name for name in self.feature_names if name not in X.columns]:
                raise ValueError(f"X lacks the columns {', '.join(map(repr, missing))}")
            X = X[list(self.feature_names)]
        X, d = as_numbers("X", X), len(self.feature_names)
        if self.input_shape is not None and X.shape[1:] == self.input_shape:
            X = X.reshape(len(X), d)
        if X.ndim != 2 or X.shape[1] != d:
            raise ValueError(f"X must have shape (n, {d}), got {X.shape}")
        return X

    def transform(self, X: Any) -> FloatArray:
        """A table as inputs of the network: an array in the order of the columns, or a DataFrame by name.

        Of a convolutional network also samples in their shape.
        """
        X = self.encode(X)
        X = (X - (0.0 if self.centre is None else self.centre)) / (1.0 if self.scale is None else self.scale)
        if not np.isfinite(X).all():
            raise ValueError("X contains NaN or infinity")
        return X if self.input_shape is None else X.reshape(len(X), *self.input_shape)

    def encode_target(self, y: Array | Sequence[Any]) -> FloatArray:
        """Raw targets as the ``(n, C)`` array the loss works on."""
        if self.target.classes is None:
            return (as_numbers("y", y).reshape(-1, 1) - self.target.centre) / self.target.scale
        code = {label: k for k, label in enumerate(self.target.classes)}
        labels = np.asarray(y, dtype=object).tolist()
        if unknown := [label for label in labels if label not in code]:
            raise ValueError(f"{self.target.name!r} holds {unknown[0]!r}, which is none of the classes {list(code)}")
        return encode_classes(self.training.loss, np.array([code[label] for label in labels]), len(code))

    def scores(self, X: Any) -> FloatArray:
        """Outputs of the network: ``(n,)``, or ``(n, K)`` for more than two classes."""
        F = self.network.predict(self.transform(X))
        if not np.isfinite(F).all():
            raise ValueError("the outputs overflow: these rows are far too large for this model")
        return F

    def predict(self, X: Any) -> Array:
        """Values in the units of the target, or labels."""
        F, target = self.scores(X), self.target
        if target.classes is None:
            return F * target.scale + target.centre
        return np.array(target.classes)[(F > 0).astype(np.int64) if F.ndim == 1 else F.argmax(axis=1)]

    def probabilities(self, X: Any) -> FloatArray:
        """Class probabilities ``(n, K)``; ValueError if the loss does not model them."""
        P = self.training.loss.probabilities(self.scores(X).reshape(-1, self.network.n_outputs))
        if P is None:
            raise ValueError(f"a {self.task} model of the loss {self.training.loss.name!r} has no probabilities")
        return P

    def score(self, X: Any, y: Array | Sequence[Any], sample_weight: Array | None = None) -> float:
        """R² of a regression (NaN for a constant y), accuracy of a classification."""
        prediction, w = self.predict(X), normalise_weights(sample_weight, len(y))
        if self.target.classes is not None:
            return float(np.average(prediction.astype(object) == np.asarray(y, dtype=object), weights=sample_weight))
        y = np.asarray(y, dtype=np.float64)
        spread = float(w @ (y - w @ y) ** 2) if np.ptp(y[w > 0]) > 0 else 0.0
        return 1.0 - float(w @ (y - prediction) ** 2) / spread if spread > 0 else float("nan")

    def objective(self, X: Any, y: Array | Sequence[Any], sample_weight: Array | None = None) -> float:
        """The training objective on raw data, in network space; on the training data that of the certificate."""
        w, loss, beta = normalise_weights(sample_weight, len(y)), self.training.loss, self.training.beta
        if beta == 0:  # the penalty of an exact fit
            loss, beta = loss.limit(), 1.0
        used = w > 0  # such a loss may be infinite where the weight is zero
        X, Y = self.transform(X)[used], self.encode_target(y)[used]
        return self.network.objective(X, Y, beta=beta, loss=loss, sample_weight=w[used])

    def summary(self) -> str:
        """A few lines for people."""
        training, classes = self.training, self.target.classes
        scaling, names = "raw" if self.scale is None else "standardised", shorten(", ".join(self.feature_names), 80)
        what = self.task if classes is None else f"{self.task}, classes {', '.join(map(str, classes))}"
        encoder = self.encoder
        table = [] if encoder is None or encoder.plain else [f"  columns                      {encoder.summary}"]
        units = []
        if (self.target.centre, self.target.scale) != (0.0, 1.0):
            units = [f"  target                       standardised: ({self.target.name} - {self.target.centre:g}) / "]
            units[0] += f"{self.target.scale:g}; so is the objective"
        return "\n".join(
            [
                f"Model of {self.target.name!r} ({what})",
                *table,
                f"  features                     {len(self.feature_names)}, {scaling}: {names}",
                *units,
                f"  network                      {self.network!r}",
                f"  trained on                   {training.n_rows} rows, {training.loss!r}, beta={training.beta:g}",
                f"  by                           bidual {training.version}, {training.activation}, {training.method}",
                str(self.certificate),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists, numbers and strings."""
        return {
            "task": self.task,
            "network": self.network.to_dict(),
            "feature_names": list(self.feature_names),
            "centre": None if self.centre is None else self.centre.tolist(),
            "scale": None if self.scale is None else self.scale.tolist(),
            "input_shape": None if self.input_shape is None else list(self.input_shape),
            "encoder": None if self.encoder is None else self.encoder.to_dict(),
            "target": asdict(self.target),
            "training": {**vars(self.training), "loss": self.training.loss.to_dict()},
            "certificate": self.certificate.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Model:
        """Inverse of :meth:`to_dict`."""
        target, training = data["target"], data["training"]
        centre, scale, classes = data["centre"], data["scale"], target["classes"]
        shape, encoder = data.get("input_shape"), data.get("encoder")  # older files have none
        return cls(
            network=Network.from_dict(data["network"]),
            feature_names=tuple(data["feature_names"]),
            target=Target(**{**target, "classes": None if classes is None else tuple(classes)}),
            training=Training(**{**training, "loss": loss_from_dict(training["loss"])}),
            certificate=Certificate.from_dict(data["certificate"]),
            centre=None if centre is None else np.array(centre, dtype=np.float64),
            scale=None if scale is None else np.array(scale, dtype=np.float64),
            input_shape=None if shape is None else tuple(int(k) for k in shape),
            encoder=None if encoder is None else TableEncoder.from_dict(encoder),
        )

    def to_onnx(self, path: str | os.PathLike[str], dtype: str = "float64") -> Path:
        """Write the model to an ONNX file that takes raw columns, in the order of ``feature_names``.

        That of a convolutional network takes samples in their shape, ``(n, *input_shape)``.

        Outputs are ``prediction (n,)`` (values or labels), ``scores (n, C)`` and, where the loss has them,
        ``probabilities (n, K)``.
        """
        from bidual.models_onnx import write_model

        return write_model(path, self, dtype)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to a JSON file, atomically; :func:`load` reads it back bit for bit."""
        return write_json(path, {"format": "bidual.model", "version": FORMAT_VERSION, **self.to_dict()})


_READERS: dict[str, Callable[[dict[str, Any]], Network | Model]] = {
    "bidual.network": lambda data: Network.from_dict(data["network"]),
    "bidual.model": Model.from_dict,
}


def load(path: str | os.PathLike[str]) -> Network | Model:
    """Read a file written by :meth:`Network.save` or :meth:`Model.save`; anything else raises ValueError."""
    data = read_json(path)
    if data.get("format") not in tuple(_READERS):
        raise ValueError(f"{path} is not a bidual model file: its format is {data.get('format')!r}")
    if data.get("version") not in range(1, FORMAT_VERSION + 1):
        known = f"this bidual reads versions up to {FORMAT_VERSION}; a newer one may read it"
        raise ValueError(f"{path} is of format version {data.get('version')!r}: {known}")
    with reading(path):
        return _READERS[data["format"]](data)


def as_network(model: Any, X: Any = None) -> Network:
    """The network in whatever holds one (see :data:`ACCEPTED`); ``X`` are its training rows, if there are any."""
    if isinstance(model, str | os.PathLike):
        if os.fspath(model).endswith((".pt", ".pth")):
            return from_torch_file(model, X)
        if os.fspath(model).endswith(".onnx"):
            return from_onnx(model)
        return as_network(load(model), X)
    if isinstance(model, Network):
        return model
    torch = sys.modules.get("torch")  # a torch module cannot be there without it
    if torch is not None and isinstance(model, torch.nn.Module):
        return from_torch(model, X)
    if isinstance(model, MLPRegressor | MLPClassifier):
        return from_sklearn(model)
    if isinstance(model, Mapping | tuple | list):
        return from_arrays(model)
    for name in ("network_", "network"):  # estimators, and models of files
        if isinstance(getattr(model, name, None), Network):
            return getattr(model, name)
    if (inner := inside(model)) is not None:
        return as_network(inner, X)
    raise TypeError(f"cannot find a network in a {type(model).__name__}; accepted are {ACCEPTED}")
