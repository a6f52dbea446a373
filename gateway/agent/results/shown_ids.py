"""What a model sees of a kept result: its beginning, or the places that a call selected, in at most so many ids.

The result's own ids stand there unchanged; what the gateway says about them is encoded as ordinary text. Each says
where it ends and how to read on, so that no part is skipped unnoticed. Pure.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal

from gateway.agent.results.spelled_ids import SpelledPart, fitting
from gateway.config.overrides import RESULT_TOOLS
from gateway.context.memory import KeptResult
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from array import array

_READ, _SEARCH = RESULT_TOOLS
_NEXT: Final = "\n"
_DIGITS: Final = 8
"""Ids that numbers may take beyond those of other numbers."""
_LEAST: Final = 4
"""A beginning that would have less than one in so many of its ids is not worth a definition of tools."""


@dataclass(frozen=True, slots=True)
class ResultBeginning:
    """The beginning of a kept result."""

    result: KeptResult
    ids: tuple[int, ...]
    """As many of its first ids as may be shown at most."""
    definitions: tuple[int, ...]
    """The text that defines the tools with which the model reads on; () where it has read it."""

    @property
    def own(self) -> tuple[IdPiece, ...]:
        """As many of its first ids as may be shown at most, by where they came from."""
        return tuple(_sourced(self.result, self.ids, 0))

    def fits(self, most: int, token_map: TokenMap) -> bool:
        """Whether there is room for more than the words around it."""
        return self._room(most, token_map) * _LEAST >= most

    def pieces(self, most: int, token_map: TokenMap) -> tuple[tuple[IdPiece, ...], int]:
        """Return at most `most` ids, and how many of them are the result's."""
        shown = fitting(self.ids, max(self._room(most, token_map), 0), token_map)
        end = (*token_map.encode(self._note(len(shown))), *self.definitions)
        own = _sourced(self.result, shown, 0)
        return (*own, IdPiece(end[:most], "shim")), len(shown)

    def _room(self, most: int, token_map: TokenMap) -> int:
        around = len(token_map.encode(self._note(most))) + _DIGITS + len(self.definitions)
        return min(most, len(self.ids)) - around

    def _note(self, shown: int) -> str:
        result = self.result
        return (
            f"\n[cut: the first {shown} of {result.tokens} tokens are shown; the whole result is kept as "
            f"{result.handle}: {result.shape}. Find words in it with "
            f'{_SEARCH}(handle="{result.handle}", text="..."), or read on with '
            f'{_READ}(handle="{result.handle}", offset={shown}).]'
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """The places of a kept result that a call selected."""

    result: KeptResult
    ids: "array[int]"
    """All ids of the result."""
    parts: tuple[SpelledPart, ...]
    count: int
    """How many places there are; those that are not in `parts` were only counted."""
    by: Literal["offset", "lines", "path", "search"]
    is_whole: bool = True
    """Whether all places were counted."""
    missing: str = ""
    """What is said if there are none."""

    def fits(self, most: int, token_map: TokenMap) -> bool:
        """Whether there is room for more than the words around them."""
        around = self._longest_note(token_map) if self.parts else len(token_map.encode(self.missing))
        return around <= most

    def pieces(self, most: int, token_map: TokenMap) -> tuple[IdPiece, ...]:
        """Return the ids of as many places as fit, with words around them; at most `most` ids."""
        if not self.parts:
            return (IdPiece(tuple(token_map.encode(self.missing)[:most]), "shim"),)
        room = most - self._longest_note(token_map)
        found: list[IdPiece] = []
        shown, end = 0, self.parts[0].first
        for number, part in enumerate(self.parts):
            label = token_map.encode(self._label(part, number))
            own = fitting(self.ids[part.first : part.last], max(room - len(label), 0), token_map)
            # Only the first place is shown in part, since the others can be asked for.
            if not own or (number and len(own) < part.last - part.first):
                break
            room -= len(label) + len(own)
            found += [IdPiece(tuple(label), "shim")] if label else []
            found += _sourced(self.result, own, part.first)
            shown, end = number + 1, part.first + len(own)
        note = token_map.encode(self._note(shown, end))
        return (*found, IdPiece(tuple(note[:most]), "shim"))

    def _longest_note(self, token_map: TokenMap) -> int:
        ends = self.parts[0].last - 1, self.result.tokens
        notes = (self._note(shown, end) for shown in (0, len(self.parts)) for end in ends)
        return max(len(token_map.encode(note)) for note in notes) + _DIGITS

    def _label(self, part: SpelledPart, number: int) -> str:
        if self.by not in ("path", "search"):
            return ""
        place = f"line {part.line}, offset {part.first}" if self.by == "search" else part.label
        return f"{_NEXT if number else ''}[{place}] "

    def _note(self, shown: int, end: int) -> str:
        """What is said behind the places. `end`: where the last one of those that are shown ends here."""
        result, handle, first = self.result, self.result.handle, self.parts[0]
        if self.by == "search":
            count = f"{self.count} or more" if not self.is_whole else self.count
            more = f'; go on with {_SEARCH}(handle="{handle}", ..., offset={end})'
            more = "" if self.is_whole and shown == self.count else more
            return f"\n[{shown} of {count} places in {handle}{more}]"
        if self.by == "path":
            # Only the first one is ever shown in part.
            more = "" if end >= first.last else f'; read on with {_READ}(handle="{handle}", offset={end})'
            fewer = "; select fewer, as in [0:9], to see the others" if shown < self.count else ""
            return f"\n[{shown} of {self.count} values in {handle}{more}{fewer}]"
        more = "the end" if end >= result.tokens else f'read on with {_READ}(handle="{handle}", offset={end})'
        return f"\n[from line {first.line}: tokens {first.first} to {end} of {result.tokens} in {handle}; {more}]"


def _sourced(result: KeptResult, ids: Sequence[int], first: int) -> Iterator[IdPiece]:
    """Yield consecutive ids of a result by where they came from. `first`: the place of the first one."""
    at, last = first, first + len(ids)
    number = bisect_right(result.sources, first, key=itemgetter(1))
    while at < last:
        source, end = result.sources[number]
        yield IdPiece(tuple(ids[at - first : min(end, last) - first]), source)
        at, number = end, number + 1
