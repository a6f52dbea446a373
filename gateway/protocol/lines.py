"""Bytes of a pipe into lines, each of bounded length.

Sans-IO: `feed(data)` gives the lines that ended, `close()` the rest. Of a line over the bound only the head and the
tail are kept, enough to see which request it would have answered; `over` shows such a line before it ends. Linear in
the bytes fed, however they are cut.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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


def portions(data: bytes) -> Iterator[bytes]:
    """The same bytes in pieces of at most `PORTION` line ends each; almost always one piece."""
    if data.count(b"\n") + data.count(b"\r") <= PORTION:
        yield data
        return
    for match in _PORTION.finditer(data):
        yield match[0]


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
        if not self._length and len(data) <= self._bound and data.endswith(b"\n"):
            # The usual case: only whole lines, none of them too long.
            return [*data[:-1].split(b"\n")]
        *ended, rest = data.split(b"\n")
        lines: list[bytes | LongLine] = []
        for part in ended:
            self._add(part)
            lines.append(self._take())
        self._add(rest)
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
