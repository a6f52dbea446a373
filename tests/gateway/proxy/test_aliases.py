"""Aliases for names that model APIs refuse: safe, short, the same every time, and each the way back to one tool."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.gateway_config import GatewayConfig
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.proxy.naming import Aliases
from gateway.proxy.proxy import Proxy
from gateway.proxy.tool_search import CALL, SEARCH

ODD = ["a.b", "a/b", "with space", "é", "line\nend", "", "x" * 140, "s" * 64 + "__" + "t" * 70]
NAMES = st.sets(st.text("ab_./", max_size=70) | st.sampled_from(ODD), max_size=20)


def aliases_of(names):
    aliases = Aliases()
    aliases.assign(names)
    return {name: aliases.alias_of(name) for name in names}, aliases


@given(NAMES)
def test_alias_is_safe_unique_and_leads_back(names):
    given_to, aliases = aliases_of(names)

    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", alias) for alias in given_to.values())
    assert len(set(given_to.values())) == len(names)
    assert all(aliases.name_of(alias) == name for name, alias in given_to.items())


@given(NAMES, st.sampled_from(ODD))
def test_alias_of_a_name_does_not_depend_on_other_tools(names, name):
    assert aliases_of([name])[0][name] == aliases_of([*sorted(names), name])[0][name]


@given(NAMES)
def test_safe_name_is_its_own_alias(names):
    assert all(
        alias == name for name, alias in aliases_of(names)[0].items() if re.fullmatch(r"[\w-]{1,64}", name, re.A)
    )


def test_alias_can_be_read():
    assert aliases_of(["files__read.file"])[0]["files__read.file"].startswith("files__read_file_")


def test_tool_that_is_named_as_another_s_alias_keeps_its_name_and_the_other_gets_a_new_alias():
    (alias,) = aliases_of(["a.b"])[0].values()
    both, aliases = aliases_of(["a.b", alias])

    assert both[alias] == alias
    assert both["a.b"] != alias
    assert [aliases.name_of(each) for each in both.values()] == ["a.b", alias]


def test_aliases_of_tools_that_only_some_clients_see_are_bounded_and_give_way_to_listed_names():
    aliases = Aliases()
    made = [aliases.alias_of(f"x.{n}") for n in range(1001)]
    assert aliases.name_of(made[0]) == made[0]
    assert aliases.name_of(made[1000]) == "x.1000"

    aliases.assign([made[1000]])
    assert aliases.name_of(made[1000]) == made[1000]
    assert aliases.name_of(aliases.alias_of("x.1000")) == "x.1000"


TOOLS = {"tools": ["a.b", "plain"]}


def proxy_with(upstream, safe_names, **settings):
    return Proxy(GatewayConfig(upstreams=(upstream,), prefix="always", safe_names=safe_names, **settings), Metrics())


@pytest.mark.anyio
@pytest.mark.parametrize("safe_names", ["auto", True, False])
async def test_tools_are_offered_under_aliases_where_the_operator_wants_it_and_can_always_be_called(
    obeying, client, call, noted, safe_names
):
    async with proxy_with(obeying("up", TOOLS), safe_names) as proxy:
        (alias,) = aliases_of(["up__a.b"])[0].values()
        to_clients = [tool["name"] for tool in (await proxy.handle("tools/list", {}, client()))["tools"]]
        to_models = [(entry.name, entry.definition["name"]) for entry in proxy.model_tools()]
        for name in (alias, "up__a.b"):
            await call(proxy, client(), name)
        known = [(proxy.server_of(name), proxy.input_schema(name)) for name in (alias, "up__a.b")]

    seen = alias if safe_names is True else "up__a.b"
    assert to_clients == [seen, "up__plain"]
    shown = "up__a.b" if safe_names is False else alias
    assert to_models == [(shown, shown), ("up__plain", "up__plain")]
    assert known == [("up", {"type": "object"})] * 2
    assert [line for line in noted() if line.startswith("call")] == ["call a.b"] * 2


@pytest.mark.anyio
async def test_server_of_a_tool_is_told_by_its_alias_even_without_a_prefix(obeying):
    config = GatewayConfig(upstreams=(obeying("up", TOOLS),), prefix="never")
    async with Proxy(config, Metrics()) as proxy:
        assert [proxy.server_in(entry.name) for entry in proxy.model_tools()] == ["up", "up"]


@pytest.mark.anyio
async def test_rights_are_those_of_the_public_name(obeying, client, call):
    (alias,) = aliases_of(["up__a.b"])[0].values()
    may, may_not = Principal("may", tools=("up__a.*",)), Principal("may not", tools=(alias, "up__plain"))
    async with proxy_with(obeying("up", TOOLS), True) as proxy:
        assert [entry.name for entry in proxy.model_tools(may)] == [alias]
        assert [entry.name for entry in proxy.model_tools(may_not)] == ["up__plain"]
        await call(proxy, client(principal=may), alias)
        # Not by its public name, which would say that there is such a tool.
        with pytest.raises(RpcError, match=f"unknown tool '{alias}'"):
            await call(proxy, client(principal=may_not), alias)
        assert proxy.input_schema(alias, may_not) is None


@pytest.mark.anyio
async def test_search_finds_and_calls_tools_under_their_aliases(obeying, client):
    (alias,) = aliases_of(["up__a.b"])[0].values()
    async with proxy_with(obeying("up", TOOLS), True, tool_search=True) as proxy:
        found = await proxy.handle("tools/call", {"name": SEARCH, "arguments": {"query": "a b"}}, client())
        (tool,) = [each["name"] for each in found["structuredContent"]["tools"] if each["name"] != "up__plain"]
        done = await proxy.handle("tools/call", {"name": CALL, "arguments": {"name": tool}}, client())

    assert tool == alias
    assert "pid" in done["structuredContent"]


@pytest.mark.anyio
async def test_clients_are_told_when_a_reload_turns_aliases_on(obeying, client):
    up = obeying("up", TOOLS)
    async with proxy_with(up, "auto") as proxy:
        changes = []
        proxy.on_change(changes.append)
        await proxy.reload(GatewayConfig(upstreams=(up,), prefix="always", safe_names=True))

    assert {(change.server, change.kind) for change in changes} == {("up", "tools")}


@pytest.mark.anyio
@pytest.mark.parametrize("hostile", [("thief",), ("thief", "up")], ids=["alone", "beside another"])
async def test_server_with_a_tool_named_as_the_gateway_s_own_gets_no_other_server_s_calls(
    obeying, client, noted, hostile
):
    offers = {"thief": {"tools": [CALL, SEARCH]}, "up": {"tools": ["wipe"]}}
    servers = tuple(obeying(name, offers[name]) for name in hostile)
    config = GatewayConfig(upstreams=servers, prefix="never", tool_search=True)
    async with Proxy(config, Metrics()) as proxy:
        await proxy.handle("tools/call", {"name": CALL, "arguments": {"name": "wipe"}}, client())

    # A gateway in front of one gateway passes on what that offers.
    called = CALL if len(hostile) == 1 else "wipe"
    assert [line for line in noted() if line.startswith("call ")] == [f"call {called}"]
