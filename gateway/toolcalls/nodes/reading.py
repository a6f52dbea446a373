"""Reads one JSON value from the cursor as it arrives: strictly, and from its first flaw on by what it means.

A flaw that leaves one reading is noted on the call; the caller gets JSON text either way, or learns that there is none.
"""

from collections.abc import Sequence
from dataclasses import replace

from gateway.toolcalls.schema.kinds import NUMBERS, KindsInside, mapping_of
from gateway.toolcalls.stream.cursor import Cursor
from gateway.toolcalls.values.json_scanner import JsonScanner, Scan
from gateway.toolcalls.values.mended import MendingScanner
from gateway.toolcalls.values.places import Place
from gateway.toolcalls.values.string_end import Surroundings


class JsonReading:
    """The reading of one value at the cursor."""

    def __init__(self, at: Cursor, stops: tuple[str, ...] = ()) -> None:
        """`stops`: what may follow the value besides the region's markers."""
        self._at = at
        self._stops = stops
        self._strict = JsonScanner()
        self._mending: MendingScanner | None = None

    @property
    def state(self) -> Scan:
        """Whether the value goes on, is whole, or has no reading."""
        return self._strict.state if self._mending is None else self._mending.state

    @property
    def mends(self) -> bool:
        """Whether a flaw was found."""
        return self._mending is not None

    @property
    def guesses(self) -> bool:
        """Whether the reading depends on which quotes belong to a string."""
        return self._mending is not None and self._mending.guesses

    def read(self) -> str:
        """Read what has arrived; return the JSON text that it adds.

        Where the stream cuts the value off, the text that was held back is part of it.
        """
        at = self._at
        at.scanned += at.unread
        told = ""
        if self._mending is None:
            end = self._strict.scan(at.buffer, at.position, ended=at.ended)
            cut = at.ended and not at.whole and self._strict.state is not Scan.WHOLE
            told = at.take(len(at.buffer) if cut else end)
            flawed = self._strict.state is Scan.WRONG or (at.whole and self._strict.state is Scan.MORE)
            if cut or not flawed:
                return told
            self._mending = self._mend(told)
        end, more = self._mending.scan(at.buffer, at.position, ended=at.ended, whole=at.whole)
        at.take(end)
        return told + more

    def _mend(self, told: str) -> MendingScanner:
        at = self._at
        at.calls.repair(f"its JSON is not valid at character {at.offset}")
        around = surroundings(at)
        around = replace(around, stops=(*self._stops, *around.stops))
        return MendingScanner(self._strict, around, at.spelling.plain, at.calls.arguments + told)


def surroundings(at: Cursor) -> Surroundings:
    """Return what the request and the format say about the current call's arguments."""
    tool = at.tools.get(at.calls.name)
    root = mapping_of(tool.parameters if tool else None)
    properties = mapping_of(root.get("properties"))

    inside = KindsInside(root)

    def is_text(path: Sequence[Place]) -> bool:
        kinds = inside.at(path)
        return "string" in kinds and not kinds & NUMBERS

    return Surroundings(tuple(properties), at.stops, is_text)
