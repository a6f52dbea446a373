"""A text as one tokenizer cuts it: a piece for each id, fit to be looked at.

Turns a text and a map into chips. Blanks and line breaks are shown, bytes that are no whole character as numbers, and a
cut that the other map does not make is marked. Pure.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from gateway.observe.escape import escape_text
from gateway.serve.console.render import Fit
from leaf_sdk.vocab import TokenMap

_SHOWN: Final = 2000
"""Chips of one cut."""
_LONGEST: Final = 120
_BLANKS: Final = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥"})


@dataclass(frozen=True, slots=True)
class Chip:
    """One id."""

    token_id: int
    text: Fit
    kind: str
    """`special`, `bytes` (no whole character) or `plain`."""
    differs: bool
    """Whether the other map cuts elsewhere at its end."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A text, cut."""

    chips: tuple[Chip, ...]
    ids: int
    """All of them, with those that are not shown."""

    @property
    def more(self) -> int:
        """How many are not shown."""
        return self.ids - len(self.chips)


def cut_text(token_map: TokenMap, text: str, other: TokenMap | None = None, *, specials: bool = False) -> Cut:
    """Cut a text by a map. `other`: the map that it is compared with.

    Raises:
        CodecError: the map can't encode, or the text holds a lone surrogate.
    """
    ids = token_map.encode(text, specials=specials)
    ends = ends_of(token_map, ids)
    elsewhere: Collection[int] | None = None
    if other is not None:
        theirs = ends_of(other, other.encode(text, specials=specials))
        # Where a normalizer made other bytes, places can't be compared.
        elsewhere = frozenset(theirs) if ends[-1:] == theirs[-1:] else None
    special = token_map.special_ids
    chips = tuple(
        _chip(token_map, token_id, token_id in special, elsewhere is not None and end not in elsewhere)
        for token_id, end in zip(ids[:_SHOWN], ends, strict=False)
    )
    return Cut(chips, len(ids))


def ends_of(token_map: TokenMap, ids: Sequence[int]) -> list[int]:
    """Where each id ends, in bytes."""
    return list(accumulate(len(token_map.token_bytes(token_id)) for token_id in ids))


def _chip(token_map: TokenMap, token_id: int, special: bool, differs: bool) -> Chip:
    data = token_map.token_bytes(token_id)
    try:
        text = escape_text(data.decode().translate(_BLANKS), _LONGEST)
    except UnicodeDecodeError:
        return Chip(token_id, Fit(data[:_LONGEST].hex(" ").upper()), "bytes", differs)
    return Chip(token_id, Fit(text), "special" if special else "plain", differs)
