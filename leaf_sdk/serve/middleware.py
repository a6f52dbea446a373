"""A working MCP server to a leaf: one line, and every tool result carries ids.

    make_leaf(server, make_meta_tokenizer(map_path="map.json", map_hash="sha256:..."))

For mcp's `MCPServer` and low-level `Server`, and for fastmcp 4, which is built on the latter: the middleware sees the
result as it is sent, so that structured output, errors that the framework wrote and results from other middleware are
all covered. For fastmcp 2 and 3 pass `leaf_middleware(...)` to `add_middleware`; errors that fastmcp writes itself then
get no ids. `Server.middleware` is provisional in mcp 2.x, and fastmcp's access to it is private: this is the only
module of the SDK that knows them. No framework is imported.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from leaf_sdk.errors import CodecError, MapHashMalformed
from leaf_sdk.leaf import MetaTokenizer, wrap_tool_call
from leaf_sdk.leaf.contract import MAP_META_KEY
from leaf_sdk.leaf.packing import takes_packed
from leaf_sdk.leaf.shapes import field
from leaf_sdk.vocab import normalise_hash

Middleware = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
"""Takes a request's context and the next handler; mcp 2 and fastmcp agree on that."""


def make_leaf(server: object, meta: MetaTokenizer, *, min_text_length: int = 0) -> None:
    """Make every `tools/call` result of a server carry ids beside its texts.

    A request that names one of the maps in `_meta["ai.codec/map"]` gets ids of that map alone; one that announces
    packed ids gets them packed.

    Args:
        server: mcp 2's `MCPServer` or `Server`, or fastmcp 4's `FastMCP`; call this once, before it runs.
        meta: from `make_meta_tokenizer`.
        min_text_length: texts shorter than this, in UTF-16 units, get no ids.

    Raises:
        CodecError: the server has no list of middleware.
    """
    inner = getattr(server, "_mcp_server", server)  # fastmcp's own list comes before errors become results
    middleware: object = getattr(inner, "middleware", None)
    if not isinstance(middleware, list):
        raise CodecError(
            f"a {type(server).__name__} has no list of middleware, expected mcp 2's MCPServer or Server or fastmcp 4's "
            "FastMCP; with another framework call wrap_tool_call on each result"
        )
    wrap = leaf_middleware(meta, min_text_length=min_text_length)
    # First in fastmcp, whose last one answers the call; last in mcp, so that the author's own middleware sees the ids.
    cast("list[Middleware]", middleware).insert(0 if inner is not server else len(cast("list[Any]", middleware)), wrap)


def leaf_middleware(meta: MetaTokenizer, *, min_text_length: int = 0) -> Middleware:
    """Return the middleware alone, for a server whose list you order yourself."""

    async def wrap(context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        result = await call_next(context)
        if context.method != "tools/call" or not _has_content(result):
            return result
        asked = _request_meta(context)
        fitting = _asked_for(meta, asked.get(MAP_META_KEY))
        return wrap_tool_call(result, fitting, min_text_length=min_text_length, packed=takes_packed(asked))

    return wrap


def _has_content(result: object) -> bool:
    """Tell a tool's answer from an interim one, in which a server of the modern era asks for more input."""
    return isinstance(field(result, "content"), list)


def _request_meta(context: Any) -> Mapping[str, Any]:
    meta = field(getattr(context, "params", None), "_meta")
    return cast("Mapping[str, Any]", meta) if isinstance(meta, Mapping) else {}


def _asked_for(meta: MetaTokenizer, named: object) -> MetaTokenizer:
    if not isinstance(named, str):
        return meta
    try:
        return meta.for_map(normalise_hash(named))
    except MapHashMalformed:
        return meta
