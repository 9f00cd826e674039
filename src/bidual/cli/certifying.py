"""``bidual certify``: what is known about a network somebody trained."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from bidual._util.typing import Array
from bidual._util.watch import watching
from bidual._util.wrapped import inside
from bidual.certification import METHODS, Improved
from bidual.certification import certify as certify_model
from bidual.cli.commands import (
    INTERRUPTED,
    JSON,
    NOT_REACHED,
    QUIET,
    STRICT,
    VERBOSE,
    argument,
    check_destination,
    command,
    loss_argument,
    print_json,
    say,
)
from bidual.cli.data import FILES, READING, known, read, standardised
from bidual.models import Model, load
from bidual.networks import from_joblib
from bidual.tables import Table, frame_of

#: Suffixes of files that hold pickled objects.
_PICKLES = (".joblib", ".pkl", ".pickle")


@command(
    argument(
        "model", type=Path, help="file of bidual (.json), torch (.pt, .pth), ONNX (.onnx) or joblib (.joblib, .pkl)"
    ),
    argument("data", type=Path, help=f"the training data: {FILES}"),
    argument("--target", metavar="COLUMN", help="column the network predicts (NPZ: y; a bidual model knows its own)"),
    argument("--beta", type=float, help="weight decay (a bidual model knows its own)"),
    argument("--loss", type=loss_argument, help="squared, huber:delta=2, logistic, ... (default: squared)"),
    argument("--drop", default="", metavar="A,B", help="columns that are not inputs"),
    argument("--weights", metavar="COLUMN", help="column of sample weights"),
    argument(
        "--scale",
        choices=("standard", "none"),
        default="none",
        help="standard: the network was trained on standardised columns (default %(default)s; a bidual model and a "
        "pipeline know their own)",
    ),
    argument("--scale-target", action="store_true", help="the network was trained on a standardised target"),
    argument("--method", choices=METHODS, default="auto", help="how the bound is proven (default %(default)s)"),
    argument("--tol", type=float, default=1e-3, help="stop when this relative gap is proven (default %(default)s)"),
    argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help="default %(default)s"),
    argument("--improve", type=Path, metavar="FILE", help="write a better network to this file (JSON)"),
    argument("--out", type=Path, metavar="FILE", help="write the certificate with its proof to this file (JSON)"),
    argument("--seed", type=int, dest="random_state", help="seed of all random choices"),
    argument(
        "--trust", action="store_true", help="load a joblib or pickle file, which can run code of whoever made it"
    ),
    *READING,
    STRICT,
    JSON,
    QUIET,
    VERBOSE,
)
def certify(args: argparse.Namespace) -> int | None:
    """Prove how far a trained network is from the best possible one.

    bidual certify model.pt data.csv --target y --beta 0.01
    bidual certify model.json data.csv --strict --tol 0.01
    bidual certify model.pt data.csv --target y --beta 0.01 --scale standard
    bidual certify mlp.joblib data.csv --trust --target kind --beta 0.01 --improve better.json
    """
    for path in filter(None, (args.out, args.improve)):
        check_destination(path, args.model, args.data)
    model = _read(args)
    table = read(args)
    X, y, weights = _data(args, model, table)
    model = model.on_numbers if isinstance(model, Model) else model
    options = {key: getattr(args, key) for key in ("beta", "loss", "method", "tol", "time_limit", "random_state")}
    # progress must not mix with the report
    with watching() as watch, contextlib.redirect_stdout(sys.stderr):
        result = certify_model(
            model, X, y, sample_weight=weights, verbose=args.verbose, improve=args.improve is not None, **options
        )
    certificate = result.certificate if isinstance(result, Improved) else result
    if args.out is not None:
        certificate.save(args.out)
    if isinstance(result, Improved):
        result.network.save(args.improve)
    if args.json:
        print_json(**certificate.without_evidence().to_dict(), sentence=certificate.sentence)
    elif not args.quiet:
        print(certificate)
        print(f"{certificate.sentence} ({certificate.elapsed:.1f} s)")
        for what, path in (("certificate", args.out), ("better network", args.improve)):
            if path is not None:
                print(f"{what} written to {path}")
    if watch.interrupted:
        written = " and ".join(str(path) for path in (args.out, args.improve) if path is not None)
        say(f"interrupted: what was known by then was {f'written to {written}' if written else 'printed'}")
        return INTERRUPTED
    return NOT_REACHED if args.strict and not certificate.gap <= args.tol else None


def _read(args: argparse.Namespace) -> Any:
    """The model, or its path if reading that is safe."""
    suffix = args.model.suffix.lower()
    if suffix == ".json":
        return load(args.model)
    if suffix not in _PICKLES:
        return args.model
    if not args.trust:
        raise ValueError(
            f"{args.model} is a pickle, and loading one can run code of whoever made it: if that was you, add --trust"
        )
    return from_joblib(args.model)


def _data(args: argparse.Namespace, model: Any, table: Table) -> tuple[Array, Array, Array | None]:
    """Inputs, targets and weights as the model takes them."""
    scales = args.scale == "standard" or args.scale_target
    if scales and (isinstance(model, Model) or inside(model) is not None):
        raise ValueError(
            "--scale and --scale-target are for bare networks: this model knows how its columns were scaled"
        )
    if getattr(model, "feature_names_in_", None) is not None and inside(model) is not None:
        table.require(map(str, model.feature_names_in_))  # a pipeline may take columns of any kind, by name
        X: Any = frame_of(table.only([str(name) for name in model.feature_names_in_]))
        name = args.target
        if name is None:
            raise argparse.ArgumentError(None, f"--target is required; {table.source} has {', '.join(table.names)}")
        table.require(filter(None, [name, args.weights]))
        weights = table.numbers(args.weights) if args.weights else None
    else:
        X, name, weights = known(args, model, table)
    if args.scale == "standard":
        X = standardised(X, weights)
    if isinstance(model, Model) and model.target.classes is not None:
        y = np.array(table.labels_like(name, model.target.classes))
    elif isinstance(model, BaseEstimator) and is_classifier(model):
        y = np.array(table.labels_like(name, model.classes_.tolist()))
    elif args.loss is not None and args.loss.classification:
        y = np.array(table.labels(name))
    else:
        y = table.numbers(name)
    if args.scale_target:
        y = standardised(y[:, None], weights)[:, 0] if y.dtype.kind == "f" else y
    return X, y, weights
