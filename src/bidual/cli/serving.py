"""``bidual playground`` and ``bidual completion``."""

from __future__ import annotations

import argparse

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
    from bidual.playground import serve

    if not 0 <= args.port < 65536:
        raise argparse.ArgumentError(None, f"--port must lie between 0 and 65535, got {args.port}")
    serve(host=args.host, port=args.port, browser=args.browser, quiet=args.quiet, verbose=args.verbose)


@command(argument("shell", choices=("bash", "zsh"), help="the shell to complete in"), VERBOSE)
def completion(args: argparse.Namespace) -> None:
    """Print a script that completes commands and options in your shell.

    bidual completion bash > ~/.local/share/bash-completion/completions/bidual
    bidual completion zsh > ~/.zfunc/_bidual
    """
    try:
        import shtab
    except ImportError as error:
        raise RuntimeError("this needs shtab: pip install 'bidual[completion]'") from error
    from bidual.cli import make_parser

    print(shtab.complete(make_parser(), shell=args.shell))
