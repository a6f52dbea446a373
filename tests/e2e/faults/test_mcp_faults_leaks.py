"""What is left after many clients came, called and went: nothing, on both fronts and in both eras.

`make faults` repeats this a thousand times (`CODEC_FAULT_CYCLES`) and prints what it counted.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

pytestmark = pytest.mark.anyio

CYCLES = int(os.environ.get("CODEC_FAULT_CYCLES", "30"))
# Each is a gateway of its own, which takes a second to start.
STDIO_CYCLES = max(2, CYCLES // 15)
MiB = 1024 * 1024
# What is kept for good (caches, arenas of the allocator) is there after some hundreds; a leak goes on.
WARM_UP = max(10, CYCLES // 2)
COUNTED = ("tasks", "descriptors", "threads", "children", "sessions")


def children_of(pid: int) -> list[int]:
    """The processes that it started and that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(folder.name))
    return found


def count(gateway, memory_of) -> dict[str, int]:
    """What a gateway holds now."""
    pid = gateway.process.pid
    return {
        "tasks": int(gateway.metric("codec_tasks")),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
        "children": len(children_of(pid)),
        "sessions": int(gateway.metric("codec_upstream_sessions")),
        "bytes": memory_of(pid),
    }


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What there is more of than before. Less is no leak: a connection may have been about to end."""
    return {name: after[name] - before[name] for name in COUNTED if after[name] > before[name]}


async def settled(gateway, memory_of, before: dict[str, int]) -> dict[str, int]:
    """The counts once they have come down to those from before; clients' sessions end behind their backs."""
    with anyio.move_on_after(20):
        while True:
            after = count(gateway, memory_of)
            if not grown(before, after):
                return after
            await anyio.to_thread.run_sync(lambda: None)
    return count(gateway, memory_of)


def toml_of(**servers) -> str:
    """Servers in a file of ours, which knows more about them than those of others."""
    lines = [
        f"[upstreams.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in server.items())
        for name, server in servers.items()
    ]
    return 'prefix = "always"\n' + "".join(lines)


async def test_cycles_of_connect_call_and_disconnect_over_http_leave_nothing(
    start_gateway, faulty, faulty_http, client_of, memory_of, own
):
    # A client of the handshake era gets a process of its own, and a session of its own with the server over HTTP.
    apart = {"sessions": "per_client"}
    own(toml_of(near={**faulty(), **apart}, far={**faulty_http()[0], **apart}, shared=faulty()))
    gateway = start_gateway({})

    async def cycle(number: int) -> None:
        async with client_of(gateway, ("handshake", "modern")[number % 2]) as client:
            for name in ("near__do", "far__do", "shared__do"):
                assert (await client.call(name, text=str(number))).text == str(number)

    idle = count(gateway, memory_of)
    for number in range(WARM_UP):
        await cycle(number)
    before = await settled(gateway, memory_of, idle)
    for number in range(CYCLES):
        await cycle(number)
    after = await settled(gateway, memory_of, before)

    sys.stdout.write(f"\n{CYCLES} cycles over HTTP: {before} -> {after}\n")
    assert not grown(before, after)
    assert after["bytes"] - before["bytes"] < 4 * MiB


@pytest.mark.faults
async def test_clients_that_vanish_in_the_middle_of_their_calls_leave_nothing(
    start_gateway, faulty, client_of, memory_of, own, told
):
    own(toml_of(near={**faulty(), "sessions": "per_client"}, shared=faulty()) + "[serve]\nsession_idle = 0.2\n")
    gateway = start_gateway({})
    number_of_calls = 0

    async def cycle(number: int) -> None:
        nonlocal number_of_calls
        async with client_of(gateway, ("handshake", "modern")[number % 2]) as client:
            async with anyio.create_task_group() as tasks:
                for name in ("near__do", "shared__do"):
                    tasks.start_soon(partial(client.call, name, act="hang"))
                number_of_calls += 2
                await told(gateway, "called hang", number_of_calls)
                tasks.cancel_scope.cancel()
            client.vanish()

    idle = count(gateway, memory_of)
    await cycle(0)
    await cycle(1)
    before = await settled(gateway, memory_of, idle)
    for number in range(max(6, CYCLES // 20)):
        await cycle(number)
    after = await settled(gateway, memory_of, before)

    assert not grown(before, after)


async def test_cycles_of_connect_call_and_disconnect_on_standard_streams_leave_no_process(
    stdio_of, stdio_client, faulty, faulty_http, is_running
):
    servers = {"near": faulty(), "far": faulty_http()[0]}
    pids = []
    for number in range(STDIO_CYCLES):
        with anyio.fail_after(60):
            async with stdio_of(servers) as (process, _):
                client = stdio_client(process, ("handshake", "modern")[number % 2])
                await client.open()
                assert (await client.call("near__do", text="a")).text == "a"
                assert (await client.call("far__do", text="b")).text == "b"
                pids += [process.pid, *children_of(process.pid)]
                await process.stdin.aclose()
                assert await process.wait() == 0

    sys.stdout.write(f"\n{STDIO_CYCLES} cycles on standard streams: {len(pids)} processes came and went\n")
    assert len(pids) == 3 * STDIO_CYCLES, "the gateway, its server and its watchdog"
    assert not any(map(is_running, pids))
