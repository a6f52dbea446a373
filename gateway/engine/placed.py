"""Where a rendering shows turns whose ids are known: they keep these, whatever the template makes of them.

A template writes a model's call in its own JSON, which is seldom the model's, and so a turn rendered again comes
back as other ids. Here the turn's place in the rendering is found, by its contents, by its beginning and its end, and
by reading its calls; only a turn that is shown whole is replaced. No IO.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from gateway.engine.foreign import Foreign
from gateway.engine.interface import Message
from gateway.engine.left_behind import shared_prefix
from gateway.engine.rendered import Region, Slot

_LEAST: Final = 3
"""Characters by which a turn's beginning or end can be found."""

_LEAD: Final = 512
"""Characters that a turn may have before its first content: marks of its format."""
_OPENING: Final = 32
"""Characters of the text that opens the model's turn."""

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
        calls_in: reads the calls that a part of it holds.
    """
    places: dict[int, list[int]] = {}
    for place, slot in enumerate(slots):
        places.setdefault(foreign.owners[slot.number], []).append(place)
    contents, starts = Counter(foreign.owners), [slot.start for slot in slots]
    found: list[Region] = []
    low = 0
    for number, message in enumerate(messages):
        own = places.get(number, [])
        turn = known.get(number)
        if turn is not None and message["role"] == "assistant" and len(own) == contents[number]:
            window = _window(text, slots, starts, own, low, foreign)
            region = None if window is None else window.find(turn, calls_in)
            if region is not None:
                found.append(replace(region, message=number, held=True))
                low = region.end
        low = slots[own[-1]].end if own and slots[own[-1]].end > low else low
    return found


def _window(
    text: str, slots: Sequence[Slot], starts: Sequence[int], own: Sequence[int], low: int, foreign: Foreign
) -> "_Window | None":
    """The part of a rendering in which a turn must stand that has these marks; None where they are not together."""
    if not own:
        after = bisect_left(starts, low)
    elif own[-1] - own[0] == len(own) - 1:
        after = own[-1] + 1
        low = max(low, slots[own[0] - 1].end if own[0] else 0)
    else:
        return None
    high = slots[after].start if after < len(slots) else len(text)
    return _Window(text, low, high, [slots[place] for place in own], foreign)


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
        if not self.own:
            return self._calls(turn, self._first(turn.text), turn.text, calls_in)
        first = self.own[0]
        content = self._content(first)
        at = turn.text.find(content)
        while 0 <= at <= _LEAD:
            start = self._back(turn.text[:at], first.start)
            rest = None if start is None else self._others(turn.text[at + len(content) :])
            if rest is not None:
                last = self.own[-1].end
                if turn.calls:
                    return self._calls(turn, start, rest, calls_in, last)
                end = self._behind(rest, last)
                return None if end is None or start is None else Region(start, end, turn.ids)
            at = turn.text.find(content, at + 1)
        return None

    def _calls(self, turn: Known, start: int | None, rest: str, calls_in: CallsIn, low: int = 0) -> Region | None:
        """The place of a turn that ends in calls. `rest`: what it has behind its contents, which end at `low`."""
        if start is None or not turn.calls:
            return None
        low = max(start, low)
        end = self._end(turn, rest, low)
        if end is None:
            return None
        shown = self._plain(low, end)
        # To read calls costs far more than to compare them, and most styles differ in blanks alone.
        same = "".join(shown.split()) == "".join(rest.split()) or list(calls_in(shown)) == list(turn.calls)
        return Region(start, end, turn.ids) if same else None

    def _content(self, slot: Slot) -> str:
        return slot.fit.apply(self.foreign.contents[slot.number]).strip()

    def _others(self, written: str) -> str | None:
        """What a turn has behind its last content, by what it has behind the first; None where it is another."""
        for before, slot in pairwise(self.own):
            between = self.text[before.end : slot.start]
            at = _walked(written, 0, between)
            if at is None:
                return None
            content = self._content(slot)
            written = written[at:].lstrip()
            if not written.startswith(content):
                return None
            written = written[len(content) :]
        return written

    def _first(self, written: str) -> int | None:
        """The place of a turn without contents: of the longest beginning of it that stands there."""
        lead = written.lstrip()
        for size in range(min(len(lead), 64), _LEAST - 1, -1):
            if (at := self.text.find(lead[:size], self.low, self.high)) >= 0:
                return self._blanks(written, at)
        return None

    def _back(self, lead: str, stop: int) -> int | None:
        """Where a text begins that ends at `stop`, whatever blanks are in it; None where another stands there."""
        at = stop
        for sign in reversed("".join(lead.split())):
            while at > self.low and self.text[at - 1].isspace():
                at -= 1
            at -= 1
            if at < self.low or self.text[at] != sign:
                return None
        return self._blanks(lead, at)

    def _blanks(self, written: str, at: int) -> int:
        """Where a turn begins whose first sign stands at `at`: blanks before it are its own, or the template's.

        What the template writes before a turn stands at the end of the rendering, before the next one.
        """
        own = len(written) - len(written.lstrip())
        blanks = at - len(self.text[self.low : at].rstrip()) - self.low
        return at - max(range(min(own, blanks) + 1), key=lambda count: (self._opens(at - count), -count))

    def _opens(self, at: int) -> int:
        """How much of what stands before a place opens the model's turn."""
        before, opening = self.text[max(at - _OPENING, self.low) : at], self.text[-_OPENING:]
        return shared_prefix(before[::-1], opening[::-1])

    def _behind(self, rest: str, last: int) -> int | None:
        """Where a turn ends that has this behind its last content, whatever blanks are in it."""
        end = _walked(self.text, last, rest)
        if end is None or end > self.high:
            return None
        blanks = rest[len(rest.rstrip()) :]
        if end == last:
            content = self.foreign.contents[self.own[-1].number]
            shown = self.own[-1].fit.apply(content)
            blanks = blanks[len(shown) - len(shown.rstrip()) :]
        return end + shared_prefix(blanks, self.text[end : self.high])

    def _end(self, turn: Known, rest: str, low: int) -> int | None:
        """Where a turn ends that ends in a call."""
        if turn.ended_by and (at := self._after(turn.ended_by, rest.count(turn.ended_by), low)) is not None:
            return at
        written = rest.rstrip()
        for size in range(min(len(written), 64), _LEAST - 1, -1):
            if (at := self.text.rfind(written[-size:], low, self.high)) >= 0:
                stop = at + size
                return stop + shared_prefix(rest[len(written) :], self.text[stop : self.high])
        return None

    def _after(self, token: str, times: int, low: int) -> int | None:
        """Where a text stands that has stood so many times before."""
        at = self.text.find(token, low, self.high)
        for _ in range(times):
            at = self.text.find(token, at + 1, self.high) if at >= 0 else at
        return at if at >= 0 else None

    def _plain(self, start: int, end: int) -> str:
        return self.text[start:end].replace(self.foreign.separator, "")


def _walked(text: str, at: int, wanted: str) -> int | None:
    """The place behind a text that begins at `at`, whatever blanks are in it; None where another stands there."""
    for sign in "".join(wanted.split()):
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != sign:
            return None
        at += 1
    return at
