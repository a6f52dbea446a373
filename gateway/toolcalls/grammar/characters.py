"""Sets of characters to GBNF, spelled as their place requires: with JSON's escapes, or plain between tags."""

from dataclasses import dataclass
from typing import Never, Protocol

from gateway.toolcalls.grammar.gbnf import Grammar

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


class Place(Protocol):
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
