"""A tool result to the same result with token ids beside each text: the two calls that a tool author makes.

`make_meta_tokenizer` opens a map once, when the server starts; `wrap_tool_call` is called for each result. Ids are
those of ordinary text: a page that spells `<|im_end|>` gets seven harmless ids.

Rules (Codec's reference writer, 0.3.2): the input is not modified; blocks that are not text, other `_meta` keys and all
other fields stay as they are; error results are wrapped like any other; an empty text gets no ids; a block that
already carries ids of this map is left alone, ids of another map are replaced; the legacy sibling block is never
written. Three additions: payloads of further maps are placed inside the first, a reader may ask for packed ids, and a
payload that names its map in bare hex, which the reference's reader refuses, gets the full name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leaf_sdk.errors import MapUnreachable
from leaf_sdk.fetch import open_map
from leaf_sdk.vocab import TokenMap, normalise_hash

from .contract import CODEC_META_KEY
from .payload import is_spelled_out, payload_under, payloads_of
from .shapes import ResultT, blocks_of, meta_of, text_of, with_blocks, with_meta


@dataclass(frozen=True, slots=True)
class MapPin:
    """One map of several: a path or an address, and the hash that it must have."""

    hash: str
    path: str | Path | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class MetaTokenizer:
    """Turns a text into a payload, with a map's name and its encoder, and those of further maps."""

    map_id: str
    token_map: TokenMap
    encode: Callable[[str], list[int]]
    """Returns the ids of a text as ordinary text: `token_map.encode`, or a faster function that gives the same ids."""
    others: tuple["MetaTokenizer", ...] = ()
    """Further maps, where a tool serves several models."""

    def payload(self, text: str, *, packed: bool = False) -> dict[str, Any]:
        """Return the payload for one text, with those of further maps inside it.

        Args:
            text: the block's text.
            packed: write the ids as packed text, for a reader that announced that it takes packed ids.

        Raises:
            TextNotUnicode: the text holds a lone surrogate.
        """
        return payload_under([(each.map_id, each.encode(text)) for each in (self, *self.others)], packed=packed)

    def for_map(self, map_id: str) -> "MetaTokenizer":
        """Return the tokenizer of the one map that a reader asked for; this one, with all maps, if it is unknown."""
        alone = (replace(each, others=()) for each in (self, *self.others) if each.map_id == map_id)
        return next(alone, self)


def make_meta_tokenizer(
    *,
    map_path: str | Path | None = None,
    map_url: str | None = None,
    map_hash: str | None = None,
    maps: Sequence[MapPin] = (),
) -> MetaTokenizer:
    """Open the map that results will be tokenized with: `map_hash` with `map_path` or `map_url`, or `maps` alone.

    Args:
        map_path: a Codec map, a GGUF file or a tokenizer.json on this machine.
        map_url: an https address (or http on loopback) of a Codec map.
        map_hash: `sha256:<hex>` of the map, or bare hex; its form is checked before anything is read.
        maps: several maps, where a tool serves several models. Readers that know only one payload see the first.

    Raises:
        MapError: a hash is malformed or does not match, or a map can't be obtained or used.
    """
    if maps and (map_path, map_url, map_hash) == (None, None, None):
        first, *others = [_open(pin) for pin in maps]
        return replace(first, others=tuple(others))
    if maps or map_hash is None:
        raise MapUnreachable(
            "give either map_hash with map_path or map_url, or maps alone", source=f"{map_path!r}, {map_url!r}"
        )
    return _open(MapPin(map_hash, map_path, map_url))


def _open(pin: MapPin) -> MetaTokenizer:
    expected = normalise_hash(pin.hash)
    source = pin.path if pin.path is not None else pin.url
    if source is None or (pin.path is not None and pin.url is not None):
        raise MapUnreachable("give exactly one of map_path and map_url", source=f"{pin.path!r}, {pin.url!r}")
    token_map = open_map(source, expected)
    return MetaTokenizer(token_map.map_id, token_map, token_map.encode)


def wrap_tool_call(result: ResultT, meta: MetaTokenizer, *, min_text_length: int = 0, packed: bool = False) -> ResultT:
    """Return a copy of the result with ids beside every text; a dict stays a dict, a model keeps its class.

    Args:
        result: a tool result: a dict, mcp's `CallToolResult` (1.x or 2.x), or fastmcp's `ToolResult`.
        meta: from `make_meta_tokenizer`.
        min_text_length: texts shorter than this, in UTF-16 units as the reference counts, are left alone.
        packed: write the ids as packed text; only for a reader that announced it with `announce_packing`.

    Raises:
        LeafResultInvalid: the result has no list of content blocks.
        TextNotUnicode: a text holds a lone surrogate.
    """
    return with_blocks(result, [_wrap(block, meta, min_text_length, packed) for block in blocks_of(result)])


def _wrap(block: object, meta: MetaTokenizer, min_text_length: int, packed: bool) -> object:
    text = text_of(block)
    if text is None or (min_text_length and _utf16_length(text) < min_text_length):
        return block
    present = payloads_of(shipped := meta_of(block).get(CODEC_META_KEY))
    if {payload["map_id"] for payload in present}.issuperset(each.map_id for each in (meta, *meta.others)):
        if is_spelled_out(shipped):
            return block
        named = payload_under([(payload["map_id"], payload["ids"]) for payload in present])
        return with_meta(block, {**meta_of(block), CODEC_META_KEY: named})
    return with_meta(block, {**meta_of(block), CODEC_META_KEY: meta.payload(text, packed=packed)})


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
