"""Counts what is running, so that a stop can wait for it.

An ASGI layer over all endpoints. Requests that may stay open for ever (the GET stream of an MCP session) are not waited
for; after a stop has begun new requests are refused with 503, those with which something that runs goes on are not.
What has not finished in time is told so: each request finds an event in its scope that says when.
"""

from collections.abc import Callable
from typing import Final

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

EXPIRED: Final = "codec.expired"
"""Key in a request's scope: an `anyio.Event`, set when the time for finishing is over."""
LATE: Final = "codec.late"
"""Key in the scope of a request that came after a stop had begun: its endpoint refuses what would begin something."""

_TELL_SECONDS = 1.0
"""What requests get to say their last word."""
_LOOK = 0.02
"""Seconds between two looks at whether all has finished: what goes on over several requests ends in none of them."""


class Drain:
    """Wraps an app; `drained()` waits until the running requests are over."""

    def __init__(
        self,
        app: ASGIApp,
        refused: ASGIApp,
        *,
        judges: Callable[[Scope], bool] = lambda _: False,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        """Nothing runs yet.

        Args:
            refused: answers the requests that come after a stop has begun.
            judges: whether the app itself tells what is new (`LATE`) from what something that runs goes on with.
            waits: whether something runs that no request is there for: its client is to come back.
        """
        self._app = app
        self._refused = refused
        self._judges = judges
        self._waits = waits
        self._running = 0
        self._stopping = False
        self._expired = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count it."""
        if scope["type"] != "http" or scope["method"] == "GET":
            await self._app(scope, receive, send)
            return
        if self._stopping:
            if not self._judges(scope):
                await self._refused(scope, receive, send)
                return
            scope[LATE] = True
        self._running += 1
        # The server made this scope for us alone: nobody above sees what is added.
        scope[EXPIRED] = self._expired
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1

    async def drained(self, seconds: float, expire: Callable[[], None]) -> int:
        """Refuse new requests and wait up to `seconds` for the running ones; returns how many did not finish.

        Those are then told: their scope's event is set, and `expire` is called for what they wait on.
        """
        self._stopping = True
        if await self._finished(seconds):
            return 0
        # What waits for its client may be in no request.
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
