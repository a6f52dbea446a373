"""Reads on where JSON is wrong, and writes what was meant as JSON while it arrives: flaws that have one reading.

Begins in the state in which the strict scanner stopped. Repairs line ends and unknown escapes in strings, quotes that
are not escaped (`string_end`), other quotes, bare keys and words, Python's literals, NaN, comments (`atoms`), commas
and brackets that are missing or too many. Text that has no reading is wrong here too. Knows nothing of cursors or
calls.
"""

import re
from collections.abc import Callable

from gateway.toolcalls.stream.spelling import delimiters
from gateway.toolcalls.values.atoms import CLOSING_QUOTES, WORDS, json_string, number, skip_gap
from gateway.toolcalls.values.json_scanner import (
    CLOSER,
    ENDS,
    ESCAPE_START,
    MAX_ATOM,
    MAX_DEPTH,
    STRINGS,
    VALUES,
    JsonScanner,
    Next,
    Scan,
)
from gateway.toolcalls.values.string_end import (
    ITEM,
    KEPT,
    PathStep,
    Surroundings,
    last_key,
    open_places,
    recent,
    stops_at,
    string_ends,
)

_BLANK = re.compile(r"[ \t\r\n]*+")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_KEY = re.compile(r"[A-Za-z_$][\w$-]*+")
_ATOM = re.compile(r"[-+.\w]*+")
_NO_NUMBER = {"NaN", "Infinity", "-Infinity", "+Infinity", "nan", "undefined", "nil"}


class MendingScanner:
    """Converts the rest of one value. `state` holds the result so far.

    `plain` turns stand-ins for markers back into text. `before`: what was written of the value before.
    """

    def __init__(
        self, strict: JsonScanner, around: Surroundings, plain: Callable[[str], str] = str, before: str = ""
    ) -> None:
        self.state = Scan.MORE
        self.guesses = False
        """Whether a quote inside a string was taken for a part of it."""
        self._next = strict.next
        self._closers = [*strict.closers]
        self._written = [*strict.closers]
        """What is written for each of `_closers`: nothing for the second of two braces that are one."""
        self._around = around
        self._plain = plain
        marks = tuple(stop for stop in around.stops if stop[0] not in CLOSING_QUOTES)
        self._marks = delimiters(marks) if marks else None
        """What ends the call even inside a string whose end can't be told; a code fence may stand in any text."""
        self._quote = '"'
        self._begun = strict.begun
        self._broken = self._escapes = self._ended = self._whole = self._in_gap = False
        self._before = before[-KEPT:]
        self._places = open_places(before)
        """Where each open bracket stands; None for the outermost, and for the second of two braces that are one."""
        self._out: list[str] = []

    def scan(self, text: str, start: int, *, ended: bool = False, whole: bool = False) -> tuple[int, str]:
        """Read on from `start`; return the place up to which the text is read, and the JSON that this adds.

        `ended` says that no more text will come, `whole` that nothing was cut off: then missing brackets are closed.
        """
        at, self._ended, self._whole = start, ended, whole
        while at < len(text) and self.state is Scan.MORE:
            after = self._string(text, at) if self._next in STRINGS else self._token(text, at)
            if after == at:
                break
            at = after
        if whole and at == len(text) and self._next is Next.COMMA_OR_END and self.state is Scan.MORE:
            self._close_all()
        told, self._out = "".join(self._out), []
        self._before = (self._before + told)[-KEPT:]
        return at, told

    def _token(self, text: str, at: int) -> int:
        char = text[at]
        if char in " \t\r\n":
            blank = _BLANK.match(text, at)
            end = blank.end() if blank else at
            # Behind a gap it may have been read as a part of that, or come later: it is left out either way.
            self._out.append("" if self._in_gap else text[at:end])
            return end
        if (behind := skip_gap(text, at, ended=self._ended)) != at:
            self._in_gap = self._in_gap or behind is not None
            return at if behind is None else behind
        self._in_gap = False
        if char in (CLOSING_QUOTES if self._closers else "\"'") and self._next in (*VALUES, Next.KEY, Next.KEY_OR_END):
            return self._open_string(char, at)
        if self._next is Next.COMMA_OR_END:
            return self._behind_value(text, at)
        if char in "}]" and self._next in ENDS:
            return self._close(char, at)
        if char == "," and self._next in ENDS:
            return at + 1
        if char == "{" and self._next is Next.KEY_OR_END and len(self._closers) < MAX_DEPTH:
            # Some templates teach `{{"name": ...}}`, which their text writes for one brace.
            self._closers.append("}")
            self._written.append("")
            self._places.append(None)
            return at + 1
        if self._next is Next.COLON:
            return self._colon(char, at)
        if self._next in (Next.KEY, Next.KEY_OR_END):
            return self._key(text, at)
        return self._open(char, at) if char in CLOSER else self._atom(text, at)

    def _behind_value(self, text: str, at: int) -> int:
        char = text[at]
        if char == ",":
            return self._comma(text, at)
        if char in "}]":
            return self._close(char, at)
        is_stop = stops_at(text, at, self._around.stops, ended=self._ended)
        if char in CLOSING_QUOTES and self._closers[-1] == "}" and is_stop is False:
            # The comma is missing; `string_ends` has seen the key.
            self._out.append(",")
            self._next = Next.KEY
            return self._open_string(char, at)
        if is_stop is False:
            return self._fail(at)
        if is_stop:
            # Models forget brackets before the marker that ends the call.
            self._close_all()
        return at

    def _close_all(self) -> None:
        self._out += reversed(self._written)
        self._closers.clear()
        self.state = Scan.WHOLE

    def _comma(self, text: str, at: int) -> int:
        behind = skip_gap(text, at + 1, ended=self._ended)
        if behind is None or (behind == len(text) and not self._ended):
            return at
        follower = text[behind : behind + 1]
        ends = stops_at(text, behind, self._around.stops, ended=self._ended)
        if ends is None:
            return at
        if follower in ("}", "]", ",", "") or ends:
            return at + 1
        self._out.append(",")
        self._next = Next.KEY if self._closers[-1] == "}" else Next.VALUE
        return at + 1

    def _close(self, char: str, at: int) -> int:
        if char not in self._closers:
            # One too many.
            return at + 1 if self._next is Next.COMMA_OR_END else self._fail(at)
        while (closer := self._closers.pop()) != char:
            self._out.append(self._written.pop() and closer)
            del self._places[-1:]
        del self._places[-1:]
        empty = not self._written[-1] and self._next is Next.KEY_OR_END
        self._out.append(self._written.pop())
        self._value_ends()
        if empty:
            # `{{}`: the object that both braces open has no member yet.
            self._next = Next.KEY_OR_END
        return at + 1

    def _colon(self, char: str, at: int) -> int:
        if char != ":":
            return self._fail(at)
        self._out.append(":")
        self._next = Next.VALUE
        return at + 1

    def _open(self, char: str, at: int) -> int:
        if len(self._closers) == MAX_DEPTH:
            return self._fail(at)
        self._places.append(self._place())
        self._out.append(char)
        self._closers.append(CLOSER[char])
        self._written.append(CLOSER[char])
        self._next = Next.KEY_OR_END if char == "{" else Next.ITEM_OR_END
        return at + 1

    def _open_string(self, quote: str, at: int) -> int:
        self._quote, self._begun, self._broken, self._escapes = CLOSING_QUOTES[quote], False, False, False
        self._next = Next.STRING if self._next in VALUES else Next.KEY_STRING
        self._out.append('"')
        return at + 1

    def _string(self, text: str, at: int) -> int:
        if not self._begun:
            if not self._ended and text[at:] in (self._quote, self._quote * 2):
                return at
            self._begun = True
            if text.startswith(self._quote * 2, at):
                # Python's triple quotes: after an empty string there is never a quote.
                self._quote *= 3
                return at + 2
        end, special = delimiters((self._quote, "\\")).find(text, at, ended=False)
        if self._broken and self._marks:
            stop, whole = self._marks.find(text[at:end], 0, ended=self._ended or special)
            if whole and not stop:
                return self._fail(at)
            end, special = at + stop, special and at + stop == end
        self._out.append(json_string(self._plain(text[at:end])))
        if not special:
            return end
        return self._escape(text, end) if text[end] == "\\" else self._end(text, end)

    def _end(self, text: str, at: int) -> int:
        if self._next is Next.KEY_STRING:
            self._out.append('"')
            self._next = Next.COLON
            return at + len(self._quote)
        if len(self._quote) > 1:
            return self._end_triple(text, at)
        ends = string_ends(text, at + 1, self._closers, self._around, broken=self._broken, ended=self._ended)
        if ends is None:
            return at
        if ends:
            self._out.append('"')
            self._value_ends()
        else:
            self._broken = self.guesses = True
            self._out.append(json_string(self._quote))
        return at + 1

    def _end_triple(self, text: str, at: int) -> int:
        """Of more than three quotes the last three end the string."""
        behind = at + len(self._quote)
        if behind == len(text) and not self._ended:
            return at
        if text.startswith(self._quote[0], behind):
            self._out.append(json_string(self._quote[0]))
            return at + 1
        self._out.append('"')
        self._value_ends()
        return behind

    def _escape(self, text: str, at: int) -> int:
        if not self._ended and ESCAPE_START.match(text, at):
            return at
        if self._escapes and self._next is Next.STRING and text.startswith(self._quote, at + 1):
            # `C:\dir\", "mode": 1`: in a string that means its backslashes this one may be the last character.
            ends = string_ends(text, at + 2, self._closers, self._around, broken=True, ended=self._ended)
            if ends is None:
                return at
            if ends:
                self._out.append('\\\\"')
                self._value_ends()
                return at + 2
        if found := _ESCAPE.match(text, at):
            self._out.append(found.group())
            return found.end()
        if text.startswith("'", at + 1):
            self._out.append("'")
            return at + 2
        # `C:\dir`, `\d+`: the backslash was meant.
        self._escapes = True
        self._out.append("\\\\")
        return at + 1

    def _key(self, text: str, at: int) -> int:
        run = _KEY.match(text, at)
        if run is None or run.end() - at > MAX_ATOM:
            return self._fail(at)
        if run.end() == len(text):
            return at
        self._out.append(f'"{json_string(run.group())}"')
        self._next = Next.COLON
        # A quote that closes what none has opened.
        return run.end() + text.startswith('"', run.end())

    def _atom(self, text: str, at: int) -> int:
        run = _ATOM.match(text, at)
        end = run.end() if run else at
        if end - at > MAX_ATOM:
            return self._fail(at)
        if end == len(text) and not self._whole:
            return at
        atom = text[at:end]
        value = "null" if atom in _NO_NUMBER else WORDS.get(atom) or number(atom)
        if value is None:
            return self._fail(at)
        self._out.append(f'"{atom}"' if value != atom and self._is_text_meant(atom) else value)
        self._value_ends()
        return end

    def _is_text_meant(self, atom: str) -> bool:
        """Whether a number that JSON does not have is a string without quotes, such as a postal code: `02134`."""
        path = [place for place in (*self._places, self._place()) if place is not None]
        return number(atom) is not None and bool(path) and self._around.is_text(path)

    def _place(self) -> PathStep | None:
        """Where the next value stands in what is around it."""
        if self._closers and self._closers[-1] == "]":
            return ITEM
        return last_key(recent(self._out, self._before))

    def _value_ends(self) -> None:
        self._next = Next.COMMA_OR_END
        if not self._closers:
            self.state = Scan.WHOLE

    def _fail(self, at: int) -> int:
        self.state = Scan.WRONG
        return at


def mended(text: str, around: Surroundings) -> str | None:
    """Return a whole text as the JSON value that it means; None where it means none, or more follows it."""
    strict = JsonScanner()
    end = strict.scan(text, 0, ended=True)
    told, state = text[:end], strict.state
    if state is not Scan.WHOLE:
        mending = MendingScanner(strict, around, before=told)
        end, more = mending.scan(text, end, ended=True, whole=True)
        told, state = told + more, mending.state
    return told if state is Scan.WHOLE and not text[end:].strip() else None
