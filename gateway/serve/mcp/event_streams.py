"""Streams of a session of the handshake era: numbered events, which a client may ask for again.

Turns what is sent to a client (`tell`, `put`) into server-sent events whose ids name the stream and the number in it
("3-17"), for the response through which the client currently reads the stream (`attach`). Written events are kept for a
while, within a bound for the whole session, so that a client that lost its connection can get them again (2025-11-25,
"Resumability and Redelivery"). It knows no HTTP.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from gateway.protocol.lines import encode_event, encode_message
from gateway.serve.mcp.outbox import Outbox
from gateway.shared import Shared, StoreBounds, StoreRecord

# Events are written to the shared store in case the replica that has the session goes away.

_WAITING: Final = 1024
_WAITING_BYTES: Final = 1024 * 1024

NumberedEvent = tuple[int, int, bytes]
"""Stream, number and frame."""


class EventLog:
    """Writes the events of one session."""

    def __init__(self, shared: Shared, bounds: StoreBounds, owner: str, session_id: str) -> None:
        self._shared = shared
        self._bounds = bounds
        self._owner = owner
        self._session = session_id
        self._waiting: deque[NumberedEvent] = deque()
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


def event_record(session_id: str, stream: int, number: int, frame: bytes) -> StoreRecord:
    """The record of an event. The stream's name is its alias, and so always names the stream's latest event."""
    place = stream_name(session_id, stream)
    return StoreRecord(f"{place}-{number}", f"{place}-{number - 1}" if number > 1 else None, frame, (place,))


def stream_name(session_id: str, stream: int) -> str:
    """A stream's name, unique among the streams of all sessions."""
    return f"{session_id} {stream}"


_KEPT_EVENTS: Final = 1024
_KEPT_BYTES: Final = 1024 * 1024


class EventHistory:
    """The latest events that were written on the streams of one session."""

    def __init__(self, log: EventLog | None = None) -> None:
        """`log`: also gets the events, for other replicas."""
        self._log = log
        self._events: deque[tuple[int, int, bytes]] = deque()
        self._size = 0

    def keep(self, stream: int, number: int, frame: bytes) -> None:
        """Remember an event, and forget the oldest ones beyond the bounds."""
        if self._log is not None:
            self._log.write(stream, number, frame)
        self._events.append((stream, number, frame))
        self._size += len(frame)
        while len(self._events) > _KEPT_EVENTS or self._size > _KEPT_BYTES:
            self._size -= len(self._events.popleft()[2])

    def tell_others(self, stream: int, number: int, frames: Iterable[bytes]) -> None:
        """Log the last events of a stream for other replicas, though nobody has read them here yet.

        `number`: the number of the last event before them.
        """
        if self._log is not None:
            for place, frame in enumerate(frames, number + 1):
                self._log.write(stream, place, frame, ahead=True)

    def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        """The events of a stream after the one of this number."""
        return [(place, frame) for which, place, frame in self._events if which == stream and place > number]


class EventStream:
    """One stream of a session."""

    def __init__(self, number: int, history: EventHistory, dropped: Callable[[], None]) -> None:
        """Start empty. `number`: unique in the session; 0 is the stream that belongs to no request."""
        self.number = number
        self.finished = False
        """Whether the last frame has been put."""
        self._history = history
        self._outbox = Outbox(self._wake, dropped)
        self._last = 0
        self._reader: NumberedReader | None = None

    @property
    def waiting(self) -> int:
        """How many frames have not been written yet."""
        return len(self._outbox)

    @property
    def size(self) -> int:
        """How many bytes have not been written yet."""
        return self._outbox.size

    @property
    def attached(self) -> bool:
        """Whether a response carries the stream now."""
        return self._reader is not None

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """Send a notification, if there is room."""
        self._outbox.tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """Send a request of the gateway's, if there is room. Returns whether there was."""
        return self._outbox.offer(data)

    def put(self, data: bytes) -> None:
        """Send a frame that must arrive."""
        self._outbox.put(data)

    def finish(self, data: bytes | None = None) -> None:
        """End the stream, with a last frame if there is one."""
        self.finished = True
        if data is not None:
            self._outbox.put(data)
        self._wake()
        self._outbox.mute()
        if self._reader is None:
            self._history.tell_others(self.number, self._last, self._outbox.frames())

    def attach(self, after: int | None = None) -> "NumberedReader":
        """A reader for a new response. Closes the reader before it. `after`: the number of the last event that the
        client has; None: start with the waiting events."""
        if self._reader is not None:
            self._reader.close()
        self._reader = NumberedReader(self, [] if after is None else self._history.after(self.number, after))
        return self._reader

    def detach(self, reader: "NumberedReader") -> None:
        """Detach the reader of a response that is over."""
        if self._reader is reader:
            self._reader = None
            if self.finished:
                self._history.tell_others(self.number, self._last, self._outbox.frames())

    def take_events(self) -> list[tuple[int, bytes]]:
        """Take the waiting frames as numbered events, and remember them in the history."""
        events: list[tuple[int, bytes]] = []
        for frame in self._outbox.take():
            self._last += 1
            self._history.keep(self.number, self._last, frame)
            events.append((self._last, frame))
        return events

    def event_id(self, number: int) -> str:
        """The id of the event with this number."""
        return f"{self.number}-{number}"

    @property
    def last(self) -> int:
        """The number of the last event that was written."""
        return self._last

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.ready.set()


class NumberedReader:
    """The events of a stream for one response."""

    def __init__(self, stream: EventStream, replay: list[tuple[int, bytes]]) -> None:
        self.ready = asyncio.Event()
        self.closed = False
        self.resumable = False
        """Whether the client has the id of an event, by which it can come back for the rest."""
        self._stream = stream
        self._replay = replay
        self._prime: int | None = None

    def prime(self, retry_ms: int) -> None:
        """Begin with an empty event that says, by its id, where the client is, and when to reconnect (2025-11-25)."""
        self._prime = retry_ms

    def close(self) -> None:
        """Write nothing more here; the stream goes on, for the next reader."""
        self.closed = True
        self.ready.set()

    @property
    def over(self) -> bool:
        """Whether this response ends."""
        return self.closed or self._stream.finished

    def take(self) -> bytes:
        """Take the waiting events."""
        stream = self._stream
        parts: list[bytes] = []
        if self._prime is not None:
            first = stream.event_id(self._replay[0][0] - 1 if self._replay else stream.last)
            parts.append(encode_event(b"", event_id=first, retry=self._prime))
            self._prime = None
        if not self.closed:
            events, self._replay = [*self._replay, *stream.take_events()], []
            parts += [encode_message(frame, event_id=stream.event_id(number)) for number, frame in events]
        self.resumable = self.resumable or bool(parts)
        return b"".join(parts)
