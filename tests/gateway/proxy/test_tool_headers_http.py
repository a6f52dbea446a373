"""A server over HTTP whose tools ask for headers that the protocol forbids, through the whole proxy to the reports."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.app.services import open_services
from gateway.cli.checkup import check_up
from gateway.config.gateway_config import EngineConfig, GatewayConfig, TokensConfig, UpstreamConfig
from gateway.config.overrides import ToolOverride
from gateway.errors import UnknownTool
from gateway.proxy.caller import Principal
from tests.gateway.proxy.transport.over_http.raw_server import Asked, RawServer, Reply, raw_server

pytestmark = pytest.mark.anyio
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
GREETED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
RESULTS = {
    "server/discover": DISCOVERED,
    "initialize": GREETED,
    "tools/list": {
        "tools": [
            {"name": "good", "inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
            {"name": "bad", "inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": "A B"}}}},
        ],
        "resultType": "complete",
    },
    "tools/call": {"content": [], "resultType": "complete"},
}


@asynccontextmanager
async def serving(*, calls: bool = True) -> AsyncGenerator[RawServer]:
    """`calls`: whether a call is answered."""

    async def answer(asked: Asked, reply: Reply) -> None:
        method = asked.message.get("method") if asked.method == "POST" else None
        if method == "tools/call" and not calls:
            await reply.whole(500)
        elif method in RESULTS:
            await reply.result(asked, RESULTS[method])
        else:
            await reply.whole(405 if method is None else 202)

    async with raw_server(answer) as server:
        yield server


def web(server: RawServer, **settings: Any) -> UpstreamConfig:
    return UpstreamConfig("web", url=server.url, **settings)


@pytest.mark.parametrize("protocol", ["modern", "handshake"])
async def test_tool_is_neither_listed_nor_called_and_the_other_is(proxy_of, protocol):
    async with serving() as server, proxy_of(web(server, protocol=protocol)) as proxy:
        offered = [entry.name for entry in proxy.tools()]
        await proxy.call("web__good", {"a": "x"})
        with pytest.raises(UnknownTool, match=r"'bad' of server 'web' is not offered.*property 'a'"):
            await proxy.call("web__bad", {"a": "x"})

    assert offered == ["web__good"]
    assert server.methods.count("tools/call") == 1


async def test_default_that_the_operator_set_is_in_the_header_that_the_tool_asks_for(proxy_of):
    overrides = {"good": ToolOverride(defaults={"a": "ours"})}
    async with serving() as server, proxy_of(web(server, overrides=overrides)) as proxy:
        await proxy.call("web__good", {})

    (call,) = [each for each in server.asked if each.message.get("method") == "tools/call"]
    assert (call.message["params"]["arguments"], call.headers["Mcp-Param-A"]) == ({"a": "ours"}, "ours")


async def test_header_of_the_client_and_the_one_that_the_tool_asks_for_arrive_together(proxy_of, client):
    ann = client(modern=True, principal=Principal("ann", headers={"x-user": "ann"}))
    async with serving() as server, proxy_of(web(server, client_headers=("x-user",))) as proxy:
        await proxy.handle("tools/call", {"name": "web__good", "arguments": {"a": "x"}}, ann)

    (call,) = [each for each in server.asked if each.message.get("method") == "tools/call"]
    assert (call.headers["x-user"], call.headers["Mcp-Param-A"]) == ("ann", "x")


@pytest.mark.parametrize(("failures", "state"), [(2, "open"), (3, "closed")])
async def test_each_answer_that_is_none_is_a_failure_while_the_connection_lasts(proxy_of, failures, state):
    async with serving(calls=False) as server, proxy_of(web(server, breaker_failures=failures)) as proxy:
        for _ in range(2):
            await proxy.call("web__good", {"a": "x"})
        assert proxy.statuses()[0].breaker == state


async def test_report_and_checkup_name_the_tool_and_the_reason():
    async with serving() as server:
        upstreams = (web(server),)
        config = GatewayConfig(upstreams=upstreams, engine=EngineConfig(kind="none"), tokens=TokensConfig(map=None))
        async with open_services(config) as services:
            (reported,) = (await services.status.make())["servers"]
        (checked,) = (await check_up(config)).servers

    assert reported["invalid_tools"] == [
        {"tool": "bad", "reason": "property 'a': x-mcp-header is not a valid header name"}
    ]
    assert any("'bad' is not offered: property 'a'" in warning for warning in checked.warnings)
    assert checked.problems == ()
