"""The MCP endpoint over Streamable HTTP: real upstream processes, a real server, mcp's own client and raw requests."""

import json
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from gateway.config.gateway_config import GatewayConfig, LimitsConfig, ServeConfig, UpstreamConfig
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.serve.auth.gateway_token import HostGuard, own_hosts
from gateway.serve.mcp import McpEndpoint
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import load_map

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[3]
SERVERS = TESTS / "gateway" / "proxy" / "servers"
MAP = load_map((TESTS / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json").read_bytes())
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}
ACCEPT = "application/json, text/event-stream"


def config_of(*scripts: str, **serve: Any) -> GatewayConfig:
    upstreams = tuple(
        UpstreamConfig(
            name=script, command=sys.executable, args=(str(SERVERS / f"{script}.py"),), env={"NOTES": "/dev/null"}
        )
        for script in scripts
    )
    limits = LimitsConfig(restart_backoff=0.01, restart_backoff_max=0.05, body_bytes=100_000)
    return GatewayConfig(upstreams=upstreams, limits=limits, serve=ServeConfig(**serve), prefix="always")


class Site:
    """A running gateway's address, and clients for it."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self._stack = stack

    async def raw(self, **headers: str) -> httpx2.AsyncClient:
        return await self._stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=20, verify=False))

    async def client(self, mode: str, on_message: Callable[..., Any] | None = None, **headers: str) -> Client:
        http = await self.raw(**headers)
        client = Client(streamable_http_client(self.url, http_client=http), mode=mode, message_handler=on_message)
        return await self._stack.enter_async_context(client)

    async def modern(self, method: str, params: dict[str, Any], meta: dict[str, Any] | None = None, **headers: str):
        """One request of the 2026 era; the whole response."""
        sent = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "accept": ACCEPT, **headers}
        if "name" in params:
            sent["mcp-name"] = params["name"]
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {**params, "_meta": {**ENVELOPE, **(meta or {})}},
        }
        return await (await self.raw()).post(self.url, json=body, headers=sent)


@asynccontextmanager
async def site_of(config: GatewayConfig, *, with_map: bool = False) -> AsyncGenerator[Site, None]:
    metrics = Metrics()
    maps = {MAP.map_id: MAP} if with_map else {}
    notices = TokenNotices(get_logger("test.tokens"))
    tokens = ResultTokens(maps, level="verify", metrics=metrics, notices=notices) if with_map else None
    async with Proxy(config, metrics) as proxy:
        listener = socket.create_server(("127.0.0.1", 0))
        endpoint = McpEndpoint(proxy, config, tokens=tokens, maps=maps)
        guarded = HostGuard(endpoint, own_hosts(config.serve))
        server = uvicorn.Server(
            uvicorn.Config(
                guarded,
                interface="asgi3",
                lifespan="off",
                log_level="critical",
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        with listener:
            async with endpoint.running(), anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                async with AsyncExitStack() as stack:
                    yield Site(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", stack)
                server.should_exit = True


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_clients_of_both_eras_list_and_call(mode, version):
    async with site_of(config_of("huge")) as site:
        client = await site.client(mode)
        tools = (await client.list_tools()).tools
        result = await client.call_tool("huge__echo", {"bytes": 5})

        assert client.session.protocol_version == version
        assert [tool.name for tool in tools] == ["huge__echo"]
        assert result.content[0].text == "xxxxx"


async def test_result_leaves_verbatim_with_fields_and_blocks_that_no_schema_knows():
    async with site_of(config_of("echo")) as site:
        response = await site.modern("tools/call", {"name": "echo__echo", "arguments": {}})

    result = response.json()["result"]
    assert response.status_code == 200
    assert result["content"] == [
        {"type": "text", "text": "hello", "x-vendor": 1, "_meta": {"com.example/k": {"a": None}, "n": None}},
        {"type": "hologram", "beams": [1, None]},
    ]
    assert result["_meta"]["com.example/r"] is None
    assert result["x-result"] is None
    assert result["resultType"] == "complete"


async def test_list_of_the_modern_era_carries_its_cache_fields_and_unknown_fields_of_tools():
    async with site_of(config_of("echo")) as site:
        result = (await site.modern("tools/list", {})).json()["result"]

    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
    assert result["tools"][0]["x-vendor"] == {"deep": None}


async def test_answers_of_the_handshake_era_carry_no_field_of_the_modern_one():
    async with site_of(config_of("echo")) as site:
        http = await site.raw(accept=ACCEPT)
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        opened = await http.post(site.url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        await http.post(site.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        listed = await http.post(site.url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session)

    assert set(listed.json()["result"]) == {"tools"}
    assert opened.json()["result"]["capabilities"] == {"tools": {"listChanged": True}}


async def test_nothing_but_tools_is_advertised_to_modern_clients():
    async with site_of(config_of("echo")) as site:
        result = (await site.modern("server/discover", {})).json()["result"]

    assert result["capabilities"] == {"tools": {"listChanged": True}}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_unknown_tool_is_an_invalid_params_error_that_names_it(mode):
    async with site_of(config_of("echo")) as site:
        client = await site.client(mode)
        with pytest.raises(MCPError, match="unknown tool 'nope'") as raised:
            await client.call_tool("nope", {})

    assert raised.value.error.code == -32602


async def test_error_of_an_upstream_reaches_the_client_unchanged():
    async with site_of(config_of("refuses")) as site:
        response = await site.modern("tools/call", {"name": "refuses__echo", "arguments": {"code": -31999}})

    assert response.json()["error"] == {"code": -31999, "message": "quota", "data": {"left": 0}}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_upstream_that_dies_in_a_call_is_an_error_result_that_names_it(mode):
    async with site_of(config_of("dies_in_call")) as site:
        client = await site.client(mode)
        with anyio.fail_after(20):
            result = await client.call_tool("dies_in_call__echo", {})

    assert result.is_error
    assert "server 'dies_in_call' broke off" in result.content[0].text


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": "echo__echo", "arguments": [1]}])
async def test_malformed_call_is_an_invalid_params_error(params):
    async with site_of(config_of("echo")) as site:
        http = await site.client("legacy")
        with pytest.raises(MCPError) as raised:
            await http.session._dispatcher.send_raw_request("tools/call", params)

    assert raised.value.error.code == -32602


async def test_cursor_that_we_never_gave_is_refused():
    async with site_of(config_of("echo")) as site:
        response = await site.modern("tools/list", {"cursor": "x"})

    assert response.json()["error"]["code"] == -32602


async def test_fault_of_ours_shows_nothing_of_itself(monkeypatch):
    async def fail(*_: object, **__: object) -> dict[str, Any]:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(Proxy, "call_tool", fail)
    async with site_of(config_of("echo")) as site:
        response = await site.modern("tools/call", {"name": "echo__echo"})

    assert response.json()["error"] == {"code": -32603, "message": "internal error of the gateway; its log says more"}


async def test_without_a_named_map_nothing_is_added():
    async with site_of(config_of("huge"), with_map=True) as site:
        response = await site.modern("tools/call", {"name": "huge__echo", "arguments": {"bytes": 3}})

    assert response.json()["result"]["content"] == [{"type": "text", "text": "xxx"}]


def payload_in(result: dict[str, Any]) -> dict[str, Any]:
    return result["content"][0]["_meta"][CODEC_META_KEY]


@pytest.mark.parametrize(
    ("headers", "meta"),
    [
        ({"x-codec-map": MAP.map_id}, {}),
        ({"x-codec-map": f"https://nobody.invalid/m.json;sha256={MAP.map_id[7:]}"}, {}),
        ({}, {"ai.codec/map": MAP.map_id}),
    ],
)
async def test_map_named_by_header_or_meta_gives_ids_beside_the_text(headers, meta):
    async with site_of(config_of("huge"), with_map=True) as site:
        call = {"name": "huge__echo", "arguments": {"bytes": 3}}
        result = (await site.modern("tools/call", call, meta, **headers)).json()["result"]

    assert result["content"][0]["text"] == "xxx"
    assert payload_in(result) == {"map_id": MAP.map_id, "ids": MAP.encode("xxx")}


@pytest.mark.parametrize(("ids", "told"), [("map", MAP.map_id), ("any", None)])
async def test_leaf_hears_of_the_map_that_a_header_names_where_it_is_configured_to(ids, told):
    echo = str(TESTS / "e2e" / "servers" / "echoes_meta.py")
    config = replace(config_of(), upstreams=(UpstreamConfig(name="up", command=sys.executable, args=(echo,), ids=ids),))
    async with site_of(config, with_map=True) as site:
        named = await site.modern("tools/call", {"name": "up__say"}, **{"x-codec-map": MAP.map_id})
        unnamed = await site.modern("tools/call", {"name": "up__say"})

    assert json.loads(named.json()["result"]["content"][0]["text"]).get("ai.codec/map") == told
    assert "ai.codec/map" not in unnamed.json()["result"]["content"][0]["text"]


async def test_map_named_by_the_header_of_a_session_gives_ids():
    async with site_of(config_of("huge"), with_map=True) as site:
        client = await site.client("legacy", **{"X-Codec-Map": MAP.map_id})
        result = await client.call_tool("huge__echo", {"bytes": 3})

    assert result.content[0].meta[CODEC_META_KEY]["ids"] == MAP.encode("xxx")


async def test_map_named_in_initialize_holds_for_the_session():
    async with site_of(config_of("huge"), with_map=True) as site:
        http = await site.raw(accept=ACCEPT)
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
            "_meta": {"ai.codec/map": MAP.map_id},
        }
        opened = await http.post(site.url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        await http.post(site.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        call = {"name": "huge__echo", "arguments": {"bytes": 3}}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        answer = await http.post(site.url, json=body, headers=session)

    assert payload_in(answer.json()["result"])["ids"] == MAP.encode("xxx")


@pytest.mark.parametrize("header", ["nonsense", f"sha256:{'0' * 64}", f"https://x/m.json;sha256={'0' * 64}"])
async def test_header_that_names_no_held_map_is_a_bad_request_that_names_those_held(header):
    async with site_of(config_of("huge"), with_map=True) as site:
        response = await site.modern("tools/list", {}, **{"x-codec-map": header})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32600
    assert response.json()["id"] is None
    assert MAP.map_id in response.json()["error"]["message"]


async def test_meta_that_names_no_held_map_is_an_invalid_request_that_names_those_held():
    async with site_of(config_of("huge"), with_map=True) as site:
        response = await site.modern("tools/call", {"name": "huge__echo"}, {"ai.codec/map": "sha256:00"})

    assert response.json()["error"]["code"] == -32600
    assert MAP.map_id in response.json()["error"]["message"]


async def test_gateway_without_tokens_refuses_every_map():
    async with site_of(config_of("huge")) as site:
        response = await site.modern("tools/list", {}, **{"x-codec-map": MAP.map_id})

    assert response.status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"host": "gateway.example"}, 200),
        ({"host": "LOCALHOST:8600"}, 200),
        ({"host": "127.0.0.2"}, 200),
        ({"host": "gateway.example:8600", "origin": "https://gateway.example"}, 200),
    ],
)
async def test_only_known_hosts_and_origins_are_let_in(headers, status):
    async with site_of(config_of("echo", allowed_hosts=("gateway.example",))) as site:
        response = await site.modern("tools/list", {}, **headers)

    assert response.status_code == status


async def test_body_over_the_limit_is_refused():
    async with site_of(config_of("echo")) as site:
        response = await site.modern("tools/call", {"name": "echo__echo", "arguments": {"x": "y" * 200_000}})

    assert response.status_code == 413


async def test_blanks_behind_a_header_are_no_part_of_it():
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}})
    head = [
        "POST /mcp HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"accept: {ACCEPT}",
        f"content-length: {len(body)}",
        "mcp-protocol-version: 2026-07-28 \t",
        "mcp-method: tools/list  ",
        f"x-codec-map: {MAP.map_id} ",
        "connection: close",
    ]
    async with site_of(config_of("huge"), with_map=True) as site:
        stream = await anyio.connect_tcp("127.0.0.1", int(site.url.split(":")[2].split("/")[0]))
        async with stream:
            await stream.send(("\r\n".join(head) + "\r\n\r\n" + body).encode())
            with anyio.fail_after(20):
                first = await stream.receive()

    assert first.startswith(b"HTTP/1.1 200")


async def test_change_of_an_upstreams_tools_is_told_to_a_client_of_the_handshake_era():
    told = anyio.Event()

    async def on_message(message: object) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    async with site_of(config_of("changes_tools")) as site:
        client = await site.client("legacy", on_message)
        # A client's event stream opens behind its handshake: the change is made again until it was heard.
        with anyio.fail_after(20):
            while not told.is_set():
                await client.call_tool("changes_tools__echo", {})
                with anyio.move_on_after(0.2):
                    await told.wait()
        tools = (await client.list_tools()).tools

    assert len(tools) > 1


async def test_change_of_an_upstreams_tools_is_told_to_a_client_that_listens():
    async with site_of(config_of("changes_tools")) as site:
        client = await site.client("auto")
        async with client.listen(tools_list_changed=True) as events:
            await client.call_tool("changes_tools__echo", {})
            with anyio.fail_after(20):
                event = await anext(aiter(events))

    assert type(event).__name__ == "ToolsListChanged"


async def test_endpoint_serves_http_only_while_it_runs():
    config = config_of()
    endpoint = McpEndpoint(Proxy(config, Metrics()), config, tokens=None, maps={})

    with pytest.raises(RuntimeError, match="running"):
        await endpoint({"type": "http", "headers": []}, None, None)  # pyright: ignore[reportArgumentType]
