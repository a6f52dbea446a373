"""What differs between two definitions of a tool, as lines to show.

Turns the definition that was pinned and the one seen last into a line-by-line difference: secrets are masked, foreign
text is escaped, the length is bounded. Nothing around a change can hide it. Pure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from gateway.engine.interface import shared_prefix
from gateway.escape import escape_text, mask_text

_LINES: Final = 300
_WIDTH: Final = 160
"""Maximum characters of a line: longer ones are split, and the parts compared."""
_AROUND: Final = 2
_BLOCK: Final = 40
"""Maximum number of lines shown of each side of one change."""
_ALIGNED: Final = 500
"""Maximum number of lines, from the first to the last difference, that are compared one by one."""


class Line(NamedTuple):
    """One line of a difference."""

    kind: str
    """`ins`, `del` or empty."""
    text: str
    """The line after its sign, without line breaks."""


def difference(was: Mapping[str, Any], now: Mapping[str, Any], secrets: frozenset[str]) -> list[Line]:
    """What differs between two definitions, with two lines around each difference."""
    before, after = list(_lines(was, secrets)), list(_lines(now, secrets))
    found: list[Line] = []
    for kind, at, end, other, other_end in _changes(before, after):
        if kind == "equal":
            found += _marked("", " ", before[at:end])
        else:
            # The beginning of each side: a long one must not hide the other.
            found += _marked("del", "-", before[at:end]) + _marked("ins", "+", after[other:other_end])
    left = len(found) - _LINES
    return found if left <= 0 else [*found[:_LINES], Line("", f"… ({left} more lines)")]


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Which lines were replaced by which, with two unchanged lines around each change."""
    start = shared_prefix(before, after)
    stop = shared_prefix(before[start:][::-1], after[start:][::-1])
    end, other_end = len(before) - stop, len(after) - stop
    first = max(start - _AROUND, 0)
    if max(end, other_end) - start > _ALIGNED:
        # Too long to compare line by line: shown as one change.
        yield "equal", first, start, first, start
        yield "replace", start, end, start, other_end
        yield "equal", end, end + _AROUND, other_end, other_end + _AROUND
        return
    # `autojunk` would ignore frequent lines: by repeating some, a server could choose which changes are seen.
    matcher = SequenceMatcher(None, before[first : end + _AROUND], after[first : other_end + _AROUND], autojunk=False)
    for group in matcher.get_grouped_opcodes(_AROUND):
        for kind, at, till, other, other_till in group:
            yield kind, first + at, first + till, first + other, first + other_till


def _marked(kind: str, sign: str, lines: Sequence[str]) -> list[Line]:
    shown = [Line(kind, escape_text(sign + line)) for line in lines[:_BLOCK]]
    more = len(lines) - _BLOCK
    return shown if more <= 0 else [*shown, Line(kind, f"{sign}… ({more} more lines)")]


def _lines(definition: Mapping[str, Any], secrets: frozenset[str]) -> Iterator[str]:
    text = json.dumps(definition, ensure_ascii=False, indent=2, sort_keys=True)
    for line in mask_text(text, secrets).split("\n"):
        yield from (line[at : at + _WIDTH] for at in range(0, max(len(line), 1), _WIDTH))
