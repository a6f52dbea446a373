"""A client that may use some servers and tools sees and reaches those, by whatever method it tries."""

import json
from dataclasses import replace

import anyio
import pytest

from gateway.config.gateway_config import GatewayConfig, LimitsConfig
from gateway.errors import RpcError, UnknownTool
from gateway.observe.metrics import Metrics
from gateway.protocol.messages import encode_response
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.proxy import Proxy

pytestmark = pytest.mark.anyio
OFFER = {
    "tools": ["do", "undo"],
    "prompts": ["p"],
    "capabilities": {"completions": {}, "logging": {}, "resources": {"subscribe": True}},
}
ONE = {**OFFER, "resources": ["one:1"], "templates": ["one:{x}"], "instructions": "first"}
TWO = {**OFFER, "resources": ["two:1"], "templates": ["two:{x}"], "instructions": "second", "reads": "secret"}
ANN = Principal("ann", servers=frozenset({"one"}))
READER = Principal("reader", tools=("*__do",))
NOBODYS = Principal("nobody", servers=frozenset())


@pytest.fixture
def hidden(tmp_path):
    """What the second server, which not everybody may use, wrote down since it came up."""
    return lambda: [line for line in (tmp_path / "two").read_text().splitlines() if "initialize" not in line][1:]


@pytest.fixture
def both(obeying, proxy_of, tmp_path):
    """Makes a proxy of two servers."""
    return lambda: proxy_of(obeying("one", ONE), obeying("two", TWO, env={"NOTES": str(tmp_path / "two")}))


@pytest.fixture
def ask(client):
    """Puts a request as the principal that may use one server, unless another is given."""

    async def put(proxy, method, params=None, *, as_=ANN, one=None):
        with anyio.fail_after(20):
            return await proxy.handle(method, params or {}, one or client(principal=as_))

    return put


@pytest.mark.parametrize(
    ("kind", "field", "key", "seen"),
    [
        ("tools", "tools", "name", ["one__do", "one__undo"]),
        ("prompts", "prompts", "name", ["one__p"]),
        ("resources", "resources", "uri", ["one:1"]),
        ("resources/templates", "resourceTemplates", "uriTemplate", ["one:{x}"]),
    ],
)
async def test_lists_hold_what_the_client_may_use(both, ask, kind, field, key, seen):
    async with both() as proxy:
        mine = await ask(proxy, f"{kind}/list")
        all_of_it = await ask(proxy, f"{kind}/list", as_=Principal("anybody"))
        nothing = await ask(proxy, f"{kind}/list", as_=NOBODYS)

    assert [item[key] for item in mine[field]] == seen
    assert len(all_of_it[field]) == 2 * len(seen)
    assert nothing[field] == []


async def test_list_is_made_once_for_all_who_have_equal_rights_and_for_nobody_else(both, ask):
    async with both() as proxy:
        mine, again = [await ask(proxy, "tools/list") for _ in range(2)]
        same = await ask(proxy, "tools/list", as_=Principal("bob", servers=frozenset({"one"})))
        other = await ask(proxy, "tools/list", as_=Principal("ann", servers=frozenset({"two"})))
        uris, others = [await ask(proxy, "resources/list", as_=each) for each in (ANN, replace(ANN, name="bob"))]

    assert mine is again is same
    assert [tool["name"] for tool in other["tools"]] == ["two__do", "two__undo"]
    assert uris is others


async def test_lists_that_take_too_much_as_they_are_sent_are_not_kept(both, ask, monkeypatch):
    monkeypatch.setattr("gateway.proxy.merged_lists._KEPT_BYTES", 1)
    async with both() as proxy:
        first = await ask(proxy, "tools/list")
        unwritten = await ask(proxy, "tools/list")
        encode_response(1, first)
        await ask(proxy, "prompts/list")
        later = await ask(proxy, "tools/list")

    assert unwritten is first
    assert later == first
    assert later is not first


async def test_tools_are_seen_by_their_patterns_and_prompts_are_no_tools(both, ask):
    async with both() as proxy:
        tools = await ask(proxy, "tools/list", as_=READER)
        prompts = await ask(proxy, "prompts/list", as_=READER)
        offered = [entry.name for entry in proxy.tools(READER)]
        schemas = [proxy.input_schema(name, READER) for name in ("one__do", "one__undo")]

    assert [tool["name"] for tool in tools["tools"]] == offered == ["one__do", "two__do"]
    assert schemas == [{"type": "object"}, None]
    assert len(prompts["prompts"]) == 2


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "two__do"}),
        ("prompts/get", {"name": "two__p"}),
        ("resources/read", {"uri": "two:1"}),
        ("resources/read", {"uri": "two:9"}),
        ("resources/read", {"uri": "unlisted:1"}),
        ("resources/subscribe", {"uri": "two:1"}),
        ("resources/unsubscribe", {"uri": "two:1"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "two__p"}, "argument": {}}),
    ],
)
async def test_what_is_another_servers_is_answered_as_if_it_were_not_there(both, ask, hidden, method, params):
    missing = json.loads(json.dumps(params).replace("two", "three"))
    async with both() as proxy:

        async def outcome(asked):
            try:
                return json.dumps(await ask(proxy, method, asked))
            except RpcError as error:
                return json.dumps(error.error)

        assert (await outcome(params)).replace("two", "three") == await outcome(missing)
        assert "secret" not in await outcome(params)

    assert hidden() == []


async def test_completion_for_a_resource_goes_to_a_server_that_the_client_may_use(both, ask):
    reference = {"type": "ref/resource", "uri": "two:{x}"}
    async with both() as proxy:
        mine = await ask(proxy, "completion/complete", {"ref": {**reference, "uri": "one:{x}"}, "argument": {}})
        with pytest.raises(RpcError, match="that exists"):
            await ask(proxy, "completion/complete", {"ref": reference, "argument": {}}, as_=NOBODYS)

    assert "one:{x}" in mine["completion"]["values"][0]


@pytest.mark.parametrize("kind", ["ref/prompt", "ref/resource"])
async def test_completion_reaches_nothing_hidden_beside_what_the_client_may_see(obeying, proxy_of, ask, kind):
    offer = {"prompts": ["p", "secret"], "templates": ["page:{x}", "secret:{x}"]}
    hidden = {
        "ref/prompt": {"name": "one__p", "uri": "secret:{x}"},
        "ref/resource": {"name": "secret", "uri": "page:{x}"},
    }
    async with proxy_of(obeying("one", offer, exclude=("secret*",))) as proxy:
        answer = await ask(proxy, "completion/complete", {"ref": {"type": kind, **hidden[kind]}, "argument": {}})
        ref = {"type": "ref/resource", "name": "one__p", "uri": "secret:{x}"}
        with pytest.raises(RpcError, match="that exists"):
            await ask(proxy, "completion/complete", {"ref": ref, "argument": {}})

    assert "secret" not in answer["completion"]["values"][0]


async def test_tool_that_no_pattern_fits_can_not_be_called(both, ask, noted):
    async with both() as proxy:
        with pytest.raises(RpcError, match="unknown tool 'one__undo'"):
            await ask(proxy, "tools/call", {"name": "one__undo"}, as_=READER)
        await ask(proxy, "tools/call", {"name": "one__do"}, as_=READER)
        with pytest.raises(UnknownTool):
            await proxy.call("one__do", {}, caller=Nobody(modern=False, principal=NOBODYS))

    assert [line for line in noted() if line.startswith("call")] == ["call do"]


async def test_method_that_we_do_not_know_goes_to_the_one_server_that_the_client_may_use(both, ask):
    async with both() as proxy:
        assert "pid" in await ask(proxy, "vendor/method")
        for principal in (Principal("anybody"), NOBODYS):
            with pytest.raises(RpcError) as raised:
                await ask(proxy, "vendor/method", as_=principal)
            assert raised.value.error["code"] == -32601


async def test_log_level_is_told_to_the_servers_that_the_client_may_use(both, ask, client, hidden, until_noted):
    async with both() as proxy:
        one = client(principal=ANN)
        await ask(proxy, "logging/setLevel", {"level": "error"}, one=one)
        await until_noted("logging/setLevel error")
        with pytest.raises(RpcError, match="no server behind the gateway sends log messages"):
            await ask(proxy, "logging/setLevel", {"level": "error"}, as_=NOBODYS)

    assert hidden() == []


async def test_word_of_a_client_reaches_the_servers_that_it_may_use(both, client, call, until_noted, hidden):
    async with both() as proxy:
        one = client(principal=ANN, roots={})
        await call(proxy, one, "one__do")
        await proxy.tell("notifications/roots/list_changed", {}, one)
        await until_noted("notifications/roots/list_changed")

    assert hidden() == []


async def test_what_is_advertised_and_how_to_use_it_is_of_servers_that_the_client_may_use(obeying, proxy_of):
    second = {"prompts": ["p"], "instructions": "second"}
    async with proxy_of(obeying("one", {"instructions": "first"}), obeying("two", second)) as proxy:
        assert proxy.capabilities(ANN) == {"tools": {"listChanged": True}}
        assert set(proxy.capabilities()) == {"tools", "prompts"}
        assert proxy.capabilities(NOBODYS) == {}
        assert proxy.instructions(ANN) == "first"
        assert proxy.instructions() == "# one\n\nfirst\n\n# two\n\nsecond"
        assert proxy.instructions(NOBODYS) is None


async def test_resource_of_another_server_is_watched_in_vain(both, until_noted, hidden):
    async with both() as proxy:
        stop = await proxy.watch(["two:1", "one:1"], ANN, lambda _: None)
        await until_noted("resources/subscribe one:1")
        stop()

    assert hidden() == []


async def test_search_finds_and_calls_what_the_client_may_use(obeying, client, noted):
    config = GatewayConfig(
        upstreams=(obeying("one", ONE), obeying("two", TWO)), prefix="always", tool_search=True, limits=LimitsConfig()
    )
    async with Proxy(config, Metrics()) as proxy:
        one = client(principal=ANN)
        listed = [tool["name"] for tool in (await proxy.handle("tools/list", {}, one))["tools"]]
        search, call = listed
        found = await proxy.handle("tools/call", {"name": search, "arguments": {"query": "do"}}, one)
        with pytest.raises(RpcError, match="unknown tool 'two__do'"):
            await proxy.handle("tools/call", {"name": call, "arguments": {"name": "two__do"}}, one)
        done = await proxy.handle("tools/call", {"name": call, "arguments": {"name": "one__do"}}, one)

    assert "one__do" in str(found)
    assert "two__do" not in str(found)
    assert "pid" in done["structuredContent"]
    assert [line for line in noted() if line.startswith("call")] == ["call do"]
