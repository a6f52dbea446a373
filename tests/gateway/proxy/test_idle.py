"""What users of gateways complain of, here of servers that nobody uses just now: they run for ever, or are gone."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from gateway.proxy.caller import ANYBODY

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}}


async def test_server_that_nobody_uses_is_stopped_with_all_its_sessions_and_started_for_the_next_call(
    obeying, proxy_of, client, call, noted_pids, is_running, starts, soon
):
    async with proxy_of(obeying(idle_stop=0.2)) as proxy:
        one = client(**ASKS)
        await call(proxy, one)
        assert starts() == 2
        await soon(lambda: not any(map(is_running, noted_pids())))
        assert proxy.statuses()[0].state == "idle"
        assert (await call(proxy, one))["pid"] not in noted_pids()[:2]


async def test_server_that_sleeps_stays_offered_and_is_not_woken_to_say_what_it_said_before(
    obeying, proxy_of, client, starts, soon
):
    told = []
    offer = {"prompts": ["p"], "resources": ["x:1"]}
    async with proxy_of(obeying("up", offer, idle_stop=0.2), obeying("other")) as proxy:
        proxy.on_change(told.append)
        await soon(lambda: proxy.statuses()[0].state == "idle")
        lists = [await proxy.handle(f"{kind}/list", {}, client()) for kind in ("tools", "prompts", "resources")]
        names = [entry.name for entry in proxy.tools()]
        # Its end with the gateway is told as well.
        assert told == []

    assert [next(iter(each.values()))[0]["name"] for each in lists] == ["up__do", "up__p", "x:1"]
    assert names == ["up__do", "other__do"]
    assert starts() == 2


async def test_server_in_use_is_not_stopped_however_long_ago_it_was_started(obeying, proxy_of, client, call, starts):
    async with proxy_of(obeying(idle_stop=1.0)) as proxy:
        with anyio.move_on_after(1.5):
            while True:
                await call(proxy, client())
                # The client thinks.
                await anyio.sleep(0.05)

    assert starts() == 1


async def test_server_is_not_stopped_while_somebody_waits_to_hear_of_its_resources(
    obeying, proxy_of, until_noted, soon
):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    async with proxy_of(obeying("up", offer, idle_stop=0.1)) as proxy:
        stop = await proxy.watch(["x:1"], ANYBODY, lambda _: None)
        await until_noted("resources/subscribe x:1")
        with anyio.move_on_after(0.5):
            await soon(lambda: proxy.statuses()[0].state != "up")
        assert proxy.statuses()[0].state == "up"
        stop()
        await soon(lambda: proxy.statuses()[0].state != "up")


async def test_call_in_the_moment_in_which_a_server_falls_asleep_wakes_it(obeying, proxy_of, client, call):
    async with proxy_of(obeying(idle_stop=0.1)) as proxy:
        for _ in range(3):
            with anyio.fail_after(20):
                while proxy.statuses()[0].state != "idle":
                    await anyio.lowlevel.checkpoint()
            # Its process is still ending.
            assert "pid" in await call(proxy, client())


async def test_lazy_server_is_started_by_the_first_who_needs_it_and_once(obeying, proxy_of, client, call, starts):
    async with proxy_of(obeying("up", start="lazy"), obeying("other")) as proxy:
        assert starts() == 1
        assert proxy.statuses()[0].state == "idle"
        await asyncio.gather(*(call(proxy, client()) for _ in range(5)))

    assert starts() == 2


async def test_lazy_server_can_be_found_in_the_list_of_tools(obeying, proxy_of, client):
    async with proxy_of(obeying("up", start="lazy")) as proxy:
        listed = await proxy.handle("tools/list", {}, client())

    assert [tool["name"] for tool in listed["tools"]] == ["up__do"]


async def test_lazy_server_can_ask_a_modern_client_on_its_very_first_call(obeying, proxy_of, client):
    one = client(modern=True, **ASKS)
    async with proxy_of(obeying("up", start="lazy")) as proxy:
        params = {"name": "up__do", "arguments": {"ask": ["elicitation/create", {"message": "?"}]}}
        with anyio.fail_after(20):
            first = await proxy.handle("tools/call", params, one)

    assert first["resultType"] == "input_required"
