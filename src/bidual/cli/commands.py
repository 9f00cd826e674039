"""What the subcommands share. Each is one function: its arguments are in the decorator, its help in the docstring."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from bidual._util.checks import shown
from bidual._util.typing import FloatArray
from bidual.architectures import ARCHITECTURES, Architecture
from bidual.losses import Loss, get_loss
from bidual.models import Model

#: Exit code of ``--strict`` when the gap asked for was not reached.
NOT_REACHED = 3
#: Exit code after Ctrl-C.
INTERRUPTED = 130

#: A function that runs a subcommand; what it returns is the exit code, None is success.
Runner: TypeAlias = Callable[[argparse.Namespace], int | None]
#: One argument, as ``add_argument`` takes it.
Argument: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True)
class Command:
    """A subcommand: what it does, and the arguments of its parser."""

    run: Runner
    arguments: tuple[Argument, ...]


#: All subcommands, by name.
COMMANDS: dict[str, Command] = {}


def command(*arguments: Argument) -> Callable[[Runner], Runner]:
    """Register a function as the subcommand of its name; the docstring is its help, with examples."""

    def register(run: Runner) -> Runner:
        COMMANDS[run.__name__] = Command(run, arguments)
        return run

    return register


def argument(*flags: str, **options: Any) -> Argument:
    """One argument of a command."""
    return flags, options


JSON = argument("--json", action="store_true", help="print one JSON object to stdout, and nothing else there")
QUIET = argument("--quiet", action="store_true", help="print no report")
VERBOSE = argument("-v", "--verbose", action="count", default=0, help="progress; twice: Python traceback of an error")
STRICT = argument(
    "--strict", action="store_true", help=f"exit with code {NOT_REACHED} if the gap of --tol is not reached"
)


def prove_argument(text: str) -> float | str | bool:
    """``auto``, ``no`` or seconds."""
    if text in ("auto", "no"):
        return text if text == "auto" else False
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not auto, no or a number of seconds") from error


def loss_argument(text: str) -> Loss:
    """``quantile`` or ``quantile:tau=0.9``."""
    name, _, parameters = text.partition(":")
    try:
        pairs = (pair.split("=") for pair in parameters.split(",") if pair)
        return type(get_loss(name))(**{key: float(value) for key, value in pairs})
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{shown(text)}: {error}") from error


def architecture_argument(text: str) -> Architecture:
    """``batch_norm``, ``batch_norm:position=after,rank=5`` or ``convolutional:kernel_size=3x5``."""
    name, _, parameters = text.partition(":")
    if name not in ARCHITECTURES:
        raise argparse.ArgumentTypeError(f"{shown(name)} is none of {', '.join(ARCHITECTURES)}")
    try:
        pairs = dict(pair.split("=") for pair in parameters.split(",") if pair)
        return ARCHITECTURES[name](**{key: _literal(value) for key, value in pairs.items()})
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{shown(text)}: {error}") from error


def _literal(text: str) -> Any:
    """A number, sizes such as 3x5, True, False or None; anything else is text."""
    if re.fullmatch(r"\d+(x\d+)+", text):
        return tuple(map(int, text.split("x")))
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


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


def score_of(model: Model, X: FloatArray, y: Any, weights: FloatArray | None) -> dict[str, Any]:
    """R² or accuracy, with its name; None for what is undefined."""
    value = model.score(X, y, weights)
    return {"name": "R2" if model.target.classes is None else "accuracy", "value": value if isfinite(value) else None}


def describe(score: dict[str, Any]) -> str:
    """A score in words."""
    value = "undefined (constant target)" if score["value"] is None else f"{score['value']:.6g}"
    return f"{score['name']} {value}"


def print_json(**document: Any) -> None:
    """One JSON object on stdout."""
    print(json.dumps(document, indent=1, allow_nan=False))


def say(message: str) -> None:
    """A line on stderr: stdout is for results."""
    print(f"bidual: {message}", file=sys.stderr, flush=True)
