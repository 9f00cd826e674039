"""The subcommands. Each is one function: its arguments are in the decorator, its help in the docstring."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from bidual._files import read_json
from bidual._typing import Array, FloatArray
from bidual.activations import ACTIVATIONS
from bidual.cli.tables import Table, csv_text, read_table, write_csv
from bidual.estimators import ReLUClassifier, ReLURegressor
from bidual.losses import Loss, get_loss
from bidual.models import Label, Model, Target, Training, load
from bidual.networks import normalise_weights
from bidual.solvers import METHODS


@dataclass(frozen=True)
class Command:
    """A subcommand: what it does, and the arguments of its parser as ``add_argument`` takes them."""

    run: Callable[[argparse.Namespace], None]
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]


#: All subcommands, by name.
COMMANDS: dict[str, Command] = {}


def command(
    *arguments: tuple[tuple[str, ...], dict[str, Any]],
) -> Callable[[Callable[[argparse.Namespace], None]], Callable[[argparse.Namespace], None]]:
    """Register a function as the subcommand of its name; the docstring is its help, with an example."""

    def register(run: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
        COMMANDS[run.__name__] = Command(run, arguments)
        return run

    return register


def argument(*flags: str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One argument of a command."""
    return flags, options


JSON = argument("--json", action="store_true", help="print one JSON object to stdout, and nothing else there")
QUIET = argument("--quiet", action="store_true", help="print no report")
VERBOSE = argument("-v", "--verbose", action="count", default=0, help="progress; twice: Python traceback of an error")


def loss_argument(text: str) -> Loss:
    """``quantile`` or ``quantile:tau=0.9``."""
    name, _, parameters = text.partition(":")
    try:
        pairs = (pair.split("=") for pair in parameters.split(",") if pair)
        return type(get_loss(name))(**{key: float(value) for key, value in pairs})
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


# ---- fit ---------------------------------------------------------------------------------------


@command(
    argument("data", type=Path, help="CSV file with a header, or NPZ file with arrays X, y and perhaps feature_names"),
    argument("--target", metavar="COLUMN", help="column to predict (NPZ: y unless said otherwise)"),
    argument("--out", type=Path, required=True, metavar="FILE", help="where the model goes (JSON)"),
    argument("--beta", type=float, default=1e-3, help="weight decay (default %(default)s)"),
    argument("--task", choices=("auto", "regression", "classification"), default="auto", help="default %(default)s"),
    argument("--loss", type=loss_argument, help="squared, huber:delta=2, quantile:tau=0.9, logistic, hinge, ..."),
    argument("--activation", choices=tuple(ACTIVATIONS), help="relu, or gated: fixed gates, faster"),
    argument("--method", choices=METHODS, help="how to train"),
    argument("--patterns", type=int, dest="n_patterns", metavar="N", help="activation patterns or gates to draw"),
    argument("--max-neurons", type=int, metavar="N", help="largest width of the network"),
    argument("--no-bias", action="store_false", dest="bias", help="no hidden biases"),
    argument("--no-intercept", action="store_false", dest="fit_intercept", help="no output bias"),
    argument("--scale", choices=("standard", "none"), default="standard", help="of the columns (default %(default)s)"),
    argument("--scale-target", action="store_true", help="standardise the target of a regression too"),
    argument("--drop", default="", metavar="A,B", help="columns that are not features"),
    argument("--weights", metavar="COLUMN", help="column of sample weights"),
    argument("--tol", type=float, help="relative gap to reach"),
    argument("--max-iter", type=int, metavar="N", help="iterations of the solver"),
    argument("--time-limit", type=float, metavar="SECONDS", help="return the best network after this time"),
    argument("--seed", type=int, dest="random_state", help="seed of all random choices"),
    JSON,
    QUIET,
    VERBOSE,
)
def fit(args: argparse.Namespace) -> None:
    """Train a network on a table, and prove how close to optimal it is.

    bidual fit data.csv --target price --beta 0.01 --out model.json
    """
    check_destination(args.out, args.data)
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
    inputs = X if scaling is None else (X - scaling[0]) / scaling[1]

    options = {key: getattr(args, key) for key in _ESTIMATOR_OPTIONS if getattr(args, key) is not None}
    estimator = (ReLURegressor if target.classes is None else ReLUClassifier)(**options)
    with contextlib.redirect_stdout(sys.stderr):  # progress must not mix with the report
        estimator.fit(inputs, _coded(target, y), sample_weight=weights)

    certificate = estimator.certificate_
    training = Training.of(estimator, n_rows=len(table))
    model = Model(estimator.network_, features, target, training, certificate, *(scaling or ()))
    score = _score(model, X, y, weights)
    path = model.save(args.out)
    converged = bool(estimator.gap_ <= estimator.tol)
    if args.json:
        print_json(
            status="converged" if converged else "not converged",
            converged=converged,
            task=task,
            certificate=certificate.without_evidence().to_dict(),
            n_neurons=estimator.n_neurons_,
            train_score=score,
            path=str(path),
        )
    elif not args.quiet:
        print(certificate)
        print(f"{estimator.n_neurons_} neurons; on the training rows {_describe(score)}")
        print(f"model written to {path}")


_ESTIMATOR_OPTIONS = (
    "beta",
    "loss",
    "activation",
    "method",
    "n_patterns",
    "max_neurons",
    "bias",
    "fit_intercept",
    "tol",
    "max_iter",
    "time_limit",
    "random_state",
    "verbose",
)


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
    _say(f"task: {task} ({why}; --task overrides this)")
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


def _coded(target: Target, y: Any) -> Array:
    """What the estimator trains on: class codes, or values in the network's units."""
    if target.classes is None:
        return np.asarray((y - target.centre) / target.scale)
    code = {label: k for k, label in enumerate(target.classes)}
    return np.array([code[label] for label in y])


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


# ---- predict -----------------------------------------------------------------------------------


@command(
    argument("model", type=Path, help="file written by bidual fit"),
    argument("data", type=Path, help="CSV or NPZ file; columns are matched by name, others are ignored"),
    argument("--out", type=Path, metavar="FILE", help="where the predictions go (CSV; default stdout)"),
    argument("--proba", action="store_true", help="add a column probability_<class> for every class"),
    JSON,
    QUIET,
    VERBOSE,
)
def predict(args: argparse.Namespace) -> None:
    """Predict the rows of a table, and score them if it has the target.

    bidual predict model.json data.csv --out predictions.csv
    """
    if args.json and args.out is None:
        raise argparse.ArgumentError(None, "--json needs --out: stdout cannot hold the summary and the predictions")
    if args.out is not None:
        check_destination(args.out, args.model, args.data)
    model = load(args.model)
    if not isinstance(model, Model):
        raise ValueError(f"{args.model} holds a bare network without column names: use bidual.load in Python")
    table = read_table(args.data)
    X = table.matrix(model.feature_names)
    columns = {"prediction": model.predict(X).tolist()}
    if args.proba:
        labels = map(str, model.target.classes or ())
        P = model.probabilities(X).T.tolist()
        columns |= {f"probability_{label}": p for label, p in zip(labels, P, strict=True)}
    score = _score_of_table(model, table, X)
    if args.out is None:
        sys.stdout.write(csv_text(columns))
    else:
        write_csv(args.out, columns)
    if args.json:
        print_json(rows=len(table), task=model.task, columns=list(columns), score=score, path=str(args.out))
    if score is not None and not args.quiet:
        _say(f"{len(table)} rows: {_describe(score)}")


def _score_of_table(model: Model, table: Table, X: FloatArray) -> dict[str, Any] | None:
    """The score if the table has the whole target; predictions do not depend on it, so a bad one is only noted."""
    name, classes = model.target.name, model.target.classes
    if name not in table.columns:
        return None
    try:
        y = table.numbers(name) if classes is None else table.labels_like(name, classes)
    except ValueError as error:
        _say(f"no score: {error}")
        return None
    return _score(model, X, y, None)


# ---- info --------------------------------------------------------------------------------------


@command(argument("model", type=Path, help="file written by bidual fit, or by Network.save"), JSON, VERBOSE)
def info(args: argparse.Namespace) -> None:
    """Show what a model file holds.

    bidual info model.json
    """
    model = load(args.model)
    network = model.network if isinstance(model, Model) else model
    if args.json:
        document = read_json(args.model)
        del document["network"]["weights"]
        print_json(**document, n_neurons=network.n_neurons)
    else:
        print(model.summary() if isinstance(model, Model) else model)


# ---- what they share ---------------------------------------------------------------------------


def check_destination(out: Path, *inputs: Path) -> None:
    """Refuse before any work what could not be written after it, or would destroy an input."""
    if not out.parent.is_dir():
        raise FileNotFoundError(f"cannot write {out}: the folder {out.parent} does not exist")
    if out.exists() and not out.is_file():
        raise ValueError(f"cannot write {out}: it is not an ordinary file")
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(f"cannot write {out}: no permission to write in {out.parent}")
    if any(out.resolve() == path.resolve() for path in inputs):
        raise ValueError(f"--out {out} would overwrite an input file")


def _score(model: Model, X: FloatArray, y: Any, weights: FloatArray | None) -> dict[str, Any]:
    value = model.score(X, y, weights)
    return {"name": "R2" if model.target.classes is None else "accuracy", "value": value if isfinite(value) else None}


def _describe(score: dict[str, Any]) -> str:
    value = "undefined (constant target)" if score["value"] is None else f"{score['value']:.6g}"
    return f"{score['name']} {value}"


def print_json(**document: Any) -> None:
    """One JSON object on stdout."""
    print(json.dumps(document, indent=1, allow_nan=False))


def _say(message: str) -> None:
    """A line on stderr: stdout is for results."""
    print(f"bidual: {message}", file=sys.stderr, flush=True)
