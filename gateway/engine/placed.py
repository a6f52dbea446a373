"""Where a rendering shows turns whose ids are known: they keep these, whatever the template makes of them.

A template writes a model's call in its own JSON, which is seldom the model's, and so a turn rendered again comes
back as other ids. Here the turn's place in the rendering is found, by its contents, by its beginning and its end, and
by reading its calls; only a turn that is shown whole is replaced. No IO.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.engine.foreign import Foreign
from gateway.engine.interface import Message
from gateway.engine.rendered import Region, Slot

_LEAST: Final = 3
"""Characters by which a turn's beginning or end can be found."""

CallsIn = Callable[[str], Sequence[tuple[str, object]]]
"""Reads the calls that a text holds: names, and arguments as values."""


@dataclass(frozen=True, slots=True)
class Known:
    """The ids with which a message stands in the context."""

    ids: Sequence[int]
    text: str = ""
    """Of a turn of the model, what it wrote."""
    calls: tuple[tuple[str, object], ...] = ()
    """Its calls: names, and arguments as values."""
    ended_by: str = ""
    """The text of the token that ended it, which is not part of it."""


def regions(
    text: str,
    slots: Sequence[Slot],
    foreign: Foreign,
    messages: Sequence[Message],
    known: Mapping[int, Known],
    calls_in: CallsIn,
) -> list[Region]:
    """Give the places of known turns in a rendering, those that it shows whole.

    Args:
        text: the rendering, `restored`.
        slots: the marks in it.
        messages: what was rendered.
        known: what is known of them, by their numbers.
    """
    owners = [foreign.owners[slot.number] for slot in slots]
    contents = Counter(foreign.owners)
    found: list[Region] = []
    for number, turn in sorted(known.items()):
        first, after = bisect_left(owners, number), bisect_right(owners, number)
        if messages[number]["role"] != "assistant" or after - first != contents[number]:
            continue
        low = max(slots[first - 1].end if first else 0, found[-1].end if found else 0)
        high = slots[after].start if after < len(slots) else len(text)
        region = _Window(text, low, high, slots[first:after], foreign).find(turn, calls_in)
        if region is not None:
            found.append(region)
    return found


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a rendering in which a turn must stand."""

    text: str
    low: int
    high: int
    own: Sequence[Slot]
    """The marks of the turn itself."""
    foreign: Foreign

    def find(self, turn: Known, calls_in: CallsIn) -> Region | None:
        start = self._start(turn)
        if start is None:
            return None
        last = max(start, self.own[-1].end if self.own else start)
        end = self._end(turn, last) if turn.calls else last
        if end is None:
            return None
        if turn.calls and list(calls_in(self._plain(last, end))) != list(turn.calls):
            return None
        return Region(start, end, turn.ids)

    def _start(self, turn: Known) -> int | None:
        if not self.own:
            return self._begins(turn.text.lstrip(), self.high) if turn.calls else None
        first = self.own[0]
        content = first.fit.apply(self.foreign.contents[first.number])
        lead, found, _ = turn.text.partition(content.strip())
        if not found:
            return None
        if not lead.strip():
            return first.start
        return self._begins(lead, first.start)

    def _begins(self, lead: str, high: int) -> int | None:
        """The place, before `high`, of the longest beginning of a text that stands there."""
        if (at := self.text.rfind(lead, self.low, high)) >= 0 and high == at + len(lead):
            return at
        for size in range(min(len(lead), 64), _LEAST - 1, -1):
            if (at := self.text.find(lead[:size], self.low, high)) >= 0:
                return at
        return None

    def _end(self, turn: Known, low: int) -> int | None:
        """Where a turn ends that ends in a call."""
        if turn.ended_by and (at := self.text.find(turn.ended_by, low, self.high)) >= 0:
            return at
        written = turn.text.rstrip()
        for size in range(min(len(written), 64), _LEAST - 1, -1):
            if (at := self.text.rfind(written[-size:], low, self.high)) >= 0:
                stop = at + size
                blanks = turn.text[len(written) :]
                return stop + len(blanks) if self.text.startswith(blanks, stop) else stop
        return None

    def _plain(self, start: int, end: int) -> str:
        return self.text[start:end].replace(self.foreign.separator, "")
