"""A process for one client: what it takes to get one, when it is given back, and how many there may be."""

import asyncio

import anyio
import pytest

from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}, "roots": {}, "sampling": {}}
OFFER = {
    "prompts": ["p"],
    "resources": ["x:1"],
    "templates": ["y:{x}"],
    "capabilities": {"logging": {}, "completions": {}, "resources": {"subscribe": True}},
}
LIST = [f"{kind}/list" for kind in ("tools", "prompts", "resources", "resources/templates")]
ANN, BOB = Principal("ann"), Principal("bob")
LOG = ("notifications/message", {"level": "info", "data": "it works"})


@pytest.fixture
def quick_sweep(monkeypatch):
    """Looks at once, and again and again, for sessions that nobody needs."""
    monkeypatch.setattr("gateway.proxy.upstream.supervision.session_pool._SWEEP", 0.01)


async def meet(proxy, one):
    """All that a client does before its first call."""
    for method in LIST:
        await proxy.handle(method, {}, one)
    if not one.modern:
        await proxy.handle("logging/setLevel", {"level": "info"}, one)
        await proxy.handle("resources/subscribe", {"uri": "x:1"}, one)
    await proxy.handle("prompts/get", {"name": "up__p"}, one)
    await proxy.handle("resources/read", {"uri": "x:1"}, one)
    await proxy.handle("completion/complete", {"ref": {"name": "up__p"}, "argument": {}}, one)


@pytest.mark.parametrize("modern", [False, True])
async def test_client_that_looks_around_and_goes_costs_no_process(obeying, proxy_of, client, starts, modern):
    async with proxy_of(obeying("up", OFFER), obeying("other")) as proxy:
        with anyio.fail_after(60):
            for _ in range(10):
                await meet(proxy, client(modern=modern, **ASKS))

    assert starts() == 2


async def test_first_call_of_a_client_that_may_be_asked_starts_its_process_and_its_lists_are_that_ones(
    obeying, proxy_of, client, call, starts
):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        one = client(**ASKS)
        mine = (await call(proxy, one, list=["do", "more"]))["pid"]
        theirs = (await call(proxy, client()))["pid"]
        listed = [(await proxy.handle("tools/list", {}, each))["tools"] for each in (one, client(**ASKS))]

    assert mine != theirs
    assert starts() == 2
    assert [[tool["name"] for tool in tools] for tools in listed] == [["up__do", "up__more"], ["up__do"]]


async def test_server_that_only_logs_is_shared_and_its_words_reach_the_caller_they_are_for(
    obeying, proxy_of, client, call, starts
):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        one, other = client(), client()
        await call(proxy, one, push=[LOG])
        await call(proxy, other)

    assert starts() == 1
    assert (one.heard, other.heard) == ([LOG], [])


async def test_client_that_wants_few_log_messages_takes_none_from_another_on_the_same_session(
    obeying, proxy_of, client, call, noted
):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        much, little = client(), client()
        for one, level in ((much, "debug"), (little, "emergency")):
            one.log_level = level
            await proxy.handle("logging/setLevel", {"level": level}, one)
        for one in (much, little):
            await call(proxy, one, push=[LOG])

    assert (much.heard, little.heard) == ([LOG], [])
    assert {line for line in noted() if line.startswith("logging/")} == {"logging/setLevel debug"}


async def test_new_process_of_a_shared_session_is_told_the_log_level_again(
    obeying, proxy_of, client, call, noted, until
):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        one = client()
        one.log_level = "debug"
        await proxy.handle("logging/setLevel", {"level": "debug"}, one)
        await call(proxy, one, exit=1)
        await until(proxy, lambda: proxy.statuses()[0].restarts == 1 and proxy.statuses()[0].state == "up")
        await call(proxy, one)

    assert noted().count("logging/setLevel debug") == 2


@pytest.mark.usefixtures("quick_sweep")
async def test_client_that_called_once_and_was_never_heard_again_gives_its_process_back(
    obeying, proxy_of, client, call, is_running, soon, monkeypatch
):
    async with proxy_of(obeying()) as proxy:
        gone, back, listens = client(**ASKS), client(**ASKS), client(**ASKS)
        pids = [(await call(proxy, each))["pid"] for each in (gone, back, listens)]
        gone.idle_since = back.idle_since = 0.0
        back.times_heard += 1
        monkeypatch.setattr("gateway.proxy.upstream.supervision.session_pool._IDLE", -1.0)
        await soon(lambda: not is_running(pids[0]))
        # It may come back: then it has another.
        gone.idle_since = None
        assert (await call(proxy, gone))["pid"] not in pids
        assert [is_running(pid) for pid in pids] == [False, True, True]


@pytest.mark.usefixtures("quick_sweep")
async def test_process_that_holds_its_clients_state_stays_until_its_session_ends(
    obeying, proxy_of, client, call, is_running, soon, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.session_pool._IDLE", -1.0)
    async with proxy_of(obeying("up", sessions="per_client"), obeying("other")) as proxy:
        one, other = client(), client(**ASKS)
        pid = (await call(proxy, one))["pid"]
        theirs = (await call(proxy, other, "other__do"))["pid"]
        one.idle_since = other.idle_since = 0.0
        await soon(lambda: not is_running(theirs))
        assert is_running(pid)
        proxy.session_ended(one)
        await soon(lambda: not is_running(pid))


@pytest.mark.parametrize("modern", [False, True])
async def test_key_has_its_share_of_processes_and_the_next_one_is_refused_by_both_names(
    obeying, proxy_of, client, call, until_noted, modern
):
    metrics = Metrics()
    async with proxy_of(obeying(client_sessions=4), metrics=metrics) as proxy:
        holds = asyncio.create_task(call(proxy, client(modern=modern, principal=ANN, **ASKS), hold=True))
        await until_noted("holds")
        refused = await call(proxy, client(modern=modern, principal=ANN, **ASKS))
        answered = await call(proxy, client(modern=modern, principal=BOB, **ASKS))
        holds.cancel()
        await asyncio.wait([holds])

    assert refused == (
        "no session with server 'up' is available: 'ann' already has 1 of the 4 sessions with server 'up' "
        "(upstreams.up.client_sessions), and its share is 1 (limits.principal_share): end what is no longer needed, or "
        "ask the operator for a larger share"
    )
    assert "pid" in answered
    labels = {"kind": "client_session", "limit": "share"}
    assert metrics.registry.get_sample_value("codec_bound_refusals_total", labels) == 1


async def test_process_counts_to_its_keys_share_until_it_is_gone(obeying, proxy_of, client, call, is_running):
    async with proxy_of(obeying(client_sessions=4)) as proxy:
        one = client(principal=ANN, **ASKS)
        pid = (await call(proxy, one))["pid"]
        proxy.session_ended(one)
        refused = await call(proxy, client(principal=ANN, **ASKS))
        with anyio.fail_after(20):
            while "pid" not in await call(proxy, client(principal=ANN, **ASKS)):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert not is_running(pid)

    assert "its share is 1" in refused


async def test_key_watches_its_share_of_resources_and_others_still_can(obeying, proxy_of, client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.catalog._MOST", 4)
    offer = {"resources": ["x:1", "x:2"], "capabilities": {"resources": {"subscribe": True}}}
    async with proxy_of(obeying("up", offer)) as proxy:
        ann = client(principal=ANN)
        await proxy.handle("resources/subscribe", {"uri": "x:1"}, ann)
        with pytest.raises(RpcError, match="'ann' already has 1 of the 4 subscriptions to resources, and its share"):
            await proxy.handle("resources/subscribe", {"uri": "x:2"}, ann)
        await proxy.handle("resources/subscribe", {"uri": "x:2"}, client(principal=BOB))
        await proxy.handle("resources/unsubscribe", {"uri": "x:1"}, ann)
        await proxy.handle("resources/subscribe", {"uri": "x:2"}, ann)
