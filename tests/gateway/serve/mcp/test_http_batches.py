"""Batches of requests in a session over HTTP, where the version of the protocol has them."""

import json

import anyio
import anyio.lowlevel
import pytest

from tests.gateway.serve.mcp.http_requests import calling, chatty, quiet, send_batch

pytestmark = pytest.mark.anyio


async def test_requests_of_a_batch_are_answered_each_on_one_stream_where_the_version_has_batches(servers, site_of):
    servers.tool(quiet)
    servers.tool(chatty)
    told = {"method": "notifications/roots/list_changed"}
    async with site_of(servers) as site:
        session = await site.session("2025-03-26")
        answer = await send_batch(session, calling("chatty", "a"), told, calling("quiet", 2), calling("nope", 3))
        live = site.endpoint._sessions.live()[0]
        await servers.until(lambda: servers.told)

    sent = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    answers = {message["id"]: message for message in sent if "id" in message}
    assert answer.headers["content-type"] == "text/event-stream"
    assert [message["params"]["progress"] for message in sent if "method" in message] == [0, 1, 2]
    assert [answers[each]["result"]["content"][0]["text"] for each in ("a", 2)] == ["done", "done"]
    assert answers[3]["error"]["code"] == -32602
    assert len(answers) == 3
    assert [method for method, _ in servers.told] == ["notifications/roots/list_changed"]
    assert (live._running, list(live._streams)) == (set(), [0])


async def test_one_request_in_a_batch_is_a_stream_and_a_batch_without_requests_is_accepted(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session("2025-03-26")
        one = await send_batch(session, calling("quiet", 1))
        none = await send_batch(session, {"method": "notifications/initialized"}, {"id": "x", "result": {}})

    assert (one.headers["content-type"], one.text.count("data: {")) == ("text/event-stream", 1)
    assert (none.status_code, none.content) == (202, b"")


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([calling("hang", 1), calling("hang", 1)], -32600),
        ([calling("hang", 1), {"id": 2, "method": 7}], -32600),
        ([calling("hang", 1), {"id": 2, "method": "x", "params": {"n": float("nan")}}], -32700),
    ],
    ids=["one id twice", "no method", "no number"],
)
async def test_batch_with_a_message_that_can_not_be_taken_begins_nothing(servers, site_of, messages, code):
    began, _ = servers.hanging()
    async with site_of(servers) as site:
        session = await site.session("2025-03-26")
        answer = await send_batch(session, *messages)

    assert answer.json()["error"]["code"] == code
    assert not began.is_set()


async def test_requests_of_a_batch_end_each_by_itself_and_all_with_their_client(servers, site_of):
    began, cancelled = servers.hanging()
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session("2025-03-26")
        cancels = {"method": "notifications/cancelled", "params": {"requestId": 1}}

        async def cancel() -> None:
            await began.wait()
            await send_batch(session, cancels)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            answer = await send_batch(session, calling("hang", 1), calling("quiet", 2))
        await cancelled.wait()

    sent = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert {message["id"]: "result" in message for message in sent} == {1: False, 2: True}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_batch_is_refused_by_name_where_the_version_has_none(servers, site_of, version):
    async with site_of(servers) as site:
        session = await site.session(version)
        answer = await send_batch(session, calling("quiet", 1))

    assert answer.status_code == 400
    assert answer.json()["error"] == {"code": -32600, "message": "the message is a batch; send one message at a time"}
