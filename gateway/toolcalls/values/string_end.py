"""Where a string ends if its end is not marked as it should be, by what follows it and by where it stands."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.toolcalls.values.atoms import CLOSING_QUOTES, WORDS, skip_gap

# Where a value stands in JSON that is read from its beginning: the keys and the lists around it.
#
# Turns the text before a value into its path, by which a schema says what the value may be. An item of a list is
# `ITEM`, whichever it is.

PathStep = str | int
"""A step of a path: the key of an object's member, or `ITEM`."""
ITEM: Final = 0

KEPT: Final = 512
"""Characters before a value in which its key is looked for."""
_BLANK: Final = " \t\r\n"
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]]', re.DOTALL)


def last_key(text: str) -> str | None:
    """Return the key of the member whose value follows this JSON; None where no key is before it."""
    before = text[-KEPT:].rstrip(_BLANK)
    word = before[:-1].rstrip(_BLANK)
    if not before.endswith(":") or not word.endswith('"'):
        return None
    start = len(word) - 1
    while (start := word.rfind('"', 0, start)) >= 0:
        ahead = word[:start]
        if (len(ahead) - len(ahead.rstrip("\\"))) % 2 == 0:
            return json.loads(word[start:], strict=False)
    return None


def recent(pieces: Sequence[str], before: str) -> str:
    """Return the last characters of a text in pieces, which continues the text `before`."""
    kept = ""
    for piece in reversed(pieces):
        kept = piece + kept
        if len(kept) >= KEPT:
            return kept[-KEPT:]
    return (before + kept)[-KEPT:]


def open_places(text: str) -> list[PathStep | None]:
    """Return where each bracket stands that a beginning of JSON leaves open; None for the outermost."""
    places: list[PathStep | None] = []
    brackets: list[str] = []
    word = '""'
    for found in _TOKEN.finditer(text):
        part = found.group()
        if part[0] == '"':
            word = part
        elif part in "{[":
            inner = brackets[-1] if brackets else ""
            places.append(ITEM if inner == "[" else json.loads(word, strict=False) if inner else None)
            brackets.append(part)
        elif brackets:
            places.pop()
            brackets.pop()
    return places


# Decides whether a quotation mark in JSON ends its string, by what follows it: models forget to escape quotes.
#
# A quote that valid JSON can have there always ends its string, so valid JSON is read as it stands. What else may
# follow is decided by the brackets that are open, by the keys that the tool's schema names, and by the markers that end
# a call.

MAX_BEHIND = 512
"""Most characters after a quote that are held until it is clear whether the quote ends its string."""

_BLANKS = re.compile(r"[ \t\r\n]*+")
_QUOTED_KEYS = {
    opener: re.compile(rf"{opener}(?P<key>(?:[^{closer}\\\n]|\\.)*)(?P<end>{closer}[ \t\r\n]*+)?")
    for opener, closer in CLOSING_QUOTES.items()
}
_BARE_KEY = re.compile(r'(?P<key>[A-Za-z_$][\w$-]*+)"?[ \t\r\n]*+')
_WORD = re.compile(r"[A-Za-z]++")
_VALUE_STARTS = "{[-0123456789" + "".join(CLOSING_QUOTES)
_FOREIGN = {"NaN", *WORDS}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known about the place of a string.

    `keys` are those of the outermost object, where the tool's schema names them; `stops` are the markers that may
    follow the value, as they stand in the stream. `is_text` returns whether the schema wants a string, and no number,
    at a path (`places`) inside the outermost object.
    """

    keys: Collection[str] = ()
    stops: tuple[str, ...] = ()
    is_text: Callable[[Sequence[PathStep]], bool] = lambda path: False


NOTHING_KNOWN = Surroundings()
"""For valid JSON, whose strings end where nothing else need be known."""


def string_ends(
    text: str, behind: int, closers: Sequence[str], around: Surroundings, *, broken: bool, ended: bool
) -> bool | None:
    """Whether the quote before `behind` ends its string, which stands inside brackets that need `closers`.

    `broken`: an earlier quote in the string did not end it, so more is asked of this one. None while more text is
    needed to decide, because the text has not `ended`.
    """
    if not closers:
        return True
    text = text[behind : behind + MAX_BEHIND]
    ended = ended or len(text) == MAX_BEHIND
    place = _skip(text, 0, around, ended=ended)
    if place is None:
        return None
    at, depth = place, len(closers)
    broken = broken or at > _blank(text, 0)
    while depth and text.startswith(closers[depth - 1], at):
        at, depth = _blank(text, at + 1), depth - 1
    if at == len(text):
        return True if ended else None
    if not depth:
        return _may_follow_call(text, at, around, broken=broken, ended=ended)
    if text[at] == ",":
        inside = around.keys if depth == 1 else ()
        return _behind_comma(text, at + 1, closers[depth - 1], around, inside, broken=broken, ended=ended)
    if text[at] == '"' and depth == len(closers) == 1 and around.keys:
        # The comma between two members may be missing, but only the schema can say that this is a member.
        return _member(text, at, around.keys, broken=True, ended=ended)
    return stops_at(text, at, around.stops, ended=ended)


def _behind_comma(
    text: str, at: int, closer: str, around: Surroundings, keys: Collection[str], *, broken: bool, ended: bool
) -> bool | None:
    """Whether an item or a member follows the comma before `at`, or what `closer` closes ends."""
    start = _blank(text, at)
    place = _skip(text, at, around, ended=ended, commas=True)
    if place is None:
        return None
    if place > start and not keys:
        # Only the schema can say that what stands between is not a part of the string.
        place = start
    if closer == "]":
        return _item(text, place, ended=ended)
    return _member(text, place, keys, broken=broken or place > start, ended=ended)


def _skip(text: str, at: int, around: Surroundings, *, ended: bool, commas: bool = False) -> int | None:
    """Return the place behind what means nothing in JSON with flaws; in valid JSON that is whitespace."""
    if around is NOTHING_KNOWN:
        return _blank(text, at)
    while (behind := skip_gap(text, at, ended=ended)) is not None and commas and text.startswith(",", behind):
        at = behind + 1
    return behind


def _may_follow_call(text: str, at: int, around: Surroundings, *, broken: bool, ended: bool) -> bool | None:
    """Whether the character at `at` can follow the outermost bracket."""
    if not broken:
        return text[at] != '"' or '"' in around.stops
    char = text[at]
    return True if char in "}],[`" or not char.isascii() else stops_at(text, at, around.stops, ended=ended)


def stops_at(text: str, at: int, stops: tuple[str, ...], *, ended: bool) -> bool | None:
    """Whether one of `stops` stands at `at`; None while more text is needed to decide."""
    if text.startswith(stops, at):
        return True
    return None if not ended and any(stop.startswith(text[at : at + len(stop)]) for stop in stops) else False


def _item(text: str, at: int, *, ended: bool) -> bool | None:
    """Whether an item of a list stands at `at`, or its end: then the comma before it is a trailing one."""
    if at == len(text):
        return True if ended else None
    if text[at] in _VALUE_STARTS or text[at] == "]":
        return True
    word = _WORD.match(text, at)
    if word and word.end() == len(text) and not ended:
        return None
    if word and word.end() == len(text) == MAX_BEHIND:
        return any(known.startswith(word.group()) for known in _FOREIGN)
    return word is not None and word.group() in _FOREIGN


def _member(text: str, at: int, keys: Collection[str], *, broken: bool, ended: bool) -> bool | None:
    """Whether a key and a colon stand at `at`, or the object's end."""
    if at == len(text):
        return True if ended else None
    if text[at] == "}":
        return True
    quoted = text[at] in _QUOTED_KEYS
    found = _QUOTED_KEYS.get(text[at], _BARE_KEY).match(text, at)
    if found is None:
        return False
    if text[found.end() :] in ("", "\\"):
        return not broken if ended else None
    if (quoted and found["end"] is None) or text[found.end()] != ":":
        return False
    return not keys or found["key"] in keys or (quoted and not broken)


def _blank(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


# Finds where a string between markers ends if its closing marker is missing: at the next key, or at the call's end.
#
# Turns the end of such a text into a place in it, or none. Knows nothing of what strings are converted to.

_MAX_KEY = 128
"""Most characters at the end of a string that are held because they may be the next key."""

_MAX_CLOSING = 128
"""Most brackets and blanks at the end of a string that are held because a marker may follow them."""

_BRACKET = re.compile(r"[}\])]")
_KEY = re.compile(r",[ \t\r\n]*+(?P<key>[\w-]++)[ \t\r\n]*+:[ \t\r\n]*+\Z")
_KEY_START = re.compile(r",[ \t\r\n]*+[\w-]*+[ \t\r\n]*+:?[ \t\r\n]*+\Z")


def key_behind(text: str, start: int, end: int, *, whole: bool) -> re.Match[str] | None:
    """Find a comma and a key with which `text[start:end]` ends; unless it is `whole`, what may become that."""
    return (_KEY if whole else _KEY_START).search(text, max(start, end - _MAX_KEY), end)


def brackets_behind(text: str, stops: tuple[str, ...], most: int, *, ended: bool) -> tuple[int, int] | None:
    """Return where the closing brackets at the end of a text begin, and where the marker after them does.

    One of `stops` or, unless the stream has `ended`, the beginning of one must follow the brackets, and nothing else.
    At most `most` brackets belong there once the stream has ended: those before them are the text's own.
    """
    if not stops or not any(bracket in text for bracket in "}])"):
        return None
    rest = text.rstrip()
    kept = max((n for stop in stops for n in range(len(stop) + 1) if rest.endswith(stop[:n])), default=0)
    place = len(rest) - kept
    brackets = len(rest[:place].rstrip("}]) \t\r\n"))
    if ended:
        own = len(_BRACKET.findall(rest, brackets, place)) - most
        brackets = next(
            (found.end() for n, found in enumerate(_BRACKET.finditer(rest, brackets, place), 1) if n == own), brackets
        )
    # Blanks before the first bracket were told as they arrived: they belong to the string.
    brackets += len(rest[brackets:place]) - len(rest[brackets:place].lstrip())
    if len(text) - brackets > _MAX_CLOSING:
        return None
    if not rest[brackets:place].strip() or (ended and rest[place:] not in stops):
        return None
    return brackets, place
