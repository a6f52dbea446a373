"""Requests that no server can be found for are refused with what was expected, and reach no server."""

import anyio
import pytest

from gateway.errors import RpcError
from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
OFFER = {"prompts": ["p"], "resources": ["x:1"], "capabilities": {"completions": {}}}


@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("tools/list", {"cursor": "2"}, "unknown cursor"),
        ("resources/templates/list", {"cursor": ""}, "unknown cursor"),
        ("tools/call", {}, r"params\.name"),
        ("tools/call", {"name": 7}, r"params\.name"),
        ("tools/call", {"name": "up__do", "arguments": [1]}, r"params\.arguments to be an object"),
        ("tools/call", {"name": "nope"}, "unknown tool 'nope'"),
        ("tools/call", {"name": "\x1b[31m"}, r"unknown tool '\\\\x1b\[31m'"),
        ("prompts/get", {}, r"params\.name"),
        ("prompts/get", {"name": "nope"}, "unknown prompt 'nope'"),
        ("resources/read", {}, r"params\.uri"),
        ("resources/read", {"uri": ["x:1"]}, r"params\.uri"),
        ("resources/subscribe", {}, r"params\.uri"),
        ("resources/unsubscribe", {"uri": None}, r"params\.uri"),
        ("completion/complete", {}, r"params\.ref"),
        ("completion/complete", {"ref": "p"}, r"params\.ref"),
        ("completion/complete", {"ref": {"name": "nope"}}, "unknown prompt 'nope'"),
    ],
)
async def test_malformed_params_are_refused(obeying, proxy_of, client, noted, method, params, why):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        before = noted()
        with anyio.fail_after(20), pytest.raises(RpcError, match=why) as raised:
            await proxy.handle(method, params, client())
        after = noted()

    assert raised.value.error["code"] == -32602
    assert after == before


async def test_name_of_any_length_comes_back_cut(obeying, proxy_of, client):
    async with proxy_of(obeying()) as proxy:
        with pytest.raises(RpcError) as raised:
            await proxy.handle("tools/call", {"name": "x" * 100_000}, client())

    assert len(raised.value.message) < 400


async def test_resource_that_nobody_has_is_refused_by_the_server_that_might_have_had_it(obeying, proxy_of, client):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        with pytest.raises(RpcError, match="no resource x:9") as raised:
            await proxy.handle("resources/read", {"uri": "x:9"}, client())

    assert raised.value.error["code"] == -32002


async def test_resource_is_refused_where_no_server_has_any(obeying, proxy_of, client):
    async with proxy_of(obeying()) as proxy:
        with pytest.raises(RpcError, match="no server has the resource 'x:9'") as raised:
            await proxy.handle("resources/read", {"uri": "x:9"}, client())

    assert raised.value.error["data"] == {"uri": "x:9"}


async def test_client_that_subscribed_on_no_session_of_its_own_hears_of_changes_until_it_ends_that(
    obeying, proxy_of, client, call, until_noted
):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    push = [["notifications/resources/updated", {"uri": "x:1"}]]
    one = client()
    async with proxy_of(obeying("up", offer, sessions="shared")) as proxy:
        await proxy.handle("resources/subscribe", {"uri": "x:1"}, one)
        await proxy.handle("resources/subscribe", {"uri": "x:1"}, one)
        await until_noted("resources/subscribe x:1")
        await call(proxy, client(modern=True), push=push)
        await one.until(lambda: one.heard)
        await proxy.handle("resources/unsubscribe", {"uri": "x:1"}, one)
        await until_noted("resources/unsubscribe x:1")
        await call(proxy, client(modern=True), push=push)

    assert one.heard == [("notifications/resources/updated", {"uri": "x:1"})]


async def test_client_ends_no_subscription_but_its_own(obeying, proxy_of, client, call, until_noted, noted):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    push = [["notifications/resources/updated", {"uri": "x:1"}]]
    one, other = client(principal=Principal("ann")), client(principal=Principal("bob"))
    async with proxy_of(obeying("up", offer, sessions="shared")) as proxy:
        await proxy.handle("resources/subscribe", {"uri": "x:1"}, one)
        await until_noted("resources/subscribe x:1")
        assert await proxy.handle("resources/unsubscribe", {"uri": "x:1"}, other) == {}
        await call(proxy, client(modern=True), push=push)
        await one.until(lambda: one.heard)
        assert "resources/unsubscribe x:1" not in noted()


async def test_client_with_a_session_of_its_own_subscribes_there(obeying, proxy_of, client, call, noted):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    one = client(elicitation={})
    async with proxy_of(obeying("up", offer)) as proxy:
        await call(proxy, one)
        for _ in range(2):
            await proxy.handle("resources/subscribe", {"uri": "x:1"}, one)
        assert noted().count("resources/subscribe x:1") == 2
        await proxy.handle("resources/unsubscribe", {"uri": "x:1"}, one)
        assert noted().count("resources/unsubscribe x:1") == 1


async def test_server_hears_that_the_handshake_is_over_before_any_call(obeying, proxy_of, client, call, noted):
    async with proxy_of(obeying()) as proxy:
        await call(proxy, client())

    heard = [line for line in noted() if line.startswith(("initialize", "notifications/initialized", "call"))]
    assert [line.split()[0] for line in heard] == ["initialize", "notifications/initialized", "call"]


async def test_client_that_is_gone_is_watched_for_no_longer(obeying, proxy_of, client, until_noted):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    one = client()
    async with proxy_of(obeying("up", offer, sessions="shared")) as proxy:
        await proxy.handle("resources/subscribe", {"uri": "x:1"}, one)
        await until_noted("resources/subscribe x:1")
        proxy.session_ended(one)
        await until_noted("resources/unsubscribe x:1")


async def test_client_that_subscribes_twice_at_a_time_is_watched_for_once(obeying, proxy_of, client, until_noted):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    one = client()
    async with proxy_of(obeying("up", offer, sessions="shared")) as proxy:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(proxy.handle, "resources/subscribe", {"uri": "x:1"}, one)
        await proxy.handle("resources/unsubscribe", {"uri": "x:1"}, one)
        await until_noted("resources/unsubscribe x:1")


async def test_client_that_goes_while_it_subscribes_is_not_watched_for(obeying, proxy_of, client, until_noted):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    one = client()
    async with proxy_of(obeying("up", offer, sessions="shared")) as proxy:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.handle, "resources/subscribe", {"uri": "x:1"}, one)
            # It has begun, and the server has not answered.
            await anyio.lowlevel.checkpoint()
            proxy.session_ended(one)
        await until_noted("resources/unsubscribe x:1")


async def test_clients_with_sessions_of_their_own_subscribe_there(obeying, proxy_of, client, call, noted):
    offer = {"resources": ["x:1"], "capabilities": {"resources": {"subscribe": True}}}
    async with proxy_of(obeying("up", offer, sessions="per_client")) as proxy:
        for one in (client(), client()):
            await call(proxy, one)
            await proxy.handle("resources/subscribe", {"uri": "x:1"}, one)

    # One for both would be the gateway's own, for whoever wants to hear of it.
    assert noted().count("resources/subscribe x:1") == 2
