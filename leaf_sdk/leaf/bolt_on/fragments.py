"""A tool's cached fragments under one map, and the values of a call, to the ids of the whole text: the hot path.

Cores are copied; a region is encoded with its slots filled, and remembered, because most tools say the same few things
again and again. The ids are those that the map gives to the whole text: `template` explains why. Slot values are
ordinary text, as all text of a tool is.
"""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from leaf_sdk.errors import FragmentCacheInvalid, FragmentUnknown
from leaf_sdk.vocab import TokenMap, normalise_hash

from .cache import CachedFragment, FragmentCache, Ids, Open
from .cuts import cuts_of
from .template import Core, FragmentText, Part, Slot, joined, plan

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 256

Piece = Ids | Open


class Fragment:
    """One fragment, ready to be filled."""

    __slots__ = ("_encode", "_parts", "_slots", "_steps", "source")

    def __init__(
        self, source: FragmentText, pieces: tuple[Piece, ...], encode: Callable[[str], tuple[int, ...]]
    ) -> None:
        self.source = source
        self._slots: AbstractSet[str] = frozenset(source.slots)
        self._parts = source.parts
        self._steps = tuple(map(_step, pieces))
        self._encode = encode

    def ids(self, values: Mapping[str, str]) -> list[int]:
        """Return the ids of the whole text.

        Raises:
            FragmentUnknown: a slot without a value, a value without a slot, or a value that is not text.
            TextNotUnicode: a value holds a lone surrogate.
        """
        if values.keys() != self._slots or set(map(type, values.values())) - {str}:
            raise _unfit(self.source, values)
        filled: list[int] = []
        for ids, shape, names in self._steps:
            filled += ids if shape is None else self._encode(shape % tuple([values[name] for name in names]))
        return filled

    def text(self, values: Mapping[str, str]) -> str:
        """Return the whole text; raises `FragmentUnknown` as `ids` does."""
        if values.keys() != self._slots or set(map(type, values.values())) - {str}:
            raise _unfit(self.source, values)
        return joined(self._parts, values)


class Fragments:
    """All fragments of a tool under one map."""

    def __init__(self, token_map: TokenMap, cache: FragmentCache, *, also_known_as: Collection[str] = ()) -> None:
        """Check a cache and prepare its fragments.

        Args:
            token_map: the map that the cache was made for.
            cache: from `precache` or `load_cache`; `verify_cache` says whether its ids are right.
            also_known_as: other hashes that name the same tokenizer, such as its tokenizer.json's.

        Raises:
            FragmentCacheInvalid: the cache names another tokenizer, or holds ids that no text may have.
        """
        known = {normalise_hash(each) for each in (token_map.map_id, *also_known_as)}
        if f"sha256:{cache.tokenizer_hash}" not in known:
            raise FragmentCacheInvalid(
                f"the fragments were cached for tokenizer {cache.tokenizer_hash!r}, but the map is "
                f"{token_map.map_id!r}; build the cache again for this map"
            )
        self.token_map = token_map
        self._encode = _remembering(token_map)
        self._fragments = {name: self._open(name, each) for name, each in cache.fragments.items()}

    def __getitem__(self, name: str) -> Fragment:
        """Return a fragment. Raises `FragmentUnknown`: no fragment has that name."""
        found = self._fragments.get(name)
        if found is None:
            raise FragmentUnknown(f"no fragment {name!r:.60}, expected one of {sorted(self._fragments)}")
        return found

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text that is not a fragment."""
        return tuple(self.token_map.encode(text))

    def _open(self, name: str, cached: CachedFragment) -> Fragment:
        for piece in (*cached.parts, *cached.pieces):
            if isinstance(piece, Ids):
                _check(name, piece.ids, self.token_map)
        if cached.source is None:
            source, pieces = _recovered(name, cached, self.token_map)
        else:
            source, pieces = cached.source, cached.pieces
        return Fragment(source, pieces, self._encode)


def core_ids(parts: tuple[Part, ...], token_map: TokenMap) -> tuple[Piece, ...]:
    """Plan a template under a map and encode its cores."""
    return tuple(
        Ids(tuple(token_map.encode(piece.text))) if isinstance(piece, Core) else Open(piece.parts)
        for piece in plan(parts, cuts_of(token_map))
    )


def _step(piece: Piece) -> tuple[tuple[int, ...], str | None, tuple[str, ...]]:
    if isinstance(piece, Ids):
        return piece.ids, None, ()
    shape = "".join("%s" if isinstance(part, Slot) else part.replace("%", "%%") for part in piece.parts)
    return (), shape, tuple(part.name for part in piece.parts if isinstance(part, Slot))


def _remembering(token_map: TokenMap) -> Callable[[str], tuple[int, ...]]:
    encode = token_map.encode

    @lru_cache(maxsize=_REMEMBERED)
    def remembered(text: str) -> tuple[int, ...]:
        return tuple(encode(text))

    def region_ids(text: str) -> tuple[int, ...]:
        return remembered(text) if len(text) <= _LONGEST_REMEMBERED else tuple(encode(text))

    return region_ids


def _recovered(name: str, cached: CachedFragment, token_map: TokenMap) -> tuple[FragmentText, tuple[Piece, ...]]:
    """Use a fragment from another tool's file: its text is decoded from its ids, and its seams are planned again."""
    if not token_map.exact_decode:
        raise FragmentCacheInvalid(
            f"fragment {name!r:.60} has no x_text, and map {token_map.map_id!r} does not decode exactly, so that its "
            "text is unknown; build the cache again with precache"
        )
    parts = tuple(part if isinstance(part, Slot) else token_map.decode(part.ids) for part in cached.parts)
    slots = any(isinstance(part, Slot) for part in parts)
    text = "".join(f"{{{part.name}}}" if isinstance(part, Slot) else part for part in parts)
    source = FragmentText(name, text, static=not slots)
    return source, core_ids(source.parts, token_map)


def _check(name: str, ids: tuple[int, ...], token_map: TokenMap) -> None:
    for token_id in ids:
        if token_id in token_map.special_ids or not token_map.has_id(token_id):
            raise FragmentCacheInvalid(
                f"fragment {name!r:.60} holds id {token_id!r:.20}, which map {token_map.map_id!r} never gives to "
                "ordinary text; build the cache again"
            )


def _unfit(source: FragmentText, values: Mapping[str, str]) -> FragmentUnknown:
    wrong = [name for name, value in values.items() if type(value) is not str]
    if wrong:
        return FragmentUnknown(
            f"slot {wrong[0]!r:.60} of fragment {source.id!r:.60} has a value that is not a str; give it a str"
        )
    missing = [name for name in source.slots if name not in values]
    if missing:
        return FragmentUnknown(f"missing slot {missing[0]!r}; give every slot of fragment {source.id!r:.60} a text")
    return FragmentUnknown(
        f"fragment {source.id!r:.60} has no slot {min(values.keys() - set(source.slots))!r:.60}, "
        f"expected {list(source.slots)}"
    )
