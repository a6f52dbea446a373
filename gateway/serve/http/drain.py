"""Counts what is running, so that a stop can wait for it.

An ASGI layer over all endpoints. Requests that may stay open for ever (the GET stream of an MCP session) are not waited
for; after a stop has begun new requests are refused with 503. What has not finished in time is told so: each request
finds an event in its scope that says when.
"""

from collections.abc import Callable
from typing import Final

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

EXPIRED: Final = "codec.expired"
"""Key in a request's scope: an `anyio.Event`, set when the time for finishing is over."""

_TELL_SECONDS = 1.0
"""What requests get to say their last word."""


class Drain:
    """Wraps an app; `drained()` waits until the running requests are over."""

    def __init__(self, app: ASGIApp, refused: ASGIApp) -> None:
        """`refused`: answers the requests that come after a stop has begun."""
        self._app = app
        self._refused = refused
        self._running = 0
        self._stopping = False
        self._idle = anyio.Event()
        self._expired = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count it."""
        if scope["type"] != "http" or scope["method"] == "GET":
            await self._app(scope, receive, send)
            return
        if self._stopping:
            await self._refused(scope, receive, send)
            return
        self._running += 1
        # The server made this scope for us alone: nobody above sees what is added.
        scope[EXPIRED] = self._expired
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
            if self._stopping and not self._running:
                self._idle.set()

    async def drained(self, seconds: float, expire: Callable[[], None]) -> int:
        """Refuse new requests and wait up to `seconds` for the running ones; returns how many did not finish.

        Those are then told: their scope's event is set, and `expire` is called for what they wait on.
        """
        self._stopping = True
        if await self._finished(seconds):
            return 0
        cut = self._running
        self._expired.set()
        expire()
        await self._finished(_TELL_SECONDS)
        return cut

    async def _finished(self, seconds: float) -> bool:
        if self._running:
            with anyio.move_on_after(seconds):
                await self._idle.wait()
        return not self._running
