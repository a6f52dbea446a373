"""Decides whether a quotation mark in JSON ends its string, by what follows it: models forget to escape quotes.

A quote that valid JSON can have there always ends its string, so valid JSON is read as it stands. What else may follow
is decided by the brackets that are open, by the keys that the tool's schema names, and by the markers that end a call.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gateway.toolcalls.values.atoms import CLOSING_QUOTES, WORDS
from gateway.toolcalls.values.gaps import skip_gap
from gateway.toolcalls.values.places import Place

MAX_BEHIND = 512
"""Most characters after a quote that are held until it is clear whether the quote ends its string."""

_BLANK = re.compile(r"[ \t\r\n]*+")
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
    is_text: Callable[[Sequence[Place]], bool] = lambda path: False


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
    found = _BLANK.match(text, at)
    return found.end() if found else at
