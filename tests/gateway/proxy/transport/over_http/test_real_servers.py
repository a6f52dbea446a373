"""The transport over HTTP against real MCP servers, in both eras and each of their ways to answer."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from gateway.protocol.eras import CAPABILITIES_KEY, CLIENT_INFO_KEY, VERSION_KEY
from gateway.proxy.transport.transport_interface import LinkLost, PeerError, SessionForgotten, Transport

pytestmark = pytest.mark.anyio
SERVERS = Path(__file__).parents[2] / "servers"
HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
INFO = {"name": "test", "version": "1"}
ENVELOPE = {VERSION_KEY: MODERN, CLIENT_INFO_KEY: INFO, CAPABILITIES_KEY: {}}


@asynccontextmanager
async def serving(script: str, *modes: str) -> AsyncGenerator[tuple[Process, str]]:
    command = [sys.executable, str(SERVERS / f"{script}.py"), *modes]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            with anyio.fail_after(30):
                port = int(await process.stdout.receive())
            yield process, f"http://127.0.0.1:{port}/mcp"
        finally:
            if process.returncode is None:
                process.kill()


@pytest.fixture(scope="session")
def pushing() -> Iterator[Callable[..., str]]:
    """The URL of a server that says and asks things; one for each mode, shared by all tests."""
    running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}

    def start(mode: str = "") -> str:
        if mode not in running:
            command = [sys.executable, str(SERVERS / "http_pushes.py"), mode]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout is not None
            running[mode] = (process, f"http://127.0.0.1:{int(process.stdout.readline())}/mcp")
        return running[mode][1]

    yield start
    for process, _ in running.values():
        with process:
            process.kill()


async def shake(transport: Transport) -> dict[str, Any]:
    transport.use_version(HANDSHAKE)
    params = {"protocolVersion": HANDSHAKE, "capabilities": {"elicitation": {}}, "clientInfo": INFO}
    with anyio.fail_after(20):
        result = await transport.request("initialize", params)
        await transport.notify("notifications/initialized")
    return result


async def call(transport: Transport, name: str, *args: Any, **arguments: Any) -> Any:
    params: dict[str, Any] = {"name": name, "arguments": arguments, "_meta": {"progressToken": 7}}
    with anyio.fail_after(20):
        return (await transport.request("tools/call", params, *args))["content"][0]["text"]


async def call_modern(transport: Transport, name: str, *args: Any, **arguments: Any) -> Any:
    params: dict[str, Any] = {"name": name, "arguments": arguments, "_meta": {**ENVELOPE, "progressToken": 7}}
    with anyio.fail_after(20):
        return (await transport.request("tools/call", params, *args))["content"][0]["text"]


@pytest.mark.parametrize("mode", ["", "json", "store"], ids=["events", "json", "resumable"])
async def test_handshake_server_is_listed_and_called(opened, pushing, mode):
    async with opened(pushing(mode)) as transport:
        result = await shake(transport)
        tools = await transport.request("tools/list", {})
        assert await call(transport, "count", to=0) == "counted"
        with pytest.raises(PeerError) as refused:
            await transport.request("no/such", {})

    assert result["protocolVersion"] == HANDSHAKE
    assert {tool["name"] for tool in tools["tools"]} == {"count", "ask", "change", "part"}
    assert refused.value.error["code"] == -32601


@pytest.mark.parametrize("mode", ["", "json"], ids=["events", "json"])
async def test_modern_server_is_discovered_and_called(opened, pushing, mode):
    async with opened(pushing(mode)) as transport:
        transport.use_version(MODERN)
        with anyio.fail_after(20):
            found = await transport.request("server/discover", {"_meta": ENVELOPE})
            with pytest.raises(PeerError) as refused:
                await transport.request("no/such", {"_meta": ENVELOPE})
        assert await call_modern(transport, "count", to=0) == "counted"

    assert MODERN in found["supportedVersions"]
    assert refused.value.error["code"] == -32601


async def test_modern_listening_hears_on_its_own_request_until_it_is_cancelled(opened, pushing, make_listener):
    mine = make_listener()
    params = {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True}}
    async with opened(pushing()) as transport:
        transport.use_version(MODERN)
        listening = asyncio.ensure_future(transport.request("subscriptions/listen", params, mine))
        await mine.until(lambda: bool(mine.heard))
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert await call_modern(transport, "count", to=0) == "counted"

    assert mine.heard[0][0] == "notifications/subscriptions/acknowledged"


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_progress_of_two_calls_at_once_goes_to_each_in_order(opened, pushing, listener, make_listener, era):
    ours = [make_listener(), make_listener()]
    run = call if era == "handshake" else call_modern
    async with opened(pushing()) as transport:
        if era == "handshake":
            await shake(transport)
        else:
            transport.use_version(MODERN)
        await asyncio.gather(*(run(transport, "count", mine, to=50 + n) for n, mine in enumerate(ours)))

    for n, mine in enumerate(ours):
        assert [params["progress"] for _, params in mine.heard] == list(range(50 + n))
    assert listener.heard == []


async def test_person_is_asked_through_the_request_in_whose_course_the_server_asks(opened, pushing, make_listener):
    class Person(type(make_listener())):
        async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            return {"action": "accept", "content": {"name": f"{method}: {params['message']}"}}

    async with opened(pushing()) as transport:
        await shake(transport)
        answer = await call(transport, "ask", Person())

    assert "elicitation/create: who?" in answer


async def test_change_comes_over_the_sessions_own_stream(opened, pushing, listener):
    async with opened(pushing("store")) as transport:
        await shake(transport)
        # A server drops what it says before the stream stands.
        with anyio.fail_after(20):
            while not listener.heard:
                await call(transport, "change")

    assert listener.heard[0][0] == "notifications/tools/list_changed"


async def test_answer_is_fetched_after_the_server_closed_the_stream_in_mid_call(opened, pushing, make_listener):
    mine = make_listener()
    async with opened(pushing("store")) as transport:
        await shake(transport)
        for _ in range(3):
            assert await call(transport, "part", mine) == "fetched"

    assert [params["progress"] for _, params in mine.heard] == [1, 2] * 3


async def test_server_that_is_killed_in_mid_call_loses_it_and_is_not_there_afterwards(opened):
    async with serving("http_echo", "0") as (process, url), opened(url) as transport:
        await shake(transport)
        with pytest.raises(LinkLost) as lost:
            await call(transport, "die")
        await process.wait()
        with pytest.raises(LinkLost, match="can't connect") as away:
            await call(transport, "echo", text="x")

    assert lost.value.sent
    assert not away.value.sent


async def test_server_that_started_anew_forgot_the_session(opened):
    async with serving("http_echo", "0") as (first, url), opened(url) as transport:
        await shake(transport)
        first.kill()
        await first.wait()
        port = url.rpartition(":")[2].removesuffix("/mcp")
        async with serving("http_echo", port):
            with pytest.raises(SessionForgotten):
                await call(transport, "echo", text="x")
            assert transport.closed.is_set()
            async with opened(url) as again:
                await shake(again)
                assert await call(again, "echo", text="x") == "x"


async def test_server_that_hangs_holds_up_nobody_who_stops_waiting(opened):
    async with serving("http_echo", "0") as (process, url), opened(url) as transport:
        await shake(transport)
        os.kill(process.pid, signal.SIGSTOP)
        with anyio.move_on_after(0.2) as gave_up:
            await transport.request("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        os.kill(process.pid, signal.SIGCONT)
        assert gave_up.cancelled_caught
        assert await call(transport, "echo", text="y") == "y"
