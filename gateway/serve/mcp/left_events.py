"""The events that sessions have left in the shared store, for clients that come back after their replica is gone.

Turns the id of the last event that a client has into an answer with the events after it: all of them, or none.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from gateway.protocol.sse import encode_message
from gateway.serve.mcp.http import EVENTS, RESUME_HEADER, SESSION_HEADER, HttpRequest, Rejected, accepts, write_events
from gateway.serve.mcp.http_session import place_of
from gateway.serve.mcp.shared_event_log import EventLog, stream_name
from gateway.shared import Bounds, Shared

_MOST_EVENTS: Final = 1024
"""The most events of a stream that are sent again."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes kept, for all sessions of all replicas together."""


class LeftEvents:
    """The events that replicas have left behind."""

    def __init__(self, shared: Shared, share: float, ttl: float) -> None:
        """`share`: the part of the bound that one principal may use; `ttl`: seconds for which events are kept."""
        self._shared = shared
        self._bounds = Bounds.of(_MOST_BYTES, share, ttl)

    def log(self, owner: str, session_id: str) -> EventLog:
        """The log to which a session writes its events."""
        return EventLog(self._shared, self._bounds, owner, session_id)

    async def after(self, owner: str, session_id: str, stream: int, number: int) -> list[tuple[int, bytes]]:
        """The events of a stream after the one of this number; [] if there are none, or not all are kept."""
        newest = await self._shared.find_alias("event", owner, [stream_name(session_id, stream)], self._bounds, depth=1)
        if not newest:
            return []
        missing = int(newest[0].id.rpartition("-")[2]) - number
        if not 0 < missing <= _MOST_EVENTS:
            return []
        found = await self._shared.find("event", owner, newest[0].id, self._bounds, depth=missing)
        return [(number + n + 1, each.value) for n, each in enumerate(found)] if len(found) == missing else []

    async def give(self, request: HttpRequest) -> bool:
        """Answer a client that comes back to a session that is gone with the events that it lacks.

        The answer ends after the last of them. Returns False, and answers nothing, if there are none. Raises Rejected.
        """
        session_id, last = request.headers.get(SESSION_HEADER), request.headers.get(RESUME_HEADER)
        if request.method != "GET" or session_id is None or last is None or (place := place_of(last)) is None:
            return False
        events = await self.after(request.principal.name, session_id, *place)
        if not events:
            return False
        if not accepts(request.headers.get("accept", ""), EVENTS):
            raise Rejected(406, f"the Accept header must name {EVENTS}")
        await write_events(request.send, _GivenEvents(place[0], events))
        return True


class _GivenEvents:
    """The events of a stream to which nothing is added any more, for one response."""

    over = True

    def __init__(self, stream: int, events: Iterable[tuple[int, bytes]]) -> None:
        self.ready = asyncio.Event()
        self._data = b"".join([encode_message(frame, event_id=f"{stream}-{number}") for number, frame in events])

    def take(self) -> bytes:
        """Take all events; nothing when called again."""
        data, self._data = self._data, b""
        return data
