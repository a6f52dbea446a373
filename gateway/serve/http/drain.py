"""Counts the running requests, so that a stop can wait for them.

An ASGI layer over all endpoints. It does not wait for GET requests, which may stay open for ever (the GET stream of an
MCP session). Once a stop has begun, new requests are refused with 503, except those that continue something running.
Requests that don't finish in time are told so by an event in their scope.
"""

from collections.abc import Callable
from typing import Final

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

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
