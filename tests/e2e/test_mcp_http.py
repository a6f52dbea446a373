"""`/mcp` of the running gateway as mcp's own client sees it, with and without a token map."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from leaf_sdk.leaf.contract import CODEC_META_KEY

pytestmark = pytest.mark.anyio

CALLS = {"time_leaf__get_current_time": {"timezone": "Europe/Paris"}, "plain_time__get_time": {"city": "Tokyo"}}


@pytest.fixture(scope="module")
def site(trained_site):
    return trained_site


@asynccontextmanager
async def mcp_client(url: str, mode: str = "auto", **headers: str) -> AsyncGenerator[Client]:
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=240) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
        ):
            yield client


async def test_tools_of_all_servers_are_listed_under_their_servers_names(site):
    async with mcp_client(site.url) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]

    assert names == ["time_leaf__get_current_time", "time_leaf__convert_time", "plain_time__get_time"]


async def test_client_without_a_map_gets_what_each_tool_said_ids_of_the_leaf_included(site, model_map):
    async with mcp_client(site.url) as client:
        leaf, plain = [(await client.call_tool(name, arguments)).content[0] for name, arguments in CALLS.items()]

    assert leaf.meta[CODEC_META_KEY] == {"map_id": model_map.map_id, "ids": model_map.encode(leaf.text)}
    assert leaf.text.startswith("The time in Europe/Paris is ")
    assert plain.text.startswith("The time in Tokyo is ")
    assert plain.meta is None


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("tool", CALLS)
async def test_client_with_a_map_gets_the_ids_of_every_text(site, model_map, mode, tool):
    async with mcp_client(site.url, mode, **{"X-Codec-Map": model_map.map_id}) as client:
        block = (await client.call_tool(tool, CALLS[tool])).content[0]

    assert block.meta[CODEC_META_KEY] == {"map_id": model_map.map_id, "ids": model_map.encode(block.text)}


async def test_map_that_the_gateway_does_not_hold_is_refused_with_those_that_it_holds(site, model_map):
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{site.url}/mcp", json={}, headers={"X-Codec-Map": "sha256:" + "0" * 64})

    assert answer.status_code == 400
    assert model_map.map_id in answer.text


async def test_page_of_another_site_is_refused(site):
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{site.url}/mcp", json={}, headers={"Origin": "https://evil.example"})

    assert answer.status_code == 403
