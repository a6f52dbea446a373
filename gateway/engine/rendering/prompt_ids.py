"""A rendering into prompt ids: the template's text with special tokens on, what others wrote with special tokens off.

Does to each content what the template did to its mark, and joins the ids, at the end of a content as the tokenizer
joins the text. A turn whose ids are known keeps these: a template writes a model's call in its own JSON style, which is
seldom the model's, so a turn that is rendered again has other ids. The turn's place in the rendering is found by its
contents, by its beginning and its end, and by reading its calls; only a turn that is shown whole is replaced. No IO.
"""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final, NamedTuple

from gateway.engine.interface import Message, shared_prefix
from gateway.engine.rendering.foreign_text import ForeignText, Mark
from gateway.engine.rendering.scaffold import joined
from leaf_sdk.vocab import TokenMap

_LONG: Final = 1000
"""Characters from which on the ids of a piece are kept."""
_KEPT: Final = 8
_LEAST: Final = 3
"""Least characters by which a turn's beginning or end can be found."""
_LEAD: Final = 512
"""Most characters that a turn may have before its first content: markers of its format."""
_OPENING: Final = 32
"""Characters that are compared of the text that opens the model's turn."""
_LAST: Final = 2
"""Characters at the end of a turn that tell one format of calls from another."""
_LEAST_OPENING: Final = 5
"""Least characters by which that text is recognised."""


class PieceCache:
    """Ids of the template's own pieces. Long ones are kept: they hold tool definitions, which every request repeats."""

    def __init__(self, token_map: TokenMap, separator: str) -> None:
        self.token_map = token_map
        self._separator = separator
        self._known: OrderedDict[str, list[int]] = OrderedDict()

    def ids(self, piece: str) -> list[int]:
        """Return the ids of a piece, with special tokens on."""
        if len(piece) < _LONG:
            return self.token_map.encode(piece, specials=True, separator=self._separator)
        if piece not in self._known:
            self._known[piece] = self.token_map.encode(piece, specials=True, separator=self._separator)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(piece)
        return self._known[piece]


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a rendering, and the ids that stand for it."""

    start: int
    end: int
    ids: Sequence[int]
    message: int | None = None
    """The number of the message that it belongs to; None: the template's own."""
    held: bool = False
    """Whether the ids are the known ids of the message."""
    joins: bool = False
    """Whether its last ids may become one with the text behind them: nobody else made them."""


class Part(NamedTuple):
    """Consecutive ids of a rendering that belong to the template, or to one message."""

    ids: int
    """How many."""
    message: int | None = None
    held: bool = False


def rendered_ids(text: str, regions: Iterable[Region], pieces: PieceCache) -> tuple[list[int], list[Part]]:
    """Return the ids of a rendering, those of its regions and the template's own between them, and whose they are."""
    ids: list[int] = []
    parts: list[Part] = []
    last = Region(0, 0, ())
    for region in chain(regions, (Region(len(text), len(text), ()),)):
        content, own = last.ids, pieces.ids(text[last.end : region.start])
        if last.joins:
            content, own = joined(content, own, pieces.token_map)
        ids += content
        ids += own
        parts += Part(len(content), last.message, last.held), Part(len(own))
        last = region
    return ids, parts


def content_region(mark: Mark, foreign: ForeignText, token_map: TokenMap, known: Sequence[int] | None) -> Region:
    """Return the region of a content in place of its mark, with its known ids unless the template changes it."""
    content = foreign.contents[mark.number]
    shown = mark.fit.apply(content)
    held = known is not None and shown == content
    ids = known if known is not None and held else token_map.encode(shown)
    return Region(mark.start, mark.end, ids, foreign.owners[mark.number], held, joins=not held)


CallsIn = Callable[[str], Sequence[tuple[str, object]]]
"""Reads the calls in a text: names, and arguments as values."""


@dataclass(frozen=True, slots=True)
class Known:
    """The ids that a message has in the context."""

    ids: Sequence[int]
    text: str = ""
    """What the model wrote, if the message is its turn."""
    calls: tuple[tuple[str, object], ...] = ()
    """Its calls: names, and arguments as values."""
    ended_by: str = ""
    """The text of the token that ended it, which is not part of it."""
    unmarked: bool = False
    """Whether it is nothing but calls without markers: the template may write them with its own."""


def turn_regions(
    text: str,
    marks: Sequence[Mark],
    foreign: ForeignText,
    messages: Sequence[Message],
    known: Mapping[int, Known],
    calls_in: CallsIn,
) -> list[Region]:
    """Return the places of known turns in a rendering, as far as it shows them whole.

    Args:
        text: the rendering, `restored`.
        marks: the marks in it.
        messages: the messages that were rendered.
        known: what is known about them, by their numbers.
        calls_in: reads the calls in a part of the rendering.
    """
    places: dict[int, list[int]] = {}
    for place, mark in enumerate(marks):
        places.setdefault(foreign.owners[mark.number], []).append(place)
    contents, starts = Counter(foreign.owners), [mark.start for mark in marks]
    found: list[Region] = []
    low = 0
    for number, message in enumerate(messages):
        own = places.get(number, [])
        turn = known.get(number)
        if turn is not None and message["role"] == "assistant" and len(own) == contents[number]:
            window = _window(text, marks, starts, own, low, foreign)
            region = None if window is None else window.find(turn, calls_in)
            if region is not None:
                found.append(replace(region, message=number, held=True))
                low = region.end
        low = marks[own[-1]].end if own and marks[own[-1]].end > low else low
    return found


def _window(
    text: str, marks: Sequence[Mark], starts: Sequence[int], own: Sequence[int], low: int, foreign: ForeignText
) -> "_Window | None":
    """The part of a rendering that must contain a turn with these marks; None if the marks are not adjacent."""
    if not own:
        after = bisect_left(starts, low)
    elif own[-1] - own[0] == len(own) - 1:
        after = own[-1] + 1
        low = max(low, marks[own[0] - 1].end if own[0] else 0)
    else:
        return None
    high = marks[after].start if after < len(marks) else len(text)
    return _Window(text, low, high, [marks[place] for place in own], foreign)


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a rendering that must contain a turn."""

    text: str
    low: int
    high: int
    own: Sequence[Mark]
    """The marks of the turn itself."""
    foreign: ForeignText

    def find(self, turn: Known, calls_in: CallsIn) -> Region | None:
        if not self.own:
            found = self._calls(turn, self._first(turn.text), turn.text, calls_in)
            if not turn.unmarked or (found is not None and self._ends_alike(found, turn.text)):
                return found
            # The first characters of the turn are not shown, or stand inside the template's own markers.
            return self._calls(turn, self._opened(), turn.text, calls_in)
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
        """The place of a turn that ends in calls. `rest`: what it wrote after its contents, which end at `low`."""
        if start is None or not turn.calls:
            return None
        low = max(start, low)
        end = self._end(turn, rest, low)
        if end is None:
            return None
        shown = self._plain(low, end)
        # Reading calls costs far more than comparing them, and most styles differ only in blanks.
        same = "".join(shown.split()) == "".join(rest.split()) or list(calls_in(shown)) == list(turn.calls)
        return Region(start, end, turn.ids) if same else None

    def _content(self, mark: Mark) -> str:
        return mark.fit.apply(self.foreign.contents[mark.number]).strip()

    def _others(self, written: str) -> str | None:
        """What a turn has after its last content, given what it has after the first; None if the rendering differs."""
        for before, mark in pairwise(self.own):
            between = self.text[before.end : mark.start]
            at = _walked(written, 0, between)
            if at is None:
                return None
            content = self._content(mark)
            written = written[at:].lstrip()
            if not written.startswith(content):
                return None
            written = written[len(content) :]
        return written

    def _first(self, written: str) -> int | None:
        """The place of a turn without contents, found by the longest part of its beginning that is shown."""
        lead = written.lstrip()
        for size in range(min(len(lead), 64), _LEAST - 1, -1):
            if (at := self.text.find(lead[:size], self.low, self.high)) >= 0:
                return self._blanks(written, at)
        return None

    def _ends_alike(self, region: Region, written: str) -> bool:
        """Whether a region ends in the same characters as what the model wrote."""
        return self._plain(region.start, region.end).rstrip()[-_LAST:] == written.rstrip()[-_LAST:]

    def _opened(self) -> int | None:
        """The place behind the text that opens the model's turn, which is the end of the rendering."""
        for size in range(_OPENING, _LEAST_OPENING - 1, -1):
            opening = self.text[-size:]
            if (at := self.text.find(opening, self.low, self.high)) >= 0:
                return at + len(opening)
        return None

    def _back(self, lead: str, stop: int) -> int | None:
        """Where a text that ends at `stop` begins, ignoring blanks in it; None if another text is there."""
        at = stop
        for sign in reversed("".join(lead.split())):
            while at > self.low and self.text[at - 1].isspace():
                at -= 1
            at -= 1
            if at < self.low or self.text[at] != sign:
                return None
        return self._blanks(lead, at)

    def _blanks(self, written: str, at: int) -> int:
        """Where a turn begins whose first sign is at `at`: blanks before it may be its own, or the template's.

        What the template writes before a turn is also at the end of the rendering, before the next turn.
        """
        own = len(written) - len(written.lstrip())
        blanks = at - len(self.text[self.low : at].rstrip()) - self.low
        return at - max(range(min(own, blanks) + 1), key=lambda count: (self._opens(at - count), -count))

    def _opens(self, at: int) -> int:
        """How many characters before a place are those that open the model's turn."""
        before, opening = self.text[max(at - _OPENING, self.low) : at], self.text[-_OPENING:]
        return shared_prefix(before[::-1], opening[::-1])

    def _behind(self, rest: str, last: int) -> int | None:
        """Where a turn ends that has this text after its last content, ignoring blanks in it."""
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
        """Where a turn that ends in a call ends."""
        if turn.ended_by and (at := self._after(turn.ended_by, rest.count(turn.ended_by), low)) is not None:
            return at
        written = rest.rstrip()
        for size in range(min(len(written), 64), _LEAST - 1, -1):
            if (at := self.text.rfind(written[-size:], low, self.high)) >= 0:
                stop = at + size
                return stop + shared_prefix(rest[len(written) :], self.text[stop : self.high])
        return None

    def _after(self, token: str, times: int, low: int) -> int | None:
        """The place of a text after it has occurred this many times before."""
        at = self.text.find(token, low, self.high)
        for _ in range(times):
            at = self.text.find(token, at + 1, self.high) if at >= 0 else at
        return at if at >= 0 else None

    def _plain(self, start: int, end: int) -> str:
        return self.text[start:end].replace(self.foreign.separator, "")


def _walked(text: str, at: int, wanted: str) -> int | None:
    """The place after a text that begins at `at`, ignoring blanks in it; None if another text is there."""
    for sign in "".join(wanted.split()):
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != sign:
            return None
        at += 1
    return at
