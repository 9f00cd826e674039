"""The web application: one page, its few files, and the API under it.

It listens to this machine only, and is careful all the same, because any site a browser visits can try to reach it:
the Host header must name this machine (against DNS rebinding), requests of other sites are refused, bodies are small,
solves are few at a time and short, files are never opened by name.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from importlib.resources import files
from typing import Any

from bidual._util.extras import advice

try:
    import anyio
    from starlette.applications import Starlette
    from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(advice("the playground", "playground", "starlette", "uvicorn")) from error

import bidual
from bidual._util.tuning import tuning
from bidual.playground import schema, work
from bidual.playground.openapi import description

#: Solves at a time.
SOLVES = 2
#: Seconds for a body to arrive.
PATIENCE = 10.0
#: The files of the page: their content and type, read once.
_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_PAGE = {
    "/": "index.html",
    **{f"/{name}": name for name in ("app.js", "data.js", "draw.js", "examples.js", "style.css")},
}
_SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Turns:
    """A few solves at a time; whoever finds too many waiting is sent away."""

    def __init__(self) -> None:
        self.limiter: anyio.Semaphore | None = None
        self.inside = 0

    async def __aenter__(self) -> None:
        if self.inside >= SOLVES + tuning().playground_waiting:
            raise HTTPException(429, "too many requests at once: try again", {"Retry-After": "1"})
        if self.limiter is None:  # belongs to the running event loop
            self.limiter = anyio.Semaphore(SOLVES)
        self.inside += 1
        try:
            await self.limiter.acquire()
        except BaseException:
            self.inside -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        assert self.limiter is not None
        self.limiter.release()
        self.inside -= 1


class Guard:
    """Refuses what does not come from a page of this server, and adds the headers that keep the page to itself."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY)
            await send(message)

        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.hosts is not None and _name(host) not in self.hosts:
            refusal: Response | None = _problem(400, "this server does not answer for that host")
        elif origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            refusal = _problem(403, "requests of other sites are refused")
        else:
            refusal = None
        await (self.app if refusal is None else refusal)(scope, receive, with_headers)


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host[: host.rfind("]") + 1].lower() if host.startswith("[") else host.split(":")[0].lower()


def _problem(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status_code=status, headers=headers)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.detail, dict(error.headers or {}))


async def _on_bug(_: Request, error: Exception) -> Response:
    return _problem(500, "something went wrong here; the terminal says what")


async def _request(request: Request, form: dict[str, Any]) -> dict[str, Any]:
    """The checked body of a request."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body must be application/json")
    body = bytearray()
    try:
        with anyio.fail_after(PATIENCE):
            async for chunk in request.stream():
                body += chunk
                if len(body) > schema.MAX_BODY:
                    raise HTTPException(413, f"the body is larger than {schema.MAX_BODY} bytes")
    except TimeoutError as error:
        raise HTTPException(408, "the body did not arrive in time") from error
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON") from error
    try:
        return dict(schema.check(value, form))
    except schema.Invalid as error:
        raise HTTPException(422, str(error)) from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def create_app(hosts: frozenset[str] | None = frozenset({"127.0.0.1", "localhost", "[::1]"})) -> Starlette:
    """The application; it answers for these ``hosts`` only (None: for any)."""
    turns = Turns()
    static = files("bidual.playground").joinpath("static")
    pages = {path: (static.joinpath(name).read_bytes(), _TYPES[name.split(".")[1]]) for path, name in _PAGE.items()}

    async def page(request: Request) -> Response:
        content, kind = pages[request.url.path]
        return Response(content, media_type=kind)

    async def options(_: Request) -> Response:
        return JSONResponse(
            {
                "version": bidual.__version__,
                "view": schema.VIEW,
                "losses": schema.LOSSES,
                "architectures": schema.ARCHITECTURES,
                "max_points": schema.MAX_POINTS,
            }
        )

    async def openapi(_: Request) -> Response:
        return JSONResponse(description())

    def solve(compute: Callable[[dict[str, Any]], dict[str, Any]], form: dict[str, Any]) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            checked = await _request(request, form)
            async with turns:
                try:
                    return JSONResponse(await run_in_threadpool(compute, checked))
                except schema.Invalid as error:
                    return _problem(422, str(error))

        return endpoint

    async def descent(request: Request) -> Response:
        checked = await _request(request, schema.DESCENT)
        try:
            answers = await run_in_threadpool(work.descend, checked)
        except schema.Invalid as error:
            return _problem(422, str(error))
        await turns.__aenter__()  # before the answer begins: afterwards it is too late to refuse

        async def lines() -> Any:
            try:
                async for line in iterate_in_threadpool(_lines(answers)):
                    yield line
            finally:
                await turns.__aexit__()

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    routes = [
        *(Route(path, page) for path in pages),
        Route("/api/options", options),
        Route("/api/openapi.json", openapi),
        Route("/api/fit", solve(work.fit, schema.FIT), methods=["POST"]),
        Route("/api/path", solve(work.path, schema.PATH), methods=["POST"]),
        Route("/api/descent", descent, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _on_error, 500: _on_bug})
    app.add_middleware(Guard, hosts=hosts)
    return app


_Endpoint = Callable[[Request], Awaitable[Response]]


def _lines(answers: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for answer in answers:
        yield json.dumps(answer, separators=(",", ":")).encode() + b"\n"
