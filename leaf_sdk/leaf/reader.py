"""A tool result to the ids that it carries, block by block, and back to a plain result.

Reads both forms: `_meta` on the text block, and the legacy block after it (up to 0.3.1); where both are present,
`_meta` wins. A malformed payload reads as no payload. Reading trusts nothing: pass the ids through `verify.check_ids`
before an engine sees them.
"""

from dataclasses import dataclass
from typing import Literal

from leaf_sdk.errors import CodecMetaMapMismatchError
from leaf_sdk.vocab import normalise_hash

from .contract import CODEC_META_KEY, LEGACY_BLOCK_TYPE, LeafPayload
from .payload import chosen, payload_of, payloads_of
from .shapes import ResultT, blocks_of, field, meta_of, text_of, with_blocks, with_meta


@dataclass(frozen=True, slots=True)
class LeafText:
    """One text block of a result, and the ids that came with it."""

    text_index: int
    """Its index among all content blocks."""
    text: str
    ids: list[int] | None
    """None without a payload. Unchecked: elements may be anything that JSON can hold."""
    map_id: str | None
    source: Literal["meta", "sibling"] | None


def has_codec_meta(result: object) -> bool:
    """Return whether any text block carries ids."""
    return any(leaf.ids is not None for leaf in read_codec_meta(result))


def read_codec_meta(result: object, expected_map_id: str | None = None) -> list[LeafText]:
    """Return one entry for each text block, in order.

    Args:
        result: a dict, or mcp's `CallToolResult`.
        expected_map_id: the caller's map. Where a block has payloads of several maps, this map's is taken; a block
            that has only payloads of other maps is an error.

    Raises:
        CodecMetaMapMismatchError: a block has ids, but none of the expected map.
        LeafResultInvalid: the result has no list of content blocks.
        MapHashMalformed: `expected_map_id` is not a sha256.
    """
    expected = None if expected_map_id is None else normalise_hash(expected_map_id)
    blocks = blocks_of(result)
    leaves: list[LeafText] = []
    for index, block in enumerate(blocks):
        text = text_of(block)
        if text is None:
            continue
        leaf = _read(index, text, blocks, expected)
        if expected is not None and leaf.map_id is not None and leaf.map_id != expected:
            raise CodecMetaMapMismatchError(expected, leaf.map_id, index)
        leaves.append(leaf)
    return leaves


def take_ids(result: object, expected_map_id: str | None = None) -> list[list[int] | None]:
    """Return the ids of each text block, None where it has none; raises what `read_codec_meta` raises."""
    return [leaf.ids for leaf in read_codec_meta(result, expected_map_id)]


def strip_codec_meta(result: ResultT) -> ResultT:
    """Return the result without payloads, legacy blocks and any `_meta` left empty; the same object if it had no ids.

    Raises:
        LeafResultInvalid: the result has no list of content blocks.
    """
    blocks = blocks_of(result)
    kept = [_strip(block) for block in blocks if field(block, "type") != LEGACY_BLOCK_TYPE]
    unchanged = len(kept) == len(blocks) and all(new is old for new, old in zip(kept, blocks, strict=True))
    return result if unchanged else with_blocks(result, kept)


def _read(index: int, text: str, blocks: list[object], expected: str | None) -> LeafText:
    shipped = payloads_of(meta_of(blocks[index]).get(CODEC_META_KEY))
    payload = chosen(shipped, () if expected is None else (expected,))
    if payload is not None:
        return LeafText(index, text, payload["ids"], payload["map_id"], "meta")
    if (sibling := _sibling(blocks, index)) is not None:
        return LeafText(index, text, sibling["ids"], sibling["map_id"], "sibling")
    return LeafText(index, text, None, None, None)


def _sibling(blocks: list[object], index: int) -> LeafPayload | None:
    """Return the legacy payload right after a text block, unless its `sibling_index` names another block."""
    if index + 1 >= len(blocks) or field(blocks[index + 1], "type") != LEGACY_BLOCK_TYPE:
        return None
    follower = blocks[index + 1]
    named = field(follower, "sibling_index")
    return payload_of(follower) if named is None or named == index else None


def _strip(block: object) -> object:
    meta = meta_of(block)
    if CODEC_META_KEY not in meta or text_of(block) is None:
        return block
    return with_meta(block, {key: value for key, value in meta.items() if key != CODEC_META_KEY})
