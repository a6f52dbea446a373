"""What users of gateways complain of, here of one bad server: it takes others with it, hangs, and nobody says which."""

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from gateway.config.gateway_config import GatewayConfig
from gateway.errors import ConfigError, RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.proxy.proxy import Proxy

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}}


async def test_one_dead_server_hides_its_own_things_and_nobody_elses(obeying, upstream, proxy_of, client):
    offer = {"prompts": ["p"], "resources": ["x:1"], "reads": "here"}
    dead = upstream("dies_at_start", name="dead")
    async with proxy_of(dead, obeying("up", offer)) as proxy:
        one = client()
        tools = await proxy.handle("tools/list", {}, one)
        prompts = await proxy.handle("prompts/list", {}, one)
        resources = await proxy.handle("resources/list", {}, one)
        read = await proxy.handle("resources/read", {"uri": "x:unlisted"}, one)

    assert [tool["name"] for tool in tools["tools"]] == ["up__do"]
    assert [prompt["name"] for prompt in prompts["prompts"]] == ["up__p"]
    assert [resource["uri"] for resource in resources["resources"]] == ["x:1"]
    assert read["contents"][0]["text"] == "here"


async def test_server_that_dies_later_hides_no_resource_of_another(obeying, proxy_of, client, call, until):
    first = obeying("one", {"resources": ["a:1"]})
    limits = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0}
    async with proxy_of(first, obeying("two", {"resources": ["b:1"], "reads": "here"}), **limits) as proxy:
        one = client()
        assert "exit code 9" in await call(proxy, one, "one__do", exit=9)
        await until(proxy, lambda: proxy.statuses()[0].state == "restarting")
        read = await proxy.handle("resources/read", {"uri": "b:1"}, one)
        with pytest.raises(RpcError, match="server 'one' is not available: its process ended"):
            await proxy.handle("resources/read", {"uri": "a:1"}, one)

    assert read["contents"][0]["text"] == "here"


async def test_server_with_more_resources_than_anyone_reads_is_still_there_for_its_tools(
    obeying, proxy_of, client, call
):
    offer = {"resources": ["x" * 100 for _ in range(200)]}
    async with proxy_of(obeying("up", offer), result_bytes=10_000) as proxy:
        assert "pid" in await call(proxy, client())
        assert proxy.statuses()[0].state == "up"


@pytest.mark.parametrize(
    ("offer", "what"),
    [({"tools": ["x"]}, "tool 'x'"), ({"tools": [], "prompts": ["x"]}, "prompt 'x'")],
)
async def test_two_servers_with_one_name_end_the_start_with_both_named(obeying, offer, what):
    upstreams = (obeying("one", offer), obeying("two", offer))
    proxy = Proxy(GatewayConfig(upstreams=upstreams, prefix="never"), Metrics())

    with pytest.raises(ConfigError, match=f"{what} is offered by server 'one' and by server 'two'"):
        async with proxy:
            pass


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("capabilities", [{}, ASKS], ids=["asks nobody", "may ask"])
async def test_result_of_a_call_that_failed_says_how_in_either_era(
    obeying, proxy_of, client, answered, modern, capabilities
):
    orders = {"hold": True}, {"exit": 3}
    one = client(modern=modern, **capabilities)
    limits = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0}
    async with proxy_of(obeying(timeout=1.0, breaker_failures=0), **limits) as proxy:
        await answered(proxy, one)
        outcomes = [await proxy.call_tool({"name": "up__do", "arguments": order}, one) for order in orders]

    assert [outcome.ended for outcome in outcomes] == ["timeout", "unavailable"]
    assert [(outcome.server, outcome.result["isError"]) for outcome in outcomes] == [("up", True)] * 2
    assert ["resultType" in outcome.result for outcome in outcomes] == [modern, modern]


async def test_call_has_the_time_that_its_server_is_given(obeying, proxy_of, client, call, noted, until_noted):
    async with proxy_of(obeying(timeout=0.3), tool_timeout=3600.0) as proxy:
        text = await call(proxy, client(), hold=True)
        await until_noted("notifications/cancelled")

    assert text == "server 'up' did not answer the call of tool 'do' within 0.3 s; it was told to stop"


ASKS_FOR_PROGRESS = {"name": "up__do", "_meta": {"progressToken": "mine"}}


async def test_call_that_reports_progress_has_its_time_again_after_each_report(obeying, proxy_of, client):
    one = client()
    params = {**ASKS_FOR_PROGRESS, "arguments": {"progress": [6, 0.25]}}
    async with proxy_of(obeying(timeout=1.0, breaker_failures=0)) as proxy:
        outcome = await proxy.call_tool(params, one)

    assert outcome.ended == "ok"
    assert [params["progressToken"] for _, params in one.heard] == ["mine"] * 6


async def test_call_that_reports_progress_for_ever_is_ended_at_the_cap(obeying, proxy_of, client):
    params = {**ASKS_FOR_PROGRESS, "arguments": {"progress": [600, 0.05]}}
    async with proxy_of(obeying(timeout=0.5, breaker_failures=0), tool_timeout_max=1.0) as proxy:
        outcome = await proxy.call_tool(params, client())

    assert (outcome.ended, outcome.result["content"][0]["text"]) == (
        "timeout",
        "server 'up' did not answer the call of tool 'do' within 1 s (limits.tool_timeout_max), though it reported "
        "progress; it was told to stop",
    )


async def test_call_that_goes_silent_after_progress_says_since_when(obeying, proxy_of, client):
    params = {**ASKS_FOR_PROGRESS, "arguments": {"progress": [1, 0.0], "hold": True}}
    async with proxy_of(obeying(timeout=0.3)) as proxy:
        outcome = await proxy.call_tool(params, client())

    assert "within 0.3 s of its last report of progress; it was told to stop" in outcome.result["content"][0]["text"]


async def test_progress_does_not_extend_a_time_that_the_caller_itself_set(obeying, proxy_of, client):
    params = {**ASKS_FOR_PROGRESS, "arguments": {"progress": [600, 0.05]}}
    async with proxy_of(obeying(timeout=3600.0)) as proxy:
        outcome = await proxy.call_tool(params, client(), seconds=0.5)

    assert "within 0.5 s; it was told to stop" in outcome.result["content"][0]["text"]


@pytest.mark.parametrize("others", [0, 2])
async def test_person_may_think_longer_than_a_call_may_take(obeying, proxy_of, client, call, answered, others):
    class Thinks(client):
        async def asked(self, method, params):
            await anyio.sleep(1.2)
            return {"action": "accept"}

    person = Thinks(**ASKS)
    async with proxy_of(obeying(timeout=1.0, breaker_failures=0)) as proxy:
        await answered(proxy, person)
        waiting = [asyncio.create_task(call(proxy, person, hold=True)) for _ in range(others)]
        result = await call(proxy, person, ask=["elicitation/create", {}])
        # It asked for one of the three: who can't say for which costs none of them their time.
        await call(proxy, person, release=True)
        released = await asyncio.gather(*waiting)

    assert result["answer"] == {"action": "accept"}
    assert ["pid" in each for each in released] == [True] * others


async def test_call_behind_a_full_queue_is_refused_at_once_by_name(obeying, proxy_of, client, call, until_noted):
    async with proxy_of(obeying(concurrency=1, queue=1), tool_timeout=3600.0) as proxy:
        one = client()
        running = asyncio.create_task(call(proxy, one, hold=True))
        await until_noted("holds")
        waiting = asyncio.create_task(call(proxy, one))
        while not proxy.statuses()[0].queued:
            await anyio.lowlevel.checkpoint()
        refused = await call(proxy, one)
        for task in (running, waiting):
            task.cancel()
        await asyncio.wait([running, waiting])

    assert refused == "server 'up' is not available: 1 calls are already waiting for it; call again later"


async def test_key_that_fills_its_share_of_a_queue_leaves_room_for_the_others(
    obeying, proxy_of, client, call, until_noted
):
    async with proxy_of(obeying(concurrency=1, queue=4), tool_timeout=3600.0) as proxy:
        ann, bob = client(principal=Principal("ann")), client(principal=Principal("bob"))
        tasks = [asyncio.create_task(call(proxy, ann, hold=True))]
        await until_noted("holds")
        for count, who in enumerate((ann, bob), start=1):
            tasks.append(asyncio.create_task(call(proxy, who)))
            while proxy.statuses()[0].queued < count:
                await anyio.lowlevel.checkpoint()
        refused = await call(proxy, ann)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    assert refused == (
        "server 'up' is not available: 'ann' already has 1 of the 4 places in the queue of server 'up' "
        "(upstreams.up.queue), and its share is 1 (limits.principal_share): end what is no longer needed, or ask the "
        "operator for a larger share"
    )


async def test_call_that_waited_for_its_turn_in_vain_says_so_and_blames_nobody(
    obeying, proxy_of, client, call, until_noted, noted
):
    async with proxy_of(obeying(concurrency=1, breaker_failures=1), tool_timeout=3600.0) as proxy:
        one = client()
        running = asyncio.create_task(call(proxy, one, hold=True))
        await until_noted("holds")
        waited = await proxy.call("up__do", {}, timeout=0.1)
        state = proxy.statuses()[0].breaker
        running.cancel()
        await asyncio.wait([running])

    assert waited["content"][0]["text"] == (
        "server 'up' is busy: the call of tool 'do' waited 0.1 s for its turn, and 1 other requests are running; "
        "call again later"
    )
    assert state == "closed"
    assert sum(line.startswith("call ") for line in noted()) == 1


async def test_server_that_does_not_answer_is_left_alone_for_a_while_and_then_tried_by_one(
    obeying, proxy_of, client, call, noted, monkeypatch
):
    one = client()
    async with proxy_of(obeying(breaker_failures=2, breaker_pause=1000.0)) as proxy:
        for _ in range(2):
            hung = await proxy.call("up__do", {"hold": True}, timeout=0.1)
            assert "did not answer" in hung["content"][0]["text"]
        assert proxy.statuses()[0].breaker == "open"
        refused = await call(proxy, one)
        assert re.fullmatch(
            r"server 'up' is not available: it failed 2 times in a row and is not called for another \d+\.\d s", refused
        )
        monkeypatch.setattr("gateway.proxy.upstream.dispatcher.monotonic", lambda: time.monotonic() + 1000.0)
        tried = await asyncio.gather(*(call(proxy, one) for _ in range(3)))
        assert proxy.statuses()[0].breaker == "closed"

    assert ["pid" in each for each in tried].count(True) == 1
    assert sum(line.startswith("call ") for line in noted()) == 3


async def test_call_from_before_the_breaker_opened_does_not_lengthen_its_pause(
    obeying, proxy_of, until_noted, monkeypatch
):
    async with proxy_of(obeying(breaker_failures=1, breaker_pause=1000.0)) as proxy:
        older = asyncio.create_task(proxy.call("up__do", {"hold": True}, timeout=1.0))
        await until_noted("holds")
        await proxy.call("up__do", {"hold": True}, timeout=0.1)
        assert proxy.statuses()[0].breaker == "open"
        monkeypatch.setattr("gateway.proxy.upstream.dispatcher.monotonic", lambda: time.monotonic() + 500.0)
        assert "did not answer" in (await older)["content"][0]["text"]
        monkeypatch.setattr("gateway.proxy.upstream.dispatcher.monotonic", lambda: time.monotonic() + 1000.0)
        tried = await proxy.call("up__do", {})

    assert "pid" in tried["structuredContent"]


async def test_only_the_call_that_tries_a_server_again_decides_whether_the_next_may(
    obeying, proxy_of, client, call, until_noted, monkeypatch
):
    one = client()
    async with proxy_of(obeying(breaker_failures=1, breaker_pause=1000.0)) as proxy:
        older = asyncio.create_task(call(proxy, one, hold=True))
        await until_noted("call ")
        await proxy.call("up__do", {"hold": True}, timeout=0.1)
        monkeypatch.setattr("gateway.proxy.upstream.dispatcher.monotonic", lambda: time.monotonic() + 1000.0)
        probe = asyncio.create_task(call(proxy, one, hold=True))
        await until_noted("call ", 3)
        older.cancel()
        await asyncio.wait([older])
        assert "is not available: it failed" in await call(proxy, one)
        probe.cancel()
        await asyncio.wait([probe])
        assert "pid" in await call(proxy, one)
        assert proxy.statuses()[0].breaker == "closed"


async def test_server_that_was_away_when_it_was_tried_again_is_tried_again_later(
    obeying, proxy_of, client, call, soon, tmp_path
):
    one = client()
    gate = tmp_path / "gate"
    gate.touch()
    async with proxy_of(obeying("up", {"gate": str(gate)}, breaker_failures=1, breaker_pause=0.05)) as proxy:
        gate.unlink()
        assert "exit code 1" in await call(proxy, one, exit=1)
        await soon(lambda: proxy.statuses()[0].breaker == "half_open")
        # The one that tries finds nobody: that is no verdict, and must not keep the breaker for ever.
        assert "is not available" in await call(proxy, one)
        gate.touch()
        await soon(lambda: proxy.statuses()[0].state == "up")
        assert "pid" in await call(proxy, one)


@pytest.mark.parametrize("orders", [{"error": [-1, "no"]}, {"x": "\ud800"}])
async def test_no_refusal_and_no_mistake_of_a_client_opens_the_breaker(obeying, proxy_of, client, call, orders):
    async with proxy_of(obeying(breaker_failures=1)) as proxy:
        for _ in range(3):
            with suppress(RpcError):
                await call(proxy, client(), **orders)
        assert proxy.statuses()[0].breaker == "closed"


async def test_error_of_a_server_is_an_answer_and_ends_a_row_of_failures(obeying, proxy_of):
    async with proxy_of(obeying(breaker_failures=2, breaker_pause=1000.0)) as proxy:
        for order in ({"hold": True}, {"error": [-1, "no"]}, {"hold": True}):
            with suppress(RpcError):
                await proxy.call("up__do", order, timeout=0.1 if "hold" in order else None)
        assert proxy.statuses()[0].breaker == "closed"


async def test_result_over_the_limit_opens_no_breaker(upstream, proxy_of):
    huge = replace(upstream("huge"), breaker_failures=1)
    async with proxy_of(huge, result_bytes=1000) as proxy:
        for _ in range(2):
            over = await proxy.call("up__echo", {"bytes": 5000, "order": "id-first"})
            assert "limits.result_bytes" in over["content"][0]["text"]
        assert proxy.statuses()[0].breaker == "closed"


async def test_changed_list_is_told_once_a_client_could_see_it_and_only_to_whom_it_concerns(
    obeying, proxy_of, client, call
):
    told = []
    offer = {"capabilities": {"tools": {"listChanged": True}}}
    async with proxy_of(obeying("up", offer)) as proxy:
        one = client(**ASKS)
        await call(proxy, one)
        proxy.on_change(told.append)
        await call(proxy, one, list=["do", "more"])
        mine = await proxy.handle("tools/list", {}, one)
        theirs = await proxy.handle("tools/list", {}, client())
        assert [(change.kind, change.server, change.session) for change in told] == [("tools", "up", one)]

    assert [tool["name"] for tool in mine["tools"]] == ["up__do", "up__more"]
    assert [tool["name"] for tool in theirs["tools"]] == ["up__do"]


async def test_only_what_servers_have_is_advertised(obeying, proxy_of):
    async with proxy_of(obeying("one"), obeying("two", {"prompts": ["p"]})) as proxy:
        assert proxy.capabilities() == {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
        assert proxy.capabilities(Principal("p", servers=frozenset({"one"}))) == {"tools": {"listChanged": True}}


async def test_cancelled_call_is_told_the_server_and_counted_as_what_it_is(
    obeying, proxy_of, client, call, until_noted
):
    metrics = Metrics()
    async with proxy_of(obeying(), metrics=metrics) as proxy:
        gone = asyncio.create_task(call(proxy, client(), hold=True))
        await until_noted("holds")
        gone.cancel()
        await asyncio.wait([gone])
        await until_noted("notifications/cancelled")

    labels = {"server": "up", "outcome": "cancelled"}
    assert metrics.registry.get_sample_value("codec_tool_calls_total", labels) == 1
    assert metrics.registry.get_sample_value("codec_tool_calls_total", {**labels, "outcome": "ok"}) is None


async def test_each_time_that_a_server_goes_down_is_logged(upstream, proxy_of, soon, caplog):
    async with proxy_of(upstream("dies_at_start")) as proxy:
        del proxy
        await soon(lambda: [record.msg["event"] for record in caplog.records].count("upstream is down") >= 3)
