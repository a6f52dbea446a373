"""Converts values as programs and templates spell them to JSON while they arrive, reading each character once.

The output for a beginning of the text is a beginning of the output for all of it: a number, a word, a key, a comma and
an escape are held until they are whole. JSON passes unchanged; `True`, `None`, single quotes, tuples, leading zeros and
trailing commas become JSON. Two dialects: Python's, and Gemma's, whose strings have no escapes and whose keys have no
quotes. Knows nothing of cursors or calls. Sources: RFC 8259; Python's reference, 2.4.1.
"""

import re
from collections.abc import Callable
from enum import Enum

from gateway.toolcalls.stream.spelling import delimiters
from gateway.toolcalls.values.atoms import MAX_BLANK, WORDS, ValueDialect, escape, json_string, number, string_ends
from gateway.toolcalls.values.json_scanner import MAX_ATOM, MAX_DEPTH, Scan
from gateway.toolcalls.values.string_end import NOTHING_KNOWN, Surroundings, brackets_behind, key_behind, stops_at

_BLANK = re.compile(r"[ \t\r\n]*+")
_ATOM = re.compile(r"[-+.0-9A-Za-z_]*+")
_BARE = re.compile(r"[^,\[\]{}()=:]*+")
_BARE_VALUE = re.compile(r"[^,\[\]{}]*+")
_BARE_IN_PARENTHESES = re.compile(r"[^,\[\]{}()]*+")
_KEY_HERE = re.compile(r"(?P<key>[\w-]{1,64}+)(?:[ \t]*+[:=]|\Z)")
_BEHIND_COMMA = re.compile(
    r"[ \t\r\n]*+(?:(?P<closer>[}\])])|(?P<key>[\w-]{1,64}+)[ \t]*+[:=]|(?P<cut>[\w-]{0,64}+[ \t]*+)\Z)"
)
"""What shows whether a text without quotes goes on behind its comma; `cut` may become a key."""
_PREFIX = re.compile(r"[rRbBuUfF]{1,2}+(?=[\"'])")
_JOINED = re.compile(r"\Z|[ \t\r\n]{1,64}+(?:(?P<prefix>[rRbBuUfF]{0,2}+)(?P<quote>[\"'])|[rRbBuUfF]{0,2}+\Z)")
"""Another string behind one, which Python joins to it; or what may become one."""
_BRACE = re.compile(r"[{}]")
_MAX_TEXT = 4_096
"""Most characters of a text without quotes, which is held until its end is known."""
_CLOSERS = {"{": ("}", "}"), "[": ("]", "]"), "(": (")", "]")}
"""For each opening bracket, what closes it, and how JSON closes it."""

_SET = "}", "]"
_PLAIN_QUOTES = ('"', "'", "`")
"""Other quotes end their strings wherever they stand: markers, and three of these."""


class _Next(Enum):
    VALUE = "a value"
    ITEM_OR_END = "a value or the end"
    KEY_OR_END = "a key or the end"
    COLON = "a colon"
    COMMA_OR_END = "a comma or the end"
    STRING = "the rest of a string"


_VALUES = (_Next.VALUE, _Next.ITEM_OR_END)


class LiteralScanner:
    """Converts one value. `state` holds the result so far.

    `quotes` are the dialect's quotes as they stand in the stream; `plain` turns stand-ins for markers back into text.
    `around` helps where marks are missing.
    """

    def __init__(
        self,
        dialect: ValueDialect,
        quotes: tuple[str, ...],
        plain: Callable[[str], str] = str,
        around: Surroundings = NOTHING_KNOWN,
    ) -> None:
        self.state = Scan.MORE
        self.mends = False
        """Whether a mark was missing."""
        self._dialect = dialect
        self._quotes = quotes
        self._plain = plain
        self._around = around
        self._next = _Next.VALUE
        self._closers: list[tuple[str, str]] = []
        self._brace: int | None = None
        """Place in `_out` of a brace that opens an object or a set; what follows its first key will tell which."""
        self._first: tuple[int, str] | None = None
        """Place in `_out` of the first key if it is not a string, and the value that it has if this is a set."""
        self._seen: set[str] = set()
        """The keys of the outermost object so far that are not in quotes."""
        self._is_key = self._ended = self._whole = False
        self._key_name = ""
        """The key in the outermost object whose value is read."""
        self._quote = ""
        self._prefix = ""
        """The letters of Python's before the quote, in lower case."""
        self._joins = False
        """Whether the next string belongs to the one before it."""
        self._held = ""
        self._out: list[str] = []

    def scan(self, text: str, start: int, *, ended: bool = False, whole: bool = False) -> tuple[int, str]:
        """Read on from `start`; return the place up to which the text is read, and the JSON that this adds.

        `ended` says that no more text will come; `whole`, that nothing was cut off.
        """
        at, self._ended, self._whole = start, ended, whole
        while at < len(text) and self.state is Scan.MORE:
            before = self._next
            after = self._string(text, at) if before is _Next.STRING else self._token(text, at)
            # Where a mark is missing nothing is read, and something else is expected.
            if after == at and self._next is before:
                break
            at = after
        if self._brace is not None and self._waits and self.state is Scan.MORE:
            return at, ""
        self._settle("{")
        told, self._out = "".join(self._out), []
        return at, told

    def close_all(self) -> str:
        """Close all brackets where the model has ended its message behind a value; return what that adds."""
        if self.state is Scan.MORE and self._next is _Next.COMMA_OR_END:
            self._close_all()
        told, self._out = "".join(self._out), []
        return told

    @property
    def _waits(self) -> bool:
        """Whether the first key of an object, or the first item of a set, is short enough to be held."""
        return sum(map(len, self._out[self._brace or 0 :])) <= MAX_ATOM

    def _settle(self, bracket: str) -> None:
        """Write the held brace as `bracket`: it opens an object, or a set, which is a list in JSON."""
        if self._brace is not None:
            self._out[self._brace] += bracket
            self._brace = None

    def _token(self, text: str, at: int) -> int:
        char = text[at]
        if char in " \t\r\n":
            return self._blank(text, at)
        if self._next in (_Next.ITEM_OR_END, _Next.KEY_OR_END, _Next.COMMA_OR_END) and self._closes(char):
            return self._close(at)
        if self._next is _Next.COMMA_OR_END:
            return self._comma(text, at)
        if char == "," and self._held and self._dialect.bare:
            return at + 1
        if self._next is _Next.COLON:
            return self._colon(text, at)
        return self._value(text, at)

    def _value(self, text: str, at: int) -> int:
        """Begin a value or a key."""
        if self._next in _VALUES and not self._dialect.bare and (prefix := _PREFIX.match(text, at)):
            self._prefix = prefix.group().lower()
            return prefix.end()
        for quote in self._quotes:
            if text.startswith(quote, at):
                return self._open_string(quote, at)
            if quote.startswith(text[at : at + len(quote)]):
                return at
        if self._next is _Next.KEY_OR_END:
            return self._key(text, at)
        return self._open(text, at) if text[at] in _CLOSERS else self._atom(text, at)

    def _blank(self, text: str, at: int) -> int:
        blank = _BLANK.match(text, at)
        end = blank.end() if blank else at
        if self._held:
            self._held += text[at:end]
        else:
            self._out.append(text[at:end])
        return end

    def _closes(self, char: str) -> bool:
        """Whether this closes a bracket; those inside it, which the model has forgotten, are closed then."""
        if char == self._closers[-1][0] or not self._dialect.bare:
            return char == self._closers[-1][0]
        if all(char != closer for closer, _ in self._closers):
            return False
        while self._closers[-1][0] != char:
            self.mends = True
            self._out.append(self._closers.pop()[1])
        return True

    def _close(self, at: int) -> int:
        # A held comma was a trailing one.
        self._held = ""
        self._settle("{")
        self._out.append(self._closers.pop()[1])
        self._value_ends()
        return at + 1

    def _stop(self, text: str, at: int) -> int:
        """Close all brackets before a marker that ends the call: the model has forgotten them."""
        sight = stops_at(text, at, self._around.stops, ended=self._ended)
        if sight is None:
            return at
        if not sight:
            return self._fail(at)
        self._close_all()
        return at

    def _close_all(self) -> None:
        self.mends = True
        while self._closers:
            self._out.append(self._closers.pop()[1])
        self.state = Scan.WHOLE

    def _comma(self, text: str, at: int) -> int:
        char = text[at]
        if char != ",":
            return self._no_comma(text, at)
        self._held = ","
        self._next = _Next.KEY_OR_END if self._closers[-1][1] == "}" else _Next.ITEM_OR_END
        return at + 1

    def _no_comma(self, text: str, at: int) -> int:
        """Read on where a comma is missing, or a quote is one too many."""
        if self._dialect.bare and text.startswith(self._quotes[0], at):
            self.mends = True
            return at + len(self._quotes[0])
        if self._dialect.bare and len(self._closers) == 1 and (key := _KEY_HERE.match(text, at)):
            if key.end() == len(text) and not self._ended:
                return at
            if key["key"] in self._around.keys:
                self.mends = True
                self._held, self._next = ",", _Next.KEY_OR_END
                return at
        return self._stop(text, at)

    def _colon(self, text: str, at: int) -> int:
        if self._brace is not None and text[at] in ",}" and self._waits:
            if self._first:
                place, self._out[place] = self._first
            self._settle("[")
            self._closers[-1] = _SET
            self._next = _Next.COMMA_OR_END
            return self._token(text, at)
        if text[at] != ":" and not (text[at] == "=" and self._dialect.bare):
            return self._fail(at)
        self._settle("{")
        self._out.append(":")
        self._next = _Next.VALUE
        return at + 1

    def _open(self, text: str, at: int) -> int:
        char = text[at]
        if self._dialect.bare and not self._closers and char in "([":
            # Where the arguments are to be in braces, other brackets mean the same, and those around braces nothing.
            blank = _BLANK.match(text, at + 1)
            inside = blank.end() if blank else at + 1
            if inside == len(text) and not self._ended:
                return at
            if text.startswith("{", inside):
                return inside
            self._tell("{")
            self._closers.append((_CLOSERS[char][0], "}"))
            self._next = _Next.KEY_OR_END
            return at + 1
        if len(self._closers) == MAX_DEPTH or (char == "(" and self._dialect.bare):
            return self._fail(at)
        if char == "{" and self._dialect.escapes:
            self._tell("")
            self._brace, self._first = len(self._out) - 1, None
        else:
            self._tell("{" if char == "{" else "[")
        self._closers.append(_CLOSERS[char])
        self._next = _Next.KEY_OR_END if char == "{" else _Next.ITEM_OR_END
        return at + 1

    def _open_string(self, quote: str, at: int) -> int:
        self._is_key = self._next is _Next.KEY_OR_END
        self._quote = quote
        self._next = _Next.STRING
        if not self._joins:
            self._tell('"')
        self._joins = False
        return at + len(quote)

    def _string(self, text: str, at: int) -> int:
        stops = (self._quote, "\\") if self._dialect.escapes or self._is_plain else (self._quote,)
        end, whole = delimiters(stops).find(text, at, ended=False)
        if (held := self._unclosed(text, at, end, whole=whole)) is not None:
            return held
        if "f" in self._prefix and _BRACE.search(text, at, end):
            # What it would insert is unknown.
            return self._fail(at)
        self._out.append(json_string(self._plain(text[at:end])))
        if not whole:
            return end
        if text.startswith(self._quote, end):
            if joined := self._joined(text, end):
                return joined
            ends = self._ends(text, end + 1)
            if not ends:
                return end if ends is None else self._go_on(text, end)
            self._out.append('"')
            self._string_ends()
            return end + len(self._quote)
        return self._escape(text, end)

    def _joined(self, text: str, end: int) -> int | None:
        """Read up to another string that Python joins to the one that ends here; None where there is none."""
        if self._dialect.bare or self._is_key or not (found := _JOINED.match(text, end + len(self._quote))):
            return None
        if found["quote"] is None:
            return None if self._ended else end
        self._prefix, self._joins, self._next = found["prefix"].lower(), True, _Next.VALUE
        return found.start("quote")

    @property
    def _is_plain(self) -> bool:
        """Whether the string stands between a program's quotes."""
        return self._quote[0] in _PLAIN_QUOTES

    def _unclosed(self, text: str, at: int, end: int, *, whole: bool) -> int | None:
        """Read up to where a string ends whose closing marker is missing, or may be; None where there is no sign."""
        if self._is_plain or self._is_key:
            return None
        found = key_behind(text, at, end, whole=whole) if self._around.keys and len(self._closers) == 1 else None
        if found is None:
            return None if whole else self._unclosed_at_end(text, at)
        missing = whole and found["key"] in self._around.keys and found["key"] not in self._seen
        followed = self._is_followed(text, end) if missing else whole
        if whole and followed:
            return None
        self._out.append(json_string(self._plain(text[at : found.start()])))
        if whole and followed is False:
            self.mends = True
            self._out.append('"')
            self._value_ends()
        return found.start()

    def _is_followed(self, text: str, end: int) -> bool | None:
        """Whether what follows a string's end follows the marker at `end`; None while more text is needed to tell."""
        window = text[end + len(self._quote) :][:MAX_BLANK]
        behind = window.lstrip()
        if behind.startswith((",", "}", "]", ")", *self._around.stops)) or (not behind and self._ended):
            return True
        unsure = len(window) < MAX_BLANK and not self._ended
        return None if unsure and (not behind or any(stop.startswith(behind) for stop in self._around.stops)) else False

    def _unclosed_at_end(self, text: str, at: int) -> int | None:
        """Read up to the brackets before a marker with which the stream ends."""
        found = brackets_behind(text[at:], self._around.stops, len(self._closers), ended=self._ended)
        if found is None:
            return None
        brackets, marker = found
        self._out.append(json_string(self._plain(text[at : at + brackets])))
        if not self._ended:
            return at + brackets
        self._out.append('"')
        self._close_all()
        return at + marker

    def _ends(self, text: str, behind: int) -> bool | None:
        if self._whole and not text[behind:].strip():
            return True
        loose = self._dialect.loose and self._quote in _PLAIN_QUOTES and not (self._is_key and self._dialect.bare)
        if loose and self._around.stops:
            blank = _BLANK.match(text, behind)
            at = blank.end() if blank else behind
            # Gemma's models also write the quote of their own dialect behind another one.
            stops = (*self._around.stops, *self._quotes[:1]) if self._dialect.bare else self._around.stops
            if at < len(text) and (sight := stops_at(text, at, stops, ended=self._ended)) is not False:
                return sight
        return string_ends(text, behind, inside=bool(self._closers), ended=self._ended) if loose else True

    def _go_on(self, text: str, at: int) -> int:
        self._out.append(json_string(text[at]))
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if "r" in self._prefix:
            # Both characters are the text's own, and the second one does not end it.
            if at + 1 == len(text):
                return at
            self._out.append(json_string(self._plain(text[at : at + 2])))
            return at + 2
        told, end = escape(text, at, self._plain)
        self._out.append(told)
        return end

    def _string_ends(self) -> None:
        self._prefix = ""
        if self._is_key:
            self._next = _Next.COLON
        else:
            self._value_ends()

    def _key(self, text: str, at: int) -> int:
        run = (_BARE if self._dialect.bare else _ATOM).match(text, at)
        end = run.end() if run else at
        key = text[at:end].rstrip()
        if end - at > MAX_ATOM:
            return self._fail(at)
        if end == len(text):
            return at
        if not key or (not self._dialect.bare and number(key) is None and key not in WORDS):
            return self._fail(at)
        if len(self._closers) == 1:
            self._seen.add(key)
            self._key_name = key
        self._tell(f'"{json_string(self._plain(WORDS.get(key, key)))}"')
        if self._first is None and (value := WORDS.get(key) or number(key)):
            self._first = len(self._out) - 1, value
        self._next = _Next.COLON
        return end

    def _atom(self, text: str, at: int) -> int:
        run = self._bare_value.match(text, at)
        end = run.end() if run else at
        is_text = self._dialect.bare and len(self._closers) == 1 and self._around.is_text((self._key_name,))
        if is_text and (end := self._text_end(text, end)) < 0:
            return at if len(text) - at <= _MAX_TEXT else self._fail(at)
        for stop in self._around.stops:
            found = text.find(stop, at, end)
            end = found if found >= 0 else end
        if end - at > (_MAX_TEXT if is_text else MAX_ATOM):
            return self._fail(at)
        if end == len(text):
            return at
        atom = text[at:end].rstrip()
        self.mends = self.mends or (is_text and "," in atom)
        if self._dialect.bare and text.startswith(self._quotes[0], end):
            # The quote that opens it is missing.
            self.mends = True
            self._tell(f'"{json_string(self._plain(atom))}"')
            self._value_ends()
            return end + len(self._quotes[0])
        value = WORDS.get(atom) or number(atom)
        if value is None and self._dialect.bare and atom:
            value = f'"{json_string(self._plain(atom))}"'
        if value is None:
            return self._fail(at)
        self._tell(value)
        self._value_ends()
        return at + len(atom)

    def _text_end(self, text: str, end: int) -> int:
        """The end of a text without quotes, whose commas end it before a key or a bracket; -1: not known yet."""
        while text.startswith(",", end):
            behind = _BEHIND_COMMA.match(text, end + 1)
            if behind and behind["cut"] is not None and not self._ended:
                return -1
            if behind and (
                behind["closer"] or (behind["key"] in self._around.keys and behind["key"] not in self._seen)
            ):
                break
            run = self._bare_value.match(text, end + 1)
            end = run.end() if run else end + 1
        return end

    @property
    def _bare_value(self) -> re.Pattern[str]:
        if not self._dialect.bare:
            return _ATOM
        return _BARE_IN_PARENTHESES if self._closers and self._closers[0][0] == ")" else _BARE_VALUE

    def _tell(self, told: str) -> None:
        self._out += (self._held, told)
        self._held = ""

    def _value_ends(self) -> None:
        self._next = _Next.COMMA_OR_END
        if not self._closers:
            self.state = Scan.WHOLE

    def _fail(self, at: int) -> int:
        self.state = Scan.WRONG
        return at
