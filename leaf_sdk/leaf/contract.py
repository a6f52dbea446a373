"""The leaf contract's names: the key under which a text block carries its ids, and what the value is.

A tool result stays as it was, text included; each text block gains `_meta["ai.codec/leaf-tokenization"]` with the
map's name and the ids. Nothing here reads or writes a result. Source: Codec specification 0.5 and the reference
`mcp-leaf` package, 0.3.2.
"""

from typing import Final, TypedDict

CODEC_META_KEY: Final = "ai.codec/leaf-tokenization"
"""The key inside a text block's `_meta`."""

MORE_KEY: Final = "x_more"
"""In a payload: a list of payloads of the same text under further maps, where a tool serves several models."""

MAP_META_KEY: Final = "ai.codec/map"
"""The key in a request's `_meta` under which a client names the map that it wants ids of."""

LEGACY_BLOCK_TYPE: Final = "_codec_meta"
"""Up to 0.3.1 the payload was a separate block after the text; read, never written (MCP refuses the type)."""


class LeafPayload(TypedDict):
    """The value under the key: these two fields. Our own `x_` keys add payloads of further maps, or packed ids."""

    map_id: str
    """`sha256:<64 lower-case hex>` of the map."""
    ids: list[int]
    """Ids of the block's text as ordinary text: no BOS, no EOS, no template."""
