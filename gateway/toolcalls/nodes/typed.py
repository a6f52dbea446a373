"""Values between tags without quotes: raw text to JSON, by the type that the tool's schema gives.

Text is a string where the schema says string, and is emitted, escaped, as it arrives. An object or array is emitted as
it arrives too, converted from Python's spelling where needed. Everything else is held until its end: a number, a word,
and whatever may be either a string or something else.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gateway.toolcalls.nodes.readers import MAX_WORD, Steps, read_space
from gateway.toolcalls.schema.json_types import STRING, Kinds
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.values.atoms import PYTHON, ValueDialect, json_string
from gateway.toolcalls.values.json_scanner import Scan
from gateway.toolcalls.values.literal import LiteralScanner
from gateway.toolcalls.values.string_end import NOTHING_KNOWN, Surroundings

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
"""What models write for a boolean or null, where the types allow no other reading."""


@dataclass(frozen=True, slots=True)
class RawEnding:
    """How a value ends: with `closer`, followed (after whitespace) by one of `followers`, if there are any.

    A closer followed by anything else is part of the value. `stops` end the value too and are not read: models forget
    closers. `finals` do so only before the end of the message or another region. A newline before the closer is markup
    "always", "never", or only if a newline began the value too ("pair").
    """

    closer: str
    followers: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    finals: tuple[str, ...] = ()
    newline: Literal["always", "never", "pair"] = "never"


def read_value(at: Cursor, kinds: Kinds, ending: RawEnding) -> Steps:
    """Read a value and its end, and emit it as a piece of the arguments. False where it has no end, or is no value."""
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
    """Return a whole raw value as JSON: as one of the types if it can be read as that, else as a string."""
    value = converted(text.strip(WHITESPACE))
    if "string" not in kinds:
        if value and value[0] == '"' and (inside := converted(json.loads(value).strip(WHITESPACE))):
            # Models also put objects and arrays into quotation marks.
            value = inside if kinds & set(_kinds_of_json(inside)) else value
        word = _WORDS.get(text.strip(WHITESPACE).lower(), "")
        if word and not (value and kinds & set(_kinds_of_json(value))) and kinds & set(_kinds_of_json(word)):
            return word
        return value or f'"{json_string(text.strip(WHITESPACE))}"'
    # Where it may be a string, only text that is exactly JSON, or an object or an array, is something else.
    if value and (value == text.strip(WHITESPACE) or value[0] in "{[") and kinds & set(_kinds_of_json(value)):
        return value
    return f'"{json_string(text)}"'


def converted(text: str) -> str | None:
    """Return a whole Python or JSON value as JSON; None where the text is something else."""
    scanner = LiteralScanner(PYTHON, PYTHON.quotes)
    # The comma ends a number, a word or an empty string; it has no effect on other values.
    end, told = scanner.scan(text + ",", 0)
    return told if scanner.state is Scan.WHOLE and not text[end:].strip() else None


def _kinds_of_json(value: str) -> tuple[str, ...]:
    found = _KINDS_BY_START.get(value[0], ("number", "integer") if value.lstrip("-").isdigit() else ("number",))
    return () if found == ("string",) else found


def _read_string(at: Cursor, ending: RawEnding, paired: bool, lead: str) -> Steps:
    at.calls.argue(f'"{json_string(lead)}')
    whole = yield from read_text(at, ending, paired, lambda text: at.calls.argue(json_string(text)))
    if whole:
        at.calls.argue('"')
    return whole


def _read_container(at: Cursor, ending: RawEnding) -> Steps:
    if not (yield from read_literal(at, PYTHON)):
        return False
    rest: list[str] = []
    whole = yield from read_text(at, ending, True, rest.append)
    return whole and not "".join(rest).strip(WHITESPACE)


def read_literal(at: Cursor, dialect: ValueDialect, around: Surroundings = NOTHING_KNOWN) -> Steps:
    """Read one value in a dialect and emit it as JSON as it arrives. It ends by itself, a number at what follows."""
    scanner = LiteralScanner(dialect, tuple(map(at.spelling.spell, dialect.quotes)), at.spelling.plain, around)
    while True:
        at.scanned += at.unread
        end, told = scanner.scan(at.buffer, at.position, ended=at.ended, whole=at.whole)
        at.take(end)
        at.calls.argue(told + (scanner.close_all() if at.whole and not at.unread else ""))
        if scanner.mends:
            at.calls.repair("a mark is missing in its arguments")
        if scanner.state is not Scan.MORE or at.ended:
            return scanner.state is Scan.WHOLE
        yield


def read_text(at: Cursor, ending: RawEnding, paired: bool, tell: Callable[[str], None]) -> Steps:
    """Pass text to `tell` up to the value's end, and read the end. Text that may begin the end is held back."""
    loose = ending.newline == "always" or (ending.newline == "pair" and paired)
    closers = (f"\n{ending.closer}", ending.closer) if loose else (ending.closer,)
    finder = at.spelling.finder((*closers, *ending.stops, *ending.finals))
    finals = tuple(map(at.spelling.spell, ending.finals))
    spelled = tuple(map(at.spelling.spell, closers))
    followers = tuple(map(at.spelling.spell, ending.followers))
    open_tags = _OpenTags(ending.closer)
    while True:
        at.scanned += at.unread
        end, found = finder.find(unbroken(at.buffer, ended=at.ended), at.position, ended=False)
        told = at.take(end)
        open_tags.add(told)
        tell(told)
        if found:
            closer = next((text for text in spelled if at.buffer.startswith(text, at.position)), "")
            behind = at.position + len(closer)
            follows = _follows(at, behind, followers) if closer else True
            if final := next((text for text in finals if at.buffer.startswith(text, at.position)), ""):
                follows = _follows(at, at.position + len(final), at.stops[:1])
                if follows is False:
                    tell(at.take(at.position + len(final)))
                    continue
            if follows and ending.closer in ending.followers and _follows(at, behind, (spelled[-1],)):
                # Where the value opens the tag too, the first of two closing tags is its own, not one too many.
                follows = not open_tags.close()
            if follows:
                at.take(behind)
                return True
            if follows is False:
                tell(at.take(behind))
                continue
        if at.ended:
            return False
        yield


class _OpenTags:
    """Counts the tags in a value that its closing tag would close, while the value arrives in pieces."""

    def __init__(self, closer: str) -> None:
        self._count = 0
        self._opener = closer.replace("</", "<").rstrip(">")
        self._tail = ""

    def add(self, text: str) -> None:
        """Count the tags in the next piece."""
        window = self._tail + text
        self._count += window.count(self._opener)
        self._tail = window[-len(self._opener) + 1 :]

    def close(self) -> bool:
        """Close one; return whether one was open."""
        is_open = self._count > 0
        self._count -= is_open
        return is_open


def _follows(at: Cursor, start: int, followers: Iterable[str]) -> bool | None:
    """Whether one of `followers` stands at `start`, after whitespace; None while more text is needed to decide."""
    window = at.buffer[start : start + MAX_WORD]
    rest = unbroken(window.lstrip(WHITESPACE), ended=at.ended)
    texts = tuple(followers)
    if not texts or rest.startswith(texts):
        return True
    if len(window) == MAX_WORD or not any(text.startswith(rest) for text in texts):
        return False
    # At the end of the stream it is markup that was cut off.
    return True if at.ended else None


def unbroken(text: str, *, ended: bool) -> str:
    """Return text; once the stream has `ended`, without the U+FFFD that stands for half a character at its end."""
    return text.removesuffix("\ufffd") if ended else text
