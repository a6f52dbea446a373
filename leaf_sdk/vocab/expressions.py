r"""An Oniguruma expression, by which `tokenizers` cuts text, to the Python expression that makes the same cuts.

A class (`\p{L}`, `\s`) is spelled out as the characters that the library itself counts as its members, so that no
second Unicode table can differ from the first. An expression with a construct that tokenizers are not known to use is
refused: nothing is guessed.

Source: Oniguruma's RE document; Python's `re`.
"""

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final

_FOLDED: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
"""The only case-insensitive group that is accepted; in others one character might fold to several."""
_CATEGORY: Final = r"\\p\{[A-Z][a-z]?\}|\\s"
_LITERAL: Final = r"\\[rn]|\\[^\w\s]"
_OUTSIDE: Final = re.compile(
    rf"(?P<category>{_CATEGORY})|(?P<opposite>\\S)|(?P<folded>{re.escape(_FOLDED)})|(?P<opened>\[\^?)"
    rf"|(?P<same>{_LITERAL}|[^\\\[\](){{}}?*+|.^$]|\(\?[:!=]|\||\)"
    # No quantifier is lazy, and none follows another.
    r"|[?*+]\+?(?![?*+{])|\{\d+(?:,\d+)?\}(?![?*+{]))"
)
_INSIDE: Final = re.compile(rf"(?P<category>{_CATEGORY})|(?P<same>{_LITERAL}|(?!&&)[^\\\[\]])|(?P<closed>\])")


NUMERALS: Final = "Digits"
r"""The class of the characters that the library's own Digits isolates: a few more than `\p{N}` has."""


class Alphabet:
    """All characters below a code point, and the classes that the library puts them into."""

    def __init__(self, end: int) -> None:
        """`end`: the code point after the last character."""
        self._characters = "".join(chr(code) for code in range(end) if not 0xD800 <= code < 0xE000)
        self._outsider = chr(end)
        self._spelled: dict[str, str] = {}

    def members(self, category: str) -> str:
        r"""Spell the members of an Oniguruma class (`\s`, `(?i:s)`) for use between the brackets of a Python class.

        A class without members is given one that is not in the alphabet, because Python has no empty class.
        """
        if category not in self._spelled:
            self._spelled[category] = "".join(map(_spelled, self._runs(category) or [self._outsider]))
        return self._spelled[category]

    def _runs(self, category: str) -> Iterable[str]:
        if category.startswith("(?i:"):
            return "".join(matches(self._letters, category))
        return matches(self._characters, category)

    @cached_property
    def _letters(self) -> str:
        """The characters that match some ASCII letter when case is ignored."""
        return "".join(matches(self._characters, "(?i:[a-z])"))


def translated(pattern: str, members: Callable[[str], str]) -> str | None:
    """Return the Python expression with the same matches in text of an alphabet; None if the pattern is refused.

    It has no capturing group, and no match is empty.

    Args:
        pattern: the Oniguruma expression.
        members: spells a class, as `Alphabet.members` of the alphabet.
    """
    bare = _translated(pattern, lambda _: "x")
    return _translated(pattern, members) if bare is not None and _surely_holds_something(bare) else None


def _translated(pattern: str, members: Callable[[str], str]) -> str | None:
    parts: list[str] = []
    at, scanner = 0, _OUTSIDE
    while at < len(pattern):
        found = scanner.match(pattern, at)
        if found is None:
            return None
        at = found.end()
        kind, text = found.lastgroup, found.group()
        if kind == "category":
            parts.append(members(text) if scanner is _INSIDE else f"[{members(text)}]")
        elif kind == "opposite":
            parts.append(f"[^{members(text.lower())}]")
        elif kind == "folded":
            letters = text.removeprefix("(?i:")
            parts += ["(?:", *(f"[{members(f'(?i:{each})')}]" if each.isalpha() else each for each in letters)]
        else:
            parts.append(text)
            scanner = {"opened": _INSIDE, "closed": _OUTSIDE}.get(str(kind), scanner)
    return "".join(parts)


def _surely_holds_something(expression: str) -> bool:
    """Whether no match is empty (engines continue differently after one that is); False if it does not compile."""
    without_lookaheads = expression.replace("(?!", "(?:|").replace("(?=", "(?:|")
    try:
        return re.match(without_lookaheads, "") is None
    except re.error:
        return False


def matches(text: str, category: str) -> list[str]:
    """Return the runs of a class's members in a text, as the library sees them."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Digits, Split

    if category == NUMERALS:
        pieces = Digits(individual_digits=True).pre_tokenize_str("".join(f"a{each}" for each in text))
        return [piece for piece, _ in pieces if piece[0] != "a"]
    return [run for run, _ in Split(Regex(f"(?:{category})+"), "removed", invert=True).pre_tokenize_str(text)]


def _spelled(run: str) -> str:
    first, last = (f"\\U{ord(each):08x}" for each in (run[0], run[-1]))
    return f"{first}-{last}"
