"""Bytes of a pipe or of an event stream into lines and events, each of bounded length, and back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final

# Of a line over the bound only the head and the tail are kept, enough to see which request it would have answered;
# `over` shows such a line before it ends. Linear in the bytes fed, however they are cut.

PORTION: Final = 64
"""Lines that are processed before other tasks get a turn: each may cost tens of microseconds."""
EDGE: Final = 256
"""Bytes that are kept of a long line at either end."""
# The id of a response, only where it can't belong to a nested object: as the first or second field of the line, or as
# the last or last but one before its final brace. The first message of a batch counts as well. Our ids are plain
# integers.
_HEAD_ID = re.compile(rb'\s*(?:\[\s*)?\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_TAIL_ID = re.compile(rb',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_CALL = re.compile(rb'\s*(?:\[\s*)?\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"]{0,64}"|\d{1,18})\s*,\s*){0,2}"method"')
_PORTION = re.compile(rb"(?:[^\r\n]*[\r\n]){1,%d}|[^\r\n]+" % PORTION)


def portions(data: bytes) -> Sequence[bytes]:
    """The same bytes in pieces of at most `PORTION` line ends each; almost always one piece."""
    if not data.partition(b"\n")[2] and not data.partition(b"\r")[1]:
        return (data,)
    left = PORTION
    # Not by `count`, which looks at each byte: the end of a long line is found at once.
    for end in (b"\n", b"\r"):
        at = data.find(end)
        while at >= 0:
            if not left:
                return [match[0] for match in _PORTION.finditer(data)]
            left -= 1
            at = data.find(end, at + 1)
    return (data,)


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line over the bound: its first and last bytes, and its length in bytes."""

    head: bytes
    tail: bytes
    length: int

    @property
    def is_call(self) -> bool:
        """Whether its head shows a request or a notification, and so no answer."""
        return _CALL.match(self.head) is not None

    def answered_id(self) -> int | None:
        """The id of the request that this line would have answered, if it can be read at one of the ends."""
        if self.is_call:
            return None
        match = _HEAD_ID.match(self.head) or _TAIL_ID.search(self.tail)
        return int(match[1]) if match else None


class LineSplitter:
    """Splits a byte stream at `\\n`; `bound` is the longest line that is kept whole, in bytes."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._parts: list[bytes] = []
        self._length = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes | LongLine]:
        """The lines that end in `data`, without their line ends; empty lines are included."""
        if not self._length and len(data) <= self._bound and data[-1:] == b"\n":
            # The usual case: only whole lines, none of them too long; mostly one.
            line, _, more = data.partition(b"\n")
            return [part[:-1] for part in BytesIO(data)] if more else [line]
        lines: list[bytes | LongLine] = []
        # Not by `split`, which goes byte by byte.
        for part in BytesIO(data):
            if part.endswith(b"\n"):
                self._add(part[:-1])
                lines.append(self._take())
            else:
                self._add(part)
        return lines

    @property
    def over(self) -> LongLine | None:
        """The line that has not ended but is already over the bound, once its head is complete."""
        # Of a line within the bound there is no head.
        if len(self._head) < EDGE:
            return None
        return LongLine(self._head, self._tail, self._length)

    def close(self) -> list[bytes | LongLine]:
        """The last line, if it did not end."""
        return [self._take()] if self._length else []

    def _add(self, part: bytes) -> None:
        self._length += len(part)
        if self._length <= self._bound:
            self._parts.append(part)
            return
        if self._parts:
            kept = b"".join(self._parts)
            self._parts.clear()
            self._head, self._tail = kept[:EDGE], kept[-EDGE:]
        if len(self._head) < EDGE:
            self._head += part[: EDGE - len(self._head)]
        self._tail = (self._tail + part[-EDGE:])[-EDGE:]

    def _take(self) -> bytes | LongLine:
        if self._length <= self._bound:
            line: bytes | LongLine = b"".join(self._parts)
        else:
            line = LongLine(self._head, self._tail, self._length)
        self._parts.clear()
        self._length, self._head, self._tail = 0, b"", b""
        return line


# Rules: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6. Of an event over the bound only the head and the tail are
# kept, as of a long line; `over` shows it before it ends. Linear in the bytes fed.

_BOM: Final = b"\xef\xbb\xbf"
_FIELD_ROOM: Final = 64
"""Bytes that a line may have beyond the bound of its data: the name of the field, the colon and the space."""
_ID_BOUND: Final = 1024
_PAUSE_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class SseEvent:
    """An event with data. Of an event without data only the id counts."""

    data: bytes
    """Its data lines, joined by a line feed."""
    kind: str = "message"


@dataclass(frozen=True, slots=True)
class LongEvent:
    """An event whose data is over the bound: both ends of it, and a lower bound of its length in bytes."""

    data: LongLine
    ended: bool = True
    """Whether all of it was read."""


class EventParser:
    """Reads one stream; `bound` is the longest event data that is kept whole, in bytes."""

    def __init__(self, bound: int, *, last_id: str | None = None) -> None:
        """`last_id`: the id of the event after which the stream continues, if it was resumed."""
        self.last_id = last_id
        """The id of the last event that had one, to be sent back as `Last-Event-ID`."""
        self.retry: int | None = None
        """Milliseconds to wait before connecting again, if the stream said so."""
        self._bound = bound
        self._lines = LineSplitter(bound + _FIELD_ROOM)
        self._begun = False
        self._after_return = False
        self._forget()

    def feed(self, data: bytes) -> list[SseEvent | LongEvent]:
        """The events that end in `data`. An event that the end of the stream cuts off is dropped (9.2.6)."""
        if not self._begun and data:
            self._begun = True
            data = data.removeprefix(_BOM)
        events: list[SseEvent | LongEvent] = []
        for line in self._lines.feed(self._unify(data)):
            if isinstance(line, LongLine):
                self._take_long(line)
            elif line:
                self._take(line)
            else:
                self._dispatch(events)
        return events

    def close(self) -> list[SseEvent | LongEvent]:
        """The event that the end of the stream cut off, if there is one. `last_id` does not count it."""
        last_id = self.last_id
        events = self.feed(b"\n\n")
        self.last_id = last_id
        return events

    @property
    def over(self) -> LongLine | None:
        """What has not ended but is already over the bound: the data of an event, or a line of any kind."""
        line = self._lines.over
        if line is not None:
            head = line.head.removeprefix(b"data:").removeprefix(b" ")
            return LongLine(head, line.tail, self._length + line.length)
        return self._long and LongLine(self._long.head, self._long.tail, self._length)

    def _unify(self, data: bytes) -> bytes:
        """The same bytes with `\\n` for each of the three line ends; a CRLF may come in two pieces."""
        if self._after_return and data:
            self._after_return = False
            data = data.removeprefix(b"\n")
        if b"\r" not in data:
            return data
        self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _forget(self) -> None:
        self._data: list[bytes] = []
        self._length = 0
        self._kind = "message"
        self._id = self.last_id
        self._long: LongLine | None = None

    def _dispatch(self, events: list[SseEvent | LongEvent]) -> None:
        self.last_id = self._id
        if self._long is not None:
            events.append(LongEvent(self._long))
        elif any(self._data):
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            events.append(SseEvent(data, self._kind))
        self._forget()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"id":
            self._set_id(value)
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace") or "message"
        elif name == b"retry" and value.isdigit() and len(value) <= _PAUSE_DIGITS:
            self.retry = int(value)

    def _take_long(self, line: LongLine) -> None:
        if not line.head.startswith(b"data:"):
            return
        self._length += line.length
        if self._long is None:
            self._data.clear()
            self._long = LongLine(line.head[len(b"data:") :].removeprefix(b" "), line.tail, line.length)

    def _add(self, value: bytes) -> None:
        # One for the line feed, so that an empty line counts as well.
        self._length += len(value) + 1
        if self._long is not None:
            return
        self._data.append(value)
        if self._length > self._bound + 1:
            data = b"\n".join(self._data)
            self._data.clear()
            self._long = LongLine(data[:EDGE], data[-EDGE:], len(data))

    def _set_id(self, value: bytes) -> None:
        # An id is sent back in a header, so ids that can't stand in one are ignored. The standard only excludes NUL.
        text = value.decode("utf-8", "replace")
        if len(value) <= _ID_BOUND and text.isprintable():
            self._id = text or None


def encode_event(
    data: bytes, *, event_id: str | None = None, kind: str | None = None, retry: int | None = None
) -> bytes:
    """An event as it is sent, including its blank line.

    Args:
        data: its data; a line feed begins another data line, and it must not hold a carriage return.
        event_id, kind: strings without line ends.
        retry: milliseconds to wait before connecting again.
    """
    head = b""
    if event_id is not None:
        head += b"id: %s\n" % event_id.encode()
    if kind is not None:
        head += b"event: %s\n" % kind.encode()
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%sdata: %s\n\n" % (head, data.replace(b"\n", b"\ndata: "))


def encode_message(data: bytes, *, event_id: str | None = None) -> bytes:
    """An event with a JSON-RPC message. It names the kind that an event has anyway, since some clients drop events that
    name none (vercel/ai, issue 16002)."""
    return encode_event(data, event_id=event_id, kind="message")
