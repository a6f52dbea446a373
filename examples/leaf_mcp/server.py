"""A leaf on the low-level server of the MCP SDK: one tool, `convert`, whose results carry token ids."""

import os

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from leaf_sdk import make_meta_tokenizer
from leaf_sdk.serve import make_leaf

CONVERT = Tool(
    name="convert",
    description="Convert a temperature from Celsius to Fahrenheit",
    input_schema={"type": "object", "properties": {"celsius": {"type": "integer"}}, "required": ["celsius"]},
    annotations=ToolAnnotations(read_only_hint=True),
)


async def list_tools(context: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
    """List the tools."""
    return ListToolsResult(tools=[CONVERT])


async def call_tool(context: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
    """Run a tool."""
    celsius = (params.arguments or {}).get("celsius")
    if params.name != CONVERT.name or not isinstance(celsius, int):
        said = (
            f"{params.name!r} with {params.arguments!r} can't be called: expected convert with a whole number 'celsius'"
        )
        return CallToolResult(content=[TextContent(text=said)], is_error=True)
    said = f"{celsius} degrees Celsius are {celsius * 9 / 5 + 32:g} degrees Fahrenheit."
    return CallToolResult(content=[TextContent(text=said)])


async def main() -> None:
    """Serve on standard input and output until the client leaves."""
    server = Server("units", on_list_tools=list_tools, on_call_tool=call_tool)
    # The one line that makes it a leaf.
    make_leaf(server, make_meta_tokenizer(map_path=os.environ["CODEC_MAP_PATH"], map_hash=os.environ["CODEC_MAP_HASH"]))
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
