"""A tool's texts to their ids under one map, made once, when the tool is built.

Where a literal's end and a slot's value would merge into one token, the ids of the parts are not those of the whole.
The plan keeps such ends out of the cache; here that is tested with values that join badly, and the seams that had to
move are reported, each with a text that shows why. If the planned ids ever differ, no cache is made: `SeamUnsafe`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from leaf_sdk.errors import FragmentCacheInvalid, SeamUnsafe
from leaf_sdk.vocab import TokenMap, normalise_hash

from .cache import CachedFragment, FragmentCache, Ids
from .fragments import Fragments, core_ids
from .template import FragmentText, Part, Slot, joined

PROBES: Final = (
    *(
        "",
        " ",
        "  ",
        "\n",
        "\n\n",
        " \n ",
        "\t",
        "\r\n",
        "\u00a0",
        "a",
        " a",
        "a ",
        "the",
        "s",
        "'s",
        "ll",
        "don't",
        "1",
    ),
    *(
        "12",
        "1234",
        ".",
        "...",
        ",",
        "/",
        "-",
        "_",
        '"',
        "'",
        "{",
        "}",
        "%",
        "%s",
        "<",
        ">",
        "<|im_end|>",
        "<tool_call>",
    ),
    *(
        "é",
        "e\u0301",
        "\u0301",
        "\u0338",
        "ß",
        "ſ",
        "\u212a",
        "日本",
        "ไทย",
        "한",
        "ᄒ",
        "ᅡ",
        "😀",
        "\u200d",
        "\ufe0f",
        "１２",
        "\x00",
    ),
    *"bcdefghijklmnopqrtuvwxyz",
)
"""Values that join badly: parts of words, digits, blanks, accents, markers."""


@dataclass(frozen=True, slots=True)
class Seam:
    """A place that can't be a seam: the parts, joined there, would not have the ids of the whole."""

    fragment: str
    slot: str
    example: str
    """The text around the slot, filled so that the ids differ."""
    whole: tuple[int, ...]
    apart: tuple[int, ...]


def precache(
    fragments: Iterable[FragmentText] | Mapping[str, str],
    token_map: TokenMap,
    *,
    tokenizer_hash: str | None = None,
    probes: Sequence[str] = PROBES,
) -> FragmentCache:
    """Make the cache of a tool's fragments under one map.

    Args:
        fragments: the texts as `FragmentText`, or texts by id.
        token_map: the map.
        tokenizer_hash: the hash by which the manifest names the tokenizer, if not the map's own.
        probes: slot values with which the seams are tested.

    Raises:
        SeamUnsafe: for some values the ids would not be those of the whole text; its `example` shows it.
        FragmentCacheInvalid: two fragments have the same id.
    """
    texts = _texts(fragments)
    digest = normalise_hash(token_map.map_id if tokenizer_hash is None else tokenizer_hash)
    cache = FragmentCache(digest.removeprefix("sha256:"), {text.id: _cached(text, token_map) for text in texts})
    ready = Fragments(token_map, cache, also_known_as=(digest,))
    for text in texts:
        _prove(text, ready, probes)
    return cache


def moved_seams(
    fragments: Iterable[FragmentText] | Mapping[str, str], token_map: TokenMap, *, probes: Sequence[str] = PROBES
) -> list[Seam]:
    """List the slots whose ends can't be seams, one example each: other readers of the cache get these wrong."""
    found = (_bad_seam(text, place, token_map, probes) for text in _texts(fragments) for place in _slot_places(text))
    return [seam for seam in found if seam is not None]


def verify_cache(cache: FragmentCache, token_map: TokenMap, *, also_known_as: Iterable[str] = ()) -> list[str]:
    """List what is wrong with a cache: another tokenizer, or ids and seams that the map does not give; empty if valid.

    Args:
        cache: from `load_cache` or `precache`.
        token_map: the map that it should have been made for.
        also_known_as: other hashes that name the same tokenizer.
    """
    try:
        Fragments(token_map, cache, also_known_as=tuple(also_known_as))
    except FragmentCacheInvalid as error:
        return [error.message]
    return [fault for name, cached in cache.fragments.items() for fault in _faults(name, cached, token_map)]


def _texts(fragments: Iterable[FragmentText] | Mapping[str, str]) -> list[FragmentText]:
    given = [each if isinstance(each, FragmentText) else FragmentText(*each) for each in _pairs(fragments)]
    names = [text.id for text in given]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise FragmentCacheInvalid(f"two fragments are called {doubled[0]!r:.60}; give each an id of its own")
    return [FragmentText(text.id, text.text, static=not text.slots) for text in given]


def _pairs(fragments: Iterable[FragmentText] | Mapping[str, str]) -> Iterable[FragmentText | tuple[str, str]]:
    return cast("Mapping[str, str]", fragments).items() if isinstance(fragments, Mapping) else fragments


def _cached(text: FragmentText, token_map: TokenMap) -> CachedFragment:
    if text.static:
        whole = (Ids(tuple(token_map.encode(text.text))),)
        return CachedFragment(text, whole, whole)
    parts = tuple(part if isinstance(part, Slot) else Ids(tuple(token_map.encode(part))) for part in text.parts)
    return CachedFragment(text, parts, core_ids(text.parts, token_map))


def _prove(text: FragmentText, ready: Fragments, probes: Sequence[str]) -> None:
    """Compare planned and whole ids: each probe in each slot alone, and in all at once."""
    slots = text.slots
    trials = [{**dict.fromkeys(slots, "x"), slot: probe} for slot in slots for probe in probes]
    for values in [*trials, *(dict.fromkeys(slots, probe) for probe in probes)]:
        whole = text.fill(values)
        if ready[text.id].ids(values) != ready.token_map.encode(whole):
            raise SeamUnsafe(
                f"the ids of fragment {text.id!r:.60} in parts are not those of the whole text {whole!r:.200}; "
                "leave it out of the cache and report the map",
                example=whole,
            )


def _slot_places(text: FragmentText) -> list[int]:
    return [place for place, part in enumerate(text.parts) if isinstance(part, Slot)]


def _bad_seam(text: FragmentText, place: int, token_map: TokenMap, probes: Sequence[str]) -> Seam | None:
    slot = text.parts[place]
    around: tuple[Part, ...] = text.parts[max(place - 1, 0) : place + 2]
    for probe in probes:
        values = {part.name: probe for part in around if isinstance(part, Slot)}
        example = joined(around, values)
        whole = token_map.encode(example)
        apart = [token_id for part in around for token_id in token_map.encode(joined((part,), values))]
        if whole != apart and isinstance(slot, Slot):
            return Seam(text.id, slot.name, example, tuple(whole), tuple(apart))
    return None


def _faults(name: str, cached: CachedFragment, token_map: TokenMap) -> list[str]:
    if cached.source is None:
        encoded = [(part.ids, token_map.decode(part.ids)) for part in cached.parts if isinstance(part, Ids)]
        wrong = [text for ids, text in encoded if token_map.encode(text) != list(ids)]
        return [f"fragment {name!r:.60}: the map gives other ids for {text!r:.80}" for text in wrong]
    fresh = _cached(cached.source, token_map)
    if fresh.parts != cached.parts:
        return [f"fragment {name!r:.60}: `parts` are not the ids of x_text {cached.source.text!r:.80}"]
    if fresh.pieces != cached.pieces:
        return [f"fragment {name!r:.60}: `x_pieces` are not what this map's cuts give; build the cache again"]
    return []
