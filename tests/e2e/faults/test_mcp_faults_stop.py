"""A gateway that is asked to stop, or killed, while calls run: who waits is told, and no process is left behind."""

import os
import signal

import anyio
import anyio.lowlevel
import httpx2
import pytest

pytestmark = pytest.mark.anyio


async def ended(process, *, code: int) -> None:
    assert await anyio.to_thread.run_sync(lambda: process.wait(30)) == code


async def gone(is_running, pids) -> None:
    """Wait until none of the processes is there any more."""
    with anyio.fail_after(20):
        while any(map(is_running, pids)):
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.faults)])
async def test_calls_that_run_at_a_stop_are_answered_and_new_ones_refused(
    start_gateway, faulty, client_of, told, logged, pids_of, is_running, number
):
    gateway = start_gateway({"one": faulty(), "other": faulty()})
    pids = pids_of(gateway)
    answers = []
    with anyio.fail_after(60):
        async with client_of(gateway, "modern") as client, anyio.create_task_group() as tasks:

            async def call(name: str) -> None:
                answers.append((await client.call(name, act="wait")).text)

            for number_of_call in range(20):
                tasks.start_soon(call, ("one__do", "other__do")[number_of_call % 2])
            await told(gateway, "called wait", 20)
            gateway.process.send_signal(number)
            await logged(gateway, "stopping")
            late = await client.http.post(client.url, **client.message("tools/list", {}))
            for pid in pids:
                os.kill(pid, signal.SIGUSR1)
        await ended(gateway.process, code=0)

    assert answers == ["released"] * 20
    assert late.status_code == 503
    assert gateway.log.events("stopped")[0]["requests_cut"] == 0
    assert not any(map(is_running, pids))
    assert "Traceback" not in gateway.log.text


@pytest.mark.faults
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_calls_that_outlast_the_grace_period_are_told_so_and_their_servers_end(
    start_gateway, faulty, client_of, told, pids_of, is_running, era
):
    gateway = start_gateway({"bad": faulty(), "worse": faulty("stays")}, env={"CODEC_GATEWAY_LIMITS__DRAIN": "0.3"})
    pids = pids_of(gateway)
    answers = []
    with anyio.fail_after(60):
        async with client_of(gateway, era) as client:

            async def call(name: str) -> None:
                answers.append(await client.call(name, act="hang"))

            async with anyio.create_task_group() as tasks:
                for number in range(10):
                    tasks.start_soon(call, ("bad__do", "worse__do")[number % 2])
                await told(gateway, "called hang", 10)
                gateway.process.terminate()
            client.vanish()
        await ended(gateway.process, code=0)

    assert [answer.failed for answer in answers] == [True] * 10
    assert {name for name in ("bad", "worse") for answer in answers if f"'{name}'" in answer.text} == {"bad", "worse"}
    assert gateway.log.events("stopped")[0]["requests_cut"] == 10
    assert not any(map(is_running, pids))
    assert "Traceback" not in gateway.log.text


@pytest.mark.faults
async def test_hangup_during_a_stop_cuts_nothing_short(start_gateway, faulty, client_of, told, logged, pids_of):
    gateway = start_gateway({"up": faulty()})
    (pid,) = pids_of(gateway)
    answers = []
    with anyio.fail_after(60):
        async with client_of(gateway, "modern") as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                answers.append((await client.call("do", act="wait")).text)

            tasks.start_soon(call)
            await told(gateway, "called wait")
            gateway.process.terminate()
            await logged(gateway, "stopping")
            gateway.process.send_signal(signal.SIGHUP)
            os.kill(pid, signal.SIGUSR1)
        await ended(gateway.process, code=0)

    assert answers == ["released"]


async def test_gateway_that_is_killed_leaves_no_server_behind_not_even_one_that_hangs(
    start_gateway, faulty, client_of, told, pids_of, is_running
):
    gateway = start_gateway({"good": faulty(), "deaf": faulty(), "stays": faulty("stays")})
    pids = pids_of(gateway)
    with anyio.fail_after(60):
        async with client_of(gateway, "modern") as client, anyio.create_task_group() as tasks:
            tasks.start_soon(fails, client, "deaf__do")
            await told(gateway, "called deaf")
            gateway.process.kill()
        await ended(gateway.process, code=-9)
        await gone(is_running, pids)


async def fails(client, name: str) -> None:
    with pytest.raises(httpx2.HTTPError):
        await client.call(name, act="deaf")
