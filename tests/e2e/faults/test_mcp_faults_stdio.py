"""`codec-gateway stdio` when its client leaves, or it is ended, in the middle of something."""

import json
import os
import signal

import anyio
import anyio.lowlevel
import pytest

pytestmark = pytest.mark.anyio

ERAS = ["handshake", pytest.param("modern", marks=pytest.mark.faults)]
HALF = b'{"jsonrpc": "2.0", "id": 1, "method": "initi'


async def pid_of(heard) -> int:
    return int(json.loads(await heard.until("pid "))["line"].split()[1])


async def calling(process, heard, stdio_client, era: str, act: str = "hang"):
    """A client with a call that runs, and the process of the server."""
    client = stdio_client(process, era)
    await client.open()
    await client.send("tools/call", {"name": "do", "arguments": {"act": act}})
    await heard.until(f"called {act}")
    return client, await pid_of(heard)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("args", [[], pytest.param(["stays"], marks=pytest.mark.faults)])
async def test_client_that_leaves_in_the_middle_of_a_call_ends_everything(
    stdio_of, stdio_client, faulty, is_running, era, args
):
    with anyio.fail_after(60):
        async with stdio_of({"up": faulty(*args)}) as (process, heard):
            _, pid = await calling(process, heard, stdio_client, era)
            await process.stdin.aclose()
            await heard.until("cancelled")
            code = await process.wait()

    assert code == 0
    assert not is_running(pid)
    assert "Traceback" not in "".join(heard.lines)


@pytest.mark.faults
@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
async def test_signal_in_the_middle_of_a_call_ends_everything(
    stdio_of, stdio_client, faulty, is_running, number, expected
):
    with anyio.fail_after(60):
        async with stdio_of({"up": faulty("stays")}) as (process, heard):
            _, pid = await calling(process, heard, stdio_client, "handshake")
            process.send_signal(number)
            code = await process.wait()

    assert code == expected
    assert not is_running(pid)
    assert "Traceback" not in "".join(heard.lines)


@pytest.mark.faults
async def test_killed_gateway_leaves_no_server_behind_not_even_one_that_hangs(
    stdio_of, stdio_client, faulty, is_running
):
    with anyio.fail_after(60):
        async with stdio_of({"up": faulty("stays")}) as (process, heard):
            _, pid = await calling(process, heard, stdio_client, "modern", act="deaf")
            process.kill()
            await process.wait()
            while is_running(pid):
                await anyio.lowlevel.checkpoint()


@pytest.mark.faults
async def test_client_that_is_gone_without_closing_our_input_ends_the_gateway(
    stdio_of, stdio_client, faulty, is_running
):
    source, sink = os.pipe()
    with anyio.fail_after(60):
        async with stdio_of({"up": faulty()}, stdout=sink) as (process, heard):
            os.close(sink)
            client = stdio_client(process, "modern")
            await client.send("tools/call", {"name": "do", "arguments": {"act": "hang"}})
            await heard.until("called hang")
            pid = await pid_of(heard)
            os.close(source)
            await client.send("tools/call", {"name": "do", "arguments": {"act": "echo"}})
            code = await process.wait()

    assert code == 0
    assert not is_running(pid)
    assert "Traceback" not in "".join(heard.lines)


@pytest.mark.parametrize(
    "said",
    [b"", *(pytest.param(said, marks=pytest.mark.faults) for said in (b"\n\n", HALF, b"garbage\n"))],
    ids=["nothing", "blanks", "half a line", "garbage"],
)
async def test_input_that_ends_before_a_request_starts_no_server_and_is_no_failure(stdio_of, faulty, said):
    with anyio.fail_after(60):
        async with stdio_of({"up": faulty(), "gone": {"command": "/no/such/program"}}) as (process, heard):
            await process.stdin.send(said)
            await process.stdin.aclose()
            code = await process.wait()

    assert code == 0
    assert not [line for line in heard.lines if "pid " in line or "upstream" in line or "Traceback" in line]


@pytest.mark.parametrize("era", ERAS)
async def test_servers_that_fail_at_their_start_leave_the_others_to_the_client(stdio_of, stdio_client, faulty, era):
    servers = {"up": faulty(), "gone": {"command": "/no/such/program"}, "dies": {"command": "/bin/false"}}
    with anyio.fail_after(60):
        async with stdio_of(servers) as (process, heard):
            client = stdio_client(process, era)
            await client.open()
            listed = await client.answer(await client.send("tools/list", {}))
            answer = await client.call("up__do")
            await process.stdin.aclose()
            code = await process.wait()

    assert [tool["name"] for tool in listed.raw["result"]["tools"]] == ["up__do"]
    assert answer.text == "done"
    assert code == 0
    causes = [json.loads(line)["cause"] for line in heard.lines if "upstream is down" in line]
    assert any("'/no/such/program' does not exist" in cause for cause in causes)


async def test_input_that_ends_while_a_server_starts_ends_that_server_too(stdio_of, stdio_client, faulty, is_running):
    with anyio.fail_after(60):
        async with stdio_of({"up": faulty("slow")}) as (process, heard):
            client = stdio_client(process, "handshake")
            await client.send("tools/list", {})
            await heard.until("waiting for a signal")
            pid = await pid_of(heard)
            await process.stdin.aclose()
            code = await process.wait()

    assert code == 0
    assert not is_running(pid)


@pytest.mark.faults
async def test_line_of_the_client_that_is_too_long_is_refused_and_the_next_one_answered(stdio_of, stdio_client, faulty):
    with anyio.fail_after(60):
        async with stdio_of({"up": faulty()}) as (process, _):
            client = stdio_client(process, "modern")
            await process.stdin.send(b"x" * (33 << 20) + b"\n")
            refused = json.loads(await process.stdout.receive())
            answer = await client.call("do")

    assert "over the limit" in refused["error"]["message"]
    assert answer.text == "done"
