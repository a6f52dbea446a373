"""Overrides of tools by the operator: what clients see, and what reaches the server."""

import copy
import json
from dataclasses import replace

import pytest

from gateway.config.gateway_config import GatewayConfig, ViewConfig
from gateway.config.overrides import ApprovalsConfig, ToolOverride
from gateway.errors import ConfigError, RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import NOBODY, NOBODY_MODERN, Nobody, Principal
from gateway.proxy.naming import Naming, filled, overridden, unknown_arguments
from gateway.proxy.proxy import Proxy
from gateway.proxy.upstream.items.tool_pins import PinFile

pytestmark = pytest.mark.anyio
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "maximum": 9}},
    "required": ["query", "limit"],
}
OFFER = {"tools": ["search", "wipe"], "definition": {"inputSchema": SCHEMA}, "hints": {"search": {"title": "S"}}}
OVERRIDE = ToolOverride("find", "Find", "Finds things.", {"readOnlyHint": True}, {"limit": 5})
BOTH_ERAS = pytest.mark.parametrize("caller", [NOBODY, NOBODY_MODERN], ids=["handshake", "modern"])


@pytest.fixture
def overriding(obeying, proxy_of):
    """Makes a proxy of a server whose tools the operator changed."""

    def make(overrides=None, offer=OFFER, **settings):
        return proxy_of(obeying(offer=offer, overrides=overrides or {"search": OVERRIDE}, **settings))

    return make


async def listed(proxy, caller=NOBODY):
    return {tool["name"]: tool for tool in (await proxy.handle("tools/list", {}, caller))["tools"]}


async def call(proxy, name, caller=NOBODY, **params):
    return await proxy.handle("tools/call", {"name": name, **params}, caller)


def sent(result):
    params = result["structuredContent"]["params"]
    return params["name"], params.get("arguments")


async def refused(proxy, name, caller=NOBODY):
    with pytest.raises(RpcError, match=f"unknown tool '{name}'"):
        await call(proxy, name, caller)


@BOTH_ERAS
async def test_clients_see_the_operators_words_and_the_rest_of_the_servers(overriding, caller):
    async with overriding() as proxy:
        tools = await listed(proxy, caller)

    limit = {"type": "integer", "maximum": 9, "default": 5}
    assert tools["find"] == {
        "name": "find",
        "title": "Find",
        "description": "Finds things.",
        "annotations": {"title": "S", "readOnlyHint": True},
        "inputSchema": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": limit},
            "required": ["query"],
        },
    }
    assert tools["up__wipe"] == {"name": "up__wipe", "inputSchema": SCHEMA}


@BOTH_ERAS
@pytest.mark.parametrize(
    ("given", "reaches"),
    [
        ({}, {"limit": 5}),
        ({"arguments": None}, {"limit": 5}),
        ({"arguments": {"query": "x"}}, {"query": "x", "limit": 5}),
        ({"arguments": {"limit": 7}}, {"limit": 7}),
        ({"arguments": {"limit": None}}, {"limit": None}),
    ],
)
async def test_server_is_called_by_its_own_name_with_the_arguments_that_were_left_out(
    overriding, caller, given, reaches
):
    async with overriding() as proxy:
        found = await call(proxy, "find", caller, **given)
        other = await call(proxy, "up__wipe", caller, **given)

    assert sent(found) == ("search", reaches)
    assert sent(other) == ("wipe", given.get("arguments"))


@BOTH_ERAS
async def test_former_name_leads_nowhere_and_starts_nothing(overriding, noted, caller):
    async with overriding() as proxy:
        for name in ("up__search", "search"):
            await refused(proxy, name, caller)

    assert not [line for line in noted() if line.startswith("call ")]


async def test_search_finds_the_operators_words_and_calls_by_the_new_name(overriding):
    async with overriding({"search": replace(OVERRIDE, description="Looks for recipes.")}) as proxy:
        await proxy.reload(replace(proxy.config, tool_search=True))
        found = await call(proxy, "codec_search_tools", arguments={"query": "recipes"})
        called = await call(proxy, "codec_call_tool", arguments={"name": "find", "arguments": {"query": "x"}})

    (tool,) = found["structuredContent"]["tools"]
    assert (tool["name"], tool["inputSchema"]["required"]) == ("find", ["query"])
    assert sent(called) == ("search", {"query": "x", "limit": 5})


def test_definition_of_the_server_is_not_changed_and_odd_schemas_are_left_as_they_are():
    shape = {"name": "t", "inputSchema": SCHEMA, "annotations": {"title": "S"}}
    before = copy.deepcopy(shape)
    overridden(shape, [OVERRIDE])

    assert shape == before
    for schema in ({}, {"properties": [1]}, {"required": "limit"}, {"properties": {"limit": True}}, None):
        shown = overridden({"inputSchema": schema}, [OVERRIDE])["inputSchema"]
        assert "required" not in shown
        assert unknown_arguments({"inputSchema": schema}, OVERRIDE) == []
        assert shown.get("properties", {}) in ({}, [1], {"limit": {"default": 5}})
    assert overridden({"annotations": "x"}, [OVERRIDE])["annotations"] == {"readOnlyHint": True}


def test_params_to_which_nothing_is_added_are_the_same_object():
    params = {"name": "x", "arguments": {"limit": 1}}

    assert filled(params, [OVERRIDE]) is params
    assert filled(params, []) is params


async def test_pins_are_of_what_the_server_says(overriding, tmp_path, monkeypatch):
    # Other tests have a server of this name.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plain = overriding({"search": ToolOverride()}, pin="block")
    async with plain as proxy:
        assert sorted(await listed(proxy)) == ["up__search", "up__wipe"]
    before = PinFile().path.read_bytes()
    async with overriding(pin="block") as proxy:
        assert sorted(await listed(proxy)) == ["find", "up__wipe"]

    assert PinFile().path.read_bytes() == before
    assert PinFile().changes() == []


@BOTH_ERAS
@pytest.mark.parametrize(
    ("rules", "runs"),
    [
        ({}, True),
        ({"up__search": "always"}, False),
        ({"find": "always"}, False),
        ({"up__*": "always"}, False),
        ({"find": "never", "up__*": "always"}, False),
        ({"find": "always", "up__search": "never"}, False),
    ],
)
async def test_renamed_tool_keeps_the_stricter_approval_of_its_names(overriding, noted, caller, rules, runs):
    async with overriding() as proxy:
        await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("never", rules)))
        (result, asks) = await call(proxy, "find", caller), proxy.names_of(proxy.tools()[0])

    assert asks == ("up__search", "find")
    assert ("call search" in noted()) == runs
    assert runs or "the tool 'find' of server 'up' was not called" in result["content"][0]["text"]
    # Who approves is shown what would be sent.
    assert runs or '{"limit": 5}' in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("theirs", "ours", "runs"),
    [
        ({}, {"readOnlyHint": True}, True),
        ({}, {"destructiveHint": False}, True),
        ({"readOnlyHint": True}, {"readOnlyHint": False}, False),
        ({"readOnlyHint": True}, {"title": "T"}, True),
        ({"readOnlyHint": True}, {"destructiveHint": True}, False),
        ({"readOnlyHint": True}, {"destructiveHint": False}, True),
        ({}, {"readOnlyHint": True, "destructiveHint": True}, True),
    ],
)
async def test_approvals_go_by_the_operators_annotations(overriding, noted, theirs, ours, runs):
    offer = {**OFFER, "hints": {"search": theirs}}
    async with overriding({"search": ToolOverride(annotations=ours)}, offer) as proxy:
        await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("destructive")))
        await call(proxy, "up__search")

    assert ("call search" in noted()) == runs


async def test_override_without_its_tool_is_one_warning_and_nothing_else(overriding, caplog):
    overrides = {"gone": ToolOverride("search"), "left_out": OVERRIDE, "wipe": ToolOverride(defaults={"lmit": 1})}
    offer = {**OFFER, "tools": ["search", "wipe", "left_out"]}
    async with overriding(overrides, offer, exclude=("left_out",)) as proxy:
        await proxy.reload(replace(proxy.config, tool_search=True))
        await proxy.reload(replace(proxy.config, tool_search=False))
        assert sent(await call(proxy, "up__search")) == ("search", None)

    warned = [record.msg["event"] for record in caplog.records if "overrides" in str(record.msg)]
    assert warned == [
        "upstreams.up.overrides.gone: no server offers all clients a tool of this name: correct it, or remove the "
        "override",
        "upstreams.up.overrides.wipe.defaults: the tool has no argument 'lmit'",
    ]


async def test_name_that_another_tool_has_stops_the_start(overriding):
    with pytest.raises(
        ConfigError,
        match=r"^upstreams\.up\.overrides\.search\.name: tool 'up__wipe' is offered by server 'up' twice",
    ):
        async with overriding({"search": ToolOverride("up__wipe")}):
            pass


def test_name_beside_the_server_is_one_tools_only(obeying):
    upstream = obeying(overrides={"a": ToolOverride("b"), "c": ToolOverride("d")})
    entries = Naming(GatewayConfig(upstreams=(upstream,), prefix="always")).entries("up", [{"name": n} for n in "abc"])

    assert [(entry.name, entry.local) for entry in entries] == [("b", "a"), ("up__b", "b"), ("d", "d")]


class TestViews:
    """The same in one view."""

    VIEW = ViewConfig(("one", "two"), ("*__search", "two__wipe"), {"one__search": OVERRIDE})

    @pytest.fixture
    def viewing(self, obeying):
        """Makes a proxy of two servers with a view."""

        def make(view=self.VIEW, **settings):
            upstreams = (obeying("one", OFFER), obeying("two", OFFER))
            config = GatewayConfig(upstreams=upstreams, views={"v": view, "all": ViewConfig()}, **settings)
            return Proxy(config, Metrics())

        return make

    @staticmethod
    def through(proxy, *, modern=False, name="v", principal=None):
        return Nobody(modern=modern, principal=proxy.through_view(principal or Principal("ann"), name))

    @pytest.mark.parametrize("modern", [False, True])
    async def test_view_shows_them_and_nobody_else_sees_them(self, viewing, modern):
        async with viewing() as proxy:
            inside, outside = self.through(proxy, modern=modern), self.through(proxy, modern=modern, name="all")
            seen, others = await listed(proxy, inside), await listed(proxy, outside)
            found = await call(proxy, "find", inside, arguments={"query": "x"})
            plain = await call(proxy, "one__search", outside, arguments={"query": "x"})
            for name in ("one__search", "search", "two__find"):
                await refused(proxy, name, inside)
            await refused(proxy, "find", outside)

        assert list(seen) == ["find", "two__search", "two__wipe"]
        assert (seen["find"]["title"], seen["find"]["inputSchema"]["required"]) == ("Find", ["query"])
        assert list(others) == ["one__search", "one__wipe", "two__search", "two__wipe"]
        assert (sent(found), sent(plain)) == (("search", {"query": "x", "limit": 5}), ("search", {"query": "x"}))

    async def test_views_override_lies_over_the_servers(self, obeying):
        own = {"search": ToolOverride("find", "T", "D", {"readOnlyHint": True}, {"limit": 1, "query": "q"})}
        view = ViewConfig(overrides={"find": ToolOverride("look", description="V", defaults={"limit": 2})})
        config = GatewayConfig(upstreams=(obeying(offer=OFFER, overrides=own),), views={"v": view})
        async with Proxy(config, Metrics()) as proxy:
            caller = self.through(proxy)
            tools, called = await listed(proxy, caller), await call(proxy, "look", caller)
            for name in ("find", "search"):
                await refused(proxy, name, caller)

        assert (tools["look"]["title"], tools["look"]["description"]) == ("T", "V")
        assert sent(called) == ("search", {"limit": 2, "query": "q"})

    async def test_key_is_judged_by_public_names(self, viewing):
        async with viewing() as proxy:
            may = self.through(proxy, principal=Principal("ann", tools=("one__search",)))
            may_not = self.through(proxy, principal=Principal("bob", tools=("find", "two__search")))
            seen = [list(await listed(proxy, each)) for each in (may, may_not)]
            await call(proxy, "find", may)
            await refused(proxy, "find", may_not)

        assert seen == [["find"], ["two__search"]]

    @pytest.mark.parametrize("rule", ["one__search", "find", "one__*"])
    async def test_approval_is_the_strictest_of_all_names(self, viewing, noted, rule):
        async with viewing() as proxy:
            await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("never", {rule: "always"})))
            inside = await call(proxy, "find", self.through(proxy))
            outside = await call(proxy, "one__search", self.through(proxy, name="all"))

        assert "the tool 'find' of server 'one' was not called" in inside["content"][0]["text"]
        assert ("isError" in outside) == (rule != "find")

    async def test_user_approves_under_the_name_of_the_view(self, viewing, client, noted):
        async with viewing() as proxy:
            await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("always")))
            one = client(principal=proxy.through_view(Principal("ann"), "v"), elicitation={})
            one.answers["elicitation/create"] = {"action": "accept", "content": {}}
            found = await call(proxy, "find", one)

        assert sent(found) == ("search", {"limit": 5})
        assert one.was_asked == ["elicitation/create"]

    async def test_search_in_the_view_gives_its_names_and_takes_them(self, viewing):
        async with viewing(tool_search=True) as proxy:
            caller = self.through(proxy)
            found = await call(proxy, "codec_search_tools", caller, arguments={"query": "finds things search"})
            called = await call(proxy, "codec_call_tool", caller, arguments={"name": "find"})
            await refused(proxy, "one__search", caller)

        assert [tool["name"] for tool in found["structuredContent"]["tools"]] == ["find", "two__search"]
        assert sent(called) == ("search", {"limit": 5})

    async def test_alias_of_a_renamed_tool_leads_nowhere_in_the_view(self, obeying):
        view = ViewConfig(overrides={"a.b": ToolOverride("ab", defaults={"x": 1})})
        config = GatewayConfig(upstreams=(obeying(offer={"tools": ["a.b"]}),), views={"v": view}, safe_names=True)
        async with Proxy(config, Metrics()) as proxy:
            caller = self.through(proxy)
            (alias,) = await listed(proxy)
            assert list(await listed(proxy, caller)) == ["ab"]
            assert sent(await call(proxy, "ab", caller)) == ("a.b", {"x": 1})
            assert sent(await call(proxy, alias)) == ("a.b", None)
            await refused(proxy, alias, caller)

    async def test_reload_changes_them_and_tells_so(self, viewing, starts):
        told = []
        async with viewing() as proxy:
            caller = self.through(proxy)
            proxy.on_change(lambda change: told.append((change.kind, change.server)))
            view = replace(self.VIEW, overrides={"two__search": ToolOverride("look")})
            await proxy.reload(replace(proxy.config, views={**proxy.config.views, "v": view}))
            assert told == [("tools", "one"), ("tools", "two")]
            seen = list(await listed(proxy, caller))

        assert (seen, starts()) == (["one__search", "look", "two__wipe"], 2)

    async def test_override_of_a_tool_that_is_not_there_takes_no_name_from_another(self, viewing, caplog):
        view = ViewConfig(overrides={"one__gone": ToolOverride("two__wipe"), "three__x": ToolOverride("x")})
        async with viewing(view) as proxy:
            caller = self.through(proxy)
            assert "two__wipe" in await listed(proxy, caller)
            assert sent(await call(proxy, "two__wipe", caller)) == ("wipe", None)

        warned = [record.msg["event"].partition(":")[0] for record in caplog.records if "overrid" in str(record.msg)]
        assert sorted(warned) == ["views.v.overrides.one__gone", "views.v.overrides.three__x"]

    async def test_name_that_another_tool_of_the_view_has_stops_the_start(self, viewing):
        view = replace(self.VIEW, overrides={"one__search": ToolOverride("two__wipe")})
        with pytest.raises(
            ConfigError,
            match=r"^views\.v\.overrides\.one__search\.name: tool 'two__wipe' is offered by server 'one' and",
        ):
            async with viewing(view):
                pass

    @pytest.mark.parametrize(
        "view",
        [
            ViewConfig(("one",), overrides={"one__search": ToolOverride("two__wipe")}),
            ViewConfig((), ("*__search",), {"one__search": ToolOverride("two__wipe")}),
            ViewConfig(overrides={"one__search": ToolOverride("two__wipe"), "two__wipe": ToolOverride("one__search")}),
        ],
        ids=["its server is not there", "it is not there", "it has another name there"],
    )
    async def test_name_that_no_other_tool_has_in_the_view_is_fine(self, viewing, view):
        async with viewing(view) as proxy:
            result = await call(proxy, "two__wipe", self.through(proxy))

        assert result["structuredContent"]["params"]["name"] == "search"
        assert json.dumps(result)
