"""A page in the browser: click points, and watch the global optimum, its neurons and its certificate appear."""

from __future__ import annotations

import socket
import sys
import threading
import webbrowser
from typing import Any

from bidual._util.extras import require

__all__ = ["NEEDS", "serve"]

#: What serves the page.
NEEDS = ("starlette", "uvicorn", "anyio")

_LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
_EVERYWHERE = ("0.0.0.0", "::")


def serve(
    host: str = "127.0.0.1", port: int = 8765, *, browser: bool = True, quiet: bool = False, verbose: int = 0
) -> None:
    """Serve the playground until Ctrl-C.

    Parameters
    ----------
    host : str
        Address to listen at. The default is reached from this machine only.
    port : int
        0 takes a free one.
    browser : bool
        Open the page in a browser.
    quiet, verbose
        Say nothing; log every request.
    """
    require("the playground", "playground", *NEEDS)
    import uvicorn

    from bidual.playground.app import create_app

    if host not in _LOCAL:
        print(f"bidual: warning: at {host} everybody who reaches this machine can use the playground", file=sys.stderr)
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    shown = "127.0.0.1" if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}/"
    # at every address there are many names, and which are ours cannot be told
    hosts = None if host in _EVERYWHERE else _LOCAL | {shown.lower()}
    config = uvicorn.Config(
        create_app(hosts),
        log_level="info" if verbose else "warning",
        limit_concurrency=64,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    server = uvicorn.Server(config)
    threading.Thread(target=_warm_up, daemon=True).start()
    if not quiet:
        print(f"playground at {url}   (Ctrl-C ends it)", flush=True)
    if browser:
        threading.Timer(0.5, webbrowser.open, [url]).start()
    try:
        server.run(sockets=[listener])
    finally:
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    """A socket bound before anything is said about it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port") from error
    return listener


def _warm_up() -> None:
    """Load what takes a moment before the first click does."""
    from bidual.playground.work import fit

    request: dict[str, Any] = {"points": [[-1, 0], [0, 1], [1, 0]], "loss": "squared", "beta": 0.01}
    fit({**request, "task": "regression", "architecture": "two_layer", "bias": True})
