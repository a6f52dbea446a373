"""A modern client and a handshake-era server that asks: the call waits for the client's next round, and no other's."""

import asyncio
import os

import anyio
import pytest

from gateway.errors import RpcError
from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}}
QUESTION = {"ask": ["elicitation/create", {"message": "?"}]}
ANSWER = {"action": "accept", "content": {}}
ANN, BOB = Principal("ann"), Principal("bob")


@pytest.fixture
def put(client):
    """Puts a round of a call: the first one, or one that answers the question of `before`."""

    async def ask(proxy, before=None, *, principal=ANN, orders=QUESTION, method="tools/call", meta=None, one=None):
        params = {"name": "up__do", "arguments": orders}
        if before is not None:
            params["requestState"] = before["requestState"]
            params["inputResponses"] = dict.fromkeys(before["inputRequests"], ANSWER)
        if meta is not None:
            params["_meta"] = meta
        with anyio.fail_after(20):
            return await proxy.handle(method, params, one or client(modern=True, principal=principal, **ASKS))

    return ask


async def test_question_comes_with_a_state_and_the_answer_with_it_goes_on_with_the_same_call(
    obeying, proxy_of, put, noted
):
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy)
        last = await put(proxy, first)

    assert first["resultType"] == "input_required"
    assert list(first["inputRequests"].values()) == [{"method": "elicitation/create", "params": {"message": "?"}}]
    assert last["resultType"] == "complete"
    assert last["structuredContent"]["answer"] == ANSWER
    assert noted().count("call do") == 1


async def test_state_is_of_no_use_to_anybody_else_and_still_good_for_its_owner(obeying, proxy_of, put):
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy)
        with pytest.raises(RpcError, match="unknown or expired requestState"):
            await put(proxy, first, principal=BOB)
        last = await put(proxy, first)

    assert last["structuredContent"]["answer"] == ANSWER


async def test_state_of_a_call_is_of_no_use_to_another_method(obeying, proxy_of, put):
    async with proxy_of(obeying("up", {"prompts": ["do"]})) as proxy:
        first = await put(proxy)
        with pytest.raises(RpcError, match="unknown or expired requestState"):
            await put(proxy, first, method="prompts/get")


async def test_state_that_nobody_gave_is_refused_and_no_server_sees_it(obeying, proxy_of, put, noted):
    async with proxy_of(obeying()) as proxy:
        with pytest.raises(RpcError, match="unknown or expired requestState") as raised:
            await put(proxy, {"requestState": "codec-gateway.guessed", "inputRequests": {}})

    assert raised.value.error["code"] == -32602
    assert "call do" not in noted()


async def test_call_that_its_client_never_came_back_for_is_told_its_server_and_its_state_is_gone(
    obeying, proxy_of, put, until_noted, soon, monkeypatch
):
    async with proxy_of(obeying("up")) as proxy:
        await put(proxy, await put(proxy))
        await anyio.wait_all_tasks_blocked()
        before = len(anyio.get_running_tasks())
        monkeypatch.setattr("gateway.proxy.bridge._ANSWER_TIME", 0.2)
        first = await put(proxy)
        await until_noted("answer the client did not answer 'elicitation/create' in time")
        await soon(lambda: len(anyio.get_running_tasks()) <= before)
        with pytest.raises(RpcError, match="unknown or expired requestState"):
            await put(proxy, first)


async def test_client_that_leaves_in_the_middle_of_a_round_ends_the_servers_call(
    obeying, proxy_of, put, until_noted, soon, noted_pids, is_running
):
    async with proxy_of(obeying()) as proxy:
        gone = asyncio.create_task(put(proxy, orders={"hold": True}))
        await until_noted("holds")
        gone.cancel()
        await asyncio.wait([gone])
        await until_noted("notifications/cancelled")
        # Its session goes with it: what the server still says is for nobody.
        await soon(lambda: sum(map(is_running, noted_pids())) == 1)


async def test_round_that_brings_no_answer_is_asked_the_same_again(obeying, proxy_of, put):
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy)
        again = await put(proxy, {**first, "inputRequests": {}})
        last = await put(proxy, again)

    assert again == first
    assert last["structuredContent"]["answer"] == ANSWER


async def test_two_rounds_with_one_state_at_the_same_time_are_one_too_many(obeying, proxy_of, put, until_noted):
    orders = {**QUESTION, "hold": True}
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy, orders=orders)
        waits = asyncio.create_task(put(proxy, first, orders=orders))
        await until_noted("holds")
        with pytest.raises(RpcError, match="a request with this requestState is already running"):
            await put(proxy, first, orders=orders)
        assert not waits.done()
        waits.cancel()
        await asyncio.wait([waits])
        await until_noted("notifications/cancelled")
        with pytest.raises(RpcError, match="unknown or expired requestState"):
            await put(proxy, first)


async def test_calls_that_wait_for_their_clients_are_bounded(obeying, proxy_of, put, monkeypatch):
    monkeypatch.setattr("gateway.proxy.bridge._MOST", 2)
    async with proxy_of(obeying()) as proxy:
        first, _ = await put(proxy), await put(proxy, principal=BOB)
        refused = await put(proxy)
        await put(proxy, first)
        again = await put(proxy)

    assert refused["isError"] is True
    words = "'ann' already has 1 of the 2 places for calls that wait for their clients' answers"
    assert words in refused["content"][0]["text"]
    assert again["resultType"] == "input_required"


async def test_progress_of_each_round_comes_to_that_round_and_under_its_own_token(obeying, proxy_of, put, client):
    step = ["notifications/progress", {"progress": 1}]
    orders = {**QUESTION, "push": [step], "then": [step]}
    begins, ends = client(modern=True, principal=ANN, **ASKS), client(modern=True, principal=ANN, **ASKS)
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy, orders=orders, meta={"progressToken": "a"}, one=begins)
        await put(proxy, first, orders=orders, meta={"progressToken": "b"}, one=ends)

    assert begins.heard == [("notifications/progress", {"progress": 1, "progressToken": "a"})]
    assert ends.heard == [("notifications/progress", {"progress": 1, "progressToken": "b"})]


async def test_round_that_asks_for_no_progress_hears_of_none(obeying, proxy_of, put, client):
    step = ["notifications/progress", {"progress": 1}]
    orders = {**QUESTION, "then": [step]}
    ends = client(modern=True, principal=ANN, **ASKS)
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy, orders=orders, meta={"progressToken": "a"})
        await put(proxy, first, orders=orders, one=ends)

    assert ends.heard == []


async def test_client_is_not_asked_what_it_did_not_say_that_it_can_do(obeying, proxy_of, put):
    async with proxy_of(obeying()) as proxy:
        result = await put(proxy, orders={"ask": ["roots/list", {}]})

    assert result["structuredContent"]["answer"]["message"] == "the client does not support 'roots/list'"


async def test_answer_that_is_no_object_is_as_none_and_the_question_is_put_again(obeying, proxy_of, put, client):
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy)
        params = {"name": "up__do", "requestState": first["requestState"], "inputResponses": {"q1": "yes", "q9": {}}}
        with anyio.fail_after(20):
            again = await proxy.handle("tools/call", params, client(modern=True, principal=ANN, **ASKS))
        last = await put(proxy, again)

    assert again == first
    assert last["structuredContent"]["answer"] == ANSWER


async def test_server_that_dies_while_its_client_thinks_is_named_in_the_next_round(
    obeying, proxy_of, put, noted_pids, soon, is_running
):
    async with proxy_of(obeying()) as proxy:
        first = await put(proxy)
        os.kill(noted_pids()[1], 9)
        await soon(lambda: not is_running(noted_pids()[1]))
        last = await put(proxy, first)

    assert last["isError"] is True
    assert "server 'up' broke off the call of tool 'do'" in last["content"][0]["text"]
