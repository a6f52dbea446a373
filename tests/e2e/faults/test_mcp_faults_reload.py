"""A configuration that changes while a hundred calls run: by SIGHUP, and because its file is another."""

import json
import os
import signal

import anyio
import anyio.lowlevel
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def write(tmp_path):
    """Replaces the file of servers, as an editor does."""

    def replace(servers) -> None:
        text = servers if isinstance(servers, str | bytes) else json.dumps({"mcpServers": servers})
        fresh = tmp_path / "fresh.json"
        fresh.write_bytes(text if isinstance(text, bytes) else text.encode())
        fresh.replace(tmp_path / "mcp.json")

    return replace


async def tools_of(client) -> list[str]:
    answer = await client.request("tools/list", {})
    return [tool["name"] for tool in answer.raw["result"]["tools"]]


@pytest.mark.parametrize("by_signal", [True, pytest.param(False, marks=pytest.mark.faults)])
async def test_reload_in_the_middle_of_a_hundred_calls_loses_none(
    start_gateway, faulty, client_of, told, logged, pids_of, is_running, write, by_signal
):
    gateway = start_gateway({"stays": faulty(), "changes": faulty(), "goes": faulty()})
    names = ["stays__do", "changes__do", "goes__do"]
    pids = {entry["server"]: int(entry["line"].split()[1]) for entry in gateway.log.events("upstream stderr")}
    answers = []
    with anyio.fail_after(90):
        async with client_of(gateway, "handshake") as one, client_of(gateway, "modern") as other:

            async def call(client, name: str) -> None:
                answers.append((await client.call(name, act="wait")).text)

            async with anyio.create_task_group() as tasks:
                for number in range(99):
                    tasks.start_soon(call, (one, other)[number % 2], names[number % 3])
                await told(gateway, "called wait", 99)
                write({"stays": faulty(), "changes": faulty(env={"SOMETHING": "new"}), "comes": faulty()})
                if by_signal:
                    gateway.process.send_signal(signal.SIGHUP)
                await logged(gateway, "configuration taken over")
                offered = [await tools_of(client) for client in (one, other)]
                came = await other.call("comes__do", text="new")
                gone = await other.call("goes__do")
                fresh = await one.call("changes__do", text="of the new one")
                running = [is_running(pid) for pid in pids.values()]
                for pid in pids.values():
                    os.kill(pid, signal.SIGUSR1)

    assert answers == ["released"] * 99
    assert offered == [["stays__do", "changes__do", "comes__do"]] * 2
    assert (came.text, fresh.text) == ("new", "of the new one")
    assert "unknown tool 'goes__do'" in json.dumps(gone.raw)
    assert running == [True] * 3
    with anyio.fail_after(20):
        while is_running(pids["goes"]) or is_running(pids["changes"]):
            await anyio.lowlevel.checkpoint()
    assert is_running(pids["stays"])
    assert gateway.metric("codec_upstream_restarts_total") == 0


WRONG = [
    ('{"mcpServers": {"up": ', "not JSON at line 1"),
    ({"up": {"command": "x", "url": "http://y/"}}, "'up'"),
    ("[" * 100_000, "nested too deeply"),
    (b"\xff\xfe\x00", "not UTF-8"),
    ("", "empty"),
    (None, "no such file"),
]


async def test_wrong_file_changes_nothing_says_why_and_is_mended_by_the_next_one(
    start_gateway, faulty, client_of, logged, pids_of, write, tmp_path
):
    gateway = start_gateway({"up": faulty()})
    with anyio.fail_after(60):
        async with client_of(gateway, "modern") as client:
            for number, (wrong, why) in enumerate(WRONG, 1):
                if wrong is None:
                    (tmp_path / "mcp.json").unlink()
                else:
                    write(wrong)
                gateway.process.send_signal(signal.SIGHUP)
                refused = await logged(gateway, "configuration not taken over", number)
                assert why in refused["cause"]
            before = await tools_of(client), (await client.call("do")).text
            write({"up": faulty(), "more": faulty()})
            await logged(gateway, "configuration taken over")
            after = await tools_of(client)

    assert before == (["do"], "done")
    assert after == ["up__do", "more__do"]
    assert len(pids_of(gateway)) == 2


async def test_change_that_comes_while_another_is_being_taken_over_is_not_lost(
    start_gateway, faulty, client_of, logged, told, write
):
    slow = faulty("slow")
    gateway = start_gateway({"up": faulty()})
    with anyio.fail_after(60):
        async with client_of(gateway, "modern") as client:
            write({"up": faulty(), "slow": slow})
            await told(gateway, "waiting for a signal")
            write({"up": faulty(), "slow": slow, "late": faulty()})
            os.kill(slow_pid(gateway), signal.SIGUSR1)
            await logged(gateway, "configuration taken over", 2)
            offered = await tools_of(client)

    assert offered == ["up__do", "slow__do", "late__do"]


@pytest.mark.faults
async def test_hangup_while_the_gateway_starts_does_not_end_it(launch, faulty):
    with launch({"slow": faulty("slow")}) as (process, log):
        await anyio.to_thread.run_sync(lambda: log.wait_for("upstream stderr", count=2))
        process.send_signal(signal.SIGHUP)
        os.kill(int(log.events("upstream stderr")[0]["line"].split()[1]), signal.SIGUSR1)
        await anyio.to_thread.run_sync(lambda: log.wait_for("gateway ready"))
        process.terminate()
        code = await anyio.to_thread.run_sync(lambda: process.wait(30))

    assert code == 0


def slow_pid(gateway) -> int:
    entries = gateway.log.events("upstream stderr")
    return next(int(each["line"].split()[1]) for each in entries if each["server"] == "slow")
