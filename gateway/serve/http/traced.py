"""The span of an HTTP request that generates, by OpenTelemetry's conventions for HTTP servers.

An ASGI layer around the endpoints: it turns a request to one of a few paths into a span that lasts until its answer is
sent, also if that is a stream. What is done for the request is a span under it. It knows no API; how an answer ended
after it had begun is told to it through the scope. There is no such layer where nothing is traced.
"""

from asyncio import CancelledError
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from gateway.observe.tracing import Traced, Tracing

_ENDING: Final = "codec.ending"
"""Key in the scope of a request that is traced."""


class _Ending:
    """How a request ends."""

    def __init__(self) -> None:
        self._status = 0
        self._error: BaseException | None = None

    def began(self, status: int) -> None:
        """The answer begins with this status."""
        self._status = status

    def failed(self, error: BaseException) -> None:
        """The answer ended, or was refused, with this error."""
        self._error = error

    def show(self, span: "Traced") -> None:
        """Write it to the request's span."""
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
