"""One line makes a server a leaf: both of mcp's server classes, both eras of the protocol, over real stdio."""

import sys
from pathlib import Path

import anyio
import mcp.types as t
import pytest
from mcp import Client, StdioServerParameters
from mcp.server import MCPServer, Server

from leaf_sdk import has_codec_meta, take_ids
from leaf_sdk.serve import leaf_middleware, make_leaf
from leaf_sdk.testing import assert_leaf_result, tiny_map, tiny_map_bytes, tiny_meta
from leaf_sdk.vocab import map_digest

pytestmark = pytest.mark.anyio
TINY = tiny_map()
MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


def _mcp_server() -> MCPServer:
    server = MCPServer("high")

    @server.tool()
    def greet(name: str) -> str:
        """Greet."""
        return f"hello {name}"

    @server.tool(structured_output=False)
    def mixed() -> list[t.TextContent | t.ImageContent]:
        """Give two kinds of content."""
        return [t.TextContent(text="hello", _meta={"app/x": 1}), t.ImageContent(data="AAAA", mime_type="image/png")]

    return server


def _low_server() -> Server:
    async def call(_ctx, params):
        return t.CallToolResult(content=[t.TextContent(text=f"hello {params.name}")])

    async def listing(_ctx, _params):
        return t.ListToolsResult(tools=[t.Tool(name="x", input_schema={"type": "object"})])

    return Server("low", on_call_tool=call, on_list_tools=listing)


@MODES
async def test_a_high_level_server_answers_with_ids(mode):
    server = _mcp_server()
    make_leaf(server, tiny_meta())
    async with Client(server, mode=mode) as client:
        result = await client.call_tool("greet", {"name": "world"})
    assert_leaf_result(result, TINY)
    assert take_ids(result) == [TINY.encode("hello world")]
    assert result.structured_content == {"result": "hello world"}


@MODES
async def test_a_low_level_server_answers_with_ids(mode):
    server = _low_server()
    server.middleware.append(leaf_middleware(tiny_meta()))
    async with Client(server, mode=mode) as client:
        result = await client.call_tool("x", {})
    assert take_ids(result, TINY.map_id) == [TINY.encode("hello x")]


async def test_content_of_other_kinds_and_other_meta_stay():
    server = _mcp_server()
    make_leaf(server, tiny_meta())
    async with Client(server) as client:
        result = await client.call_tool("mixed", {})
    text, image = result.content
    assert text.meta["app/x"] == 1
    assert image.meta is None
    assert_leaf_result(result, TINY)


async def test_an_error_that_the_framework_wrote_carries_ids_too():
    server = _mcp_server()
    make_leaf(server, tiny_meta())
    async with Client(server) as client:
        result = await client.call_tool("greet", {})
    assert result.is_error
    assert has_codec_meta(result)
    assert_leaf_result(result, TINY)


async def test_other_methods_are_not_touched():
    plain, leaf = _mcp_server(), _mcp_server()
    make_leaf(leaf, tiny_meta())
    async with Client(plain) as one, Client(leaf) as other:
        assert await one.list_tools() == await other.list_tools()


async def test_short_texts_are_left_alone_where_asked():
    server = _mcp_server()
    make_leaf(server, tiny_meta(), min_text_length=100)
    async with Client(server) as client:
        assert not has_codec_meta(await client.call_tool("greet", {"name": "world"}))


async def test_an_interim_answer_passes_through():
    server = Server("asks", on_call_tool=_asks, on_list_tools=None)
    make_leaf(server, tiny_meta())
    async with Client(server, mode="2026-07-28") as client:
        answer = await client.session.call_tool("x", {}, allow_input_required=True)
    assert isinstance(answer, t.InputRequiredResult)


async def _asks(_ctx, _params):
    form = t.ElicitRequestFormParams(message="Name?", requested_schema={"type": "object", "properties": {}})
    return t.InputRequiredResult(input_requests={"q": t.ElicitRequest(params=form)})


def _readme_server() -> str:
    readme = (Path(__file__).parents[3] / "leaf_sdk" / "README.md").read_text()
    return readme.split("```python\n", 1)[1].split("```", 1)[0]


async def test_the_server_of_the_readme_runs_and_is_a_leaf(tmp_path):
    source = _readme_server()
    assert len([line for line in source.splitlines() if line]) <= 15
    (tmp_path / "server.py").write_text(source)
    (tmp_path / "map.json").write_bytes(tiny_map_bytes())
    environment = {"CODEC_MAP_HASH": map_digest(tiny_map_bytes())}
    parameters = StdioServerParameters(command=sys.executable, args=["server.py"], cwd=tmp_path, env=environment)
    with anyio.fail_after(60):
        async with Client(parameters) as client:
            result = await client.call_tool("shout", {"text": "hello"})
    assert result.content[0].text == "HELLO"
    assert_leaf_result(result, TINY)
