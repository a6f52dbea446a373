"""Tasks belong to the principal that made them, in both eras: nobody else reads, lists, answers or cancels one."""

import sys
from pathlib import Path

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import RpcError
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
SERVERS = Path(__file__).parent / "servers"
ANN, BOB = Principal("ann", servers=frozenset({"up"})), Principal("bob", servers=frozenset({"up"}))
OFFER = {"capabilities": {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}}
EXTENSION = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@pytest.fixture
def make(client):
    """Makes a task of that name, and gives the result."""

    async def ask(proxy, one, task="t1", **meta):
        params = {"name": "up__do", "arguments": {"task": task}, "task": {"ttl": 60000}, **meta}
        with anyio.fail_after(20):
            return await proxy.handle("tools/call", params, one)

    return ask


@pytest.fixture
def modern(notes):
    """A server of 2026-07-28 that answers every call with a task."""
    command = (str(SERVERS / "modern_tasks.py"),)
    return UpstreamConfig(name="up", command=sys.executable, args=command, env={"NOTES": str(notes)})


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"])
async def test_task_of_another_principal_is_as_if_it_were_not_there(obeying, proxy_of, client, make, noted, method):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann, bob = client(principal=ANN), client(principal=BOB)
        begun = await make(proxy, ann)
        refusals = []
        for task_id in ("t1", "t2"):
            with pytest.raises(RpcError) as raised:
                await proxy.handle(method, {"taskId": task_id}, bob)
            refusals.append(raised.value.error)

    assert begun["task"]["taskId"] == "t1"
    assert refusals[0]["code"] == INVALID_PARAMS
    assert str(refusals[0]).replace("t1", "t2") == str(refusals[1])
    assert not [line for line in noted() if line.startswith("tasks/")]


async def test_principal_follows_its_own_task_from_any_of_its_sessions(obeying, proxy_of, client, make):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        await make(proxy, client(principal=ANN))
        got = await proxy.handle("tasks/get", {"taskId": "t1"}, client(principal=ANN))

    assert got == {"taskId": "t1", "status": "working"}


async def test_task_is_not_given_to_another_principal_by_what_its_server_answers(obeying, proxy_of, client, make):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann, bob = client(principal=ANN), client(principal=BOB)
        await make(proxy, ann)
        with pytest.raises(RpcError, match="an id that another caller's task already has"):
            await make(proxy, bob)
        with pytest.raises(RpcError, match="unknown task 't1'"):
            await proxy.handle("tasks/get", {"taskId": "t1"}, bob)
        got = await proxy.handle("tasks/get", {"taskId": "t1"}, ann)

    assert got == {"taskId": "t1", "status": "working"}


@pytest.mark.parametrize("said", [{"task": {"taskId": "t9"}}, {"resultType": "task", "taskId": "t9"}])
async def test_result_of_a_request_that_asked_for_no_task_begins_none(obeying, proxy_of, client, said):
    params = {"name": "up__do", "arguments": {"result": said}}
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann = client(principal=ANN)
        with anyio.fail_after(20):
            assert (await proxy.handle("tools/call", params, ann)).items() >= said.items()
        with pytest.raises(RpcError, match="unknown task 't9'"):
            await proxy.handle("tasks/get", {"taskId": "t9"}, ann)


async def test_principal_whose_server_uses_an_id_again_follows_the_new_task(obeying, proxy_of, client, make):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann = client(principal=ANN)
        for _ in range(2):
            await make(proxy, ann)
            assert await proxy.handle("tasks/get", {"taskId": "t1"}, ann) == {"taskId": "t1", "status": "working"}


async def test_list_of_tasks_holds_ones_own(obeying, proxy_of, client, make):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann, bob = client(principal=ANN), client(principal=BOB)
        await make(proxy, ann, "t1")
        await make(proxy, bob, "t2")
        listed = [(await proxy.handle("tasks/list", {}, each))["tasks"] for each in (ann, bob, client())]

    assert [[task["taskId"] for task in tasks] for tasks in listed] == [["t1"], ["t2"], []]


async def test_task_on_one_of_several_servers_is_followed_there(obeying, proxy_of, client, make, noted):
    everything = Principal("ann")
    async with proxy_of(obeying("other", OFFER), obeying("up", OFFER)) as proxy:
        await make(proxy, client(principal=everything))
        got = await proxy.handle("tasks/get", {"taskId": "t1"}, client(principal=everything))
        assert "tasks" not in proxy.capabilities(everything)
        with pytest.raises(RpcError):
            await proxy.handle("tasks/list", {}, client(principal=everything))

    assert got["taskId"] == "t1"
    assert [line for line in noted() if line.startswith("tasks/")] == ["tasks/get t1"]


async def test_task_that_went_with_its_process_is_not_another_ones_of_the_same_id(
    obeying, proxy_of, client, make, call, until
):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann, bob = client(principal=ANN), client(principal=BOB)
        await make(proxy, ann)
        await call(proxy, ann, exit=1)
        await until(proxy, lambda: proxy.statuses()[0].restarts == 1 and proxy.statuses()[0].state == "up")
        await make(proxy, bob)
        with pytest.raises(RpcError, match="unknown task 't1'"):
            await proxy.handle("tasks/get", {"taskId": "t1"}, ann)


async def test_status_of_a_task_is_told_to_who_made_it_only(obeying, proxy_of, client, make, call):
    status = ["notifications/tasks/status", {"taskId": "t1", "status": "completed"}]
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann, bob = client(principal=ANN), client(principal=BOB)
        await make(proxy, ann)
        await call(proxy, bob, push=[status])
        await call(proxy, ann, push=[status])

    assert bob.heard == []
    assert ann.heard == [tuple(status)]


async def test_request_can_not_be_said_to_belong_to_another_ones_task(obeying, proxy_of, client, make):
    related = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}, "kept": 1}
    params = {"name": "up__do", "arguments": {"release": True}, "_meta": related}
    async with proxy_of(obeying("up", OFFER)) as proxy:
        ann, bob = client(principal=ANN), client(principal=BOB)
        await make(proxy, ann)
        told = [(await proxy.handle("tools/call", params, each))["structuredContent"]["params"] for each in (ann, bob)]

    assert [each["_meta"] for each in told] == [related, {"kept": 1}]


async def test_modern_client_gets_no_task_of_the_handshake_era(obeying, proxy_of, client, make):
    async with proxy_of(obeying("up", OFFER)) as proxy:
        one = client(modern=True, principal=ANN)
        result = await make(proxy, one)
        assert "tasks" not in proxy.capabilities(ANN, modern=True)

    assert "task" not in result["structuredContent"]["params"]


async def test_tasks_of_2026_belong_to_their_principal_too(modern, proxy_of, client, noted):
    async with proxy_of(modern) as proxy:
        ann, bob = (client(modern=True, principal=each, **EXTENSION) for each in (ANN, BOB))
        begun = await proxy.handle("tools/call", {"name": "up__do", "arguments": {}}, ann)
        task_id = begun["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(RpcError, match="unknown task"):
                await proxy.handle(method, {"taskId": task_id, "inputResponses": {}}, bob)
        got = await proxy.handle("tasks/get", {"taskId": task_id}, ann)
        offered = [proxy.capabilities(ANN, modern=each).get("extensions") for each in (True, False)]

    assert begun["resultType"] == "task"
    assert got["taskId"] == task_id
    assert [line for line in noted() if line.startswith("tasks/")] == [f"tasks/get {task_id}"]
    assert offered == [EXTENSION["extensions"], None]


async def test_client_of_the_handshake_era_is_given_no_task_of_2026(modern, proxy_of, client, noted):
    async with proxy_of(modern) as proxy:
        one = client(principal=ANN, **EXTENSION)
        result = await proxy.handle("tools/call", {"name": "up__do", "arguments": {}, "task": {}}, one)

    assert result["content"][0]["text"] == "done"
    assert "asked for task" not in noted()


async def test_what_a_server_says_or_asks_of_a_task_reaches_who_made_it_only(obeying, proxy_of, client, make, call):
    """A task outlives its call, so that the only caller there is may be another one."""
    related = {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}}
    log = ["notifications/message", {"level": "error", "data": "ann's", **related}]
    question = ["elicitation/create", {"message": "ann's password?", **related}]
    answers = {"elicitation/create": {"action": "accept"}}
    async with proxy_of(obeying("up", OFFER, sessions="shared")) as proxy:
        ann, bob = (client(principal=each, elicitation={}) for each in (ANN, BOB))
        ann.answers = bob.answers = answers
        await make(proxy, ann)
        told = [await call(proxy, each, push=[log], ask=question) for each in (bob, ann)]

    assert (bob.heard, bob.was_asked) == ([], [])
    assert (ann.heard, ann.was_asked) == ([tuple(log)], ["elicitation/create"])
    assert ["code" in each["answer"] for each in told] == [True, False]
