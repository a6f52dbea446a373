"""A text as one tokenizer cuts it: one piece for each id, ready to be shown.

Turns a text and a map into chips. Spaces, tabs and line breaks become visible, bytes that are not whole characters are
shown in hexadecimal, and cuts that the other map does not make are marked. Pure.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from codec_console.render import PreparedText
from gateway.escape import escape_text
from leaf_sdk.vocab import TokenMap

_SHOWN: Final = 2000
"""Maximum number of chips that one cut shows."""
_LONGEST: Final = 120
_BLANKS: Final = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥"})


@dataclass(frozen=True, slots=True)
class Chip:
    """One id with its text."""

    token_id: int
    text: PreparedText
    kind: str
    """`special`, `bytes` (not whole characters) or `plain`."""
    differs: bool
    """Whether the other map has no cut where this id ends."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that was cut."""

    chips: tuple[Chip, ...]
    ids: int
    """How many ids the text has, including those that are not shown."""

    @property
    def more(self) -> int:
        """How many are not shown."""
        return self.ids - len(self.chips)


def cut_text(token_map: TokenMap, text: str, other: TokenMap | None = None, *, specials: bool = False) -> Cut:
    """Cut a text by a map. `other`: the map to compare the cuts with. Raises `CodecError`: the map can't encode, or the
    text holds a lone surrogate."""
    ids = token_map.encode(text, specials=specials)
    ends = ends_of(token_map, ids)
    elsewhere: Collection[int] | None = None
    if other is not None:
        theirs = ends_of(other, other.encode(text, specials=specials))
        # Where a normalizer changed the bytes, places can't be compared.
        elsewhere = frozenset(theirs) if ends[-1:] == theirs[-1:] else None
    special = token_map.special_ids
    chips = tuple(
        _chip(token_map, token_id, token_id in special, elsewhere is not None and end not in elsewhere)
        for token_id, end in zip(ids[:_SHOWN], ends, strict=False)
    )
    return Cut(chips, len(ids))


def ends_of(token_map: TokenMap, ids: Sequence[int]) -> list[int]:
    """The offset in bytes at which each id ends."""
    return list(accumulate(len(token_map.token_bytes(token_id)) for token_id in ids))


def _chip(token_map: TokenMap, token_id: int, special: bool, differs: bool) -> Chip:
    data = token_map.token_bytes(token_id)
    try:
        text = escape_text(data.decode().translate(_BLANKS), _LONGEST)
    except UnicodeDecodeError:
        return Chip(token_id, PreparedText(data[:_LONGEST].hex(" ").upper()), "bytes", differs)
    return Chip(token_id, PreparedText(text), "special" if special else "plain", differs)
