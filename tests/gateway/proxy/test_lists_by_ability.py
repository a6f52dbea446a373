"""A server may list more to a client that can be asked: such a client reaches that, and nobody anything else by it."""

import asyncio
from dataclasses import replace

import anyio
import pytest

from gateway.config.gateway_config import GatewayConfig
from gateway.config.overrides import ApprovalsConfig, ToolOverride
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import Principal
from gateway.proxy.proxy import Proxy
from gateway.proxy.upstream.items.tool_pins import PinFile

pytestmark = pytest.mark.anyio
ROOTS = {"roots": {}}
ANN, BOB = Principal("ann"), Principal("bob")
BOTH_ERAS = pytest.mark.parametrize("modern", [False, True])
LISTS = {
    "tools/list": ("tools", "name", ["up__do", "up__give"], "up__roots"),
    "prompts/list": ("prompts", "name", [], "up__roots"),
    "resources/list": ("resources", "uri", [], "by:roots"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", [], "of-roots:{n}"),
}


@pytest.fixture
def listing(upstream):
    """Makes the configuration of a server that lists by what its client announced."""
    return lambda name="up", *args, **settings: replace(upstream("lists_by_ability", *args, name=name), **settings)


@pytest.fixture
def unprefixed():
    """Makes a proxy of these servers, whose names carry no prefix."""
    return lambda *upstreams: Proxy(GatewayConfig(upstreams=upstreams, prefix="never"), Metrics())


@pytest.fixture
def asked_for(noted):
    """What servers were asked for by name."""
    return lambda: [line for line in noted() if line.startswith(("call", "prompt", "read"))]


async def read(proxy, one, uri):
    return int((await proxy.handle("resources/read", {"uri": uri}, one))["contents"][0]["text"])


async def get_prompt(proxy, one, name):
    return int((await proxy.handle("prompts/get", {"name": name}, one))["description"])


async def names(proxy, one, method):
    field, key, _, _ = LISTS[method]
    return [each[key] for each in (await proxy.handle(method, {}, one))[field]]


async def refused(proxy, one, name):
    with pytest.raises(RpcError, match=f"unknown tool '{name}'") as raised:
        await proxy.handle("tools/call", {"name": name}, one)
    assert raised.value.error["code"] == INVALID_PARAMS


@BOTH_ERAS
async def test_tool_for_clients_that_can_be_asked_is_called_on_a_session_that_announced_as_much(
    listing, proxy_of, client, call, noted_pids, asked_for, modern
):
    async with proxy_of(listing()) as proxy:
        one = client(modern=modern, **ROOTS)
        pids = [(await call(proxy, one, "up__roots"))["pid"] for _ in range(2)]

    main, own = noted_pids()
    assert pids == [own, own]
    assert own != main
    assert asked_for() == ["call roots", "call roots"]


@BOTH_ERAS
async def test_operators_override_holds_for_a_tool_that_only_this_client_is_listed(
    listing, proxy_of, client, asked_for, modern
):
    override = ToolOverride("mine", "Mine", defaults={"size": 1})
    async with proxy_of(listing(overrides={"roots": override})) as proxy:
        one = client(modern=modern, **ROOTS)
        await refused(proxy, one, "up__roots")
        await proxy.handle("tools/call", {"name": "mine"}, one)
        listed = (await proxy.handle("tools/list", {}, one))["tools"]
        await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("never", {"up__roots": "always"})))
        held = await proxy.handle("tools/call", {"name": "mine"}, one)

    assert asked_for() == ["call roots"]
    assert (listed[-1]["name"], listed[-1]["title"]) == ("mine", "Mine")
    assert '{"size": 1}' in held["content"][0]["text"]


@BOTH_ERAS
async def test_prompt_for_clients_that_can_be_asked_is_got_there(listing, proxy_of, client, noted_pids, modern):
    async with proxy_of(listing()) as proxy:
        one = client(modern=modern, **ROOTS)
        pids = [await get_prompt(proxy, one, "up__roots") for _ in range(2)]

    assert pids == [noted_pids()[1]] * 2


@BOTH_ERAS
@pytest.mark.parametrize("uri", ["by:roots", "of-roots:7"])
async def test_resource_for_clients_that_can_be_asked_is_read_there(listing, proxy_of, client, noted_pids, modern, uri):
    async with proxy_of(listing()) as proxy:
        one = client(modern=modern, **ROOTS)
        pids = [await read(proxy, one, uri) for _ in range(2)]

    assert pids == [noted_pids()[1]] * 2


@BOTH_ERAS
@pytest.mark.parametrize("method", LISTS)
async def test_lists_are_those_of_the_clients_session_once_it_has_one_and_cost_none(
    listing, proxy_of, client, call, starts, modern, method
):
    _, _, of_all, more = LISTS[method]
    async with proxy_of(listing()) as proxy:
        one = client(modern=modern, **ROOTS)
        before = await names(proxy, one, method)
        cost = starts() - 1
        await call(proxy, one, "up__roots")
        after = await names(proxy, one, method)
        others = [await names(proxy, client(modern=modern, **each), method) for each in ({}, {"elicitation": {}})]

    assert (before, cost) == (of_all, 0)
    assert after == [*of_all, more]
    assert others == [of_all, of_all]


@BOTH_ERAS
@pytest.mark.parametrize("abilities", [{}, {"experimental": {}}], ids=["none", "none to be asked for"])
async def test_client_that_announced_no_more_than_the_main_session_costs_no_session(
    listing, proxy_of, client, starts, asked_for, modern, abilities
):
    async with proxy_of(listing()) as proxy:
        await refused(proxy, client(modern=modern, **abilities), "up__roots")

    assert starts() == 1
    assert asked_for() == []


@BOTH_ERAS
async def test_name_that_the_server_does_not_list_to_this_client_either_is_not_shown_to_it(
    listing, proxy_of, client, starts, asked_for, modern
):
    async with proxy_of(listing()) as proxy:
        one = client(modern=modern, **ROOTS)
        await refused(proxy, one, "up__secret")
        await refused(proxy, one, "up__elicitation")

    assert starts() == 2
    assert asked_for() == []


@BOTH_ERAS
@pytest.mark.parametrize(
    ("settings", "principal"),
    [
        ({"exclude": ("ro*",)}, ANN),
        ({"include": ("do",)}, ANN),
        ({"overrides": {"roots": ToolOverride("up__other")}}, ANN),
        ({"sessions": "shared"}, ANN),
        ({}, Principal("ann", tools=("up__do",))),
        ({}, Principal("ann", servers=frozenset({"other"}))),
    ],
    ids=["excluded", "not included", "renamed", "one session for all", "no right to it", "server not seen"],
)
async def test_tool_that_this_client_may_not_have_is_refused_as_one_that_there_is_not(
    listing, proxy_of, client, starts, asked_for, modern, settings, principal
):
    async with proxy_of(listing(**settings)) as proxy:
        await refused(proxy, client(modern=modern, principal=principal, **ROOTS), "up__roots")

    assert starts() == 1
    assert asked_for() == []


@BOTH_ERAS
async def test_prompt_and_resource_that_the_operator_left_out_start_no_session(
    listing, proxy_of, client, starts, asked_for, modern
):
    async with proxy_of(listing(exclude=("*roots*",)), listing("other", sessions="shared")) as proxy:
        one = client(modern=modern, **ROOTS)
        for method, params in (("prompts/get", {"name": "up__roots"}), ("resources/read", {"uri": "by:roots"})):
            with pytest.raises(RpcError):
                await proxy.handle(method, params, one)

    assert starts() == 2
    assert asked_for() == []


@BOTH_ERAS
async def test_changed_definition_of_such_a_tool_is_blocked_as_any_other(
    listing, proxy_of, client, call, asked_for, tmp_path, monkeypatch, modern
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with proxy_of(listing(pin="block")) as proxy:
        await call(proxy, client(modern=modern, **ROOTS), "up__roots")
    pins = (file := PinFile()).read()
    (tools,) = pins.values()
    tools["roots"]["pinned"] = "0" * 64
    file.write(pins)
    async with proxy_of(listing(pin="block")) as proxy:
        with pytest.raises(RpcError, match="tool 'roots' of server 'up' is blocked"):
            await call(proxy, client(modern=modern, **ROOTS), "up__roots")

    assert asked_for() == ["call roots"]


@BOTH_ERAS
async def test_such_a_tool_can_be_called_once_its_new_definition_is_accepted(
    listing, proxy_of, client, call, tmp_path, monkeypatch, modern
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with proxy_of(listing(pin="block")) as proxy:
        one = client(modern=modern, **ROOTS)
        await call(proxy, one, "up__roots")
        pins = (file := PinFile()).read()
        next(iter(pins.values()))["roots"]["pinned"] = "0" * 64
        file.write(pins)
        proxy.list_again()
        with pytest.raises(RpcError, match="is blocked"):
            await call(proxy, one, "up__roots")
        file.accept("up")
        proxy.list_again()
        assert "pid" in await call(proxy, one, "up__roots")


@BOTH_ERAS
@pytest.mark.parametrize("settings", [{"protocol": "modern"}, {"sessions": "shared"}, {}])
async def test_modern_server_is_asked_for_its_lists_in_the_name_of_what_each_client_announces(
    listing, proxy_of, client, call, starts, modern, settings
):
    async with proxy_of(listing("up", "modern", **settings)) as proxy:
        one = client(modern=modern, **ROOTS)
        await call(proxy, one, "up__roots")
        await get_prompt(proxy, one, "up__roots")
        await read(proxy, one, "by:roots")
        await refused(proxy, one, "up__elicitation")
        found = [await names(proxy, each, method) for method in LISTS for each in (one, client(modern=modern))]

    assert found == [each for _, _, of_all, more in LISTS.values() for each in ([*of_all, more], of_all)]
    assert starts() <= (1 if modern or settings else 2)


async def test_lists_of_a_modern_server_are_kept_for_the_latest_abilities_only(
    listing, proxy_of, client, noted, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.listing._SHORT", 60.0)
    monkeypatch.setattr("gateway.proxy.upstream.supervision.session_member._CAPABILITY_SETS", 2)
    async with proxy_of(listing("up", "modern")) as proxy:
        for n in (1, 2, 1, 3, 1, 2):
            await names(proxy, client(modern=True, roots={"n": n}), "tools/list")

    assert [line for line in noted() if line.startswith("tools")] == ["tools "] + ["tools roots"] * 4


@BOTH_ERAS
async def test_name_that_may_be_of_two_servers_is_looked_for_at_neither(
    listing, unprefixed, client, starts, asked_for, modern
):
    two = listing("two", exclude=("do", "give"))
    async with unprefixed(listing("one"), two) as proxy:
        one = client(modern=modern, **ROOTS)
        await refused(proxy, one, "roots")
        with pytest.raises(RpcError, match="no server has the resource"):
            await read(proxy, one, "by:roots")

    assert starts() == 2
    assert asked_for() == []


@BOTH_ERAS
async def test_of_two_servers_the_one_that_can_list_more_to_this_client_has_the_name(
    listing, unprefixed, client, call, noted_pids, modern
):
    shared = listing("one", sessions="shared", exclude=("do", "give"))
    async with unprefixed(shared, listing("two")) as proxy:
        one = client(modern=modern, **ROOTS)
        found = [
            (await call(proxy, one, "roots"))["pid"],
            await get_prompt(proxy, one, "roots"),
            await read(proxy, one, "by:roots"),
        ]

    assert found == [noted_pids()[2]] * 3


async def test_main_session_that_stands_for_the_client_lists_all(listing, proxy_of, client, call, starts):
    one, proxy = client(**ROOTS), proxy_of(listing())
    proxy.adopt(one)
    async with proxy:
        await call(proxy, one, "up__roots")
        await refused(proxy, one, "up__secret")

    assert starts() == 1


@BOTH_ERAS
async def test_key_whose_share_of_sessions_is_taken_is_told_so(listing, proxy_of, client, call, modern):
    async with proxy_of(listing(client_sessions=4)) as proxy:
        first = client(principal=ANN, **ROOTS)
        await call(proxy, first)
        said = await call(proxy, client(modern=modern, principal=ANN, **ROOTS), "up__roots")

    assert said.startswith("no session with server 'up' is available: 'ann' already has 1 of the 4 sessions")


@BOTH_ERAS
async def test_link_of_an_answer_is_read_on_the_session_that_gave_it(
    listing, proxy_of, client, call, noted_pids, modern
):
    async with proxy_of(listing()) as proxy:
        one = client(modern=modern, **ROOTS)
        gave = (await call(proxy, one, "up__give"))["pid"]
        assert await read(proxy, one, "made:1") == gave

    assert gave == noted_pids()[1]


async def test_link_is_read_where_it_was_given_by_a_request_that_announces_less(listing, proxy_of, client, call):
    async with proxy_of(listing()) as proxy:
        gave = (await call(proxy, client(modern=True, **ROOTS), "up__give"))["pid"]
        assert await read(proxy, client(modern=True), "made:1") == gave


async def test_link_waits_for_the_session_that_gave_it_while_another_call_runs_there(
    listing, proxy_of, client, call, until_noted, starts
):
    async with proxy_of(listing()) as proxy:
        one = client(modern=True, **ROOTS)
        gave = (await call(proxy, one, "up__give"))["pid"]
        running = asyncio.create_task(call(proxy, one, hold=True))
        await until_noted("call do")
        reading = asyncio.create_task(read(proxy, one, "made:1"))
        await anyio.wait_all_tasks_blocked()
        assert not reading.done()
        # What makes the server answer the call that it holds.
        await names(proxy, one, "tools/list")
        assert (await running)["pid"] == gave
        assert await reading == gave

    assert starts() == 2


async def test_link_that_was_given_to_another_principal_is_not_read_where_it_was_given(
    listing, proxy_of, client, call, noted_pids
):
    async with proxy_of(listing()) as proxy:
        await call(proxy, client(modern=True, principal=ANN, **ROOTS), "up__give")
        with pytest.raises(RpcError, match="not here") as raised:
            await read(proxy, client(modern=True, principal=BOB), "made:1")

    assert raised.value.message == f"not here: {noted_pids()[0]}"


async def test_link_of_a_clients_own_session_is_read_by_no_other_client_there(
    listing, proxy_of, client, call, noted_pids
):
    async with proxy_of(listing()) as proxy:
        await call(proxy, client(principal=ANN, **ROOTS), "up__give")
        with pytest.raises(RpcError, match="not here") as raised:
            await read(proxy, client(modern=True, principal=ANN), "made:1")

    assert raised.value.message == f"not here: {noted_pids()[0]}"
