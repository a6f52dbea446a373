"""A changed configuration is taken over while calls run: nobody who has nothing to do with it notices."""

import asyncio
from dataclasses import replace

import anyio
import pytest

from gateway.config.gateway_config import GatewayConfig, LimitsConfig
from gateway.config.overrides import ToolOverride
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import ANYBODY
from gateway.proxy.proxy import Proxy

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}}
QUESTION = ["elicitation/create", {}]


@pytest.fixture
def config_of():
    """Makes a configuration of these servers."""

    def make(*upstreams, drain=20.0, **settings):
        limits = LimitsConfig(restart_backoff=0.01, restart_backoff_max=0.05, drain=drain)
        return GatewayConfig(upstreams=upstreams, prefix="always", limits=limits, **settings)

    return make


@pytest.fixture
def slow_person(client):
    """A client that answers a question when it is told to."""

    class Slow(client):
        def __init__(self):
            super().__init__(**ASKS)
            self.go_on = anyio.Event()

        async def asked(self, method, params):
            self.was_asked.append(method)
            await self.go_on.wait()
            return {"action": "accept"}

    return Slow


def names_of(proxy):
    return [entry.name for entry in proxy.tools()]


async def test_calls_in_flight_and_their_process_survive_the_coming_and_going_of_other_servers(
    obeying, config_of, client, call, until_noted, starts
):
    stays, goes, comes = obeying("stays", concurrency=200), obeying("goes"), obeying("comes")
    one = client()
    async with Proxy(config_of(stays, goes), Metrics()) as proxy:
        pid = (await call(proxy, one, "stays__do"))["pid"]
        calls = [asyncio.create_task(call(proxy, one, "stays__do", hold=True)) for _ in range(100)]
        await until_noted("holds", 100)
        await proxy.reload(config_of(stays, comes))
        assert names_of(proxy) == ["stays__do", "comes__do"]
        assert not any(each.done() for each in calls)
        await call(proxy, one, "stays__do", release=True)
        answers = await asyncio.gather(*calls)

    assert [answer["pid"] for answer in answers] == [pid] * 100
    assert starts() == 3


async def test_server_that_is_taken_out_takes_no_new_calls_and_finishes_those_that_run(
    obeying, config_of, slow_person, client, call, soon, noted_pids, is_running
):
    person = slow_person()
    async with Proxy(config_of(obeying("goes"), obeying("stays")), Metrics()) as proxy:
        running = asyncio.create_task(call(proxy, person, "goes__do", ask=QUESTION))
        await soon(lambda: person.was_asked)
        await proxy.reload(config_of(obeying("stays")))
        with pytest.raises(RpcError, match="unknown tool 'goes__do'"):
            await call(proxy, client(), "goes__do")
        assert [status.name for status in proxy.statuses()] == ["stays"]
        person.go_on.set()
        answer = await running
        await soon(lambda: sum(map(is_running, noted_pids())) == 1)

    assert answer["answer"] == {"action": "accept"}


async def test_call_that_does_not_end_while_its_server_is_taken_out_is_told_so(
    obeying, config_of, slow_person, call, soon
):
    person = slow_person()
    async with Proxy(config_of(obeying("goes")), Metrics()) as proxy:
        running = asyncio.create_task(call(proxy, person, "goes__do", ask=QUESTION))
        await soon(lambda: person.was_asked)
        await proxy.reload(config_of(drain=0.1))
        with anyio.fail_after(20):
            answer = await running

    assert answer.startswith("server 'goes' broke off the call of tool 'do'")


async def test_server_that_changed_is_another_process_and_calls_of_the_old_one_end_there(
    obeying, config_of, slow_person, client, call, soon
):
    person, other = slow_person(), client()
    async with Proxy(config_of(obeying()), Metrics()) as proxy:
        before = (await call(proxy, other))["pid"]
        running = asyncio.create_task(call(proxy, person, ask=QUESTION))
        await soon(lambda: person.was_asked)
        await proxy.reload(config_of(obeying("up", {"tools": ["do", "more"]})))
        after = (await call(proxy, other))["pid"]
        person.go_on.set()
        answer = await running
        own = (await call(proxy, person))["pid"]

    assert before != after
    assert answer["pid"] not in (before, after, own)


async def test_new_names_are_seen_when_the_new_servers_are_up(obeying, config_of):
    async with Proxy(config_of(obeying("one")), Metrics()) as proxy:
        reloading = asyncio.create_task(proxy.reload(config_of(obeying("one"), obeying("two"))))
        seen = set()
        proxy.on_tools_changed(lambda: seen.add(tuple(names_of(proxy))))
        await reloading

    assert {names for names in seen if len(names) == 2} == {("one__do", "two__do")}
    assert ("two__do",) not in seen


async def test_new_server_that_does_not_start_takes_nobody_with_it(obeying, upstream, config_of, client, call):
    async with Proxy(config_of(obeying()), Metrics()) as proxy:
        await proxy.reload(config_of(upstream("dies_at_start", name="dead"), obeying()))
        states = [(status.name, status.state) for status in proxy.statuses()]
        text = await call(proxy, client(), "dead__anything")
        assert "pid" in await call(proxy, client())

    assert states == [("dead", "restarting"), ("up", "up")]
    assert "server 'dead' is not available: its process ended (exit code 3)" in text


async def test_two_that_come_to_one_name_by_a_reload_leave_the_first_and_a_warning(obeying, config_of, caplog):
    first, second = obeying("a b"), obeying("a.b")
    async with Proxy(config_of(first), Metrics()) as proxy:
        await proxy.reload(config_of(first, second))
        (entry,) = proxy.tools()

    assert (entry.name, entry.server) == ("a_b__do", "a b")
    warned = [record.msg["event"] for record in caplog.records if record.levelname == "WARNING"]
    assert [words.partition(":")[0] for words in warned] == [
        "tool 'a_b__do' is offered by server 'a b' and by server 'a.b'"
    ]


async def test_overrides_of_tools_are_taken_over_by_the_same_process_and_told(obeying, config_of, client, starts):
    told = []
    changed = replace(obeying("one"), overrides={"do": ToolOverride("act", description="Does it.")})
    async with Proxy(config_of(obeying("one"), obeying("two")), Metrics()) as proxy:
        proxy.on_change(lambda change: told.append((change.kind, change.server)))
        await proxy.reload(config_of(changed, obeying("two")))
        assert (starts(), told) == (2, [("tools", "one")])
        listed = await proxy.handle("tools/list", {}, client())

    assert [(tool["name"], tool.get("description")) for tool in listed["tools"]] == [
        ("act", "Does it."),
        ("two__do", None),
    ]


async def test_each_list_that_changed_is_told_and_no_other(obeying, config_of):
    told = []
    one, two = obeying("one"), obeying("two", {"prompts": ["p"]})
    async with Proxy(config_of(one, two), Metrics()) as proxy:
        proxy.on_change(lambda change: told.append((change.kind, change.server)))
        await proxy.reload(config_of(one, two))
        assert told == []
        await proxy.reload(config_of(one, replace(two, exclude=("p",))))
        assert set(told) == {("prompts", "two")}
        told.clear()
        await proxy.reload(config_of(one))
        assert set(told) == {("tools", "two")}
        told.clear()
        await proxy.reload(config_of(one, tool_search=True))
        assert told == [("tools", "one")]


async def test_resource_that_is_watched_is_watched_at_the_new_process(obeying, config_of, until_noted, call, client):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    heard = []
    async with Proxy(config_of(obeying("up", offer)), Metrics()) as proxy:
        stop = await proxy.watch(["x:1"], ANYBODY, heard.append)
        await until_noted("resources/subscribe x:1")
        await proxy.reload(config_of(obeying("up", {**offer, "tools": ["do", "more"]})))
        await until_noted("resources/subscribe x:1", 2)
        await call(proxy, client(modern=True), push=[["notifications/resources/updated", {"uri": "x:1"}]])
        stop()
        await until_noted("resources/unsubscribe x:1")

    assert heard == ["x:1"]


async def test_reloads_at_the_same_time_come_one_after_the_other(obeying, config_of, starts):
    async with Proxy(config_of(obeying("one")), Metrics()) as proxy:
        await asyncio.gather(
            proxy.reload(config_of(obeying("one"), obeying("two"))),
            proxy.reload(config_of(obeying("two"), obeying("three"))),
        )
        assert names_of(proxy) == ["two__do", "three__do"]

    assert starts() == 3


async def test_nothing_of_servers_that_came_and_went_is_left(
    obeying, config_of, client, call, noted_pids, is_running, soon, descriptors
):
    async with Proxy(config_of(obeying("stays")), Metrics()) as proxy:
        await call(proxy, client(), "stays__do")
        await anyio.wait_all_tasks_blocked()
        before = descriptors(), len(anyio.get_running_tasks())
        for _ in range(5):
            await proxy.reload(config_of(obeying("stays"), obeying("guest")))
            await call(proxy, client(**ASKS), "guest__do")
            await proxy.reload(config_of(obeying("stays")))
        await soon(lambda: sum(map(is_running, noted_pids())) == 1)
        await soon(lambda: len(anyio.get_running_tasks()) <= before[1])
        await soon(lambda: descriptors() <= before[0])


async def test_proxy_that_is_not_running_can_not_reload(obeying, config_of):
    with pytest.raises(RuntimeError, match="only inside"):
        await Proxy(config_of(obeying()), Metrics()).reload(config_of())
