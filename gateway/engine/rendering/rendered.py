"""A rendering into ids: the template's text with special tokens on, what others wrote with special tokens off.

Finds the marks of `foreign.py` in the text, sees from each what the template did to the content that it stands for
(stripped it, escaped it for JSON), does the same to the content, and joins the ids, at the end of a content as the
tokenizer joins the text. No IO.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Final, NamedTuple

from gateway.engine.interface import shared_prefix
from gateway.engine.rendering.foreign import PAD, QUOTE, STAND_IN, Foreign
from leaf_sdk.vocab import TokenMap

_LONG: Final = 1000
"""Characters from which on the ids of a piece are kept."""
_KEPT: Final = 8
_SEAM: Final = 4
"""Ids on either side of a seam that are tokenized again as one text."""
_BLANKS: Final = " \t\n\r\v\f"
_ESCAPES: Final[dict[str, Callable[[str], str]]] = {
    QUOTE: lambda text: text,
    json.dumps(QUOTE)[1:-1]: lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "&quot;": lambda text: text.replace("&", "&amp;").replace(QUOTE, "&quot;"),
}
"""What a template may have done to a text, by what it turned a quote into."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a template does to a content at one place."""

    left: str = ""
    """Characters that it strips from the beginning."""
    right: str = ""
    quote: str = QUOTE
    """What it turns a quote into: see `_ESCAPES`."""

    @property
    def known(self) -> bool:
        """Whether we can do the same to another text."""
        return self.quote in _ESCAPES

    def apply(self, text: str) -> str:
        """Return a content as the template shows it."""
        return _ESCAPES[self.quote](text.lstrip(self.left).rstrip(self.right))


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in a rendering: the text at `start:end` stands for content `number`."""

    number: int
    start: int
    end: int
    fit: Fit


def find_marks(text: str, mark: str) -> list[Mark]:
    """Return the marks of a rendering, in order."""
    outer = f"(?:{PAD}|{re.escape(json.dumps(PAD)[1:-1])})"
    pattern = re.compile(
        rf"(?P<left>(?P<left_lines>{outer})?(?:\t|\\t))?{mark}(?P<quote>[^\d{mark}]{{1,12}}?)(?P<number>\d+){mark}"
        rf"(?P<right>(?:\t|\\t)(?P<right_lines>{outer})?)?"
    )
    marks: list[Mark] = []
    for match in pattern.finditer(text):
        left = _stripped(match["left"], match["left_lines"])
        right = _stripped(match["right"], match["right_lines"])
        marks.append(Mark(int(match["number"]), match.start(), match.end(), Fit(left, right, match["quote"])))
    return marks


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


def shown_once(text: str, foreign: Foreign) -> list[Mark] | None:
    """Return the marks of a rendering (`restored`); None if the template dropped, doubled or broke one."""
    marks = find_marks(text, foreign.mark)
    wanted = [n for n in range(len(foreign.contents)) if n not in foreign.optional]
    numbers = [mark.number for mark in marks]
    if (
        len(numbers) != len(set(numbers))
        or not set(wanted) <= set(numbers)
        or not all(mark.fit.known for mark in marks)
    ):
        return None
    return marks if 2 * len(marks) == text.count(foreign.mark) else None


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


def joined(content: Sequence[int], after: Sequence[int], token_map: TokenMap) -> tuple[Sequence[int], Sequence[int]]:
    """Return the ids of a content and of the template's text behind it as the tokenizer makes them of one text.

    Many tokenizers have one id for a full stop and the line end behind it; a model that has only ever read that one
    may end its turn at once after the two. An id of both counts as the template's. Where the ids would differ farther
    from the seam than it can see, they stay as they are.
    """
    tail = content[-_SEAM:]
    head = list(takewhile(lambda token_id: token_id not in token_map.special_ids, after[:_SEAM]))
    if not (tail and head and token_map.exact_decode):
        return content, after
    try:
        text = token_map.decode_bytes([*tail, *head]).decode()
    except UnicodeDecodeError:
        return content, after
    ids = token_map.encode(text)
    before, behind = shared_prefix(ids, tail), shared_prefix(ids[::-1], head[::-1])
    near = (before or len(tail) == len(content)) and (behind or len(head) < _SEAM)
    if not near or before == len(tail):
        return content, after
    return content[: len(content) - len(tail) + before], [*ids[before:], *after[len(head) :]]


def content_region(mark: Mark, foreign: Foreign, token_map: TokenMap, known: Sequence[int] | None) -> Region:
    """Return the region of a content in place of its mark, with its known ids unless the template changes it."""
    content = foreign.contents[mark.number]
    shown = mark.fit.apply(content)
    held = known is not None and shown == content
    ids = known if known is not None and held else token_map.encode(shown)
    return Region(mark.start, mark.end, ids, foreign.owners[mark.number], held, joins=not held)


def pieces_between(text: str, marks: Sequence[Mark]) -> list[str]:
    """Return the template's own text before, between and after the marks."""
    starts = [0, *(mark.end for mark in marks)]
    ends = [*(mark.start for mark in marks), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def restored(text: str, foreign: Foreign) -> str:
    """Return a rendering with separators unescaped if the template escaped them, and numbers as they were written."""
    for sign in (foreign.separator, foreign.anchor):
        if "\\u" in text:
            text = re.sub(re.escape(json.dumps(sign)[1:-1]), sign, text, flags=re.IGNORECASE)
    if not foreign.numbers:
        return text
    # One look for each: an expression of all of them would be tried, one after the other, at each of them.
    return STAND_IN.sub(lambda found: foreign.numbers.get(found.group(), found.group()), text)


def _stripped(kept: str | None, kept_lines: str | None) -> str:
    """The characters that a template strips, judged by what is left of the padding on one side."""
    if kept is None:
        return _BLANKS
    return "" if kept_lines is not None else "\n"
