"""Calls of handshake-era servers that outlive a modern client's rounds."""

import asyncio
import secrets
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from gateway.errors import RpcError, UpstreamUnavailable
from gateway.proxy.bridge import Bridge, answer_rounds
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.shares import ShareRule

pytestmark = pytest.mark.anyio
CLIENT = SimpleNamespace(
    modern=True, session=None, capabilities={"roots": {}}, log_level=None, principal=ANYBODY, notified=lambda *_: None
)


class AsksAside:
    """A server that asks for roots and gives its result without waiting for them."""

    def __init__(self):
        self.go_on = anyio.Event()
        self.answers = []

    async def run(self, caller):
        async def ask():
            self.answers.append(await caller.asked("roots/list", {}))

        self.asking = asyncio.create_task(ask())
        await self.go_on.wait()
        return {"content": []}


@pytest.fixture
async def bridge():
    async with anyio.create_task_group() as tasks:
        yield Bridge(tasks.start_soon, ShareRule(), lambda principal: secrets.token_hex(8))
        tasks.cancel_scope.cancel()


async def test_result_that_came_before_the_client_came_back_is_there_for_it(bridge):
    server = AsksAside()

    first = await bridge.begin("up", "tools/call", {}, CLIENT, server.run)
    server.go_on.set()
    await anyio.wait_all_tasks_blocked()
    again = {"requestState": first["requestState"], "inputResponses": {"q1": {"roots": []}}}
    second = await bridge.resume("tools/call", again, CLIENT)

    assert [request["method"] for request in first["inputRequests"].values()] == ["roots/list"]
    assert second == {"content": []}


async def test_answer_with_too_many_roots_is_an_error_for_the_server_that_asked(bridge):
    server = AsksAside()
    first = await bridge.begin("up", "tools/call", {}, CLIENT, server.run)
    server.go_on.set()
    again = {"requestState": first["requestState"], "inputResponses": {"q1": {"roots": [{}] * 1001}}}
    await bridge.resume("tools/call", again, CLIENT)

    with pytest.raises(RpcError, match="the client has 1001 roots: at most 1000 are passed on"):
        await server.asking


async def test_result_is_given_out_once(bridge):
    server = AsksAside()
    first = await bridge.begin("up", "tools/call", {}, CLIENT, server.run)
    server.go_on.set()
    await anyio.wait_all_tasks_blocked()
    await bridge.resume("tools/call", {"requestState": first["requestState"]}, CLIENT)

    with pytest.raises(RpcError, match="unknown or expired requestState"):
        await bridge.resume("tools/call", {"requestState": first["requestState"]}, CLIENT)


def client(name="anonymous", *, told=None, **capabilities):
    """A round of a modern client, who writes down what it is told."""
    told = [] if told is None else told
    return SimpleNamespace(
        modern=True,
        session=None,
        capabilities=capabilities or {"roots": {}},
        log_level=None,
        principal=Principal(name),
        notified=lambda method, params: told.append((method, params)),
    )


class AsksTwice:
    """A server that tells and asks, and gives what it was answered."""

    async def run(self, caller):
        self.caller = caller
        caller.notified("notifications/progress", {"progress": 1, "progressToken": "the server's"})
        caller.notified("notifications/message", {"data": 1})
        first = await caller.asked("roots/list", {})
        caller.notified("notifications/progress", {"progress": 2, "progressToken": "the server's"})
        return {"content": [first, await caller.asked("roots/list", {"n": 2})]}


def back(first, **responses):
    return {"requestState": first["requestState"], "inputResponses": responses}


async def test_call_goes_on_only_for_its_principal_and_by_its_method(bridge):
    first = await bridge.begin("up", "tools/call", {}, client("ann"), AsksTwice().run)
    for name, method in (("bob", "tools/call"), ("ann", "prompts/get")):
        with pytest.raises(RpcError, match="unknown or expired requestState: send the request again without it"):
            await bridge.resume(method, back(first, q1={"roots": []}), client(name))
    second = await bridge.resume("tools/call", back(first, q1={"roots": [1]}), client("ann"))
    last = await bridge.resume("tools/call", back(first, q2={"roots": [2]}), client("ann"))

    assert second["inputRequests"] == {"q2": {"method": "roots/list", "params": {"n": 2}}}
    assert second["requestState"] == first["requestState"]
    assert last == {"content": [{"roots": [1]}, {"roots": [2]}]}
    assert not bridge.waits


async def test_response_that_is_no_object_or_to_no_open_question_answers_nothing(bridge):
    first = await bridge.begin("up", "tools/call", {}, client(), AsksTwice().run)
    again = await bridge.resume("tools/call", back(first, q1="yes", q2={"roots": []}, x={}), client())
    malformed = await bridge.resume("tools/call", {**back(first), "inputResponses": [1]}, client())
    second = await bridge.resume("tools/call", back(first, q1={"roots": []}), client())
    same = await bridge.resume("tools/call", back(first, q1={"roots": ["later"]}), client())

    assert again == malformed == first
    assert list(second["inputRequests"]) == list(same["inputRequests"]) == ["q2"]


async def test_each_round_hears_what_is_told_during_it_and_of_progress_by_its_own_token(bridge):
    told, later = [], []
    server = AsksTwice()
    first = await bridge.begin("up", "tools/call", {"_meta": {"progressToken": "a"}}, client(told=told), server.run)
    server.caller.notified("notifications/message", {"data": "between rounds"})
    await bridge.resume("tools/call", back(first, q1={"roots": []}), client(told=later))

    assert told == [
        ("notifications/progress", {"progress": 1, "progressToken": "a"}),
        ("notifications/message", {"data": 1}),
    ]
    # This round named no token.
    assert later == []


async def test_two_rounds_at_a_time_are_refused_and_a_client_that_leaves_its_round_ends_the_call(bridge):
    server = AsksAside()
    first = await bridge.begin("up", "tools/call", {}, client(), server.run)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bridge.resume, "tools/call", back(first, q1={"roots": []}), client())
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RpcError, match="a request with this requestState is already running"):
            await bridge.resume("tools/call", back(first), client())
        assert bridge.waits
        tasks.cancel_scope.cancel()

    assert not bridge.waits
    with pytest.raises(RpcError, match="unknown or expired requestState"):
        await bridge.resume("tools/call", back(first), client())


async def test_client_is_asked_only_what_it_can_answer(bridge):
    async def run(caller):
        return {"content": [await caller.asked("sampling/createMessage", {})]}

    with pytest.raises(RpcError, match="sampling"):
        await bridge.begin("up", "tools/call", {}, client(), run)

    assert not bridge.waits


async def test_call_whose_client_does_not_come_back_is_forgotten_with_its_place(bridge, monkeypatch):
    monkeypatch.setattr("gateway.proxy.bridge._ANSWER_TIME", 0.01)
    server = AsksTwice()
    first = await bridge.begin("up", "tools/call", {}, client(), server.run)
    with anyio.fail_after(30):
        while bridge.waits:
            await anyio.lowlevel.checkpoint()

    with pytest.raises(RpcError, match="unknown or expired requestState"):
        await bridge.resume("tools/call", back(first), client())


async def test_error_inside_the_gateway_ends_the_one_call_and_says_only_of_what_kind_it_is(bridge):
    async def run(_):
        raise KeyError("a secret")

    with pytest.raises(RpcError, match=r"^the call failed inside the gateway: KeyError$"):
        await bridge.begin("up", "tools/call", {}, client(), run)

    assert not bridge.waits


async def test_principal_parks_its_share_of_the_calls():
    async with anyio.create_task_group() as tasks:
        bridge = Bridge(tasks.start_soon, ShareRule(0.002), lambda principal: secrets.token_hex(8))
        first = await bridge.begin("up", "tools/call", {}, client("ann"), AsksTwice().run)
        await bridge.begin("up", "tools/call", {}, client("ann"), AsksTwice().run)
        with pytest.raises(UpstreamUnavailable, match="'ann' already has 2 of the 1000 places"):
            await bridge.begin("up", "tools/call", {}, client("ann"), AsksTwice().run)
        await bridge.begin("up", "tools/call", {}, client("bob"), AsksTwice().run)
        await bridge.resume("tools/call", back(first, q1={"roots": []}), client("ann"))
        await bridge.resume("tools/call", back(first, q2={"roots": []}), client("ann"))
        await bridge.begin("up", "tools/call", {}, client("ann"), AsksTwice().run)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("rounds", "ends"), [(0, True), (31, True), (32, False)])
async def test_modern_server_may_ask_for_input_32_times_in_one_call(rounds, ends):
    sent, left = [], rounds

    async def asked(method, params):
        return {"method": method, **params}

    def result():
        question = {"method": "roots/list", "params": {"left": left}}
        asks = {"resultType": "input_required", "inputRequests": {"k": question}, "requestState": left}
        return asks if left else {"content": []}

    async def ask(params):
        nonlocal left
        left -= 1
        sent.append(params)
        return result()

    answering = answer_rounds(result(), ask, {"name": "x", "requestState": "old"}, SimpleNamespace(asked=asked))
    if ends:
        assert await answering == {"content": []}
    else:
        with pytest.raises(RpcError, match="the server asked for input 32 times and gave no result"):
            await answering

    assert sent[:1] == [
        {"name": "x", "requestState": n, "inputResponses": {"k": {"method": "roots/list", "left": n}}}
        for n in [rounds][: len(sent)]
    ]
