"""Ship token ids beside the text of an MCP tool result.

Two calls make a tool a leaf: `make_meta_tokenizer` when the server starts, `wrap_tool_call` for each result (or one
line, with `leaf_sdk.serve`). The rest is for the other side: reading the ids, checking them, encoding and decoding by a
map. Packages, from the lowest floor up: `errors`; `vocab` (maps, no IO), `wire` (streams of ids, no IO) and
`trajectories`; `fetch` (files and addresses), `leaf` (the contract), `testing`, `serve` (extra `mcp`), `cli` (extra
`cli`).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import BoltOnError, CodecError, CodecMetaMapMismatchError, LeafError, MapError, MapHashMismatch
from .fetch import open_map
from .leaf import (
    CODEC_META_KEY,
    MapPin,
    MetaTokenizer,
    announce_packing,
    check_ids,
    has_codec_meta,
    make_meta_tokenizer,
    read_codec_meta,
    strip_codec_meta,
    take_ids,
    wrap_tool_call,
)
from .vocab import Detokenizer, TokenMap, build_map, load_map

if TYPE_CHECKING:
    from .leaf.bolt_on import (
        Build,
        CodecTool,
        CodecToolCall,
        CodecToolResult,
        Filled,
        FragmentCache,
        Fragments,
        FragmentText,
        Manifest,
        ModelBinding,
        ModelMap,
        ToolRefusal,
        ToolSource,
        build_tool,
        fill,
        load_cache,
        load_manifest,
        load_manifests,
        load_tool,
        open_tools,
        precache,
        verify_cache,
        write_build,
    )

__all__ = [
    "CODEC_META_KEY",
    "BoltOnError",
    "Build",
    "CodecError",
    "CodecMetaMapMismatchError",
    "CodecTool",
    "CodecToolCall",
    "CodecToolResult",
    "Detokenizer",
    "Filled",
    "FragmentCache",
    "FragmentText",
    "Fragments",
    "LeafError",
    "Manifest",
    "MapError",
    "MapHashMismatch",
    "MapPin",
    "MetaTokenizer",
    "ModelBinding",
    "ModelMap",
    "TokenMap",
    "ToolRefusal",
    "ToolSource",
    "announce_packing",
    "build_map",
    "build_tool",
    "check_ids",
    "fill",
    "has_codec_meta",
    "load_cache",
    "load_manifest",
    "load_manifests",
    "load_map",
    "load_tool",
    "make_meta_tokenizer",
    "open_map",
    "open_tools",
    "precache",
    "read_codec_meta",
    "strip_codec_meta",
    "take_ids",
    "verify_cache",
    "wrap_tool_call",
    "write_build",
]


def __getattr__(name: str) -> object:
    """Import the bolt-on half when one of its names is first used: a leaf does not pay for it."""
    if name in __all__:
        return getattr(import_module(".leaf.bolt_on", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
