"""A pre-tokenizer's regular expression to what it says about two neighbouring characters, whatever surrounds them.

Can some match contain both? Is one sure to begin at the second? Can a lookahead notice the second? The answers are for
ASCII, and err towards "may": the pattern is not executed, but read as the classes of characters that can follow one
another. A pattern with a construct that is not understood is refused. Knows nothing of maps. Method: Glushkov's first,
last and follow sets of a regular expression.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

UNIVERSE: Final = frozenset(map(chr, range(0x20, 0x7F))) | {"\n"}
"""The characters that may be asked about; every set below holds only these."""

CharSet = frozenset[str]
_NONE: Final[CharSet] = frozenset()
_SPACE: Final[CharSet] = frozenset(" \n")
_ESCAPES: Final[dict[str, CharSet]] = {
    "s": _SPACE,
    "S": UNIVERSE - _SPACE,
    "d": frozenset("0123456789"),
    "D": UNIVERSE - frozenset("0123456789"),
    "n": frozenset("\n"),
    "r": _NONE,
    "t": _NONE,
}
_CATEGORY = re.compile(r"[LMNPSZC][a-z]?")
# Scripts without a single ASCII character.
_FOREIGN: Final = frozenset({"Han", "Hiragana", "Katakana", "Hangul", "Thai", "Arabic", "Hebrew", "Cyrillic", "Greek"})
_MAX_PATTERN: Final = 4000


class PatternUnknown(Exception):
    """The pattern has a construct that is not covered here: nothing may be concluded from it."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a pattern says about neighbours."""

    pairs: tuple[tuple[CharSet, CharSet], ...]
    guards: tuple[tuple[CharSet, CharSet], ...]
    """Lookaheads: after a character of the first set, one of the second changes the outcome."""
    starters: CharSet
    """Characters at which some match can always begin and, if nothing follows, end."""

    def spans(self, before: str, after: str) -> bool:
        """Return whether a match may contain both, or the second may change how the text before it is matched."""
        return any(before in left and after in right for left, right in (*self.pairs, *self.guards))

    def starts(self, after: str) -> bool:
        """Return whether a match is sure to begin at this character, where none spans it and the one before."""
        return after in self.starters


def read_pattern(pattern: str) -> Pattern:
    """Read a pattern of Oniguruma's syntax, as `tokenizers` uses it.

    Raises:
        PatternUnknown: a construct that is not covered: anchors, lookbehinds, back references, nested classes.
    """
    if len(pattern) > _MAX_PATTERN:
        raise PatternUnknown(f"a pattern of {len(pattern)} characters")
    reader = _Reader(pattern)
    node = reader.alternatives(fold=False)
    if reader.at != len(pattern):
        reader.refuse("an unmatched )")
    if node.nullable:
        raise PatternUnknown("a pattern that matches nothing at all")
    return Pattern(tuple(reader.pairs), tuple(reader.guards), node.alone)


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of a pattern, described by what it can begin and end with."""

    first: tuple[CharSet, ...] = ()
    last: tuple[CharSet, ...] = ()
    alone: CharSet = _NONE
    """Characters that it is sure to match by themselves."""
    nullable: bool = True
    skippable: bool = True
    """Whether it can match the empty text wherever it has to; a lookahead can't."""


class _Reader:
    """Recursive descent over a pattern; pairs and guards are collected on the way."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.pairs: list[tuple[CharSet, CharSet]] = []
        self.guards: list[tuple[CharSet, CharSet]] = []

    def refuse(self, what: str) -> NoReturn:
        raise PatternUnknown(f"{what} at {self.at} of {self.pattern!r:.120}")

    def alternatives(self, *, fold: bool) -> _Node:
        node = self._sequence(fold=fold)
        while self._take("|"):
            other = self._sequence(fold=fold)
            node = _Node(
                node.first + other.first,
                node.last + other.last,
                node.alone | other.alone,
                node.nullable or other.nullable,
                node.skippable or other.skippable,
            )
        return node

    def _sequence(self, *, fold: bool) -> _Node:
        node = _Node()
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self.pattern.startswith(("(?!", "(?="), self.at):
                node = self._lookahead(node)
            else:
                node = self._joined(node, self._repeated(self._atom(fold=fold)))
        return node

    def _joined(self, left: _Node, right: _Node) -> _Node:
        self._follow(left.last, right.first)
        alone = (left.alone if right.skippable else _NONE) | (right.alone if left.skippable else _NONE)
        return _Node(
            left.first + (right.first if left.nullable else ()),
            right.last + (left.last if right.nullable else ()),
            alone,
            left.nullable and right.nullable,
            left.skippable and right.skippable,
        )

    def _lookahead(self, left: _Node) -> _Node:
        self.at += 3
        ahead = self._atom(fold=False)
        if not self._take(")") or len(ahead.first) != 1 or left.nullable:
            self.refuse("a lookahead that is not one class behind something")
        # At the end of the text (?!C) holds and (?=C) fails; a character outside C makes no difference to either.
        self.guards.extend((each, ahead.first[0]) for each in left.last)
        return _Node(left.first, left.last, _NONE, nullable=False, skippable=False)

    def _repeated(self, node: _Node) -> _Node:
        found = re.compile(r"([?*+]|\{(\d+)(,?)(\d*)\})([?+]?)").match(self.pattern, self.at)
        if found is None:
            return node
        self.at = found.end()
        optional = found[1] in "?*" or found[2] == "0"
        once = found[1] == "?" or (found[2] is not None and not found[3] and found[2] in "01" and found[5] != "+")
        if not once:
            self._follow(node.last, node.first)
        several = found[2] is not None and int(found[2]) > 1
        nullable = node.nullable or optional
        # A possessive part never gives back what it took, so that a later part may find nothing left.
        skippable = (node.skippable or optional) and found[5] != "+"
        return _Node(node.first, node.last, _NONE if several else node.alone, nullable, skippable)

    def _follow(self, left: Iterable[CharSet], right: tuple[CharSet, ...]) -> None:
        self.pairs.extend((before, after) for before in left for after in right if before and after)

    def _atom(self, *, fold: bool) -> _Node:
        char = self.pattern[self.at]
        if char == "(":
            return self._group(fold=fold)
        if char == "[":
            return _one(self._class(fold=fold))
        if char == "\\":
            return _one(self._escape(fold=fold))
        if char in ".^$?*+{":
            self.refuse(f"an unescaped {char!r}")
        self.at += 1
        return _one(self._literal(char, fold=fold))

    def _group(self, *, fold: bool) -> _Node:
        if self.pattern.startswith("(?i:", self.at):
            self.at += 4
            fold = True
        elif self.pattern.startswith("(?:", self.at):
            self.at += 3
        elif self.pattern.startswith("(?", self.at):
            self.refuse("a group of a kind that is not covered")
        else:
            self.at += 1
        node = self.alternatives(fold=fold)
        if not self._take(")"):
            self.refuse("an unclosed group")
        return node

    def _class(self, *, fold: bool) -> CharSet:
        self.at += 1
        negated = self._take("^")
        held: set[str] = set()
        while not self._take("]"):
            if self.at >= len(self.pattern) or self.pattern[self.at] == "[" or self.pattern.startswith("&&", self.at):
                self.refuse("a class that is unclosed or nested")
            held |= self._class_item(fold=fold)
        return UNIVERSE - held if negated else UNIVERSE & held

    def _class_item(self, *, fold: bool) -> CharSet:
        char = self.pattern[self.at]
        if char == "\\":
            return self._escape(fold=fold)
        self.at += 1
        if not (self.pattern.startswith("-", self.at) and self.pattern[self.at + 1 : self.at + 2] not in ("]", "")):
            return self._literal(char, fold=fold)
        end = self.pattern[self.at + 1]
        if end in "\\[":
            self.refuse("a range up to something escaped")
        self.at += 2
        held = frozenset(each for each in UNIVERSE if char <= each <= end)
        return frozenset(form for each in held for form in (each.lower(), each.upper())) if fold else held

    def _escape(self, *, fold: bool) -> CharSet:
        char = self.pattern[self.at + 1 : self.at + 2]
        self.at += 2
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in ("p", "P"):
            found = re.compile(r"\{(\w+)\}").match(self.pattern, self.at)
            if found is None:
                self.refuse("a property without a name")
            self.at = found.end()
            held = self._property(found[1])
            return held if char == "p" else UNIVERSE - held
        if not char or char.isalnum():
            self.refuse(f"an escape {char!r}")
        return self._literal(char, fold=fold)

    def _property(self, name: str) -> CharSet:
        if name in _FOREIGN:
            return _NONE
        if not _CATEGORY.fullmatch(name):
            self.refuse(f"a property {name!r}")
        return frozenset(each for each in UNIVERSE if unicodedata.category(each).startswith(name))

    def _literal(self, char: str, *, fold: bool) -> CharSet:
        if fold and not char.isascii():
            self.refuse(f"{char!r} without regard to case")  # it may fold to several ASCII letters
        return UNIVERSE & ({char.lower(), char.upper()} if fold else {char})

    def _take(self, char: str) -> bool:
        if self.pattern.startswith(char, self.at):
            self.at += 1
            return True
        return False


def _one(held: CharSet) -> _Node:
    return _Node((held,), (held,), held, nullable=False, skippable=False)
