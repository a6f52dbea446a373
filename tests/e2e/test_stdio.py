"""`codec-gateway stdio` as a desktop client runs it: a process of its own, spoken to by mcp's own client."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from mcp import Client, MCPError, StdioServerParameters

from gateway.config.gateway_config import UpstreamConfig
from gateway.proxy.transport.stdio.server_process import child_environment
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import load_map

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]
SERVERS = TESTS / "gateway" / "proxy" / "servers"
MAP_FILE = TESTS / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def command(tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of a gateway with one plain server and one that dies when it is called, new to both."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    servers = {
        "time": {"command": sys.executable, "args": [str(TESTS / "e2e" / "servers" / "tells_time.py")]},
        "echo": {"command": sys.executable, "args": [str(SERVERS / "echo.py")], "env": {"NOTES": str(notes)}},
        "frail": {"command": sys.executable, "args": [str(SERVERS / "dies_in_call.py")]},
    }
    config = tmp_path / "claude_desktop_config.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    return [sys.executable, "-m", "gateway", "stdio", "--config", str(config)]


def server_of(command: list[str], *more: str) -> StdioServerParameters:
    environ = {"XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
    return StdioServerParameters(command=command[0], args=[*command[1:], *more], env=environ)


@asynccontextmanager
async def gateway_process(command: list[str]) -> AsyncGenerator[Process]:
    """The gateway with its handshake sent and answered."""
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            await process.stdin.send(json.dumps(INITIALIZE).encode() + b"\n")
            with anyio.fail_after(60):
                answer = json.loads(await process.stdout.receive())
            assert answer["result"]["serverInfo"]["name"] == "codec-gateway"
            yield process
        finally:
            if process.returncode is None:
                process.kill()


def echo_pid(notes: Path) -> int:
    return int(notes.read_text().split()[1])


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_desktop_client_of_either_era_lists_and_calls_the_tools_of_all_servers(command, mode):
    with anyio.fail_after(90):
        async with Client(server_of(command), mode=mode) as client:
            names: list[str] = []
            while len(names) < 3:  # a list waits for servers that start, but not long
                names = [tool.name for tool in (await client.list_tools()).tools]
            told = await client.call_tool("time__get_time", {"city": "New York"})
            lost = await client.call_tool("time__get_time", {"city": "Atlantis"})
            frail = await client.call_tool("frail__echo", {})
            with pytest.raises(MCPError, match="unknown tool 'nope'"):
                await client.call_tool("nope", {})

    assert names == ["time__get_time", "echo__echo", "frail__echo"]
    assert told.content[0].text.startswith("The time in New York is ")
    assert told.content[0].meta is None
    assert lost.is_error
    assert "Atlantis" in lost.content[0].text
    assert frail.is_error
    assert "server 'frail'" in frail.content[0].text


async def test_map_on_the_command_line_gives_every_text_its_ids(command):
    token_map = load_map(MAP_FILE.read_bytes())
    with anyio.fail_after(90):
        async with Client(server_of(command, "--map", str(MAP_FILE)), mode="legacy") as client:
            result = await client.call_tool("time__get_time", {"city": "Tokyo"})

    text = result.content[0].text
    assert result.content[0].meta[CODEC_META_KEY] == {"map_id": token_map.map_id, "ids": token_map.encode(text)}


async def test_end_of_input_ends_the_gateway_with_zero_and_every_server_with_it(command, notes):
    async with gateway_process(command) as process:
        await process.stdin.aclose()
        with anyio.fail_after(30):
            code = await process.wait()

    assert code == 0
    with pytest.raises(ProcessLookupError):
        os.kill(echo_pid(notes), 0)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
async def test_signal_ends_the_gateway_in_order(command, notes, number, expected):
    async with gateway_process(command) as process:
        process.send_signal(number)
        with anyio.fail_after(30):
            code = await process.wait()

    assert code == expected
    with pytest.raises(ProcessLookupError):
        os.kill(echo_pid(notes), 0)


async def test_request_before_the_handshake_is_refused(command):
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        await process.stdin.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
        with anyio.fail_after(60):
            answer = json.loads(await process.stdout.receive())

    assert answer["error"]["code"] == -32600
    assert "initialize" in answer["error"]["message"]


def test_standard_output_carries_the_protocol_and_nothing_else(command):
    lines = json.dumps(INITIALIZE) + "\n" + '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdin.write(lines)
        process.stdin.flush()
        # A client that leaves earlier may leave before the server is up.
        said = ""
        while "upstream is up" not in said and (line := process.stderr.readline()):
            said += line
        stdout, rest = process.communicate(timeout=240)

    assert process.returncode == 0
    messages = [json.loads(line) for line in stdout.splitlines()]
    # A server that was slower than the greeting is announced by a notification.
    assert [message["id"] for message in messages if "id" in message] == [1]
    assert {message["jsonrpc"] for message in messages} == {"2.0"}
    assert "upstream is up" in said
    assert "Traceback" not in said + rest


def test_wrong_configuration_ends_with_three_and_one_sentence(tmp_path):
    command = [sys.executable, "-m", "gateway", "stdio", "--config", str(tmp_path / "missing.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL)

    assert done.returncode == 3
    assert "missing.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_gateway_whose_configuration_names_itself_starts_no_endless_row_of_gateways(tmp_path):
    # Each of two files names a gateway with the other.
    for name, other in (("a.json", "b.json"), ("b.json", "a.json")):
        command = {"command": sys.executable, "args": ["-m", "gateway", "stdio", "--config", str(tmp_path / other)]}
        (tmp_path / name).write_text(json.dumps({"mcpServers": {"me": command}}))
    done = subprocess.run(
        [command["command"], *command["args"]],
        env={**os.environ, "CODEC_NESTED_GATEWAYS": "2"},
        input="",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 3
    assert "names the gateway itself" in done.stderr
    assert done.stdout == ""
    assert child_environment(UpstreamConfig("up"), {"CODEC_NESTED_GATEWAYS": "1"})["CODEC_NESTED_GATEWAYS"] == "2"
