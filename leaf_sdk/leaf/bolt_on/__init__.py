"""Bolt-on tools: called with token ids, answering with token ids, most of them made when the tool was built.

`manifest` and `messages` are what goes over the wire; `template`, `cuts` and `patterns` the proof that cached parts may
be joined; `precache` and `cache` the building, `fragments` and `tool` the answering, `files` the reading of files,
`source` a tool as its author writes it. Stands on the leaf contract's own ground (`vocab`, `errors`); above stands
`serve`.
"""

from .cache import FragmentCache, parse_cache
from .files import load_cache, load_manifest, load_manifests, load_tool
from .fragments import Fragments
from .manifest import Manifest, ModelBinding, parse_manifest
from .messages import CALL_PATH, CodecToolCall, CodecToolResult
from .precache import Seam, moved_seams, precache, verify_cache
from .source import Build, ModelMap, ToolSource, build_tool, open_tools, texts_of, write_build
from .template import FragmentText
from .tool import CodecTool, Filled, ToolRefusal, fill

__all__ = [
    "CALL_PATH",
    "Build",
    "CodecTool",
    "CodecToolCall",
    "CodecToolResult",
    "Filled",
    "FragmentCache",
    "FragmentText",
    "Fragments",
    "Manifest",
    "ModelBinding",
    "ModelMap",
    "Seam",
    "ToolRefusal",
    "ToolSource",
    "build_tool",
    "fill",
    "load_cache",
    "load_manifest",
    "load_manifests",
    "load_tool",
    "moved_seams",
    "open_tools",
    "parse_cache",
    "parse_manifest",
    "precache",
    "texts_of",
    "verify_cache",
    "write_build",
]
