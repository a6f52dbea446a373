"""Who may call, as an operator and a client see it: real keys, a real gateway, mcp's own client."""

import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import anyio
import httpx2
import pytest
from mcp import Client, ClientSession, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.conftest import RunningGateway, key_for, keys

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "hello there"}


@asynccontextmanager
async def client_of(url: str, key: str, mode: str = "auto") -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=240) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
        ):
            yield client


def post(url: str, key: str, path: str = "/mcp") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"}
    return httpx2.post(f"{url}{path}", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)


def lines_of(path: Path, principal: str, least: int) -> list[dict[str, Any]]:
    """Somebody's lines of the audit log, once there are so many: it is written beside the calls."""
    for _ in range(1000):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [line for line in lines if line["principal"] == principal]
        if len(lines) >= least:
            return lines
        threading.Event().wait(0.01)
    raise AssertionError(f"{len(lines)} lines, not {least}")


class Place:
    """A gateway of two servers, which has keys and an audit log; tests give it keys of their own."""

    def __init__(self, folder: Path, gateway: RunningGateway) -> None:
        self.folder = folder
        self.gateway = gateway
        self.url = gateway.url
        self._names = count()

    def key(self, *arguments: str) -> tuple[str, str]:
        """The name of a new key, and the key."""
        name = f"key-{next(self._names)}"
        return name, key_for(self.folder, name, *arguments)

    def bearer(self, *arguments: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key(*arguments)[1]}"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, run_gateway, says) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("access")
    key_for(folder, "somebody")
    (folder / "codec-gateway.toml").write_text('[audit]\npath = "audit.jsonl"\n')
    with run_gateway(folder, {"near": says(TEXT), "far": says(TEXT)}) as gateway:
        yield Place(folder, gateway)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_key_sees_its_servers_and_tools_and_nothing_else(place, mode):
    _, everything = place.key()
    _, one = place.key("--server", "near")
    _, none = place.key("--server", "near", "--tool", "near__other")

    async with client_of(place.url, everything, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["near__say", "far__say"]
        assert (await client.call_tool("far__say", {})).content[0].text == "hello there"
    async with client_of(place.url, one, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["near__say"]
        assert (await client.call_tool("near__say", {})).content[0].text == "hello there"
        with pytest.raises(Exception, match=r"far__say|nknown tool"):
            await client.call_tool("far__say", {})
    async with client_of(place.url, none, mode) as client:
        assert (await client.list_tools()).tools == []
        with pytest.raises(Exception, match=r"near__say|nknown tool"):
            await client.call_tool("near__say", {})


async def test_client_of_the_old_transport_is_held_to_its_key_like_any_other(place):
    one, other = place.bearer("--server", "near"), place.bearer()
    places: list[str] = []
    sse = f"{place.url}/sse"
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with anyio.fail_after(60):
        async with (
            sse_client(sse, headers=one, on_session_created=places.append) as streams,
            ClientSession(*streams) as session,
        ):
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            result = await session.call_tool("near__say", {})
            with pytest.raises(MCPError, match=r"far__say|nknown tool"):
                await session.call_tool("far__say", {})
            theirs = httpx2.post(sse, params={"session_id": places[0]}, json=ping, headers=other)
            nobodys = httpx2.post(sse, params={"session_id": places[0]}, json=ping)
            page = httpx2.get(sse, headers={**one, "Origin": "https://evil.example"})

    assert tools == ["near__say"]
    assert result.content[0].text == "hello there"
    assert [theirs.status_code, nobodys.status_code, page.status_code] == [404, 401, 403]
    assert httpx2.get(f"{sse}/far", headers=one).status_code == 404


async def test_key_that_is_revoked_during_a_session_is_refused_at_the_next_request(place):
    name, key = place.key()
    refused = place.gateway.metric("codec_auth_failures_total", reason="unknown")

    async with client_of(place.url, key, "legacy") as client:
        await client.call_tool("near__say", {})
        keys(place.folder, "revoke", name)
        with pytest.raises(Exception, match=r"401|nauthori|error"):
            await client.call_tool("near__say", {})

    assert post(place.url, key).status_code == 401
    assert place.gateway.metric("codec_auth_failures_total", reason="unknown") > refused


def test_key_that_is_made_while_the_gateway_runs_is_good_at_once_and_shuts_strangers_out(tmp_path, start_gateway, says):
    gateway = start_gateway({"near": says(TEXT)})
    assert httpx2.get(f"{gateway.url}/v1/models").status_code != 401

    key = key_for(tmp_path, "laptop")

    assert httpx2.get(f"{gateway.url}/v1/models").status_code == 401
    assert httpx2.get(f"{gateway.url}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code != 401


def test_key_file_that_others_can_read_ends_the_start(tmp_path, launch, says):
    key_for(tmp_path, "laptop")
    (tmp_path / "keys.toml").chmod(0o644)

    with launch({"near": says(TEXT)}) as (process, log):
        assert process.wait(60) == 3
        log.close()

    assert "chmod 600" in log.text


def test_key_is_shown_once_and_listed_without_it(tmp_path):
    key = key_for(tmp_path, "laptop", "--server", "near", "--rate", "60", "--expires", "30d")

    listed = keys(tmp_path, "list", "--json")

    assert key.startswith("codec_")
    assert key not in listed
    assert key not in (tmp_path / "keys.toml").read_text()
    assert json.loads(listed)["laptop"]["servers"] == ["near"]
    assert "laptop" in keys(tmp_path, "list")


def test_rate_of_a_key_is_held_over_real_http(place):
    _, key = place.key("--rate", "3")
    limited = place.gateway.metric("codec_requests_limited_total", limit="rate")

    answers = [post(place.url, key) for _ in range(4)]

    assert [answer.status_code == 429 for answer in answers] == [False, False, False, True]
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    assert place.gateway.metric("codec_requests_limited_total", limit="rate") == limited + 1


@pytest.mark.parametrize(("limits", "passes"), [(("--rate", "60"), False), ((), True)])
def test_batch_is_no_way_around_the_rate_of_a_key(place, limits, passes):
    headers = {**place.bearer(*limits), "Accept": "application/json, text/event-stream"}
    greeting = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": greeting}
    pings = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(2)]
    with httpx2.Client(headers=headers, timeout=240) as client:
        session = {"mcp-session-id": client.post(f"{place.url}/mcp", json=hello).headers["mcp-session-id"]}
        several = client.post(f"{place.url}/mcp", json=pings, headers=session)
        one = client.post(f"{place.url}/mcp", json=pings[:1], headers=session)

    assert (several.status_code == 200) is passes
    assert passes or "send the requests of a batch one by one" in several.json()["error"]["message"]
    assert one.status_code == 200


async def test_every_call_is_a_line_of_the_audit_log_with_the_key_s_name(place):
    name, key = place.key()

    async with client_of(place.url, key) as client:
        for _ in range(3):
            await client.call_tool("near__say", {"password": "hidden"})

    lines = lines_of(place.folder / "audit.jsonl", name, 3)
    assert [(line["principal"], line["face"], line["server"], line["tool"]) for line in lines] == [
        (name, "mcp-http", "near", "near__say")
    ] * 3
    assert all(line["outcome"] == "ok" and line["bytes_out"] > 11 and line["duration_ms"] > 0 for line in lines)
    assert "hidden" not in (place.folder / "audit.jsonl").read_text()


class _Collector(BaseHTTPRequestHandler):
    received: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.received.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    _Collector.received.clear()
    with HTTPServer(("127.0.0.1", 0), _Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_call_is_traced_from_the_client_s_span_to_the_server(tmp_path, start_gateway, server, collector):
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    (tmp_path / "codec-gateway.toml").write_text(f'[telemetry]\notlp_endpoint = "{endpoint}"\n')
    gateway = start_gateway({"echo": server("echoes_meta")})

    async with client_of(gateway.url, "none") as client:
        meta = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        told = json.loads((await client.call_tool("say", {}, meta=meta)).content[0].text)

    assert told["traceparent"].split("-")[1] == trace
    assert told["traceparent"].split("-")[2] != "00f067aa0ba902b7"
    gateway.process.terminate()
    gateway.process.wait(30)
    sent = b"".join(_Collector.received)
    assert sent.count(b"tools/call say") >= 2
    assert bytes.fromhex(trace) in sent
    assert bytes.fromhex(told["traceparent"].split("-")[2]) in sent


async def test_context_of_a_trace_passes_untouched_where_nothing_is_traced(start_gateway, server):
    gateway = start_gateway({"echo": server("echoes_meta")})
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async with client_of(gateway.url, "none") as client:
        told = json.loads((await client.call_tool("say", {}, meta={"traceparent": traceparent})).content[0].text)

    assert told["traceparent"] == traceparent
