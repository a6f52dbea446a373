"""Bolt-on tools as an MCP server: the same functions, the same ids, for clients that speak MCP.

Each text is sent with ids of every map that the tool has fragments for, or of the one map that the request names; they
are put together from the fragments, not tokenized from the text. Built on mcp 2's low-level server.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from leaf_sdk.errors import CallInvalid, FragmentUnknown, TextNotUnicode
from leaf_sdk.leaf.bolt_on import CodecTool, Filled, Fragments, ToolRefusal
from leaf_sdk.leaf.contract import CODEC_META_KEY, MAP_META_KEY
from leaf_sdk.leaf.packing import takes_packed
from leaf_sdk.leaf.payload import payload_under

from .running import run_tool

_Context = ServerRequestContext[Any, Any]


def build_mcp_server(tools: Iterable[CodecTool], *, name: str = "codec-leaf", version: str = "") -> Server[Any]:
    """Build the server, ready to run over any of mcp's transports."""
    by_name = {tool.manifest.name: tool for tool in tools}

    async def listed(_context: _Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_described(tool) for tool in by_name.values()])

    async def called(_context: _Context, params: CallToolRequestParams) -> CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"no tool {params.name!r:.60} here, expected one of {sorted(by_name)}")
        meta = cast("Mapping[str, Any]", params.meta or {})
        try:
            output = await run_tool(tool, params.arguments or {})
            return CallToolResult(content=[_block(tool, output, meta)])
        except (CallInvalid, ToolRefusal) as refusal:
            return CallToolResult(content=[_block(tool, refusal.message, meta)], is_error=True)
        except (FragmentUnknown, TextNotUnicode) as mistake:
            return CallToolResult(content=[TextContent(text=mistake.message)], is_error=True)

    return Server(name, version=version, on_list_tools=listed, on_call_tool=called)


def _described(tool: CodecTool) -> Tool:
    manifest = tool.manifest
    return Tool(name=manifest.name, description=manifest.description, input_schema=dict(manifest.arguments_schema))


def _block(tool: CodecTool, output: str | Filled, meta: Mapping[str, Any]) -> TextContent:
    maps: dict[str, Fragments] = {each.token_map.map_id: each for each in tool.models.values()}
    named: object = meta.get(MAP_META_KEY)
    if isinstance(named, str) and named in maps:
        maps = {named: maps[named]}
    text = tool.text(output)
    if not maps:
        return TextContent(text=text)
    ids = [(map_id, tool.ids(output, fragments)) for map_id, fragments in maps.items()]
    return TextContent(text=text, _meta={CODEC_META_KEY: payload_under(ids, packed=takes_packed(meta))})
