"""Sets of characters to GBNF, as they are spelled where they stand: with JSON's escapes, or between tags."""

from dataclasses import dataclass
from typing import Never, Protocol

from gateway.toolcalls.grammar.gbnf import Grammar

_JSON_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_ESCAPED = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F))

Ranges = tuple[tuple[int, int], ...]


class NotSimple(Exception):
    """The pattern says what this grammar can't."""


@dataclass(frozen=True, slots=True)
class Chars:
    """A set of characters, or with `negated` all but these."""

    ranges: Ranges
    negated: bool = False

    def has(self, char: str) -> bool:
        """Whether a character is in the set."""
        return any(low <= ord(char) <= high for low, high in self.ranges) != self.negated


class Place(Protocol):
    """Where a text stands, which says how its characters are spelled."""

    def spell(self, g: Grammar, chars: Chars) -> str:
        """Give one character of a set. Raises NotSimple where it can't stand here."""
        ...

    def others(self, g: Grammar) -> str:
        """Give any text. Raises NotSimple where a pattern must say all of the text."""
        ...


class JsonText:
    """Between quotation marks, with JSON's escapes."""

    def spell(self, g: Grammar, chars: Chars) -> str:
        """Give the set without what JSON escapes, and that as it is escaped."""
        escaped = [g.literal(text) for char, text in _JSON_ESCAPES.items() if chars.has(char)]
        if chars.negated:
            return g.either([g.ranges((*chars.ranges, *_ESCAPED), negated=True), *escaped])
        plain = _without(chars.ranges, _ESCAPED)
        return g.either([g.ranges(plain), *escaped] if plain else escaped) or refuse("nothing that JSON writes")

    def others(self, g: Grammar) -> str:
        """Give any characters."""
        return "char*"


@dataclass(frozen=True, slots=True)
class PlainText:
    """Between tags, as it is; none of the characters `barred` can stand there."""

    barred: str

    def spell(self, g: Grammar, chars: Chars) -> str:
        """Give the set."""
        if any(map(chars.has, self.barred)):
            refuse("the text might end where it does not")
        return g.ranges(chars.ranges, negated=chars.negated)

    def others(self, g: Grammar) -> str:
        """A text of which the pattern says a part could hold anything."""
        return refuse("the pattern says not all of the text")


def refuse(why: str) -> Never:
    """Give up on a pattern."""
    raise NotSimple(why)


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    """Give the ranges without what is in the others."""
    for low, high in others:
        split = (part for a, b in ranges for part in ((a, min(b, low - 1)), (max(a, high + 1), b)))
        ranges = tuple((a, b) for a, b in split if a <= b)
    return ranges
