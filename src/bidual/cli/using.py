"""``bidual predict``, ``bidual info``, ``bidual export``, ``bidual report``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util.extras import require
from bidual._util.files import read_json, write_atomically
from bidual._util.typing import FloatArray
from bidual.cli.commands import (
    JSON,
    QUIET,
    VERBOSE,
    argument,
    check_destination,
    command,
    describe,
    print_json,
    say,
    score_of,
)
from bidual.cli.data import FILES, READING, read, source
from bidual.models import Model, as_network, load
from bidual.networks import Network
from bidual.tables import Table, csv_text, write_csv

_MODEL = argument("model", type=Path, help="file written by bidual fit")


@command(
    _MODEL,
    argument("data", type=Path, help=f"{FILES}; columns are matched by name, others are ignored"),
    argument("--out", type=Path, metavar="FILE", help="where the predictions go (CSV; default stdout)"),
    argument("--proba", action="store_true", help="add a column probability_<class> for every class"),
    *READING,
    JSON,
    QUIET,
    VERBOSE,
)
def predict(args: argparse.Namespace) -> None:
    """Predict the rows of a table, and score them if it has the target.

    bidual predict model.json data.csv --out predictions.csv
    bidual predict model.json data.csv --proba | head
    """
    if args.json and args.out is None:
        raise argparse.ArgumentError(None, "--json needs --out: stdout cannot hold the summary and the predictions")
    if args.out is not None:
        check_destination(args.out, args.model, args.data)
    model = _model(args.model)
    table = read(args)
    X, model = model.encode(table), model.on_numbers
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
        say(f"{len(table)} rows: {describe(score)}")


def _model(path: Path) -> Model:
    model = load(path)
    if not isinstance(model, Model):
        raise ValueError(f"{path} holds a bare network without column names: use bidual.load in Python")
    return model


def _score_of_table(model: Model, table: Table, X: FloatArray) -> dict[str, Any] | None:
    """The score if the table has the whole target; predictions do not depend on it, so a bad one is only noted."""
    if model.target.name not in table.columns:
        return None
    try:
        y = target_of(model, table)
    except ValueError as error:
        say(f"no score: {error}")
        return None
    return score_of(model, X, y, None)


def target_of(model: Model, table: Table) -> Any:
    """The target column as the model knows it: numbers, or labels of its type."""
    name, classes = model.target.name, model.target.classes
    table.require([name])
    return table.numbers(name) if classes is None else table.labels_like(name, classes)


@command(argument("model", type=Path, help="file of bidual, torch (.pt, .pth) or ONNX"), JSON, VERBOSE)
def info(args: argparse.Namespace) -> None:
    """Show what a model file holds.

    bidual info model.json
    """
    model = load(args.model) if _is_json(args.model) else as_network(args.model)
    network = model.network if isinstance(model, Model) else model
    if args.json:
        document = read_json(args.model) if _is_json(args.model) else {"network": network.to_dict()}
        for held in (document["network"], document["network"].get("layer", {})):  # a convolutional network has a layer
            held.pop("weights", None)
        print_json(**document, n_neurons=network.n_neurons)
    else:
        print(model.summary() if isinstance(model, Model) else model)


def _is_json(path: Path) -> bool:
    return path.suffix.lower() not in (".pt", ".pth", ".onnx")


# ---- export ------------------------------------------------------------------------------------


def _to_torch(model: Model | Network, path: Path) -> None:
    import torch

    network = model.network if isinstance(model, Model) else model
    write_atomically(path, lambda temporary: torch.save(network.to_torch(), temporary))


def _to_npz(model: Model | Network, path: Path) -> None:
    network = model.network if isinstance(model, Model) else model
    arrays = {name: values for name, values in network.weights().items() if values is not None}
    write_atomically(path, lambda temporary: np.savez(temporary, allow_pickle=False, **arrays))


def _to_json(model: Model | Network, path: Path) -> None:
    (model.network if isinstance(model, Model) else model).save(path)


#: What a model can be turned into, by the suffix of the file, and what that takes.
_NEEDS = {".onnx": "onnx", ".pt": "torch"}
EXPORTS: dict[str, tuple[str, Callable[[Any, Path], object]]] = {
    ".onnx": ("ONNX, from columns of numbers to predictions", lambda model, path: model.to_onnx(path)),
    ".pt": ("torch module (on scaled columns)", _to_torch),
    ".npz": ("NumPy arrays of the weights", _to_npz),
    ".json": ("the bare network of bidual", _to_json),
}


@command(
    argument("model", type=Path, help="file written by bidual fit, or by Network.save"),
    argument(
        "--out", type=Path, required=True, metavar="FILE", help="; ".join(f"{k}: {v[0]}" for k, v in EXPORTS.items())
    ),
    QUIET,
    VERBOSE,
)
def export(args: argparse.Namespace) -> None:
    """Write a model in the format of another library.

    bidual export model.json --out model.onnx
    bidual export model.json --out model.pt
    """
    suffix = args.out.suffix.lower()
    if suffix not in EXPORTS:
        raise ValueError(f"cannot export to {suffix or 'a file without suffix'!r}: use one of {', '.join(EXPORTS)}")
    check_destination(args.out, args.model)
    if suffix in _NEEDS:
        require(f"export to {suffix}", _NEEDS[suffix], _NEEDS[suffix])
    model = load(args.model)
    what, write = EXPORTS[suffix]
    write(model, args.out)
    if not args.quiet:
        print(f"{what}: written to {args.out}")
        if isinstance(model, Model) and model.scale is not None and suffix != ".onnx":
            say("it takes scaled columns, (X - centre) / scale, with the numbers in the model file")
        if isinstance(model, Model) and model.encoder is not None and not model.encoder.plain:
            say("its inputs are encoded columns, bidual.load(...).encode(table), in the order of feature_names")


# ---- report ------------------------------------------------------------------------------------


@command(
    _MODEL,
    argument("data", type=Path, help=f"the training data: {FILES}, with the columns of the model"),
    argument("--out", type=Path, required=True, metavar="FILE", help="where the page goes (HTML)"),
    argument("--no-compare", action="store_false", dest="compare", help="train nothing, compare with nothing"),
    argument("--seed", type=int, default=0, dest="random_state", help="seed of the split (default %(default)s)"),
    *READING,
    QUIET,
    VERBOSE,
)
def report(args: argparse.Namespace) -> None:
    """Write one HTML page about a model: data, proof, pictures, weights, comparison.

    bidual report model.json data.csv --out report.html
    """
    from bidual.report import write_report

    check_destination(args.out, args.model, args.data)
    require("a report", "plot", "matplotlib")
    model, table = _model(args.model), read(args)
    y = target_of(model, table)
    write_report(
        args.out,
        model,
        table,
        y,
        source=source(args),
        model_file=args.model.name,
        compare=args.compare,
        random_state=args.random_state,
    )
    if not args.quiet:
        print(f"report written to {args.out}")
