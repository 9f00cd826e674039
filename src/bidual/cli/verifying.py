"""``bidual verify``: whether a certificate is proven."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util.files import read_json
from bidual._util.typing import Array
from bidual.bounds import Certificate, ContradictionError
from bidual.certification import check_certificate, refusal
from bidual.certification.case import on_rows
from bidual.certification.verification import objective_of
from bidual.cli.commands import JSON, NOT_REACHED, QUIET, VERBOSE, argument, command, print_json, say
from bidual.cli.data import FILES, READING, known, read
from bidual.models import Model, as_network, load
from bidual.networks import Network
from bidual.tables import Table

#: Exit codes: the certificate is not proven; the files are not what they should be.
REFUSED, BAD_INPUT = NOT_REACHED, 2


@command(
    argument("certificate", type=Path, help="JSON file of a certificate, or of a model with its certificate"),
    argument("data", type=Path, help=f"the training data: {FILES}"),
    argument("--model", type=Path, metavar="FILE", help="JSON file of the network: its objective is checked too"),
    argument("--target", metavar="COLUMN", help="column that is predicted (a bidual model knows its own; NPZ: y)"),
    argument("--drop", default="", metavar="A,B", help="columns that are not inputs"),
    argument("--weights", metavar="COLUMN", help="column of sample weights"),
    *READING,
    JSON,
    QUIET,
    VERBOSE,
)
def verify(args: argparse.Namespace) -> int | None:
    """Check a certificate: PROVEN (exit code 0) or REFUSED (3), twice, by independent code.

    bidual verify certificate.json data.csv --target y
    bidual verify model.json data.csv
    bidual verify certificate.json data.csv --model model.json --json
    """
    try:
        document, model = _read(args)
        certificate = Certificate.from_dict(document)
        X, y, weights = _data(args, certificate, model)
        model = model.on_numbers if isinstance(model, Model) else model
        refused = refusal(certificate, X, y, weights, model)
    except ContradictionError as error:  # a bound above its objective
        return _tell(args, str(error), "", model_given=False)
    except (ValueError, OSError, ImportError) as error:
        if args.verbose > 1:
            raise
        say(f"error: {' '.join(str(error).splitlines())}")
        return BAD_INPUT
    seen, targets = (X, y) if not isinstance(model, Model) else _as_seen(model, X, y)
    network = None
    if model is not None and certificate.evidence is not None:
        kind = objective_of(certificate.evidence, certificate.beta).architecture
        network = on_rows(as_network(model), kind, seen, weights).to_dict()
    proven, words = check_certificate.check(document, seen, targets, weights, network)
    if not proven and words.startswith(check_certificate.UNKNOWN):
        words = f"{certificate.lower_bound:.9g} is a lower bound, by bidual itself only: {words}"
    elif not proven:
        refused = f"{refused or 'bidual itself accepts it'}; by the independent checker: {words}"
    return _tell(args, refused, words, model_given=model is not None)


def _tell(args: argparse.Namespace, refused: str | None, words: str, *, model_given: bool) -> int | None:
    """Print the verdict; the exit code."""
    if args.json:
        print_json(proven=refused is None, reason=refused or words, objective_checked=model_given)
    elif not args.quiet:
        print(f"PROVEN: {words}" if refused is None else f"REFUSED: {refused}")
    return None if refused is None else REFUSED


def _read(args: argparse.Namespace) -> tuple[dict[str, Any], Model | Network | None]:
    """The certificate as its file holds it, and the network that it is about, if there is one."""
    document = read_json(args.certificate, "certificate")
    model = None if args.model is None else load(args.model)
    if "certificate" in document:  # the file of a model
        model, document = load(args.certificate) if model is None else model, document["certificate"]
    return document, model


def _data(
    args: argparse.Namespace, certificate: Certificate, model: Model | Network | None
) -> tuple[Array, Array, Array | None]:
    """Inputs, targets and weights as the table has them."""
    table = read(args)
    X, name, weights = known(args, model, table)
    return X, _targets(table, name, certificate), weights


def _targets(table: Table, name: str, certificate: Certificate) -> Array:
    classes = None if certificate.evidence is None else certificate.evidence.classes
    return table.numbers(name) if classes is None else np.array(table.labels_like(name, list(classes)))


def _as_seen(model: Model, X: Array, y: Array) -> tuple[Array, Array]:
    """Inputs and targets as the network sees them."""
    return model.transform(X), y if model.target.classes is not None else model.encode_target(y)
