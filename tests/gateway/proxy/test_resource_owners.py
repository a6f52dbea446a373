"""A URI leads to the server that has it, one that two servers have to either, and one of nobody to nobody."""

import pytest

from gateway.errors import RpcError
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}}


async def read(proxy, one, uri):
    return (await proxy.handle("resources/read", {"uri": uri}, one))["contents"][0]["text"]


async def test_same_uri_of_two_servers_is_listed_for_each_and_read_there(obeying, proxy_of, client, caplog):
    one, two = {"resources": ["x:1"], "reads": "first"}, {"resources": ["x:1", "y:1"], "reads": "second"}
    only_two = Principal("p", servers=frozenset({"two"}))
    async with proxy_of(obeying("one", one), obeying("two", two)) as proxy:
        listed = [
            [each["uri"] for each in (await proxy.handle("resources/list", {}, each))["resources"]]
            for each in (client(), client(principal=only_two))
        ]
        texts = [await read(proxy, client(), uri) for uri in listed[0]]
        theirs = await read(proxy, client(principal=only_two), "x:1")

    assert listed == [["one+x:1", "two+x:1", "y:1"], ["x:1", "y:1"]]
    assert texts == ["first", "second", "second"]
    assert theirs == "second"
    assert "x:1" not in caplog.text


async def test_uri_that_may_be_either_servers_is_refused_with_the_two_that_can_be_told_apart(obeying, proxy_of, client):
    async with proxy_of(obeying("one", {"resources": ["x:1"]}), obeying("two", {"resources": ["x:1"]})) as proxy:
        with pytest.raises(
            RpcError, match=r"several servers have the resource 'x:1': ask for one of one\+x:1, two\+x:1"
        ):
            await read(proxy, client(), "x:1")


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe", "resources/unsubscribe"])
async def test_uri_that_nobody_lists_is_shown_to_no_server(obeying, proxy_of, client, noted, method):
    offer = {"resources": [], "reads": "here"}
    async with proxy_of(obeying("one", offer), obeying("two", offer)) as proxy:
        before = noted()
        with pytest.raises(RpcError, match="no server has the resource 'x:secret'") as raised:
            await proxy.handle(method, {"uri": "x:secret"}, client())
        assert noted() == before

    assert raised.value.error["code"] == INVALID_PARAMS


async def test_uri_that_nobody_lists_goes_to_the_only_server_that_has_resources(obeying, proxy_of, client):
    async with proxy_of(obeying("one"), obeying("two", {"resources": [], "reads": "here"})) as proxy:
        assert await read(proxy, client(), "x:unlisted") == "here"


async def test_uri_that_the_operator_left_out_is_not_shown_to_the_only_server_that_has_resources(
    obeying, proxy_of, client, noted
):
    async with proxy_of(obeying("up", {"resources": ["x:1"], "reads": "here"}, exclude=("x:*",))) as proxy:
        before = noted()
        with pytest.raises(RpcError, match="no server has the resource 'x:1'"):
            await read(proxy, client(), "x:1")
        assert noted() == before


async def test_resource_of_a_server_that_refuses_it_is_not_looked_for_elsewhere(obeying, proxy_of, client):
    both = {"templates": ["x:{n}"]}
    async with proxy_of(obeying("one", both), obeying("two", {**both, "reads": "second"})) as proxy:
        with pytest.raises(RpcError, match="no resource x:7"):
            await read(proxy, client(), "one+x:7")


async def test_resource_that_a_server_began_to_list_without_a_word_is_its_own_once_a_client_saw_it(
    obeying, proxy_of, client, call, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.listing._SHORT", 0.0)
    offer = {"resources": [], "reads": "here"}
    async with proxy_of(obeying("one", offer), obeying("two", offer)) as proxy:
        await call(proxy, client(), "two__do", resources=["x:new"])
        await proxy.handle("resources/list", {}, client())
        assert await read(proxy, client(), "x:new") == "here"


async def test_resource_that_only_a_clients_own_process_lists_is_read_there(
    obeying, proxy_of, client, call, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.listing._SHORT", 0.0)
    offer = {"resources": [], "reads": "here"}
    async with proxy_of(obeying("one", offer), obeying("two", offer)) as proxy:
        mine, other = client(**ASKS), client()
        await call(proxy, mine, "two__do", resources=["x:mine"])
        await proxy.handle("resources/list", {}, mine)
        assert await read(proxy, mine, "x:mine") == "here"
        with pytest.raises(RpcError, match="no server has the resource"):
            await read(proxy, other, "x:mine")


LINK = {"type": "resource_link", "uri": "x:given", "name": "it"}
EMBEDDED = {"type": "resource", "resource": {"uri": "x:given", "text": "it"}}


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "see"}, LINK]},
        {"content": [EMBEDDED]},
        {"messages": [{"role": "user", "content": LINK}]},
        {"result": {"content": [LINK]}},
    ],
    ids=["link", "embedded", "prompt", "task"],
)
async def test_uri_that_a_server_gave_is_read_there_by_who_got_it_and_by_nobody_else(
    obeying, proxy_of, client, call, result
):
    one, two = {"resources": [], "reads": "first"}, {"resources": [], "reads": "second"}
    ann, bob = client(principal=Principal("ann")), client(principal=Principal("bob"))
    async with proxy_of(obeying("one", one), obeying("two", two)) as proxy:
        await call(proxy, ann, "two__do", result={"structuredContent": {}, **result})
        assert await read(proxy, ann, "x:given") == "second"
        with pytest.raises(RpcError, match="no server has the resource 'x:given'"):
            await read(proxy, bob, "x:given")


async def test_uri_that_was_given_stays_with_who_lists_it(obeying, proxy_of, client, call):
    one, two = {"resources": ["x:given"], "reads": "first"}, {"resources": [], "reads": "second"}
    async with proxy_of(obeying("one", one), obeying("two", two)) as proxy:
        await call(proxy, client(), "two__do", result={"structuredContent": {}, "content": [LINK]})
        assert await read(proxy, client(), "x:given") == "first"


async def test_uri_that_the_operator_hides_is_not_read_though_it_was_given(obeying, proxy_of, client, call):
    offer = {"resources": [], "reads": "secret"}
    async with proxy_of(obeying("one", offer), obeying("two", offer, exclude=("x:*",))) as proxy:
        await call(proxy, client(), "two__do", result={"structuredContent": {}, "content": [LINK]})
        with pytest.raises(RpcError, match="no server has the resource 'x:given'"):
            await read(proxy, client(), "x:given")
