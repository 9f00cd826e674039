"""The arguments that say what to learn from what and how, and the tables they name."""

from __future__ import annotations

import argparse
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util.scaling import standardisation
from bidual._util.typing import Array
from bidual.cli.commands import Argument, architecture_argument, argument, loss_argument, prove_argument, say
from bidual.estimators.prepared import TASKS, Prepared
from bidual.models import Model
from bidual.solvers import METHODS
from bidual.tables import Table, TableEncoder, read_table
from bidual.training.activations import ACTIVATIONS

#: What a command reads: the kinds of files.
FILES = "CSV file with a header (perhaps .gz; - reads stdin), NPZ, Parquet or Excel"
#: Arguments of every command that reads a table.
READING: tuple[Argument, ...] = (
    argument("--separator", metavar="CHAR", help="between the cells of CSV (default: found out)"),
    argument(
        "--decimal", choices=("point", "comma"), help="decimal mark of the numbers (default: each column of CSV tells)"
    ),
    argument("--encoding", metavar="NAME", help="of CSV (default: UTF-8, or what the file shows)"),
    argument("--sheet", metavar="NAME", help="of an Excel file (default: the first)"),
)
#: Arguments that say what to learn from what.
DATA: tuple[Argument, ...] = (
    argument("data", type=Path, help=f"{FILES}; arrays X (also images), y and perhaps feature_names in NPZ"),
    argument("--target", metavar="COLUMN", help="column to predict (NPZ: y unless said otherwise)"),
    argument(
        "--task",
        choices=TASKS,
        default="auto",
        help="auto: text and few whole numbers are classes, other numbers amounts; what was assumed is said "
        "(default %(default)s)",
    ),
    argument("--drop", default="", metavar="A,B", help="columns that are not features"),
    argument("--categorical", default="", metavar="A,B", help="columns that are categories though they look otherwise"),
    argument("--weights", metavar="COLUMN", help="column of sample weights"),
    argument("--scale", choices=("standard", "none"), default="standard", help="of the columns (default %(default)s)"),
    argument(
        "--scale-target",
        action=argparse.BooleanOptionalAction,
        help="standardise the target of a regression (default: yes; the objective and beta then count in units of its "
        "deviation, predictions are in its own)",
    ),
    *READING,
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


def read_data(args: argparse.Namespace) -> Prepared:
    """The table as the arguments :data:`DATA` say, made ready; what was assumed is said on stderr."""
    table = read(args)
    name = args.target or ("y" if _is_npz(args) else None)
    if name is None:
        raise argparse.ArgumentError(None, f"--target is required; {table.source} has {', '.join(table.names)}")
    data = Prepared.of(
        table,
        name,
        weights=args.weights,
        drop=names(args.drop),
        task=args.task,
        scale=args.scale == "standard",
        scale_target=args.scale_target,
        encoder=TableEncoder(categorical=names(args.categorical)),
        tensors=args.architecture is not None and args.architecture.tensors,
    )
    if data.choice is not None:
        change = ": --task regression" if data.choice.guessed else "; --task overrides this"
        say(f"task: {data.task} ({data.choice.because}{change})")
    if not args.quiet:
        remark(data.remarks)
    return data


def read(args: argparse.Namespace, path: Path | None = None) -> Table:
    """The table of ``args.data``, or another one in the same writing."""
    decimal = {None: None, "point": ".", "comma": ","}[args.decimal]
    path = args.data if path is None else path
    return read_table(path, separator=args.separator, decimal=decimal, encoding=args.encoding, sheet=args.sheet)


def names(text: str) -> list[str]:
    """Columns with commas between."""
    return [name for name in map(str.strip, text.split(",")) if name]


def source(args: argparse.Namespace) -> str:
    """The name of the data for people."""
    return "stdin" if str(args.data) == "-" else str(args.data.name)


#: Remarks that are said; a table of many columns has many.
_REMARKS = 12


def remark(remarks: tuple[str, ...]) -> None:
    """Say what was assumed."""
    for text in remarks[:_REMARKS]:
        say(text)
    if len(remarks) > _REMARKS:
        say(f"and {len(remarks) - _REMARKS} more remarks: bidual info --json lists all of them")


def known(args: argparse.Namespace, model: Any, table: Table) -> tuple[Array, str, Array | None]:
    """Inputs of a trained model that were no table yet, the name of its target, and sample weights.

    Those of a model of ours are as it saw them in training but for the scale; others take the columns in their order.
    """
    own = model if isinstance(model, Model) else None
    name = args.target or (own.target.name if own else "y" if _is_npz(args) else None)
    if name is None:
        raise argparse.ArgumentError(None, f"--target is required; {table.source} has {', '.join(table.names)}")
    apart = [name, *filter(None, [args.weights, *names(args.drop)])]
    table.require(apart)
    weights = table.numbers(args.weights) if args.weights else None
    if own is not None:
        return own.encode(table), name, weights
    features = [column for column in table.names if column not in apart]
    if not features:
        raise ValueError(f"{table.source} has no columns besides {', '.join(map(repr, apart))}")
    X: Array = table.matrix(features)
    if table.shape is not None and len(features) == prod(table.shape):
        X = X.reshape(len(X), *table.shape)
    return X, name, weights


def standardised(X: Array, weights: Array | None) -> Array:
    """Columns of mean zero and deviation one."""
    w = np.full(len(X), 1.0 / len(X)) if weights is None else weights / weights.sum()
    centre, scale = standardisation(X.reshape(len(X), -1), w)
    return ((X.reshape(len(X), -1) - centre) / scale).reshape(X.shape)


def _is_npz(args: argparse.Namespace) -> bool:
    return args.data.suffix.lower() == ".npz"


def options(args: argparse.Namespace, *arguments: Argument, **more: Any) -> dict[str, Any]:
    """The values of ``arguments`` that were given, as keywords of an estimator."""
    names = [options.get("dest", flags[-1].lstrip("-").replace("-", "_")) for flags, options in arguments]
    given = {name: getattr(args, name) for name in names}
    return {name: value for name, value in {**given, **more}.items() if value is not None}
