"""From the columns of a table to what an estimator trains on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util.data import normalise_weights
from bidual._util.typing import Array, FloatArray
from bidual.bounds import Certificate
from bidual.cli.commands import Argument, architecture_argument, argument, loss_argument, prove_argument, say
from bidual.cli.tables import Table, read_table
from bidual.models import Label, Model, Target, Training
from bidual.networks import Network
from bidual.solvers import METHODS
from bidual.training.activations import ACTIVATIONS

#: Arguments that say what to learn from what.
DATA: tuple[Argument, ...] = (
    argument(
        "data",
        type=Path,
        help="CSV file with a header, or NPZ file with arrays X (also images), y and perhaps feature_names",
    ),
    argument("--target", metavar="COLUMN", help="column to predict (NPZ: y unless said otherwise)"),
    argument("--task", choices=("auto", "regression", "classification"), default="auto", help="default %(default)s"),
    argument("--drop", default="", metavar="A,B", help="columns that are not features"),
    argument("--weights", metavar="COLUMN", help="column of sample weights"),
    argument("--scale", choices=("standard", "none"), default="standard", help="of the columns (default %(default)s)"),
    argument("--scale-target", action="store_true", help="standardise the target of a regression too"),
)
#: Arguments that say how to train.
TRAINING: tuple[Argument, ...] = (
    argument("--loss", type=loss_argument, help="squared, huber:delta=2, quantile:tau=0.9, logistic, hinge, ..."),
    argument(
        "--architecture",
        type=architecture_argument,
        help="two_layer, batch_norm:rank=5, convolutional:kernel_size=3x5,stride=2, ...",
    ),
    argument("--method", choices=METHODS, help="how to train"),
    argument("--no-bias", action="store_false", dest="bias", help="no hidden biases"),
    argument("--no-intercept", action="store_false", dest="fit_intercept", help="no output bias"),
    argument("--tol", type=float, help="relative likely gap to reach"),
    argument("--prove", type=prove_argument, metavar="SECONDS", help="for a proof after training, or auto, or no"),
    argument("--max-iter", type=int, metavar="N", help="iterations of the solver"),
    argument("--time-limit", type=float, metavar="SECONDS", help="return the best network after this time"),
    argument("--seed", type=int, dest="random_state", help="seed of all random choices"),
)
#: Arguments of single networks, not of paths.
GATES: tuple[Argument, ...] = (
    argument("--activation", choices=tuple(ACTIVATIONS), help="relu, or gated: fixed gates, faster"),
    argument("--patterns", type=int, dest="n_patterns", metavar="N", help="activation patterns or gates to draw"),
)


@dataclass(frozen=True)
class Data:
    """A table made ready: raw columns, targets, how they are scaled, and the shape of a sample that is a tensor."""

    table: Table
    features: tuple[str, ...]
    X: FloatArray
    y: Any
    weights: FloatArray | None
    target: Target
    scaling: tuple[FloatArray, FloatArray] | None
    shape: tuple[int, ...] | None

    @classmethod
    def read(cls, args: argparse.Namespace) -> Data:
        """As the arguments :data:`DATA` say."""
        table = read_table(args.data)
        name = args.target or ("y" if table.typed else None)
        if name is None:
            raise argparse.ArgumentError(None, f"--target is required; {table.path} has {', '.join(table.names)}")
        apart = [name, *filter(None, [args.weights, *map(str.strip, args.drop.split(","))])]
        table.require(apart)
        features = tuple(column for column in table.names if column not in apart)
        if not features:
            raise ValueError(f"{table.path} has no columns to learn from besides {', '.join(map(repr, apart))}")
        X = table.matrix(features)
        weights = table.numbers(args.weights) if args.weights else None
        w = normalise_weights(weights, len(table))
        task = _choose_task(table, name) if args.task == "auto" else args.task
        if task == "classification" and args.scale_target:
            raise ValueError("--scale-target is for regression, but this is a classification")
        target, y = _classes(table, name) if task == "classification" else _values(table, name, w, args.scale_target)
        scaling = standardisation(X, w) if args.scale == "standard" else None
        return cls(table, features, X, y, weights, target, scaling, _sample_shape(args, table, features))

    @property
    def task(self) -> str:
        """``"regression"`` or ``"classification"``."""
        return "regression" if self.target.classes is None else "classification"

    @property
    def inputs(self) -> FloatArray:
        """The columns as the network sees them."""
        X = self.X if self.scaling is None else (self.X - self.scaling[0]) / self.scaling[1]
        return X if self.shape is None else X.reshape(len(X), *self.shape)

    @property
    def coded(self) -> Array:
        """What the estimator trains on: class codes, or values in the network's units."""
        if self.target.classes is None:
            return np.asarray((self.y - self.target.centre) / self.target.scale)
        code = {label: k for k, label in enumerate(self.target.classes)}
        return np.array([code[label] for label in self.y])

    def model(self, network: Network, certificate: Certificate, training: Training) -> Model:
        """A trained network with what it takes to use it on raw tables."""
        centre, scale = self.scaling or (None, None)
        labelled = certificate.labelled(None if self.target.classes is None else np.array(self.target.classes))
        return Model(network, self.features, self.target, training, labelled, centre, scale, self.shape)


def options(args: argparse.Namespace, *arguments: Argument, **more: Any) -> dict[str, Any]:
    """The values of ``arguments`` that were given, as keywords of an estimator."""
    names = [options.get("dest", flags[-1].lstrip("-").replace("-", "_")) for flags, options in arguments]
    given = {name: getattr(args, name) for name in names}
    return {name: value for name, value in {**given, **more}.items() if value is not None}


def _sample_shape(args: argparse.Namespace, table: Table, features: tuple[str, ...]) -> tuple[int, ...] | None:
    """What the architecture is given for a sample: its columns (None), or a tensor of this shape."""
    if args.architecture is None or not args.architecture.tensors:
        return None
    if table.shape is None:  # the columns are a sequence
        return (len(features),)
    if len(features) < prod(table.shape):
        raise ValueError(f"{table.path}: single entries of samples of shape {table.shape} cannot be dropped")
    return table.shape


def _choose_task(table: Table, name: str) -> str:
    """The task a target column asks for, said on stderr."""
    distinct = len(set(table.columns[name]))
    text = table.first_not_number(name)
    if text is not None:
        task, why = "classification", f"the target is not numeric: {text}"
    elif distinct == 2:
        task, why = "classification", f"the target {name!r} has two distinct values"
    else:
        task, why = "regression", f"the target {name!r} is numeric with {distinct} distinct values"
    say(f"task: {task} ({why}; --task overrides this)")
    return task


def _classes(table: Table, name: str) -> tuple[Target, list[Label]]:
    labels = table.labels(name)
    classes = tuple(sorted(set(labels)))
    if len(classes) < 2:
        raise ValueError(f"{table.path}: the target {name!r} holds one class only, {classes[0]!r}")
    return Target(name, classes=classes), labels


def _values(table: Table, name: str, w: FloatArray, scaled: bool) -> tuple[Target, FloatArray]:
    y = table.numbers(name)
    used = y[w > 0]
    if np.ptp(used) == 0:
        raise ValueError(f"{table.path}: the target {name!r} is constant, {used[0]:g} in every row")
    centre, scale = standardisation(y[:, None], w) if scaled else (np.zeros(1), np.ones(1))
    return Target(name, float(centre[0]), float(scale[0])), y


def standardisation(X: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation of the columns; constant columns are centred exactly and keep their scale.

    ``w`` sums to one; rows of weight zero have no influence.
    """
    X, w = X[w > 0], w[w > 0]
    constant = np.ptp(X, axis=0) == 0
    centre = np.where(constant, X[0], w @ X)
    with np.errstate(over="ignore"):
        scale = np.sqrt(w @ (X - centre) ** 2)
    if not np.isfinite(scale).all():
        raise ValueError("the numbers are too large to standardise: rescale them")
    return centre, np.where(constant | (scale == 0), 1.0, scale)
