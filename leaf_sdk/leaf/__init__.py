"""The leaf contract: write ids beside a tool result's text, read them, check them, take them off again.

Stands on `vocab` and `fetch`. Needs no mcp: results are dicts or any model with mcp's shape.
"""

from .contract import CODEC_META_KEY, LeafPayload
from .packing import announce_packing
from .reader import LeafText, has_codec_meta, read_codec_meta, strip_codec_meta, take_ids
from .verify import Rejection, check_ids
from .writer import MapPin, MetaTokenizer, make_meta_tokenizer, wrap_tool_call

__all__ = [
    "CODEC_META_KEY",
    "LeafPayload",
    "LeafText",
    "MapPin",
    "MetaTokenizer",
    "Rejection",
    "announce_packing",
    "check_ids",
    "has_codec_meta",
    "make_meta_tokenizer",
    "read_codec_meta",
    "strip_codec_meta",
    "take_ids",
    "wrap_tool_call",
]
