"""Finds where a JSON value ends while it arrives: a recognizer that looks at each character once.

`scan` says up to where the text is known to be good; the text after that place is held (half an escape, a number that
may go on) or wrong. It builds no values: arguments travel as the text that the model wrote. Knows nothing of cursors or
calls. Source: RFC 8259, strictly: no control characters in strings, no trailing commas, no NaN.
"""

import re
from enum import Enum

MAX_DEPTH = 128
"""Most levels of containers inside containers. Deeper text would break the readers after us."""

MAX_ATOM = 256
"""Most characters of a number, which is held until it ends."""

_BLANK = re.compile(r"[ \t\r\n]*")
_BODY = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_ESCAPE_START = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_ATOM = re.compile(r"[-+.0-9A-Za-z]*+")
_WHOLE_ATOM = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


class Scan(Enum):
    """What the scanner knows about its value: it continues, it is whole, or it is not JSON."""

    MORE = "more"
    WHOLE = "whole"
    WRONG = "wrong"


class _Next(Enum):
    VALUE = "a value"
    ITEM_OR_END = "a value or ]"
    KEY_OR_END = "a key or }"
    KEY = "a key"
    COLON = "a colon"
    COMMA_OR_END = "a comma or the end"
    STRING = "the rest of a string"
    KEY_STRING = "the rest of a key"


_CLOSER = {"{": "}", "[": "]"}
_VALUES = (_Next.VALUE, _Next.ITEM_OR_END)
_STRINGS = (_Next.STRING, _Next.KEY_STRING)


class JsonScanner:
    """Recognizes one value. `state` holds the result so far."""

    def __init__(self) -> None:
        self.state = Scan.MORE
        self._next = _Next.VALUE
        self._closers: list[str] = []

    def scan(self, text: str, start: int, *, ended: bool = False) -> int:
        """Read on from `start`; return the place up to which the text is good. Nothing before it is needed again.

        `ended` says that no more text will come: a number at the end of `text` is then whole.
        """
        if self._next in _STRINGS and not _SPECIAL.search(text, start):
            # The middle of a string: most tokens of most calls.
            return len(text)
        at = start
        while at < len(text) and self.state is Scan.MORE:
            after = self._string(text, at) if self._next in _STRINGS else self._token(text, at, ended=ended)
            if after == at:
                break
            at = after
        return at

    def _token(self, text: str, at: int, *, ended: bool) -> int:
        char = text[at]
        if char in " \t\r\n":
            blank = _BLANK.match(text, at)
            return blank.end() if blank else at
        if char == '"' and self._next in (*_VALUES, _Next.KEY, _Next.KEY_OR_END):
            self._next = _Next.STRING if self._next in _VALUES else _Next.KEY_STRING
        elif char in "{[" and self._next in _VALUES and len(self._closers) < MAX_DEPTH:
            self._closers.append(_CLOSER[char])
            self._next = _Next.KEY_OR_END if char == "{" else _Next.ITEM_OR_END
        elif char == ":" and self._next is _Next.COLON:
            self._next = _Next.VALUE
        elif char == "," and self._next is _Next.COMMA_OR_END:
            self._next = _Next.KEY if self._closers[-1] == "}" else _Next.VALUE
        elif char in "}]" and self._may_close(char):
            self._closers.pop()
            self._value_ends()
        elif self._next in _VALUES:
            return self._atom(text, at, ended=ended)
        else:
            return self._fail(at)
        return at + 1

    def _may_close(self, char: str) -> bool:
        ends = (_Next.COMMA_OR_END, _Next.ITEM_OR_END, _Next.KEY_OR_END)
        return self._next in ends and self._closers[-1] == char

    def _string(self, text: str, at: int) -> int:
        body = _BODY.match(text, at)
        end = body.end() if body else at
        if end < len(text):
            if text[end] == '"':
                return self._string_ends(end + 1)
            if not _ESCAPE_START.match(text, end):
                return self._fail(end)
        return end

    def _string_ends(self, at: int) -> int:
        if self._next is _Next.KEY_STRING:
            self._next = _Next.COLON
        else:
            self._value_ends()
        return at

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
        self._next = _Next.COMMA_OR_END
        if not self._closers:
            self.state = Scan.WHOLE

    def _fail(self, at: int) -> int:
        self.state = Scan.WRONG
        return at
