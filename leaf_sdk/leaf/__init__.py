"""The leaf contract: write ids beside a tool result's text, read them, check them, remove them again.

Builds on `vocab` and `fetch`. Does not need mcp: results are dicts, or any model with the shape of mcp's.
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
