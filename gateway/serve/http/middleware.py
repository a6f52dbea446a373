"""What surrounds every request: its path in one spelling, its place in the count of those that run, its span, CORS."""

import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.serve.http.request_parts import headers_of

if TYPE_CHECKING:
    from gateway.observe.tracing import Traced, Tracing


# Base addresses are given with a slash at their end, without `/v1`, or with a `/v1` that the client adds once more.

_SLASHES: Final = re.compile("/{2,}")
_BARE: Final = re.compile(r"/(chat/completions|responses|messages|models)(/|$)")
_ROOT: Final = "/v1"
_ROOTS: Final = re.compile(r"(?:/v1)+(?=/v1/)")


# A client sends one path again and again. Sixteen of the longest that a head may hold are 1 MiB.
@lru_cache(maxsize=16)
def path_as_served(path: str) -> str:
    """Give the path that is meant."""
    one = _SLASHES.sub("/", path) if "//" in path else path
    # All at once: a head may hold thousands.
    if repeated := _ROOTS.match(one):
        one = one[repeated.end() :]
    if _BARE.match(one):
        one = f"{_ROOT}{one}"
    return one.rstrip("/") if one.startswith(f"{_ROOT}/") else one


class SpelledPaths:
    """An app whose requests have the paths that are meant."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on."""
        if scope["type"] == "http" and (path := path_as_served(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        return self._app(scope, receive, send)


# A stop does not wait for GET requests, which may stay open for ever (the GET stream of an MCP session). Once it has
# begun, new requests are refused with 503, except those that continue something running. Requests that don't finish in
# time are told so by an event in their scope.

EXPIRED: Final = "codec.expired"
"""Key in a request's scope: an `anyio.Event`, set when the time for finishing is over."""
LATE: Final = "codec.late"
"""Key in the scope of a request that came after a stop had begun: its endpoint refuses it if it starts something."""

_TELL_SECONDS = 1.0
"""Seconds that requests get, once told to end, to send the end of their answers."""
_LOOK = 0.02
"""Seconds between checks whether everything has finished: what spans several requests does not end with any of them."""


class Drain:
    """Wraps an app; `drained()` waits until the running requests are over."""

    def __init__(
        self,
        app: ASGIApp,
        refused: ASGIApp,
        *,
        app_refuses: Callable[[Scope], bool] = lambda _: False,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start with nothing running.

        Args:
            refused: answers the requests that come after a stop has begun.
            app_refuses: whether the app itself refuses, by `LATE`, the requests of this scope that start something.
            waits: whether something runs outside of any request, for a client that is expected to come back.
        """
        self._app = app
        self._refused = refused
        self._app_refuses = app_refuses
        self._waits = waits
        self._running = 0
        self._stopping = False
        self._expired = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it while it runs."""
        if scope["type"] != "http" or scope["method"] == "GET":
            await self._app(scope, receive, send)
            return
        if self._stopping:
            if not self._app_refuses(scope):
                await self._refused(scope, receive, send)
                return
            scope[LATE] = True
        self._running += 1
        # The server made this scope for this request alone: nobody above sees what is added.
        scope[EXPIRED] = self._expired
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1

    async def drained(self, seconds: float, expire: Callable[[], None]) -> int:
        """Refuse new requests and wait up to `seconds` for the running ones; returns how many did not finish.

        Those are then told: the event in their scope is set, and `expire` is called to end what they wait for.
        """
        self._stopping = True
        if await self._finished(seconds):
            return 0
        # Something that waits for its client may have no running request.
        cut = max(self._running, 1)
        self._expired.set()
        expire()
        await self._finished(_TELL_SECONDS)
        return cut

    async def _finished(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while True:
                if not self._running and not self._waits():
                    return True
                await anyio.sleep(_LOOK)
        return False


# The span lasts until the answer is sent, also if that is a stream (OpenTelemetry's conventions for HTTP servers). How
# an answer ended after it had begun is told through the scope. There is no such layer where nothing is traced.

_ENDING: Final = "codec.ending"
"""Key in the scope of a request that is traced."""


class _Ending:
    def __init__(self) -> None:
        self._status = 0
        self._error: BaseException | None = None

    def began(self, status: int) -> None:
        self._status = status

    def failed(self, error: BaseException) -> None:
        """The answer ended, or was refused, with this error."""
        self._error = error

    def show(self, span: "Traced") -> None:
        status, error = self._status, self._error
        if status:
            span.set({"http.response.status_code": status})
        # A request that is refused is no failure of the server.
        if isinstance(error, CancelledError) or (error is not None and not 400 <= status < 500):
            span.failed(error)
        elif status >= 500:
            span.erred(str(status))


def note_failure(scope: Scope, error: BaseException) -> None:
    """Tell the request's span, if it has one, how its answer failed. `CancelledError`: the client disconnected."""
    ending: _Ending | None = scope.get(_ENDING)
    if ending is not None:
        ending.failed(error)


class TracedRequests:
    """Wraps an app."""

    def __init__(self, app: ASGIApp, tracing: "Tracing", paths: Collection[str]) -> None:
        """`paths`: those whose POST requests are traced."""
        self._app = app
        self._tracing = tracing
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, inside its span."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        path, ending = scope["path"], _Ending()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                ending.began(message["status"])
            await send(message)

        attributes = {
            "http.request.method": "POST",
            "http.route": path,
            "url.path": path,
            "url.scheme": scope["scheme"],
        }
        with self._tracing.request_span(f"POST {path}", Headers(scope=scope), attributes) as span:
            headers = self._tracing.write_headers(scope["headers"])
            try:
                await self._app({**scope, "headers": headers, _ENDING: ending}, receive, noted)
            finally:
                ending.show(span)


# Lets web pages of origins that the operator names call `/mcp`, `/sse` and `/v1` (Fetch, "CORS protocol").
#
# Answers their preflights, which carry no credential, and adds to every answer the headers without which a browser
# hides it from the page, refusals included. Nothing changes for other origins: `HostGuard` refuses them. Cookies are
# never allowed: a page must have a credential of its own to send.

_CALLED: Final = ("/mcp", "/sse", "/v1", "/.well-known")
"""The last for clients that look there how to sign in to this gateway (RFC 9728)."""
_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_NAMES: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
"""A list of header names (RFC 9110, section 5.6.2)."""
_EXPOSED: Final = (
    "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, X-Request-Id, X-Codec-Map, Content-Encoding"
)
_KEPT: Final = "600"
"""Seconds for which a browser may keep the answer to a preflight."""


class Cors:
    """Wraps the guarded endpoints for browsers."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        """`origins`: as browsers write them, `scheme://host` or `scheme://host:port`."""
        self._app = app
        self._origins = frozenset(origins)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or not _is_served(scope["path"]):
            return self._app(scope, receive, send)
        read = headers_of(scope)
        origin = read.values.get("origin")
        if origin not in self._origins or "origin" in read.repeated:
            return self._app(scope, receive, send)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in read.values:
            return _preflight_answer(origin, read.values)(scope, receive, send)
        added = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _EXPOSED.encode()),
            (b"vary", b"Origin"),
        ]

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        return self._app(scope, receive, send_allowed)


def _is_served(path: str) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in _CALLED)


def _preflight_answer(origin: str, headers: dict[str, str]) -> Response:
    """What a browser may send: any header that it asks for, since tools may name their own (`Mcp-Param-...`)."""
    asked = headers.get("access-control-request-headers", "")
    allowed = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Max-Age": _KEPT,
        "Vary": "Origin, Access-Control-Request-Headers",
    }
    if _NAMES.fullmatch(asked):
        allowed["Access-Control-Allow-Headers"] = asked
    if headers.get("access-control-request-private-network") == "true":
        allowed["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=allowed)
