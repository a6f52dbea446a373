"""One death of a server is one failure, however many calls it took with it, and soon over for who calls next."""

import asyncio

import anyio
import pytest

pytestmark = pytest.mark.anyio
NEVER = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0}
ASKS = {"elicitation": {}}


@pytest.fixture
def fall(call, until_noted):
    """Ends a server while it holds so many calls; gives what these are answered."""

    async def end(proxy, one, calls=8):
        held = [asyncio.create_task(call(proxy, one, hold=True)) for _ in range(calls)]
        await until_noted("holds", calls)
        last = await call(proxy, one, exit=3)
        return [*await asyncio.gather(*held), last]

    return end


@pytest.mark.parametrize("capabilities", [{}, ASKS], ids=["shared process", "its own process"])
async def test_death_with_many_calls_in_flight_is_one_failure_and_the_next_call_is_answered(
    obeying, proxy_of, client, call, fall, capabilities
):
    async with proxy_of(obeying(breaker_failures=2)) as proxy:
        one = client(**capabilities)
        broken = await fall(proxy, one)
        state = proxy.statuses()[0].breaker
        answer = await call(proxy, one)

    assert all("its process ended (exit code 3)" in each for each in broken)
    assert state == "closed"
    assert "pid" in answer


async def test_deaths_one_after_the_other_open_the_breaker(obeying, proxy_of, client, call):
    async with proxy_of(obeying(breaker_failures=2, breaker_pause=1000.0)) as proxy:
        for _ in range(2):
            assert "exit code 3" in await call(proxy, client(), exit=3)
        assert proxy.statuses()[0].breaker == "open"


async def test_calls_and_lists_that_come_while_a_server_restarts_wait_for_it(
    obeying, proxy_of, client, call, tmp_path, until_noted
):
    gate = tmp_path / "gate"
    gate.touch()
    async with proxy_of(obeying("up", {"gate": str(gate)}), obeying("other")) as proxy:
        gate.unlink()
        await call(proxy, client(), exit=1)
        await until_noted("pid", 3)
        waiting = [
            asyncio.create_task(call(proxy, client())),
            asyncio.create_task(proxy.handle("tools/list", {}, client())),
        ]
        await anyio.wait_all_tasks_blocked()
        assert not any(task.done() for task in waiting)
        gate.touch()
        answer, listed = await asyncio.gather(*waiting)

    assert "pid" in answer
    assert [tool["name"] for tool in listed["tools"]] == ["up__do", "other__do"]


async def test_call_does_not_wait_for_a_server_whose_pause_is_long(obeying, proxy_of, client, call):
    async with proxy_of(obeying(), **NEVER) as proxy:
        await call(proxy, client(), exit=1)
        with anyio.fail_after(20):
            refused = await call(proxy, client())

    assert "is not available: its process ended (exit code 1)" in refused


async def test_call_waits_no_longer_than_a_moment_for_a_server_that_does_not_come_back(
    obeying, proxy_of, client, call, tmp_path, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.supervisor._RESTART_TIME", 0.2)
    gate = tmp_path / "gate"
    gate.touch()
    async with proxy_of(obeying("up", {"gate": str(gate)})) as proxy:
        gate.unlink()
        await call(proxy, client(), exit=1)
        refused = await call(proxy, client())
        gate.touch()

    assert "is not available: its process ended (exit code 1)" in refused


async def test_answer_and_not_time_ends_a_row_of_failures(obeying, proxy_of, client, call, soon):
    async with proxy_of(obeying(breaker_failures=0)) as proxy:
        supervisor = proxy._upstreams["up"].supervisor
        for failures in (1, 2):
            await call(proxy, client(), exit=1)
            await soon(lambda expected=failures: supervisor.lifecycle.failures == expected)
        await call(proxy, client())
        assert supervisor.lifecycle.failures == 0
        await call(proxy, client(), exit=1)
        await soon(lambda: supervisor.lifecycle.failures == 1)
