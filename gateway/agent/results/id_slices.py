"""Ids beside the text that they spell: which ids hold a part of the text, and which lines.

A part is widened to whole ids and whole characters, so that every slice of the ids is exact. Also finds the ids that
spell the arguments of a call. Knows no tokenizer rules beyond the bytes of each id. Pure.
"""

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

from leaf_sdk.vocab import TokenMap
from leaf_sdk.vocab.utf8 import cuts_a_character

_NEAR: Final = 8
"""A cut is moved back to the end of a line if that costs at most one in so many ids."""


@dataclass(frozen=True, slots=True)
class SpelledPart:
    """Some consecutive ids: from `first` up to, but not including, `last`."""

    first: int
    last: int
    line: int
    """The number of the line that it begins in; the first one is 1."""
    label: str = ""
    """What it is, where there are several."""


class SpelledIds:
    """The ids of one text."""

    def __init__(self, ids: Sequence[int], token_map: TokenMap) -> None:
        pieces = [token_map.table.get(token_id) or b"" for token_id in ids]
        self.text = b"".join(pieces)
        self._ends = array("Q", accumulate(map(len, pieces)))

    def part(self, start: int, end: int, label: str = "") -> SpelledPart:
        """Return the ids that hold the bytes from `start` to `end`, which are at least one."""
        first, last = self._holding(start, end)
        return SpelledPart(first, last, self.line_at(self.byte_of(first)), label)

    def byte_of(self, n: int) -> int:
        """Where the bytes of the id number `n` begin."""
        return self._ends[n - 1] if n else 0

    def line_at(self, place: int) -> int:
        """The number of the line that a byte is in."""
        return self.text.count(b"\n", 0, place) + 1

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return self.text.count(b"\n") + (not self.text.endswith(b"\n"))

    def lines(self, first: int, last: int) -> tuple[int, int] | None:
        """The bytes of these lines, both included, without the last line's end; None: there is no first line."""
        start = 0
        for _ in range(first - 1):
            start = self.text.find(b"\n", start) + 1
            if not start:
                return None
        end = start - 1
        for _ in range(last - first + 1):
            end = self.text.find(b"\n", end + 1)
            if end < 0:
                end = len(self.text)
                break
        return (start, max(end, start + 1)) if start < len(self.text) else None

    def _holding(self, start: int, end: int) -> tuple[int, int]:
        while True:
            while start and self._goes_on(start):
                start -= 1
            while end < len(self.text) and self._goes_on(end):
                end += 1
            first, last = bisect_right(self._ends, start), bisect_left(self._ends, end) + 1
            widened = self.byte_of(first), self.byte_of(last)
            if widened == (start, end):
                return first, last
            start, end = widened

    def _goes_on(self, place: int) -> bool:
        """Whether a byte is not the first of its character."""
        return self.text[place] & 0xC0 == 0x80


def fitting(ids: Sequence[int], most: int, token_map: TokenMap) -> Sequence[int]:
    """Return at most `most` of the first ids: all, or up to the end of a line if one is near, or of a character."""
    if len(ids) <= most:
        return ids
    cut = ids[:most]
    for n in range(len(cut), len(cut) - len(cut) // _NEAR, -1):
        if token_map.decode_bytes([cut[n - 1]]).endswith(b"\n"):
            return cut[:n]
    return whole_characters(cut, token_map)


def whole_characters(ids: Sequence[int], token_map: TokenMap) -> Sequence[int]:
    """Return the ids without the last ones that spell only a part of a character."""
    while ids and cuts_a_character(token_map.decode_bytes(ids[-4:])):
        ids = ids[:-1]
    return ids


# Finds words or a regular expression in a kept result, line by line where lines are short.
#
# Models write the expressions and servers the texts, so they run on RE2, whose time is linear in both; their product
# is bounded besides. Source of the syntax: https://github.com/google/re2/wiki/Syntax. Pure.

MOST_HITS: Final = 1000
"""Places that are counted."""
MOST_SHOWN: Final = 100
_MOST_CHARACTERS: Final = 500
"""Characters of an expression."""
_MOST_STEPS: Final = 250_000_000
"""Bytes of the text times instructions of the expression: 5 s, in a thread, if RE2 has to give up its automaton."""
LONG_LINE: Final = 7500
"""Bytes of a line that an expression always sees together."""
_WINDOW: Final = 8192
"""Bytes that are searched at a time: where much is found, each search may look at all of them again."""
_AUTOMATON: Final = 1024 * 1024
"""Bytes that RE2 may use for an expression."""
_AROUND: Final = 200
"""Bytes that are shown before and behind a place in a long line."""


@dataclass(frozen=True, slots=True)
class Found:
    """The places where something is found."""

    parts: tuple[SpelledPart, ...]
    """The first of them."""
    count: int
    is_whole: bool
    """Whether the whole text was searched."""
    is_split: bool = False
    """Whether it has lines that are so long that an expression saw only parts of them."""


def find(spelled: SpelledIds, words: str, *, is_regex: bool, offset: int = 0) -> Found:
    """Return the places where something is found.

    Args:
        spelled: the text.
        words: what is looked for, in either case if it is no expression.
        is_regex: whether it is an expression.
        offset: how many ids are passed over.

    Raises:
        ValueError: the expression can't be used; says why.
    """
    if not 0 < len(words) <= _MOST_CHARACTERS:
        raise ValueError(f"expected 1 to {_MOST_CHARACTERS} characters to look for; got {len(words)}")
    if is_regex:
        return _find(spelled, words, offset, is_regex=True)
    # In JSON, characters may be escaped: quotes, or all but ASCII.
    spellings = (words, *(json.dumps(words, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)))
    found = (_find(spelled, each, offset, is_regex=False) for each in dict.fromkeys(spellings))
    return next((each for each in found if each.count), Found((), 0, is_whole=True))


def _find(spelled: SpelledIds, words: str, offset: int, *, is_regex: bool) -> Found:
    text, at = spelled.text, spelled.byte_of(offset)
    expression = _compiled(words, is_regex=is_regex, size=len(text) - at)
    # Words in the other case may have more bytes.
    overlap = _AROUND if is_regex else max(_AROUND, 3 * len(words.encode()))
    is_split = False
    # The steps for words alone are few, however many they are.
    price, left = expression.programsize * is_regex, 2 * _MOST_STEPS
    parts: list[SpelledPart] = []
    count = seen = 0
    for start, end in _windows(text, at, overlap):
        is_split = is_split or (is_regex and end < len(text) and text[end - 1 : end] != b"\n")
        at = max(at, start)
        while at < end and (place := expression.search(text, at, end)) is not None:
            begins, ends = place.span()
            if seen and _is_in_no_line(text, begins, ends, seen):
                at = ends + 1
                continue
            if count == MOST_HITS or left < 0:
                return Found(tuple(parts), count, is_whole=False, is_split=is_split)
            first, last = _shown(text, begins, ends)
            # Each search may look at all that is left of the window.
            left -= price * (end - at)
            count += 1
            at = seen = last
            if len(parts) < MOST_SHOWN:
                parts.append(spelled.part(first, last))
    return Found(tuple(parts), count, is_whole=True, is_split=is_split)


def _is_in_no_line(text: bytes, start: int, end: int, seen: int) -> bool:
    """Whether an empty place is the end of the line before `seen`, or is behind the last line's end."""
    follows_line_end = text[start - 1 : start] == b"\n"
    if start == len(text):
        return follows_line_end
    return start == end == seen and text[start : start + 1] == b"\n" and not follows_line_end


def _windows(text: bytes, start: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Parts of a text that are searched one after another, each of which begins `overlap` before the last one's end."""
    size = max(_WINDOW, 4 * overlap)
    while True:
        end = start + size
        if end < len(text):
            # A line is seen as a whole where it is not long.
            end = text.rfind(b"\n", start + overlap, end) + 1 or end
        end = min(end, len(text))
        yield start, end
        if end >= len(text):
            return
        start = end - overlap


def _compiled(words: str, *, is_regex: bool, size: int) -> Any:
    # Loaded late: it takes time and memory that few gateways need.
    re2: Any = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _AUTOMATON
    options.literal = not is_regex
    options.case_sensitive = is_regex
    try:
        # Lines are what models think in: `^` and `$` are a line's.
        expression = re2.compile(f"(?m){words}" if is_regex else words, options)
    except re2.error as error:
        why = error.args[0].decode("utf-8", "replace").replace("(?m)", "", 1) if error.args else "unknown"
        raise ValueError(f"the regular expression {words[:80]!r} can't be used: {why} (RE2's syntax)") from None
    finally:
        # It would keep the last 128 expressions.
        re2.purge()
    if is_regex and expression.programsize * size > _MOST_STEPS:
        raise ValueError(f"the regular expression {words[:80]!r} is too complex for a result this large; use `text`")
    return expression


def _shown(text: bytes, start: int, end: int) -> tuple[int, int]:
    """The bytes that are shown of a place: its line, or of a long line what is near it."""
    # Some expressions match nothing, as at the text's end.
    start = min(start, len(text) - 1)
    end = max(end, start + 1)
    before = text.rfind(b"\n", max(start - _AROUND, 0), start) + 1
    after = text.find(b"\n", end - 1, end + _AROUND)
    first = before or max(start - _AROUND, 0)
    last = after if after >= 0 else min(end + _AROUND, len(text))
    # The place itself may be long.
    return first, max(min(last, start + 2 * _AROUND), start + 1)


# The ids in which the model wrote the arguments of a call, for a tool that reads ids: the run of a region's ids that
# begins and ends on token boundaries, and means what the parser read. Where there is none (arguments in tags, a
# repaired brace, a marker that shares a token with the object), they go out as text. Nothing is encoded or decoded for
# this: the bytes of each token are looked up.

_NO_TEXT: Final = b"\xff"
"""Stands for an id that the map does not have: no JSON contains this byte."""


class ArgumentIds(NamedTuple):
    """Ids that spell an object."""

    ids: tuple[int, ...]
    name: str | None
    """The tool's name, where the ids spell a whole call; None: they spell only the arguments."""


def spelled_arguments(
    region: Sequence[int], token_map: TokenMap, name: str, arguments: Mapping[str, Any]
) -> ArgumentIds | None:
    """The ids between the markers of `region`, if they spell this call.

    Args:
        region: a closed call's ids, both markers included.
        name: the tool's name as the model knows it.
        arguments: what the parser read.
    """
    pieces = [token_map.token_bytes(each) if token_map.has_id(each) else _NO_TEXT for each in region]
    text = b"".join(pieces)
    start, end = text.find(b"{"), text.rfind(b"}") + 1
    if start < 0 or end <= start:
        return None
    ends = list(accumulate(map(len, pieces)))
    first = next(n for n, at in enumerate(ends) if at > start)
    last = next(n for n, at in enumerate(ends) if at >= end)
    ids = tuple(region[first : last + 1])
    before, after = text[ends[first] - len(pieces[first]) : start], text[end : ends[last]]
    # Whitespace may share a token with the object: JSON ignores it.
    if before.strip() or after.strip() or not token_map.special_ids.isdisjoint(ids):
        return None
    return _judged(ids, text[start:end], name, arguments)


def _judged(ids: tuple[int, ...], written: bytes, name: str, arguments: Mapping[str, Any]) -> ArgumentIds | None:
    try:
        said: object = json.loads(written)
    except (ValueError, RecursionError):
        return None
    if said == arguments:
        return ArgumentIds(ids, None)
    whole = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    is_call = whole.get("name") == name and whole.get("arguments", whole.get("parameters")) == arguments
    return ArgumentIds(ids, name) if is_call else None
