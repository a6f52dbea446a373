"""A rendering to ids: the template's text with special tokens on, what others wrote with special tokens off.

Finds the marks of `foreign.py` in the text, reads off each what the template did to the content that it stands for
(stripped it, wrote it as a JSON string), does the same to the content, and joins the ids. No IO.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.engine.foreign import PAD, QUOTE, Foreign
from leaf_sdk.vocab import TokenMap

_LONG: Final = 1000
"""Characters of a piece from which on its ids are kept."""
_KEPT: Final = 8
_BLANKS: Final = " \t\n\r\v\f"
_ESCAPES: Final[dict[str, Callable[[str], str]]] = {
    QUOTE: lambda text: text,
    json.dumps(QUOTE)[1:-1]: lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "&quot;": lambda text: text.replace("&", "&amp;").replace(QUOTE, "&quot;"),
}
"""What a template may have done to a text, by what it made of a quote."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a template does to a content at one place."""

    left: str = ""
    """Characters that it strips off the beginning."""
    right: str = ""
    quote: str = QUOTE
    """What it makes of a quote: see `_ESCAPES`."""

    @property
    def known(self) -> bool:
        """Whether the same can be done to another text."""
        return self.quote in _ESCAPES

    def apply(self, text: str) -> str:
        """Give a content as the template shows it."""
        return _ESCAPES[self.quote](text.lstrip(self.left).rstrip(self.right))


@dataclass(frozen=True, slots=True)
class Slot:
    """A mark in a rendering: the text `start:end` stands for content `number`."""

    number: int
    start: int
    end: int
    fit: Fit


def find_slots(text: str, mark: str) -> list[Slot]:
    """Give the marks of a rendering, in their order."""
    outer = f"(?:{PAD}|{re.escape(json.dumps(PAD)[1:-1])})"
    pattern = re.compile(
        rf"(?P<left>(?P<left_lines>{outer})?(?:\t|\\t))?{mark}(?P<quote>[^\d{mark}]{{1,12}}?)(?P<number>\d+){mark}"
        rf"(?P<right>(?:\t|\\t)(?P<right_lines>{outer})?)?"
    )
    slots: list[Slot] = []
    for match in pattern.finditer(text):
        left = _stripped(match["left"], match["left_lines"])
        right = _stripped(match["right"], match["right_lines"])
        slots.append(Slot(int(match["number"]), match.start(), match.end(), Fit(left, right, match["quote"])))
    return slots


class PieceCache:
    """Ids of the template's own pieces; the long ones, which hold the definitions of tools, come with every request."""

    def __init__(self, token_map: TokenMap, separator: str) -> None:
        self.token_map = token_map
        self._separator = separator
        self._known: OrderedDict[str, list[int]] = OrderedDict()

    def ids(self, piece: str) -> list[int]:
        """Give the ids of a piece, special tokens read."""
        if len(piece) < _LONG:
            return self.token_map.encode(piece, specials=True, separator=self._separator)
        if piece not in self._known:
            self._known[piece] = self.token_map.encode(piece, specials=True, separator=self._separator)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(piece)
        return self._known[piece]


def shown_once(text: str, foreign: Foreign) -> list[Slot] | None:
    """Give the marks of a rendering (`restored`); None when the template lost, doubled or took apart one."""
    slots = find_slots(text, foreign.mark)
    wanted = [n for n in range(len(foreign.contents)) if n not in foreign.optional]
    numbers = [slot.number for slot in slots]
    if (
        len(numbers) != len(set(numbers))
        or not set(wanted) <= set(numbers)
        or not all(slot.fit.known for slot in slots)
    ):
        return None
    return slots if 2 * len(slots) == text.count(foreign.mark) else None


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a rendering, and the ids that stand for it."""

    start: int
    end: int
    ids: Sequence[int]
    message: int | None = None
    """Whose words they are."""
    held: bool = False
    """Whether these are the ids that they are known to have."""


class Part(NamedTuple):
    """Ids of a rendering that follow each other: the template's own, or a message's."""

    ids: int
    """How many."""
    message: int | None = None
    held: bool = False


def rendered_ids(text: str, regions: Iterable[Region], pieces: PieceCache) -> tuple[list[int], list[Part]]:
    """Give the ids of a rendering: those of its regions, and the template's own between them; and whose they are."""
    ids: list[int] = []
    parts: list[Part] = []
    at = 0
    for region in regions:
        own = pieces.ids(text[at : region.start])
        ids += own
        ids += region.ids
        parts += Part(len(own)), Part(len(region.ids), region.message, region.held)
        at = region.end
    own = pieces.ids(text[at:])
    ids += own
    parts.append(Part(len(own)))
    return ids, parts


def content_region(slot: Slot, foreign: Foreign, token_map: TokenMap, known: Sequence[int] | None) -> Region:
    """Give a content in the place of its mark, with the ids that it is known to have unless the template changes it."""
    content = foreign.contents[slot.number]
    shown = slot.fit.apply(content)
    held = known is not None and shown == content
    ids = known if known is not None and held else token_map.encode(shown)
    return Region(slot.start, slot.end, ids, foreign.owners[slot.number], held)


def pieces_between(text: str, slots: Sequence[Slot]) -> list[str]:
    """Give the template's own text before, between and after the marks."""
    starts = [0, *(slot.end for slot in slots)]
    ends = [*(slot.start for slot in slots), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def restored(text: str, foreign: Foreign) -> str:
    """Give a rendering with bare separators, where a template escaped them, and numbers as they were written."""
    for sign in (foreign.separator, foreign.anchor):
        if "\\u" in text:
            text = re.sub(re.escape(json.dumps(sign)[1:-1]), sign, text, flags=re.IGNORECASE)
    if not foreign.numbers:
        return text
    return re.sub("|".join(foreign.numbers), lambda match: foreign.numbers[match.group()], text)


def _stripped(kept: str | None, kept_lines: str | None) -> str:
    """Which characters a template strips, by what is left of the pads on one side."""
    if kept is None:
        return _BLANKS
    return "" if kept_lines is not None else "\n"
