"""The command line: ``bidual COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from inspect import getdoc
from typing import Any

import bidual
from bidual.cli import (  # noqa: F401 - they register their commands
    certifying,
    reproducing,
    serving,
    training,
    using,
    verifying,
)
from bidual.cli.commands import COMMANDS, INTERRUPTED

__all__ = ["main", "make_parser"]

#: Commands that write their files at the end.
_AT_THE_END = ("fit", "cv", "path", "certify")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 after an error, 3 if ``--strict`` says so, 130 after Ctrl-C.

    A command line that makes no sense raises ``SystemExit(2)``, as argparse does.
    """
    parser = make_parser()
    words = sys.argv[1:] if argv is None else argv
    empty = next((word for word in words if word.startswith("--") and word.endswith("=--")), None)
    if empty is not None:  # argparse would make an empty list of it
        parser.error(f"argument {empty[:-3]}: expected one argument, got '--'")
    args = parser.parse_args(words)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)  # ConvergenceWarning is one
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = _show_warning
            code = COMMANDS[args.command].run(args)
        sys.stdout.flush()
    except argparse.ArgumentError as error:
        parser.error(str(error))
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not flush into the pipe again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(f"bidual: interrupted{': nothing was written' if args.command in _AT_THE_END else ''}", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, MemoryError, RuntimeError, TypeError, ImportError) as error:
        if args.verbose > 1:
            raise
        print(f"bidual: error: {_sentence(error)}", file=sys.stderr)
        return 1
    return code or 0


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="bidual",
        description=bidual.__doc__,
        epilog="bidual COMMAND --help explains a command, with examples.\n\n"
        "exit codes: 0 done, 1 error, 2 wrong command line (verify: bad input), 3 gap not reached (with --strict) or "
        "certificate refused, 130 interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bidual {bidual.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in sorted(COMMANDS.items()):
        summary, _, examples = (getdoc(command.run) or "").partition("\n\n")
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog="examples:\n" + "\n".join(f"  {line.strip()}" for line in examples.splitlines()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for flags, options in command.arguments:
            sub.add_argument(*flags, **options)
    return parser


def _sentence(error: BaseException) -> str:
    """An exception as one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError) and not str(error):
        return "out of memory"
    return " ".join(str(error).splitlines()) or type(error).__name__


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line, without the source code around it."""
    print(f"bidual: warning: {' '.join(str(message).splitlines())}", file=sys.stderr)
