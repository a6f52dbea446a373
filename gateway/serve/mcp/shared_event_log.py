"""The events of a session, written to the shared store in case the replica that has the session goes away.

Turns numbered events into records and writes them in the background, one after the other. It knows no HTTP.
"""

from collections import deque
from typing import Final

from gateway.shared import Bounds, Record, Shared

_WAITING: Final = 1024
_WAITING_BYTES: Final = 1024 * 1024

Event = tuple[int, int, bytes]
"""Stream, number and frame."""


class EventLog:
    """Writes the events of one session."""

    def __init__(self, shared: Shared, bounds: Bounds, owner: str, session_id: str) -> None:
        self._shared = shared
        self._bounds = bounds
        self._owner = owner
        self._session = session_id
        self._waiting: deque[Event] = deque()
        self._size = 0
        self._ahead: set[tuple[int, int]] = set()
        """Stream and number of events that were written before any client read them."""
        self._writing = False

    def write(self, stream: int, number: int, frame: bytes, *, ahead: bool = False) -> None:
        """Write an event. `ahead`: no client has read it yet; it gets this number when one does."""
        if (stream, number) in self._ahead:
            if not ahead:
                self._ahead.discard((stream, number))
            return
        if ahead:
            self._ahead.add((stream, number))
        self._waiting.append((stream, number, frame))
        self._size += len(frame)
        while len(self._waiting) > _WAITING or self._size > _WAITING_BYTES:
            self._size -= len(self._waiting.popleft()[2])
        if not self._writing and self._waiting:
            self._writing = True
            self._shared.run_in_background(self._write())

    async def _write(self) -> None:
        # One after the other, so that the record written last is the latest event.
        while self._waiting:
            stream, number, frame = self._waiting.popleft()
            self._size -= len(frame)
            record = event_record(self._session, stream, number, frame)
            await self._shared.keep_last("event", self._owner, record, self._bounds)
        self._writing = False


def event_record(session_id: str, stream: int, number: int, frame: bytes) -> Record:
    """The record of an event. The stream's name is its alias, and so always names the stream's latest event."""
    place = stream_name(session_id, stream)
    return Record(f"{place}-{number}", f"{place}-{number - 1}" if number > 1 else None, frame, (place,))


def stream_name(session_id: str, stream: int) -> str:
    """A stream's name, unique among the streams of all sessions."""
    return f"{session_id} {stream}"
