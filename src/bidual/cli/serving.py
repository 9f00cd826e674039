"""``bidual playground`` and ``bidual completion``."""

from __future__ import annotations

import argparse

from bidual._util.extras import require
from bidual.cli.commands import QUIET, VERBOSE, argument, command


@command(
    argument("--host", default="127.0.0.1", help="address to listen at (default %(default)s: this machine only)"),
    argument("--port", type=int, default=8765, help="default %(default)s; 0 takes a free one"),
    argument("--no-browser", action="store_false", dest="browser", help="do not open a browser"),
    QUIET,
    VERBOSE,
)
def playground(args: argparse.Namespace) -> None:
    """Serve a page to click points and watch global optima appear.

    bidual playground
    bidual playground --port 9000 --no-browser
    """
    if not 0 <= args.port < 65536:
        raise argparse.ArgumentError(None, f"--port must lie between 0 and 65535, got {args.port}")
    from bidual.playground import serve

    serve(host=args.host, port=args.port, browser=args.browser, quiet=args.quiet, verbose=args.verbose)


@command(argument("shell", choices=("bash", "zsh"), help="the shell to complete in"), VERBOSE)
def completion(args: argparse.Namespace) -> None:
    """Print a script that completes commands and options in your shell.

    bidual completion bash > ~/.local/share/bash-completion/completions/bidual
    bidual completion zsh > ~/.zfunc/_bidual
    """
    require("completion", "completion", "shtab")
    import shtab

    from bidual.cli import make_parser

    print(shtab.complete(make_parser(), shell=args.shell))
