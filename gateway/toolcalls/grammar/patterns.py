"""A schema's `pattern` to GBNF, where it is a simple one: characters, classes, groups, alternatives, counts.

Lookarounds, backreferences and word boundaries are not simple, nor is the repetition of a text that may be empty: then
there is no expression, and the text is free. No pattern is run: it is only read, once. The `TextPlace` decides how a
character is spelled. Source: ECMA-262.
"""

from dataclasses import dataclass
from typing import Never, Protocol

from gateway.toolcalls.grammar.gbnf import Grammar

# Sets of characters to GBNF, spelled as their place requires: with JSON's escapes, or plain between tags.

_JSON_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_ESCAPED = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F))

Ranges = tuple[tuple[int, int], ...]


class NotSimple(Exception):
    """The pattern says something that the grammar can't express."""


@dataclass(frozen=True, slots=True)
class Chars:
    """A set of characters; with `negated`, all characters except these."""

    ranges: Ranges
    negated: bool = False

    def has(self, char: str) -> bool:
        """Whether a character is in the set."""
        return any(low <= ord(char) <= high for low, high in self.ranges) != self.negated

    def overlaps(self, other: "Chars") -> bool:
        """Whether a character may be in both sets."""
        if self.negated and other.negated:
            return True
        listed, others = (other, self) if self.negated else (self, other)
        # What is left of the one without the other is smaller if they share a character.
        left = _without(listed.ranges, others.ranges)
        return bool(left) if others.negated else sum(map(_size, left)) < sum(map(_size, listed.ranges))


class TextPlace(Protocol):
    """The place of a text, which decides how its characters are spelled."""

    def spell(self, g: Grammar, chars: Chars) -> str:
        """Return the expression for one character of a set. Raises NotSimple where such a character can't be here."""
        ...

    def others(self, g: Grammar) -> str:
        """Return the expression for any text. Raises NotSimple where a pattern must match the whole text."""
        ...


class JsonText:
    """Between quotation marks, with JSON's escapes."""

    def spell(self, g: Grammar, chars: Chars) -> str:
        """Return the set: plain characters, and the escapes of those that JSON escapes."""
        escaped = [g.literal(text) for char, text in _JSON_ESCAPES.items() if chars.has(char)]
        if chars.negated:
            return g.either([g.ranges((*chars.ranges, *_ESCAPED), negated=True), *escaped])
        plain = _without(chars.ranges, _ESCAPED)
        return g.either([g.ranges(plain), *escaped] if plain else escaped) or refuse("no character that JSON writes")

    def others(self, g: Grammar) -> str:
        """Return the expression for any characters."""
        return "char*"


@dataclass(frozen=True, slots=True)
class PlainText:
    """Between tags, unescaped; none of the characters in `barred` can stand there."""

    barred: str

    def spell(self, g: Grammar, chars: Chars) -> str:
        """Return the set."""
        if any(map(chars.has, self.barred)):
            refuse("a character that may begin the closing tag")
        return g.ranges(chars.ranges, negated=chars.negated)

    def others(self, g: Grammar) -> str:
        """Refuse: around a pattern that matches only a part, the text could hold anything."""
        return refuse("the pattern matches only a part of the text")


def refuse(why: str) -> Never:
    """Give up on a pattern: raise `NotSimple` with the reason."""
    raise NotSimple(why)


def _size(ends: tuple[int, int]) -> int:
    return ends[1] - ends[0] + 1


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the ranges without what is in the others."""
    for low, high in others:
        split = (part for a, b in ranges for part in ((a, min(b, low - 1)), (max(a, high + 1), b)))
        ranges = tuple((a, b) for a, b in split if a <= b)
    return ranges


MAX_PATTERN = 500
"""Most characters of a pattern that is read."""

MAX_PATTERNS = 40_000
"""Most characters of all patterns in one grammar: each takes 3 us to read."""

MAX_WAYS = 64
"""Most ways in which the beginning of a text can be read: the engine follows each by itself, for every token."""

_MAX_DEPTH = 16
_DIGIT = ((0x30, 0x39),)
_WORD = (*_DIGIT, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE = ((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x2028, 0x2029))
_SETS = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_LINES = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def pattern_rules(g: Grammar, pattern: str, place: TextPlace) -> str | None:
    """Return the expression for the texts in which a pattern matches; None where it is not simple."""
    if len(pattern) > MAX_PATTERN or not g.takes_pattern(len(pattern), MAX_PATTERNS):
        return None
    try:
        return _Reader(g, pattern, place).whole()
    except (NotSimple, ValueError):
        return None


class _Reader:
    """Reads one pattern. Reading a part returns its expression, and whether its text may be empty."""

    def __init__(self, g: Grammar, pattern: str, place: TextPlace) -> None:
        self._g = g
        self._text = pattern
        self._place = place
        self._at = 0
        self._depth = 0
        self._ways = 1
        self._one: Chars | None = None
        """The characters that were read last; None: a group."""
        self._largest = 1
        """The largest count so far."""
        self._varies = False
        """Whether the text of what was read last can be of several lengths or kinds."""
        self._open: list[tuple[Chars, int]] = []
        """Characters that may still be repeated here, and how often: if what follows is one of them, each is a way."""

    def whole(self) -> str:
        """Read all of it: alternatives, each with its own anchors."""
        found = [self._anchored()]
        while self._take("|"):
            self._open = []
            found.append(self._anchored())
        if self._at < len(self._text):
            refuse("an unmatched parenthesis")
        return self._g.either(found)

    def _anchored(self) -> str:
        begins = self._take("^")
        inside, _ = self._sequence()
        ends = self._take("$")
        if not ends:
            for _, most in self._open:
                self._multiply(most)
        if not begins:
            # It may begin at every character, so each that it counts is a way.
            self._multiply(self._largest)
        before, after = ("" if anchored else self._place.others(self._g) for anchored in (begins, ends))
        text = " ".join(filter(None, (before, inside, after)))
        return f"({text})" if text else ""

    def _sequence(self) -> tuple[str, bool]:
        parts: list[str] = []
        empty, varies = True, False
        while self._at < len(self._text) and self._text[self._at] not in "|)$":
            part, may_miss = self._counted()
            parts.append(part)
            empty, varies = empty and may_miss, varies or self._varies
        self._varies = varies
        return " ".join(filter(None, parts)), empty

    def _counted(self) -> tuple[str, bool]:
        self._varies = False
        before = self._open
        item, empty = self._atom()
        one = self._one
        bounds = self._bounds()
        if bounds is None:
            return item, empty
        least, most = bounds
        if empty or (most is not None and most < least):
            refuse("a text that may be empty is repeated")
        self._take("?")
        self._largest = max(self._largest, most or least)
        if one is not None and most != least:
            self._open = [*(before if least == 0 else ()), (one, most or 2)]
        elif one is None and self._varies:
            self._multiply(most or 2)
            for _, more in self._open:
                self._multiply(more)
        elif least == 0:
            self._open = [*before, *self._open]
        self._varies = self._varies or most != least
        return self._g.repeat(item, "", least, most), least == 0

    def _bounds(self) -> tuple[int, int | None] | None:
        char = self._text[self._at : self._at + 1]
        if char in _QUANTIFIERS and char:
            self._at += 1
            return _QUANTIFIERS[char]
        if char != "{":
            return None
        inside, brace, _ = self._text[self._at + 1 :].partition("}")
        least, comma, most = inside.partition(",")
        if not brace or not least.isdecimal() or not (most.isdecimal() or not most):
            refuse("a brace without a count")
        self._at += len(inside) + 2
        return int(least), int(most) if most else None if comma else int(least)

    def _atom(self) -> tuple[str, bool]:
        char = self._next()
        if char == "(":
            return self._group()
        if char in "^*+?{}]":
            refuse(f"{char!r} has no meaning here")
        return self._place.spell(self._g, self._character(self._chars(char))), False

    def _chars(self, char: str) -> Chars:
        if char == "[":
            return self._class()
        if char == ".":
            return Chars(_LINES, negated=True)
        return self._escape() if char == "\\" else _one(char)

    def _character(self, chars: Chars) -> Chars:
        """Note that one of these characters comes next."""
        for others, most in self._open:
            if chars.overlaps(others):
                self._multiply(most)
        self._open, self._one = [], chars
        return chars

    def _multiply(self, ways: int) -> None:
        self._ways *= ways
        if self._ways > MAX_WAYS:
            refuse("too many ways to read the beginning of a text")

    def _group(self) -> tuple[str, bool]:
        if self._take("?") and not self._take(":"):
            refuse("a lookaround or a named group")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            refuse("too many nested groups")
        before, ends, varies = self._open, list[tuple[Chars, int]](), False
        found = [self._sequence()]
        while self._take("|"):
            ends, self._open, varies = [*ends, *self._open], before, True
            found.append(self._sequence())
        if self._next() != ")":
            refuse("an anchor inside a group")
        self._open, self._varies, self._one = [*ends, *self._open], varies or self._varies, None
        self._depth -= 1
        inside = self._g.either(f"({text})" if text else "" for text, _ in found)
        return inside, any(empty for _, empty in found)

    def _class(self) -> Chars:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._in_class()
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                ranges.append(_range(low, self._in_class()))
            else:
                ranges += low.ranges
        return Chars(tuple(ranges), negated) if ranges else refuse("an empty class")

    def _in_class(self) -> Chars:
        char = self._next()
        if char != "\\":
            return _one(char)
        chars = self._escape()
        return refuse("a negated class inside a class") if chars.negated else chars

    def _escape(self) -> Chars:
        char = self._next()
        if char.lower() in _SETS:
            return Chars(_SETS[char.lower()], negated=char.isupper())
        if char in _CONTROLS:
            return _one(_CONTROLS[char])
        if char in "xu":
            digits = self._text[self._at : self._at + (2 if char == "x" else 4)]
            self._at += len(digits)
            return _one(chr(int(digits, 16)))
        if char.isalnum():
            refuse(f"the escape {char!r}")
        return _one(char)

    def _take(self, char: str) -> bool:
        taken = self._text.startswith(char, self._at)
        self._at += taken
        return taken

    def _next(self) -> str:
        if self._at == len(self._text):
            refuse("it ends unexpectedly")
        self._at += 1
        return self._text[self._at - 1]


def _one(char: str) -> Chars:
    return Chars(((ord(char), ord(char)),))


def _range(low: Chars, high: Chars) -> tuple[int, int]:
    (start, end), (begin, last) = low.ranges[0], high.ranges[0]
    if start != end or begin != last or last < start:
        refuse("a range whose ends are not two characters in order")
    return start, last
