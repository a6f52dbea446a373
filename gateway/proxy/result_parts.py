"""The content of a tool result as parts that can become ids: texts with the ids that their tool shipped, and stand-ins.

Turns a raw CallToolResult into `TextPart`s, `UnreadText`s and `OtherPart`s in order. Reads both shapes of the leaf
contract (per-block `_meta`, and the older sibling block). A text that came as ids alone is decoded only when somebody
needs its words.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from gateway.proxy.stand_in import stand_in, text_of
from leaf_sdk.leaf.contract import CODEC_META_KEY, LEGACY_BLOCK_TYPE, LeafPayload
from leaf_sdk.leaf.payload import chosen, payloads_of
from leaf_sdk.vocab import TokenMap


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text block at `index` of the content (-1: it has no block), and the ids that its tool shipped, unchecked."""

    index: int
    text: str
    payload: LeafPayload | None
    malformed: bool = False
    """Whether there was something in the payload's place that is not a payload."""


class UnreadText:
    """A text that came as ids alone, in the place of a block. Only callers that read ids are given one."""

    def __init__(self, token_map: TokenMap, ids: tuple[int, ...], on_read: Callable[[str], None]) -> None:
        """The ids are checked already: all are in the map, none is special. `on_read` gets the map's id on decoding."""
        self.token_map = token_map
        self.ids = ids
        self._on_read = on_read

    @cached_property
    def text(self) -> str:
        """The decoded text, for people; made on first use."""
        self._on_read(self.token_map.map_id)
        return self.token_map.decode(self.ids)


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A block that is not of type text; a model sees `line` in its place: the text of a resource, or a stand-in."""

    index: int
    line: str


Part = TextPart | UnreadText | OtherPart


def read_parts(result: Mapping[str, Any], wanted: Collection[str] = ()) -> list[Part]:
    """Return the result's parts in order, without legacy siblings.

    A result that has only structuredContent gives its compact JSON as one text. If a text has payloads under several
    maps, the first one of a `wanted` map is used, else the first.
    """
    content = content_of(result)
    parts: list[Part] = []
    for index, block in enumerate(content):
        if isinstance(block, UnreadText):
            parts.append(block)
        elif is_text(block):
            following = content[index + 1] if index + 1 < len(content) else None
            parts.append(_text_part(index, block, following, wanted))
        elif not is_legacy(block):
            parts.append(OtherPart(index, _line(block)))
    if not parts and result.get("structuredContent") is not None:
        text = json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
        parts.append(TextPart(-1, text, None))
    return parts


def content_of(result: Mapping[str, Any]) -> list[Any]:
    """The content blocks; empty if the result has no list of them."""
    content: object = result.get("content")
    return cast("list[Any]", content) if isinstance(content, list) else []


def is_text(block: object) -> bool:
    """Whether the block is of type `text` and its text is a string."""
    if not isinstance(block, dict):
        return False
    fields = cast("dict[str, object]", block)
    return fields.get("type") == "text" and isinstance(fields.get("text"), str)


def is_legacy(block: object) -> bool:
    """Whether the block is the older sibling form of a payload (codecai up to 0.3.1), which no model should read."""
    return isinstance(block, dict) and cast("dict[str, object]", block).get("type") == LEGACY_BLOCK_TYPE


def _text_part(index: int, block: dict[str, Any], following: object, wanted: Collection[str]) -> TextPart:
    """The block as a part. A valid payload in `_meta` wins over one in the sibling right after the block."""
    meta: object = block.get("_meta")
    shipped: list[object] = [cast("dict[str, object]", meta).get(CODEC_META_KEY)] if isinstance(meta, dict) else []
    if is_legacy(following) and cast("dict[str, object]", following).get("sibling_index") in (None, index):
        shipped.append(following)
    shipped = [value for value in shipped if value is not None]
    payload = next((chosen(found, wanted) for value in shipped if (found := payloads_of(value))), None)
    return TextPart(index, block["text"], payload, malformed=bool(shipped) and payload is None)


def resource_text(block: object) -> str | None:
    """The text of an embedded resource; None for any other block."""
    if not isinstance(block, dict) or cast("dict[str, object]", block).get("type") != "resource":
        return None
    return text_of(cast("dict[str, Any]", block))


def _line(block: object) -> str:
    """What a model reads in place of a block that is not text."""
    if not isinstance(block, dict):
        return stand_in({})
    fields = cast("dict[str, Any]", block)
    inner: object = fields.get("resource")
    details = cast("dict[str, Any]", inner) if isinstance(inner, dict) else fields
    text = resource_text(fields)
    return stand_in(fields, details.get("uri")) if text is None else text
