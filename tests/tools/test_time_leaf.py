"""The copy-me leaf as its users run it: real processes, mcp's own client, plain and with a map."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from bench.processes import free_port
from leaf_sdk import has_codec_meta
from leaf_sdk.testing import assert_leaf_result, tiny_map, tiny_map_bytes, tiny_meta
from time_leaf.server import build_server

COMMAND = Path(sys.executable).parent / "codec-time-leaf"
NOW = datetime(2026, 11, 21, 13, 37, tzinfo=UTC)
TINY = tiny_map()


def _still_clock() -> datetime:
    return NOW


@pytest.fixture
def leaf_environment(tmp_path) -> dict[str, str]:
    path = tmp_path / "map.json"
    path.write_bytes(tiny_map_bytes())
    return {"CODEC_MAP_PATH": str(path), "CODEC_MAP_HASH": TINY.map_id}


@contextmanager
def started() -> Iterator[subprocess.Popen[str]]:
    """The command with pipes, and without a map."""
    with subprocess.Popen(
        [COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def asked(process: subprocess.Popen[str], method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The result of one request, in the lines that MCP writes."""
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"jsonrpc": "2.0", "id": method, "method": method} | ({"params": params} if params else {})
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert answer["id"] == method
    return answer["result"]


@pytest.mark.anyio
async def test_the_time_is_one_sentence():
    async with Client(build_server(_still_clock)) as client:
        result = await client.call_tool("get_current_time", {"timezone": "Europe/Paris"})
    assert result.content[0].text == "The time in Europe/Paris is 14:37 on Saturday, 2026-11-21 (UTC+01:00)."
    assert result.structured_content is None
    assert not has_codec_meta(result)


@pytest.mark.anyio
async def test_without_a_timezone_the_time_is_that_of_utc():
    async with Client(build_server(_still_clock)) as client:
        result = await client.call_tool("get_current_time", {})
        (tool, _) = (await client.list_tools()).tools
    assert result.content[0].text == "The time in UTC is 13:37 on Saturday, 2026-11-21 (UTC+00:00)."
    assert "default" not in tool.input_schema["properties"]["timezone"], "small models would ask for nothing else"
    assert "required" not in tool.input_schema


@pytest.mark.anyio
async def test_with_a_map_every_answer_carries_ids_of_its_text():
    async with Client(build_server(_still_clock, tiny_meta())) as client:
        now = await client.call_tool("get_current_time", {"timezone": "Zürich"})
        arguments = {"source_timezone": "Tokyo", "time": "08:05", "target_timezone": "New York"}
        converted = await client.call_tool("convert_time", arguments)
        wrong = await client.call_tool("get_current_time", {"timezone": "Atlantis"})
    for result in (now, converted, wrong):
        assert_leaf_result(result, TINY)
    assert converted.content[0].text == (
        "The time in Asia/Tokyo is 08:05 on Saturday, 2026-11-21 (UTC+09:00). "
        "The time in America/New_York is 18:05 on Friday, 2026-11-20 (UTC-05:00)."
    )
    assert wrong.is_error


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("get_current_time", {"timezone": "Zurrich"}, ["'Zurrich'", "Europe/Zurich"]),
        ("convert_time", {"source_timezone": "UTC", "time": "25:00", "target_timezone": "UTC"}, ["'25:00'", "HH:MM"]),
        ("convert_time", {"source_timezone": "UTC", "time": "1:00", "target_timezone": "Tokio"}, ["Asia/Tokyo"]),
    ],
)
async def test_a_wrong_argument_is_an_error_result_that_names_it(tool, arguments, named):
    async with Client(build_server(_still_clock)) as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert all(word in result.content[0].text for word in named)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_process_with_a_map_answers_with_ids_over_stdio(leaf_environment, tmp_path, mode):
    parameters = StdioServerParameters(command=str(COMMAND), env=leaf_environment)
    log = (tmp_path / "stderr").open("w+")
    with log, anyio.fail_after(60):
        from mcp.client.stdio import stdio_client

        async with Client(stdio_client(parameters, errlog=log), mode=mode) as client:
            tools = await client.list_tools()
            result = await client.call_tool("get_current_time", {"timezone": "Europe/Paris"})
        log.seek(0)
        assert log.read() == f"[codec-time-leaf] leaf-mode enabled: {TINY.map_id}\n"
    assert [tool.name for tool in tools.tools] == ["get_current_time", "convert_time"]
    assert_leaf_result(result, TINY)
    assert result.content[0].text.startswith("The time in Europe/Paris is ")


def test_a_process_without_a_map_says_so_serves_plain_text_and_ends_with_its_client():
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "get_current_time", "arguments": {"timezone": "UTC"}}
    with started() as process:
        assert "serverInfo" in asked(process, "initialize", hello)
        result = asked(process, "tools/call", call)
        out, log = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert "leaf-mode disabled" in log
    (block,) = result["content"]
    assert block["text"].startswith("The time in UTC is ")
    assert not has_codec_meta(CallToolResult.model_validate(result))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"CODEC_MAP_HASH": "sha256:" + "b" * 64}, TINY.map_id),
        ({"CODEC_MAP_HASH": "latest"}, "must be 'sha256:"),
        ({"CODEC_MAP_HASH": ""}, "CODEC_MAP_HASH"),
        ({"CODEC_MAP_PATH": "/does/not/exist"}, "/does/not/exist"),
        ({"CODEC_MAP_PATH": ""}, "CODEC_MAP_PATH"),
        ({"CODEC_MAP_URL": "https://example.org/map.json"}, "exactly one"),
        ({"CODEC_MAP_PATH": "", "CODEC_MAP_URL": "http://example.org/map.json"}, "https://"),
        ({"CODEC_MAP_PATH": "", "CODEC_MAP_URL": "http://127.0.0.1:1/map.json"}, "can't be fetched"),
    ],
)
def test_a_map_that_can_not_be_had_stops_the_start(leaf_environment, changed, named, start_here):
    done = start_here(leaf_environment | changed)
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("[codec-time-leaf] not started: ")
    assert named in done.err


def test_a_file_that_is_no_map_stops_the_start(leaf_environment, tmp_path):
    (tmp_path / "map.json").write_bytes(b"{}")
    from leaf_sdk.vocab import map_digest

    environment = {**os.environ, **leaf_environment, "CODEC_MAP_HASH": map_digest(b"{}")}
    done = subprocess.run(
        [COMMAND], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_help_names_every_variable(start_here):
    done = start_here(None, "--help")
    assert done.code == 0
    assert all(name in done.out for name in ("CODEC_MAP_PATH", "CODEC_MAP_URL", "CODEC_MAP_HASH", "--http"))


@pytest.mark.parametrize("address", ["8000", ":8000", "host:", "host:0", "host:65536", "host:x"])
def test_what_is_no_address_is_refused(address, start_here):
    done = start_here(None, "--http", address)
    assert done.code == 2
    assert "HOST:PORT" in done.err


def test_ctrl_c_ends_it_quietly_while_its_client_is_still_there():
    with started() as process:
        assert asked(process, "ping") == {}
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.anyio
async def test_it_serves_streamable_http(leaf_environment):
    port = free_port()
    command = [str(COMMAND), "--http", f"127.0.0.1:{port}"]
    with anyio.fail_after(60):
        async with await anyio.open_process(
            command, env={**os.environ, **leaf_environment}, stdin=subprocess.DEVNULL, stdout=None
        ) as process:
            assert process.stderr is not None
            # Its first line, which comes when nearly all is loaded.
            await process.stderr.receive()
            await _until_open(port)
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                result = await client.call_tool("get_current_time", {"timezone": "UTC"})
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    assert_leaf_result(result, TINY)


async def _until_open(port: int) -> None:
    while True:
        try:
            stream = await anyio.connect_tcp("127.0.0.1", port)
        except OSError:
            await anyio.lowlevel.checkpoint()
        else:
            await stream.aclose()
            return
