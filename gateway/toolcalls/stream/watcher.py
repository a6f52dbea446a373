"""Cuts regions between two marker ids out of a stream of ids, without decoding it: Codec's tool watcher.

Only integers are compared, and long runs are searched at C speed. It does not know what a region says: `parser.py`
parses calls, while this is for code that forwards frames and must know where a call is. Independent of all other
modules. Source: Codec's ToolWatcher in its newest contract (five kinds of events, `end`, a bound on regions).
"""

from array import array
from collections.abc import Sequence
from typing import Literal, NamedTuple

REGION_CAP = 65_536
"""Most ids of one region's body, unless the caller says otherwise."""


class WatchEvent(NamedTuple):
    """What the watcher saw. `ids` are a copy. A named tuple, since a frozen dataclass takes longer to make than a feed
    may take.

    `passthrough`: ids outside regions. `region`: a whole body, without the markers. `nested_start`: the start marker
    inside a region, which is left out of the body. `overflow`: the body's first ids, once there is one more than the
    cap; the end of that region is then no event. `truncated`: the body of a region that the stream's end left open.
    """

    kind: Literal["passthrough", "region", "nested_start", "overflow", "truncated"]
    ids: "array[int]"
    finish_reason: str | None = None
    """Why the stream ended; only for `truncated`."""


class ToolWatcher:
    """Watches one stream. Ids may come in any batches: the events are the same, except where passthrough is cut."""

    def __init__(self, start_id: int, end_id: int, region_cap: int = REGION_CAP) -> None:
        """`region_cap` counts ids; zero or less means the default. Raises OverflowError for an id beyond 32 bits."""
        self._start = start_id
        self._end = end_id
        self._start_bytes = array("I", (start_id,)).tobytes()
        self._end_bytes = array("I", (end_id,)).tobytes()
        self._cap = region_cap if region_cap > 0 else REGION_CAP
        self._body: array[int] | None = None
        self._capped = False

    @property
    def inside(self) -> bool:
        """Whether a region is open."""
        return self._body is not None

    def feed(self, ids: Sequence[int] | bytes) -> list[WatchEvent]:
        """Read the next ids; bytes are unsigned 32-bit integers in the machine's byte order.

        Raises OverflowError for an invalid id, ValueError if the number of bytes is not a multiple of four; nothing of
        that feed is read then.
        """
        block = array("I", ids)
        if self._body is None and len(block) == 1 and block[0] != self._start:
            # Nearly every feed ends here, and the class's own constructor would take half of its time.
            event: WatchEvent = tuple.__new__(WatchEvent, ("passthrough", block, None))  # pyright: ignore[reportUnknownMemberType]
            return [event]
        return self._cut(block, block.tobytes())

    def end(self, finish_reason: str | None = None) -> list[WatchEvent]:
        """End the stream: return what an open region holds, and close it."""
        body, self._body, self._capped = self._body, None, False
        return [] if body is None else [WatchEvent("truncated", body, finish_reason)]

    def _cut(self, block: "array[int]", data: bytes) -> list[WatchEvent]:
        events: list[WatchEvent] = []
        at = 0
        while at < len(block):
            if self._body is None:
                start = _find(block, data, self._start, self._start_bytes, at, len(block))
                if start > at:
                    events.append(WatchEvent("passthrough", block[at:start]))
                if start < len(block):
                    self._body = array("I")
                at = start + 1
            else:
                end = _find(block, data, self._end, self._end_bytes, at, len(block))
                self._read_body(block, data, at, end, events)
                if end < len(block):
                    self._close(events)
                at = end + 1
        return events

    def _read_body(self, block: "array[int]", data: bytes, at: int, end: int, events: list[WatchEvent]) -> None:
        while at < end:
            nested = _find(block, data, self._start, self._start_bytes, at, end)
            self._keep(block[at:nested], events)
            if nested < end:
                events.append(WatchEvent("nested_start", block[nested : nested + 1]))
            at = nested + 1

    def _keep(self, ids: "array[int]", events: list[WatchEvent]) -> None:
        if self._body is None or self._capped:
            return
        room = self._cap - len(self._body)
        self._body += ids[:room]
        if len(ids) > room:
            self._capped = True
            events.append(WatchEvent("overflow", self._body[:]))

    def _close(self, events: list[WatchEvent]) -> None:
        if self._body is not None and not self._capped:
            events.append(WatchEvent("region", self._body))
        self._body, self._capped = None, False


def _find(block: "array[int]", data: bytes, token_id: int, token: bytes, start: int, stop: int) -> int:
    """Return the first place of an id in `block[start:stop]`, or `stop` if there is none."""
    size = len(token)
    found = data.find(token, start * size, stop * size)
    if found < 0:
        return stop
    if found % size == 0:
        return found // size
    # Bytes of two neighbouring ids look like the id. Crafted ids must not make the search go byte by byte.
    try:
        return block.index(token_id, found // size + 1, stop)
    except ValueError:
        return stop
