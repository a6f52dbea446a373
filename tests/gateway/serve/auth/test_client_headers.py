"""Headers of clients' requests reach the servers that are configured to get them, and no others."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.load import load_config
from gateway.config.show import show_config
from gateway.errors import ConfigError
from gateway.observe.metrics import Metrics
from gateway.protocol.eras import CAPABILITIES_KEY, MODERN_VERSIONS, VERSION_KEY
from gateway.protocol.headers import VERSION_HEADER, routing_headers
from gateway.proxy.proxy import Proxy
from gateway.serve.auth.bearer import ClientHeaders
from gateway.serve.http.request_parts import principal_of
from gateway.serve.mcp import McpEndpoint

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parents[2] / "proxy" / "servers" / "http_forgets.py"
HEAD = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
BROUGHT = {"x-user": "ann", "x-tenant": "M\u00fcller", "x-other": "1"}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[UpstreamConfig]:
    """A running server whose tool returns the headers that it got."""
    environment = {**os.environ, "NOTES": str(tmp_path / "notes")}
    command = [sys.executable, str(SCRIPT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        yield UpstreamConfig("web", url=f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", protocol="handshake")
        process.kill()


@asynccontextmanager
async def serving(*upstreams: UpstreamConfig) -> AsyncGenerator[tuple[Proxy, httpx2.AsyncClient]]:
    config = GatewayConfig(upstreams=upstreams)
    async with Proxy(config, Metrics()) as proxy:
        endpoint = McpEndpoint(proxy, config, tokens=None, maps={}, audit=None)
        transport = httpx2.ASGITransport(ClientHeaders(endpoint, proxy))
        async with endpoint.running(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield proxy, http


async def called(http: httpx2.AsyncClient, headers: dict[str, str], *, name: str = "do", modern: bool = False) -> Any:
    """What the tool says, which are the headers that begin with `x-`."""
    encoded = {key: value.encode("latin-1") for key, value in {**HEAD, **headers}.items()}
    params: dict[str, Any] = {"name": name, "arguments": {}}
    if modern:
        params["_meta"] = {VERSION_KEY: MODERN_VERSIONS[0], CAPABILITIES_KEY: {}}
        extra = {VERSION_HEADER: MODERN_VERSIONS[0], **routing_headers("tools/call", params)}
        encoded |= {key: value.encode() for key, value in extra.items()}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    answer = await http.post("/mcp", json=body, headers=encoded)
    told = answer.json()["result"]["structuredContent"]
    return {key: value for key, value in told.items() if key.startswith("x-")}


async def session_of(http: httpx2.AsyncClient, capabilities: dict[str, Any], **headers: str) -> dict[str, str]:
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "t", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
    answer = await http.post("/mcp", json=body, headers={**HEAD, **headers})
    return {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


def wanting(web: UpstreamConfig, *names: str, **more: Any) -> UpstreamConfig:
    return UpstreamConfig(
        **{**{key: getattr(web, key) for key in ("name", "url", "protocol")}, **more}, client_headers=names
    )


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["shared session", "own session"])
async def test_each_request_of_a_session_brings_its_own_headers(web: UpstreamConfig, capabilities: Any) -> None:
    async with serving(wanting(web, "x-user", "x-tenant")) as (_, http):
        session = await session_of(http, capabilities, **{"x-user": "at initialize"})
        first = await called(http, {**session, **BROUGHT})
        second = await called(http, {**session, "x-user": "bob"})
        third = await called(http, session)

    assert first == {"x-user": "ann", "x-tenant": "M\u00fcller"}
    assert second == {"x-user": "bob"}
    assert third == {}


VALUES = (
    "ann",
    "a b",
    '"quoted"',
    "a,b",
    "a;b=c",
    "M\u00fcller",
    "=?utf-8?b?w7w=?=",
    "Bearer abc.def==",
    '{"a": 1}',
    "x" * 4000,
    "a\tb",
    "%41%0A",
)


async def test_value_of_a_header_is_passed_on_as_it_came(web: UpstreamConfig) -> None:
    async with serving(wanting(web, "x-user")) as (_, http):
        session = await session_of(http, {})
        found = [(await called(http, {**session, "x-user": value}))["x-user"] for value in VALUES]

    assert found == [*VALUES]


async def test_request_of_the_modern_era_brings_its_headers(web: UpstreamConfig) -> None:
    async with serving(wanting(web, "x-user")) as (_, http):
        assert await called(http, BROUGHT, modern=True) == {"x-user": "ann"}
        assert await called(http, {}, modern=True) == {}


async def test_only_the_server_that_wants_a_header_gets_it(web: UpstreamConfig) -> None:
    async with serving(wanting(web, "x-user", name="one"), wanting(web, name="two")) as (_, http):
        session = await session_of(http, {})
        found = [await called(http, {**session, **BROUGHT}, name=f"{name}__do") for name in ("one", "two")]

    assert found == [{"x-user": "ann"}, {}]


async def test_reload_changes_what_is_passed_on(web: UpstreamConfig) -> None:
    async with serving(wanting(web)) as (proxy, http):
        session = await session_of(http, {})
        before = await called(http, {**session, **BROUGHT})
        await proxy.reload(GatewayConfig(upstreams=(wanting(web, "x-user"),)))
        after = await called(http, {**session, **BROUGHT})

    assert (before, after) == ({}, {"x-user": "ann"})


@pytest.mark.parametrize(("path", "found"), [("/mcp", {"x-api-key": "k"}), ("/v1/chat/completions", {})])
async def test_key_for_the_gateway_s_own_api_is_not_passed_on(
    web: UpstreamConfig, path: str, found: dict[str, str]
) -> None:
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(principal_of(scope).headers)

    async with Proxy(GatewayConfig(upstreams=(wanting(web, "x-api-key"),)), Metrics()) as proxy:
        scope: Any = {"type": "http", "path": path, "headers": [(b"x-api-key", b"k"), (b"x-user", b"ann")]}
        await ClientHeaders(app, proxy)(scope, app, app)

    assert seen == [found]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('url = "http://x/mcp"\nclient_headers = ["Authorization"]', "can't be passed on"),
        ('url = "http://x/mcp"\nclient_headers = ["Mcp-Session-Id"]', "can't be passed on"),
        ('url = "http://x/mcp"\nclient_headers = ["x user"]', "no name of a header"),
        ('url = "http://x/mcp"\nheaders = { X-User = "all" }\nclient_headers = ["x-user"]', "also under 'headers'"),
        ('command = "cat"\nclient_headers = ["x-user"]', "needs 'url'"),
    ],
)
def test_header_that_can_not_be_passed_on_is_refused_by_name(tmp_path: Path, entry: str, words: str) -> None:
    file = tmp_path / "codec-gateway.toml"
    file.write_text(f"[upstreams.web]\n{entry}\n")

    with pytest.raises(ConfigError, match=words):
        load_config(file, environ={})


def test_names_are_shown_in_lower_case(tmp_path: Path) -> None:
    file = tmp_path / "codec-gateway.toml"
    file.write_text('[upstreams.web]\nurl = "http://x/mcp"\nclient_headers = ["X-User"]\n')

    shown = json.loads(json.dumps(show_config(load_config(file, environ={})), default=str))
    assert shown["upstreams"]["web"]["client_headers"] == ["x-user"]
