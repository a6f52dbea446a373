"""The proxy against a real server over Streamable HTTP."""

import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.metrics import Metrics

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parent / "servers" / "http_echo.py"


@asynccontextmanager
async def http_server(*modes: str, port: int = 0) -> AsyncGenerator[tuple[Process, int], None]:
    """The server's process and its port; killed at the end."""
    async with await anyio.open_process(
        [sys.executable, str(SCRIPT), str(port), *modes], stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            with anyio.fail_after(20):
                chosen = int(await process.stdout.receive())
            yield process, chosen
        finally:
            if process.returncode is None:
                process.kill()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """That of a server that tests only ask."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def over_http(port: int, **settings: Any) -> UpstreamConfig:
    return UpstreamConfig(name="web", url=f"http://127.0.0.1:{port}/mcp", **settings)


async def test_tool_of_an_http_server_is_listed_and_called(proxy_of, port):
    async with proxy_of(over_http(port)) as proxy:
        result = await proxy.call("web__echo", {"text": "hello"})
        (status,) = proxy.statuses()

    assert result["content"][0]["text"] == "hello"
    assert [entry.name for entry in proxy.tools()] == []
    assert (status.transport, status.state, status.tools, status.protocol) == ("http", "up", 2, "2026-07-28")


async def test_event_over_the_limit_is_an_error_result_and_the_connection_lives(proxy_of, port):
    async with proxy_of(over_http(port), result_bytes=1000) as proxy:
        large = await proxy.call("web__echo", {"text": "x" * 200_000})
        small = await proxy.call("web__echo", {"text": "hello"})

    assert large["isError"] is True
    assert "'web'" in large["content"][0]["text"]
    assert small["content"][0]["text"] == "hello"


async def test_unknown_arguments_are_the_servers_to_refuse(proxy_of, port):
    metrics = Metrics()
    async with proxy_of(over_http(port), metrics=metrics) as proxy:
        result = await proxy.call("web__echo", {"wrong": 1})

    labels = {"server": "web", "outcome": "tool_error"}
    assert result["isError"] is True
    assert metrics.registry.get_sample_value("codec_tool_calls_total", labels) == 1


async def test_server_that_dies_in_a_call_is_named_and_found_again_on_its_port(proxy_of, until):
    async with http_server() as (first, port), proxy_of(over_http(port), tool_timeout=3600.0) as proxy:
        with anyio.fail_after(20):
            result = await proxy.call("web__die", {})
            await first.wait()
            await until(proxy, lambda: proxy.statuses()[0].state == "restarting")
            away = await proxy.call("web__echo", {"text": "hello"})
            async with http_server(port=port):
                await until(proxy, lambda: proxy.statuses()[0].state == "up")
                back = await proxy.call("web__echo", {"text": "hello"})

    assert "'web'" in result["content"][0]["text"]
    assert "server 'web' is not available" in away["content"][0]["text"]
    assert back["content"][0]["text"] == "hello"


@pytest.mark.parametrize("protocol", ["handshake", "modern"])
async def test_call_after_a_restart_of_the_server_is_repeated_on_a_new_session_and_answered(proxy_of, protocol):
    async with http_server() as (first, port), proxy_of(over_http(port, protocol=protocol)) as proxy:
        await proxy.call("web__echo", {"text": "hello"})
        first.kill()
        await first.wait()
        async with http_server(port=port):
            with anyio.fail_after(20):
                again = await proxy.call("web__echo", {"text": "hello"})

    assert again["content"][0]["text"] == "hello"


async def test_http_server_that_hangs_is_noticed_after_a_call_and_connected_to_again(proxy_of, until, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance.PING_TIME", 0.3)
    async with http_server() as (server, port), proxy_of(over_http(port)) as proxy:
        server.send_signal(signal.SIGSTOP)
        hung = await proxy.call("web__echo", {"text": "hello"}, timeout=0.2)
        with anyio.fail_after(30):
            await until(proxy, lambda: proxy.statuses()[0].state == "restarting")
            server.send_signal(signal.SIGCONT)
            await until(proxy, lambda: proxy.statuses()[0].state == "up")
            back = await proxy.call("web__echo", {"text": "hello"})
        (status,) = proxy.statuses()

    assert "did not answer" in hung["content"][0]["text"]
    assert status.last_error == "it did not answer a ping"
    assert back["content"][0]["text"] == "hello"


async def test_http_server_on_this_machine_is_reached_past_the_proxy_of_the_environment(proxy_of, port, monkeypatch):
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    async with proxy_of(over_http(port)) as proxy:
        result = await proxy.call("web__echo", {"text": "hello"})

    assert result["content"][0]["text"] == "hello"


async def test_address_where_nobody_listens_is_a_status_and_no_exception(proxy_of):
    async with http_server() as (server, port):
        server.kill()
        await server.wait()
    async with proxy_of(over_http(port)) as proxy:
        (status,) = proxy.statuses()
        result = await proxy.call("web__echo", {})

    assert status.state == "restarting"
    assert "can't connect" in (status.last_error or "")
    assert "server 'web' is not available" in result["content"][0]["text"]


async def test_half_a_surrogate_pair_in_arguments_fails_its_own_call_and_no_other(proxy_of, port):
    async with proxy_of(over_http(port), restart_backoff=3600.0) as proxy:
        refused = await proxy.call("web__echo", {"text": "\ud800"})
        fine = await proxy.call("web__echo", {"text": "hello"})
        restarts = proxy.statuses()[0].restarts

    assert "half a surrogate pair" in refused["content"][0]["text"]
    assert fine["content"][0]["text"] == "hello"
    assert restarts == 0


async def test_json_body_over_the_limit_is_an_error_result_and_the_connection_lives(proxy_of):
    async with http_server("json") as (_, port), proxy_of(over_http(port), result_bytes=1000) as proxy:
        large = await proxy.call("web__echo", {"text": "x" * 200_000})
        small = await proxy.call("web__echo", {"text": "hello"})

    assert large["isError"] is True
    assert "limits.result_bytes" in large["content"][0]["text"]
    assert small["content"][0]["text"] == "hello"
