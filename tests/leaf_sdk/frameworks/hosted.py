"""A fastmcp server made a leaf, and mcp's own result wrapped, under whatever versions this environment has.

Run by `make test-frameworks`; the suite itself has mcp 2 alone. Only in fastmcp 4 do the errors that it writes itself
pass by the middleware.
"""

import asyncio
import sys

import fastmcp
import mcp.types as t
from fastmcp import Client, FastMCP

from leaf_sdk import strip_codec_meta, take_ids, wrap_tool_call
from leaf_sdk.errors import CodecError
from leaf_sdk.serve import leaf_middleware, make_leaf
from leaf_sdk.testing import assert_leaf_result, tiny_map, tiny_meta


def _server() -> tuple[FastMCP, bool]:
    server = FastMCP("hosted")

    @server.tool
    def greet(name: str) -> str:
        """Greet."""
        return f"hello {name}"

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no <|im_end|>")

    try:
        make_leaf(server, tiny_meta())
    except CodecError:
        server.add_middleware(leaf_middleware(tiny_meta()))
        return server, False
    return server, True


def _check_mcp_result() -> None:
    result = t.CallToolResult.model_validate({"content": [{"type": "text", "text": "hello", "_meta": {"app/x": 1}}]})
    wrapped = wrap_tool_call(result, tiny_meta())
    assert_leaf_result(wrapped, tiny_map())
    assert strip_codec_meta(wrapped) == result


async def main() -> None:
    """Call the server's tools and look at what comes."""
    _check_mcp_result()
    server, wraps_errors = _server()
    async with Client(server) as client:
        result = await client.call_tool_mcp("greet", {"name": "world"})
        error = await client.call_tool_mcp("fail", {})
    assert take_ids(result) == [tiny_map().encode("hello world")]
    assert take_ids(error) == [tiny_map().encode(error.content[0].text) if wraps_errors else None]
    assert wraps_errors is (int(fastmcp.__version__.split(".")[0]) >= 4)
    sys.stdout.write(
        f"fastmcp {fastmcp.__version__}: {'all results' if wraps_errors else 'all but errors'} carry ids\n"
    )


asyncio.run(main())
