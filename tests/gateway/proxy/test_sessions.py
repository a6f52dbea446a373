"""What users of gateways complain of, here of processes and sessions: one for every call, and none that ever ends."""

import asyncio
import os
import signal

import anyio
import anyio.lowlevel
import pytest

from gateway.errors import RpcError
from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}}
ANN, BOB = Principal("ann"), Principal("bob")
FULL = (
    "no session with server 'up' is available: all 1 sessions with server 'up' are in use "
    "(upstreams.up.client_sessions); try again later"
)


async def test_no_process_is_started_for_a_call_however_many_there_are(obeying, proxy_of, client, call, starts):
    async with proxy_of(obeying()) as proxy:
        clients = [client() for _ in range(5)] + [client(modern=True) for _ in range(5)]
        for _ in range(10):
            await asyncio.gather(*(call(proxy, each) for each in clients))

    assert starts() == 1


async def test_client_that_can_be_asked_has_one_process_of_its_own_for_all_its_calls(
    obeying, proxy_of, client, call, starts
):
    async with proxy_of(obeying()) as proxy:
        one, other = client(**ASKS), client(**ASKS)
        pids = [{(await call(proxy, each))["pid"] for _ in range(5)} for each in (one, other)]

    assert [len(each) for each in pids] == [1, 1]
    assert pids[0] != pids[1]
    assert starts() == 3


async def test_calls_at_the_same_time_open_one_session_for_their_client(obeying, proxy_of, client, call, starts):
    async with proxy_of(obeying()) as proxy:
        one = client(**ASKS)
        await asyncio.gather(*(call(proxy, one) for _ in range(20)))

    assert starts() == 2


async def test_modern_clients_that_can_be_asked_use_one_session_after_the_other(
    obeying, proxy_of, client, call, starts
):
    async with proxy_of(obeying()) as proxy:
        for _ in range(5):
            await call(proxy, client(modern=True, **ASKS))
        with pytest.raises(RpcError, match="full"):
            await call(proxy, client(modern=True, **ASKS), error=[-5, "full"])
        await call(proxy, client(modern=True, **ASKS))

    assert starts() == 2


async def test_session_of_a_call_that_was_cancelled_is_not_given_to_the_next_client(
    obeying, proxy_of, client, call, starts, until_noted
):
    async with proxy_of(obeying()) as proxy:
        gone = asyncio.create_task(call(proxy, client(modern=True, **ASKS), hold=True))
        await until_noted("holds")
        gone.cancel()
        await asyncio.wait([gone])
        await until_noted("notifications/cancelled")
        await call(proxy, client(modern=True, **ASKS))

    assert starts() == 3


@pytest.mark.parametrize("policy", ["shared", "per_client"])
async def test_operator_says_whether_clients_share_a_process(obeying, proxy_of, client, call, policy):
    async with proxy_of(obeying(sessions=policy)) as proxy:
        pids = {(await call(proxy, client(**ASKS)))["pid"] for _ in range(2)}

    assert len(pids) == {"shared": 1, "per_client": 2}[policy]


async def test_process_of_a_client_that_is_gone_is_ended(obeying, proxy_of, client, call, is_running, soon):
    async with proxy_of(obeying()) as proxy:
        one, other = client(**ASKS), client(**ASKS)
        mine, theirs = [(await call(proxy, each))["pid"] for each in (one, other)]
        proxy.session_ended(one)
        await soon(lambda: not is_running(mine))
        assert is_running(theirs)
        assert (await call(proxy, other))["pid"] == theirs
    assert not is_running(theirs)


async def test_process_that_was_being_opened_for_a_client_that_left_is_ended(
    obeying, proxy_of, client, call, until_noted, noted_pids, is_running, soon
):
    async with proxy_of(obeying()) as proxy:
        one = client(**ASKS)
        calling = asyncio.create_task(call(proxy, one))
        await until_noted("pid", 2)
        proxy.session_ended(one)
        calling.cancel()
        await asyncio.wait([calling])
        second = noted_pids()[1]
        await soon(lambda: not is_running(second))


async def test_nothing_is_left_after_many_clients_came_and_went(
    obeying, proxy_of, client, call, noted_pids, is_running, descriptors, soon
):
    async with proxy_of(obeying()) as proxy:
        await call(proxy, client())
        before = descriptors(), len(anyio.get_running_tasks())
        for _ in range(5):
            one = client(**ASKS)
            await call(proxy, one)
            proxy.session_ended(one)
        await soon(lambda: sum(map(is_running, noted_pids())) <= 1)
        await soon(lambda: len(anyio.get_running_tasks()) <= before[1])
        await soon(lambda: descriptors() <= before[0])


async def test_process_of_one_client_that_hangs_is_replaced_and_nobody_elses(
    obeying, proxy_of, client, call, answered, monkeypatch, is_running, soon
):
    async with proxy_of(obeying(timeout=0.5, breaker_failures=0)) as proxy:
        one, other = client(**ASKS), client(**ASKS)
        mine, theirs = [(await answered(proxy, each))["pid"] for each in (one, other)]
        # Not before: whoever is slow to start is asked as well.
        monkeypatch.setattr("gateway.proxy.upstream.supervision.session_pool.PING_TIME", 0.2)
        os.kill(mine, signal.SIGSTOP)
        assert "did not answer" in await call(proxy, one)
        await soon(lambda: not is_running(mine))
        monkeypatch.setattr("gateway.proxy.upstream.supervision.session_pool.PING_TIME", 20.0)
        assert (await answered(proxy, one))["pid"] not in (mine, theirs)
        assert (await answered(proxy, other))["pid"] == theirs


async def test_session_that_nobody_waits_for_any_more_counts_until_it_is_gone(
    obeying, proxy_of, client, call, answered, until_noted, soon, tmp_path, noted_pids, is_running
):
    gate = tmp_path / "gate"
    gate.touch()
    async with proxy_of(obeying("up", {"gate": str(gate)}, client_sessions=1)) as proxy:
        gate.unlink()
        leaves = asyncio.create_task(call(proxy, client(modern=True, **ASKS)))
        await until_noted("pid", 2)
        leaves.cancel()
        await asyncio.wait([leaves])
        refused = await call(proxy, client(modern=True, **ASKS))
        gate.touch()
        await soon(lambda: not is_running(noted_pids()[1]))
        assert (await answered(proxy, client(modern=True, **ASKS)))["pid"] not in noted_pids()[:2]

    assert refused == FULL


async def test_session_that_nobody_uses_gives_way_when_a_client_with_other_abilities_needs_one(
    obeying, proxy_of, client, call, is_running, soon
):
    async with proxy_of(obeying(client_sessions=2)) as proxy:
        first, second, third = [
            (await call(proxy, client(modern=True, elicitation={}, experimental={"n": n})))["pid"] for n in range(3)
        ]
        await soon(lambda: not is_running(first))
        assert is_running(second)
        assert is_running(third)
        assert proxy.statuses()[0].sessions == 3


async def test_sessions_that_are_in_use_give_way_to_nobody(obeying, proxy_of, client, call, until_noted):
    async with proxy_of(obeying(client_sessions=1)) as proxy:
        running = asyncio.create_task(call(proxy, client(modern=True, **ASKS), hold=True))
        await until_noted("holds")
        refused = await call(proxy, client(modern=True, **ASKS))
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])

    assert refused == FULL
