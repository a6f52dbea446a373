"""Bolt-on tools: called with token ids, they answer with token ids, most of which were made when the tool was built.

`manifest` and `messages` are the published formats; `template`, `cuts` and `patterns` prove that cached parts may be
joined; `precaching` and `cache` are for building, `fragments` and `tool` for answering, `files` and `tool_files` for
reading files, and `source` is a tool as its author writes it. Builds on `vocab` and `errors`, as the leaf contract
does. A module is imported when one of its names is first used: calling tools does not pay for building them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .cache import FragmentCache, parse_cache
    from .files import load_manifest, load_manifests
    from .fragments import Fragments
    from .manifest import Manifest, ModelBinding, parse_manifest
    from .messages import CALL_PATH, CodecToolCall, CodecToolResult
    from .precaching import Seam, moved_seams, precache, verify_cache
    from .source import Build, ModelMap, ToolSource, build_tool, open_tools, texts_of, write_build
    from .template import FragmentText
    from .tool import CodecTool, Filled, ToolRefusal, fill
    from .tool_files import load_cache, load_tool

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

_HOMES: Final = {
    "cache": ("FragmentCache", "parse_cache"),
    "files": ("load_manifest", "load_manifests"),
    "fragments": ("Fragments",),
    "manifest": ("Manifest", "ModelBinding", "parse_manifest"),
    "messages": ("CALL_PATH", "CodecToolCall", "CodecToolResult"),
    "precaching": ("Seam", "moved_seams", "precache", "verify_cache"),
    "source": ("Build", "ModelMap", "ToolSource", "build_tool", "open_tools", "texts_of", "write_build"),
    "template": ("FragmentText",),
    "tool": ("CodecTool", "Filled", "ToolRefusal", "fill"),
    "tool_files": ("load_cache", "load_tool"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
