"""Values that stand between tags without quotes: raw text to JSON, after the type that the tool's schema gives.

Text is a string where the schema says string, and is told escaped as it comes. An object or array is told as it comes
too, converted from Python's spelling where needed. Everything else waits for its end: a number, a word, and whatever
may be a string or something else.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gateway.toolcalls.nodes.readers import MAX_WORD, Steps, read_space
from gateway.toolcalls.schema.kinds import STRING, Kinds
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.values.atoms import json_string
from gateway.toolcalls.values.dialects import PYTHON, Dialect
from gateway.toolcalls.values.json_scanner import Scan
from gateway.toolcalls.values.literal import LiteralScanner

_JSON_STARTS = {
    "object": "{",
    "array": "[",
    "integer": "-+.0123456789",
    "number": "-+.0123456789",
    "boolean": "tfTF",
    "null": "nN",
}
_KINDS_BY_START = {
    "{": ("object",),
    "[": ("array",),
    '"': ("string",),
    "t": ("boolean",),
    "f": ("boolean",),
    "n": ("null",),
}
_WORDS = {"true": "true", "false": "false", "null": "null", "1": "true", "0": "false"}
"""What models write for a truth value or for nothing, where the type allows nothing else that it could be."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a value ends: with `closer`, behind which (after whitespace) one of `followers` stands, if there are any.

    A closer with something else behind it is part of the value. `stops` end the value too and are not read: models
    forget closers. A newline before the closer is markup "always", "never", or where one began the value too ("pair").
    """

    closer: str
    followers: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    newline: Literal["always", "never", "pair"] = "never"


def read_value(at: Cursor, kinds: Kinds, ending: Ending) -> Steps:
    """Read a value and its end, and tell it as a piece of the arguments. False where it has no end, or is none."""
    while not (at.unread or at.ended):
        yield
    paired = False
    if ending.newline != "never" and at.buffer.startswith("\n", at.position):
        at.take(at.position + 1)
        paired = True
    if kinds == STRING:
        return (yield from _read_string(at, ending, paired, ""))
    lead = yield from read_space(at)
    start = at.buffer[at.position : at.position + 1]
    if "string" in kinds and not any(start in _JSON_STARTS.get(kind, "") for kind in kinds if start):
        return (yield from _read_string(at, ending, paired, lead))
    if "string" not in kinds and start and start in "{[" and kinds & set(_KINDS_BY_START[start]):
        return (yield from _read_container(at, ending))
    held = [lead]
    if not (yield from read_text(at, ending, paired, held.append)):
        return False
    at.calls.argue(as_json("".join(held), kinds))
    return True


def as_json(text: str, kinds: Kinds) -> str:
    """Give a whole raw value as JSON: of one of the types if it can be read so, else as a string."""
    value = converted(text.strip(WHITESPACE))
    if "string" not in kinds:
        word = _WORDS.get(text.strip(WHITESPACE).lower(), "")
        if word and not (value and kinds & set(_kinds_of_json(value))) and kinds & set(_kinds_of_json(word)):
            return word
        return value or f'"{json_string(text.strip(WHITESPACE))}"'
    # Where it may be a string, only what JSON itself spells so is something else.
    if value and (value == text.strip(WHITESPACE) or value[0] in "{[") and kinds & set(_kinds_of_json(value)):
        return value
    return f'"{json_string(text)}"'


def converted(text: str) -> str | None:
    """Give a whole Python or JSON value as JSON, None where the text is something else."""
    scanner = LiteralScanner(PYTHON, PYTHON.quotes)
    # The comma ends a number or a string; nothing else notices it.
    end, told = scanner.scan(text + ",", 0)
    return told if scanner.state is Scan.WHOLE and not text[end:].strip() else None


def _kinds_of_json(value: str) -> tuple[str, ...]:
    found = _KINDS_BY_START.get(value[0], ("number", "integer") if value.lstrip("-").isdigit() else ("number",))
    return () if found == ("string",) else found


def _read_string(at: Cursor, ending: Ending, paired: bool, lead: str) -> Steps:
    at.calls.argue(f'"{json_string(lead)}')
    whole = yield from read_text(at, ending, paired, lambda text: at.calls.argue(json_string(text)))
    if whole:
        at.calls.argue('"')
    return whole


def _read_container(at: Cursor, ending: Ending) -> Steps:
    if not (yield from read_literal(at, PYTHON)):
        return False
    rest: list[str] = []
    whole = yield from read_text(at, ending, True, rest.append)
    return whole and not "".join(rest).strip(WHITESPACE)


def read_literal(at: Cursor, dialect: Dialect) -> Steps:
    """Read one value in a dialect and tell it as JSON as it comes. It ends itself, or where a number is over."""
    scanner = LiteralScanner(dialect, tuple(map(at.spelling.spell, dialect.quotes)), at.spelling.plain)
    while True:
        at.scanned += at.unread
        end, told = scanner.scan(at.buffer, at.position, ended=at.ended)
        at.take(end)
        at.calls.argue(told)
        if scanner.state is not Scan.MORE or at.ended:
            return scanner.state is Scan.WHOLE
        yield


def read_text(at: Cursor, ending: Ending, paired: bool, tell: Callable[[str], None]) -> Steps:
    """Hand text on up to the value's end, and read that. What may be the beginning of the end waits."""
    loose = ending.newline == "always" or (ending.newline == "pair" and paired)
    closers = (f"\n{ending.closer}", ending.closer) if loose else (ending.closer,)
    finder = at.spelling.finder((*closers, *ending.stops))
    spelled = tuple(map(at.spelling.spell, closers))
    followers = tuple(map(at.spelling.spell, ending.followers))
    while True:
        at.scanned += at.unread
        end, found = finder.find(unbroken(at.buffer, ended=at.ended), at.position, ended=False)
        tell(at.take(end))
        if found:
            closer = next((text for text in spelled if at.buffer.startswith(text, at.position)), "")
            behind = at.position + len(closer)
            follows = _follows(at, behind, followers) if closer else True
            if follows:
                at.take(behind)
                return True
            if follows is False:
                tell(at.take(behind))
                continue
        if at.ended:
            return False
        yield


def _follows(at: Cursor, start: int, followers: Iterable[str]) -> bool | None:
    """Whether one of `followers` stands at `start`, after whitespace; None while that can't be told."""
    window = at.buffer[start : start + MAX_WORD]
    rest = unbroken(window.lstrip(WHITESPACE), ended=at.ended)
    texts = tuple(followers)
    if not texts or rest.startswith(texts):
        return True
    if len(window) == MAX_WORD or not any(text.startswith(rest) for text in texts):
        return False
    # At the end of the stream it is cut off markup.
    return True if at.ended else None


def unbroken(text: str, *, ended: bool) -> str:
    """Give the last text of a stream without the half of a character that it ended in."""
    return text.removesuffix("\ufffd") if ended else text
