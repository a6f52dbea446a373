"""What surrounds every request: its path in one spelling, its place in the count of those that run, and its span."""

import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
