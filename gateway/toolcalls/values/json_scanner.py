"""Finds where a JSON value ends while it arrives: a recognizer that looks at each character once.

`scan` says up to where the text is known to be good; the text after that place is held (half an escape, a number that
may go on) or wrong. It builds no values: arguments travel as the text that the model wrote. Knows nothing of cursors or
calls. Source: RFC 8259, strictly: no control characters in strings, no trailing commas, no NaN. A quotation mark or a
comma is good only if what follows it can follow: text that was passed on can't be taken back (`json_repair.py`).
"""

import re
from collections.abc import Sequence
from enum import Enum

from gateway.toolcalls.values.string_end import NOTHING_KNOWN, string_ends

MAX_DEPTH = 128
"""Most levels of containers inside containers. Deeper text would break the readers after us."""

MAX_ATOM = 256
"""Most characters of a number, which is held until it ends."""

ESCAPE_START = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
"""What an escape may begin with, at the end of a text."""

_BLANK = re.compile(r"[ \t\r\n]*")
_PLAIN = r'[^"\\\x00-\x1f\udc00-\udfff]*+'
_BODY = re.compile(rf'{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN}){{0,4096}}')
# The number bounds the memory of a match; what is left of a string is read next.
_AFTER_COMMA = re.compile(r",[ \t\r\n]{0,64}+(?P<char>[^ \t\r\n])?")
_SPECIAL = re.compile(r'["\\\x00-\x1f\udc00-\udfff]')
_ATOM = re.compile(r"[-+.\w]*+")
_WHOLE_ATOM = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


class Scan(Enum):
    """What the scanner knows about its value: it continues, it is whole, or it is not JSON."""

    MORE = "more"
    WHOLE = "whole"
    WRONG = "wrong"


class Next(Enum):
    """What may come next in a value."""

    VALUE = "a value"
    ITEM_OR_END = "a value or ]"
    KEY_OR_END = "a key or }"
    KEY = "a key"
    COLON = "a colon"
    COMMA_OR_END = "a comma or the end"
    STRING = "the rest of a string"
    KEY_STRING = "the rest of a key"


CLOSER = {"{": "}", "[": "]"}
VALUES = (Next.VALUE, Next.ITEM_OR_END)
STRINGS = (Next.STRING, Next.KEY_STRING)
ENDS = (Next.COMMA_OR_END, Next.ITEM_OR_END, Next.KEY_OR_END)
"""Where a closing bracket may stand."""


class JsonScanner:
    """Recognizes one value. `state` holds the result so far."""

    def __init__(self) -> None:
        self.state = Scan.MORE
        self.next = Next.VALUE
        self.begun = False
        """Whether the string that is being read has a character."""
        self._closers: list[str] = []

    @property
    def closers(self) -> Sequence[str]:
        """The brackets that are still to come, the innermost last."""
        return self._closers

    def scan(self, text: str, start: int, *, ended: bool = False) -> int:
        """Read on from `start`; return the place up to which the text is good. Nothing before it is needed again.

        `ended` says that no more text will come: a number at the end of `text` is then whole.
        """
        if self.next in STRINGS and not _SPECIAL.search(text, start):
            # The middle of a string: most tokens of most calls.
            self.begun = self.begun or start < len(text)
            return len(text)
        at = start
        while at < len(text) and self.state is Scan.MORE:
            after = self._string(text, at, ended=ended) if self.next in STRINGS else self._token(text, at, ended=ended)
            if after == at:
                break
            at = after
        return at

    def _token(self, text: str, at: int, *, ended: bool) -> int:
        char = text[at]
        if char in " \t\r\n":
            blank = _BLANK.match(text, at)
            return blank.end() if blank else at
        if char == '"' and self.next in (*VALUES, Next.KEY, Next.KEY_OR_END):
            self.next = Next.STRING if self.next in VALUES else Next.KEY_STRING
            self.begun = False
        elif char in "{[" and self.next in VALUES and len(self._closers) < MAX_DEPTH:
            self._closers.append(CLOSER[char])
            self.next = Next.KEY_OR_END if char == "{" else Next.ITEM_OR_END
        elif char == ":" and self.next is Next.COLON:
            self.next = Next.VALUE
        elif char == "," and self.next is Next.COMMA_OR_END:
            return self._comma(text, at, ended=ended)
        elif char in "}]" and self._may_close(char):
            self._closers.pop()
            self._value_ends()
        elif self.next in VALUES:
            return self._atom(text, at, ended=ended)
        else:
            return self._fail(at)
        return at + 1

    def _may_close(self, char: str) -> bool:
        return self.next in ENDS and self._closers[-1] == char

    def _comma(self, text: str, at: int, *, ended: bool) -> int:
        inside = self._closers[-1] == "}"
        follows = _AFTER_COMMA.match(text, at)
        char = follows["char"] if follows else None
        if char is None:
            if not ended and follows and follows.end() == len(text):
                return at
        elif (char != '"') if inside else (char in "]},:"):
            return self._fail(at)
        self.next = Next.KEY if inside else Next.VALUE
        return at + 1

    def _string(self, text: str, at: int, *, ended: bool) -> int:
        body = _BODY.match(text, at)
        end = body.end() if body else at
        self.begun = self.begun or end > at
        if end < len(text):
            if text[end] == '"':
                return self._quote(text, end, ended=ended)
            if end == at and not ESCAPE_START.match(text, end):
                return self._fail(end)
        return end

    def _quote(self, text: str, at: int, *, ended: bool) -> int:
        if self.next is Next.KEY_STRING:
            self.next = Next.COLON
            return at + 1
        ends = string_ends(text, at + 1, self._closers, NOTHING_KNOWN, broken=False, ended=ended)
        if ends:
            self._value_ends()
            return at + 1
        return self._fail(at) if ends is False else at

    def _atom(self, text: str, at: int, *, ended: bool) -> int:
        run = _ATOM.match(text, at)
        end = run.end() if run else at
        if end - at > MAX_ATOM:
            return self._fail(at)
        if end == len(text) and not ended:
            return at
        if not _WHOLE_ATOM.fullmatch(text, at, end):
            return self._fail(at)
        self._value_ends()
        return end

    def _value_ends(self) -> None:
        self.next = Next.COMMA_OR_END
        if not self._closers:
            self.state = Scan.WHOLE

    def _fail(self, at: int) -> int:
        self.state = Scan.WRONG
        return at


_MISSING = {
    Next.VALUE: "null",
    Next.KEY: '"": null',
    Next.COLON: ": null",
    Next.STRING: '"',
    Next.KEY_STRING: '": null',
}


def missing_end(text: str) -> str:
    """Return the shortest end that makes a beginning of JSON a whole value; `{}` for an empty text."""
    if not text:
        return "{}"
    scanner = JsonScanner()
    scanner.scan(text, 0, ended=True)
    return _MISSING.get(scanner.next, "") + "".join(reversed(scanner.closers))
