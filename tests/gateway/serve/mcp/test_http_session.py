"""Streamable HTTP of the handshake era, byte by byte, in front of servers that do what the test says."""

import asyncio
import gc
import json
import weakref
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.protocol.messages import Request
from gateway.proxy.caller import ANYBODY, Principal
from gateway.serve.auth.api_keys import KeyFile, KeyRecord, KeyRing, digest_of
from gateway.serve.auth.bearer import BearerAuth
from gateway.serve.auth.credentials import Credentials
from gateway.serve.mcp.http import HttpRequest

pytestmark = pytest.mark.anyio


def text(words):
    return {"content": [{"type": "text", "text": words}]}


async def quiet(_, __):
    return text("done")


async def chatty(params, caller):
    for step in range(3):
        caller.notified("notifications/progress", {"progressToken": "p", "progress": step})
    return text("done")


async def curious(_, caller):
    return text(json.dumps(await caller.asked("elicitation/create", {"message": "who?"})))


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_handshake_revision_is_agreed_to(servers, site_of, version):
    async with site_of(servers) as site:
        session = await site.session(version)

    assert session.headers["mcp-protocol-version"] == version


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28"])
async def test_other_versions_are_answered_with_the_newest_that_shakes_hands(servers, site_of, version):
    async with site_of(servers) as site:
        session = await site.session(version)

    assert session.headers["mcp-protocol-version"] == "2025-11-25"


async def test_greeting_says_who_we_are_and_what_the_servers_offer(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        del session.headers["mcp-session-id"]
        result = await session.open()

    assert result["serverInfo"]["name"] == "codec-gateway"
    assert result["capabilities"] == servers.offered
    assert result["instructions"] == "be kind"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 7}, {"protocolVersion": "2025-11-25", "capabilities": []}])
async def test_malformed_greeting_opens_no_session(servers, site_of, params):
    async with site_of(servers) as site:
        session = await site.session()
        del session.headers["mcp-session-id"]
        answer = await session.post("initialize", params)

    assert answer.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in answer.headers


async def test_second_greeting_in_a_session_is_refused(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        answer = await session.post("initialize", {"protocolVersion": "2025-11-25"})

    assert answer.json()["error"] == {"code": -32600, "message": "this session is already initialized"}


async def test_request_without_a_session_is_a_bad_request_that_names_initialize(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        del session.headers["mcp-session-id"]
        answers = [await session.post("tools/list"), await session.post("notifications/initialized", None, None)]
        async with session.listen() as stream:
            await stream.response.aread()

    assert [answer.status_code for answer in (*answers, stream.response)] == [400, 400, 400]
    assert "initialize" in answers[0].json()["error"]["message"]
    assert answers[0].json()["id"] == 1


async def test_enveloped_request_without_the_version_header_is_told_so(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        del session.headers["mcp-session-id"], session.headers["mcp-protocol-version"]
        answer = await session.post("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


async def test_session_that_is_unknown_or_somebody_elses_is_not_found(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        unknown = await session.post("tools/list", **{"mcp-session-id": "x"})
        site.principal = Principal("eve")
        foreign = await session.post("tools/list")
        deleted = await session.http.delete(site.url, headers=session.headers)
        site.principal = Principal("anonymous")
        own = await session.post("tools/list")

    assert [unknown.status_code, foreign.status_code, deleted.status_code, own.status_code] == [404, 404, 404, 200]
    assert unknown.json() == foreign.json()


@pytest.mark.parametrize("version", ["2020-01-01", "garbage", "2025-11-25 ; x", ""])
async def test_version_that_there_is_not_is_named_in_a_session_and_changes_nothing(servers, site_of, version):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        refused = await session.call("quiet", **{"mcp-protocol-version": version})
        unknown = await session.call("quiet", **{"mcp-protocol-version": version, "mcp-session-id": "made up"})
        answer = await session.call("quiet")

    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == (
        f"unknown version {version!r} in mcp-protocol-version: this session uses 2025-11-25"
    )
    assert unknown.status_code == 404
    assert answer.json()["result"]["content"][0]["text"] == "done"


async def send_batch(session, *messages):
    content = json.dumps([{"jsonrpc": "2.0", **message} for message in messages])
    return await session.http.post(session.url, content=content, headers=session.headers)


def calling(tool, request_id):
    return {"id": request_id, "method": "tools/call", "params": {"name": tool}}


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
    assert (live._running, list(live._streams)) == ({}, [0])


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


async def test_deleted_session_is_gone_and_its_requests_with_it(servers, site_of):
    began, cancelled = servers.hanging()
    async with site_of(servers) as site:
        session = await site.session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hang")
            await began.wait()
            deleted = await session.http.delete(site.url, headers=session.headers)
            with anyio.fail_after(20):
                await cancelled.wait()
        after = await session.post("tools/list")

    assert (deleted.status_code, after.status_code) == (200, 404)
    assert len(servers.ended) == 1


@pytest.mark.parametrize("is_batch", [False, True])
async def test_requests_of_a_deleted_session_are_answered_on_the_streams_that_they_began(servers, site_of, is_batch):
    began = anyio.Event()

    async def lingering(_, caller):
        caller.notified("notifications/progress", {"progress": 0})
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            # What a server is told when its caller goes takes a few turns.
            for _ in range(10):
                await anyio.lowlevel.cancel_shielded_checkpoint()

    servers.tool(lingering)
    async with site_of(servers) as site:
        session = await site.session("2025-03-26")
        async with anyio.create_task_group() as tasks:
            answers = []

            async def call():
                call = calling("lingering", 1)
                answers.append(await (send_batch(session, call) if is_batch else session.call("lingering")))

            tasks.start_soon(call)
            await began.wait()
            await session.http.delete(site.url, headers=session.headers)

    sent = [json.loads(line[6:]) for line in answers[0].text.splitlines() if line.startswith("data: {")]
    assert [message.get("error", {}).get("code") for message in sent] == [None, -32800]


async def test_message_whose_session_ended_while_its_body_came_is_for_no_session(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        (live,) = site.endpoint._sessions.live()
        heard = live.times_heard
        body = json.dumps(session.body("tools/call", {"name": "quiet"})).encode()

        async def parts():
            yield body[:10]
            with anyio.fail_after(20):
                while live.times_heard == heard:
                    await anyio.lowlevel.checkpoint()
            await session.http.delete(site.url, headers=session.headers)
            yield body[10:]

        answer = await session.http.post(site.url, content=parts(), headers=session.headers)

    assert answer.status_code == 404
    assert servers.asked == []


async def test_session_whose_client_listened_is_freed_with_its_end_without_the_garbage_collector(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        (kept,) = map(weakref.ref, site.endpoint._sessions.live())
        gc.disable()
        try:
            async with session.listen() as stream:
                await session.http.delete(site.url, headers=session.headers)
                assert await stream.events() == []
            servers.ended.clear()
            with anyio.fail_after(20):
                while kept() is not None:
                    await anyio.lowlevel.checkpoint()
        finally:
            gc.enable()


async def test_session_that_nobody_uses_ends(servers, site_of):
    async with site_of(servers, session_idle=0.05) as site:
        session = await site.session()
        await servers.until(lambda: servers.ended)
        after = await session.post("tools/list")

    assert after.status_code == 404


async def test_session_with_a_running_request_or_an_open_stream_is_in_use(servers, site_of):
    began, _ = servers.hanging()
    async with site_of(servers, session_idle=1.0) as site, anyio.create_task_group() as tasks:
        # Each is used as soon as it is there, before it counts as idle.
        busy = await site.session()
        tasks.start_soon(busy.call, "hang")
        await began.wait()
        open_one = await site.session()
        async with open_one.listen():
            idle = await site.session()
            await servers.until(lambda: servers.ended)
            kept = [await session.post("ping") for session in (busy, open_one)]
            gone = await idle.post("ping")
        tasks.cancel_scope.cancel()

    assert [answer.status_code for answer in (*kept, gone)] == [200, 200, 404]


async def test_session_over_the_most_is_told_to_come_later(servers, site_of):
    async with site_of(servers, max_sessions=1) as site:
        session = await site.session()
        first = session.headers.pop("mcp-session-id")
        refused = await session.post("initialize", {"protocolVersion": "2025-11-25"})
        await session.http.delete(site.url, headers={**session.headers, "mcp-session-id": first})
        taken = await session.post("initialize", {"protocolVersion": "2025-11-25"})

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert taken.status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"accept": "application/json"}, 406),
        ({"accept": "text/event-stream"}, 406),
        ({"accept": "text/*, application/*;q=0.5"}, 200),
        ({"accept": "*/*"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "Application/JSON; charset=utf-8"}, 200),
        ({"mcp-protocol-version": "2025-06-18"}, 200),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
    ],
)
async def test_headers_of_a_post_are_checked(servers, site_of, headers, status):
    async with site_of(servers) as site:
        session = await site.session()
        answer = await session.post("ping", **headers)

    assert answer.status_code == status


async def test_request_without_an_accept_header_takes_any_answer(servers, site_of):
    """RFC 9110, 12.5.1. Proxies and simple clients leave it out (opencode 37019, XS-MLVP/UCAgent 127)."""
    async with site_of(servers) as site:
        session = await site.session()
        headers = {**session.headers, "accept": ""}
        answers = [await session.http.post(site.url, content=json.dumps(session.body("ping")), headers=headers)]
        request = session.http.build_request(
            "POST", site.url, content=json.dumps(session.body("ping")), headers=headers
        )
        del request.headers["accept"]
        answers.append(await session.http.send(request))

    assert [answer.status_code for answer in answers] == [200, 200]


async def test_get_needs_a_client_that_reads_events(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        answer = await session.http.get(site.url, headers={**session.headers, "accept": "application/json"})
        patched = await session.http.patch(site.url, headers=session.headers)

    assert answer.status_code == 406
    assert (patched.status_code, patched.headers["allow"]) == (405, "GET, POST, DELETE")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b"7", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
    ],
)
async def test_body_that_is_no_message_is_a_bad_request(servers, site_of, body, code):
    async with site_of(servers) as site:
        session = await site.session()
        answer = await session.http.post(site.url, content=body, headers=session.headers)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


@pytest.mark.parametrize("announced", [True, False])
async def test_body_over_the_limit_is_refused(servers, site_of, announced):
    async def chunks():
        for _ in range(20):
            yield b" " * 10_000

    async with site_of(servers) as site:
        session = await site.session()
        content = b" " * 200_000 if announced else chunks()
        answer = await session.http.post(site.url, content=content, headers=session.headers)

    assert answer.status_code == 413


async def test_answer_with_nothing_before_it_is_json(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        answer = await session.call("quiet", "a")

    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"jsonrpc": "2.0", "id": "a", "result": text("done")}


async def test_pushes_before_an_answer_come_with_it_in_order_on_one_stream(servers, site_of):
    servers.tool(chatty)
    async with site_of(servers) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "chatty"}) as stream:
            events = await stream.events()

    assert stream.response.headers["content-type"] == "text/event-stream"
    assert [event.get("params", {}).get("progress") for event in events] == [0, 1, 2, None]
    assert events[-1] == {"jsonrpc": "2.0", "id": 1, "result": text("done")}
    assert stream.ids == ["1-1", "1-2", "1-3", "1-4"]


async def test_client_is_asked_on_the_stream_of_its_request_and_answers_by_a_post(servers, site_of):
    servers.tool(curious)
    async with site_of(servers) as site:
        session = await site.session(capabilities={"elicitation": {}})
        async with session.stream("tools/call", {"name": "curious"}) as stream:
            question = await stream.event()
            accepted = await session.answer(question["id"], {"action": "accept", "x": None})
            answer = await stream.event()

    assert question == {"jsonrpc": "2.0", "id": "g1", "method": "elicitation/create", "params": {"message": "who?"}}
    assert (accepted.status_code, accepted.content) == (202, b"")
    assert json.loads(answer["result"]["content"][0]["text"]) == {"action": "accept", "x": None}


async def test_client_is_not_asked_what_it_did_not_announce(servers, site_of):
    servers.tool(curious)
    async with site_of(servers) as site:
        session = await site.session(capabilities={"sampling": {}})
        answer = await session.call("curious")

    assert answer.json()["error"] == {"code": -32601, "message": "the client did not announce 'elicitation'"}


async def test_question_that_nobody_waits_for_any_more_is_taken_back(servers, site_of):
    async def impatient(_, caller):
        with anyio.move_on_after(0.01):
            await caller.asked("elicitation/create", {})
        return text("done")

    servers.tool(impatient)
    async with site_of(servers) as site:
        session = await site.session(capabilities={"elicitation": {}})
        async with session.stream("tools/call", {"name": "impatient"}) as stream:
            question, taken_back, answer = await stream.events()
        late = await session.answer("g1", {})

    assert (question["method"], taken_back["method"]) == ("elicitation/create", "notifications/cancelled")
    assert taken_back["params"]["requestId"] == "g1"
    assert answer["result"] == text("done")
    assert late.status_code == 202


@pytest.mark.parametrize("request_id", [7, "7"])
async def test_request_is_cancelled_by_its_own_id_and_no_other(servers, site_of, request_id):
    began, cancelled = servers.hanging()
    other = 7 if request_id == "7" else "7"
    async with site_of(servers) as site:
        session = await site.session()
        async with anyio.create_task_group() as tasks:
            answers = []

            async def call():
                answers.append(await session.call("hang", request_id))

            tasks.start_soon(call)
            await began.wait()
            for each in (other, None, [request_id], True):
                await session.post("notifications/cancelled", {"requestId": each}, None)
            await session.post("ping", request_id=other)
            assert not cancelled.is_set()
            await session.post("notifications/cancelled", {"requestId": request_id}, None)

    assert cancelled.is_set()
    assert answers[0].json() == {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": -32800, "message": "the request was cancelled"},
    }


async def test_request_that_is_cancelled_before_it_began_is_answered_and_keeps_no_session_in_use(servers, site_of):
    message = Request(7, "tools/call", {"name": "quiet"})
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        (live,) = site.endpoint._sessions.live()
        request = HttpRequest("POST", {}, set(), ANYBODY, None, {}, None, None)
        live.admit([message])
        live.cancel(7)
        frame = await live.answer(message, request, live.standing)
        was_busy = live.idle_since is None
        live.dismiss([message])
        is_idle = live.idle_since is not None
        again = await session.call("quiet", 7)

    assert json.loads(frame)["error"] == {"code": -32800, "message": "the request was cancelled"}
    assert was_busy
    assert is_idle
    assert again.json()["result"] == text("done")


@pytest.mark.parametrize("by_client", [1, 2, 3])
@pytest.mark.parametrize("by_another", [0, 1])
async def test_cancellation_of_a_client_is_taken_back_once_and_another_s_never(servers, site_of, by_client, by_another):
    began, _ = servers.hanging()
    message = Request(7, "tools/call", {"name": "hang"})
    async with site_of(servers) as site:
        await site.session()
        (live,) = site.endpoint._sessions.live()
        request = HttpRequest("POST", {}, set(), ANYBODY, None, {}, None, None)
        left = []

        async def answer():
            try:
                return await live.answer(message, request, live.standing)
            finally:
                left.append(asyncio.current_task().cancelling())

        live.admit([message])
        task = asyncio.ensure_future(answer())
        await began.wait()
        for _ in range(by_client):
            live.cancel(7)
        for _ in range(by_another):
            task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        live.dismiss([message])

    assert left == [by_another]
    assert isinstance(ended, asyncio.CancelledError if by_another else bytes)


async def test_id_of_a_running_request_is_not_taken_twice(servers, site_of):
    began, _ = servers.hanging()
    async with site_of(servers) as site:
        session = await site.session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hang", 7)
            await began.wait()
            twice, alike = await session.post("ping", request_id=7), await session.post("ping", request_id="7")
            tasks.cancel_scope.cancel()

    assert twice.json()["error"]["code"] == -32600
    assert alike.json()["result"] == {}


async def test_client_that_leaves_before_anything_was_written_ends_its_request(servers, site_of):
    began, cancelled = servers.hanging()
    async with site_of(servers) as site:
        session = await site.session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hang")
            await began.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await cancelled.wait()


async def test_client_that_lost_its_stream_gets_the_rest_of_it_by_the_last_event(servers, site_of):
    go_on = anyio.Event()

    async def slow(_, caller):
        for step in range(3):
            caller.notified("notifications/progress", {"progress": step})
        await go_on.wait()
        caller.notified("notifications/progress", {"progress": 3})
        return text("done")

    servers.tool(slow)
    async with site_of(servers) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            await stream.event()
        go_on.set()
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            events = await resumed.events()
        async with session.listen(**{"last-event-id": "1-4"}) as again:
            last = await again.events()

    assert [event.get("params", {}).get("progress") for event in events] == [1, 2, 3, None]
    assert resumed.ids == ["1-2", "1-3", "1-4", "1-5"]
    assert last == events[-1:]


def _with_one_place(folder):
    """Puts the check of a key before an endpoint, whose requests run one at a time."""

    def with_key(endpoint):
        KeyFile(folder / "keys").add(KeyRecord("a", digest_of("key"), datetime.now(UTC), concurrency=1))
        auth = BearerAuth(endpoint, Credentials(keys=KeyRing(folder / "keys")), Metrics().access)
        key = (b"authorization", b"Bearer key")
        return lambda scope, *ends: auth({**scope, "headers": [*scope["headers"], key]}, *ends)

    return with_key


async def test_request_that_goes_on_without_its_client_keeps_the_place_of_its_key(servers, site_of, tmp_path):
    go_on = anyio.Event()

    async def slow(_, caller):
        caller.notified("notifications/progress", {"progress": 0})
        await go_on.wait()
        return text("done")

    servers.tool(slow)
    async with site_of(servers, around=_with_one_place(tmp_path)) as site:
        session = await site.session()
        (live,) = site.endpoint._sessions.live()
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            await stream.event()
        with anyio.fail_after(20):
            while live._streams[1].attached:
                await anyio.lowlevel.checkpoint()
        meanwhile = await session.post("ping", request_id=2)
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            go_on.set()
            events = await resumed.events()
        afterwards = await session.post("ping", request_id=2)

    assert (meanwhile.status_code, afterwards.status_code) == (429, 200)
    assert events == [{"jsonrpc": "2.0", "id": 1, "result": text("done")}]


@pytest.mark.parametrize("ends", ["notification", "delete"])
async def test_call_of_a_key_that_has_no_other_place_can_be_ended_all_the_same(servers, site_of, tmp_path, ends):
    began, cancelled = servers.hanging()
    async with site_of(servers, around=_with_one_place(tmp_path)) as site:
        session = await site.session()
        answers = []

        async def call():
            answers.append(await session.call("hang", 7))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await began.wait()
            another = await session.post("ping", request_id=8)
            if ends == "notification":
                ended = await session.post("notifications/cancelled", {"requestId": 7}, None)
            else:
                ended = await session.http.delete(site.url, headers=session.headers)
            await cancelled.wait()
        afterwards = await session.post("ping", request_id=8)

    assert (another.status_code, another.headers["retry-after"]) == (429, "1")
    assert (ended.status_code, afterwards.status_code) == ((202, 200) if ends == "notification" else (200, 404))
    assert answers[0].json()["error"]["code"] == -32800


async def test_key_that_has_no_place_begins_no_session(servers, site_of, tmp_path):
    began, cancelled = servers.hanging()
    async with site_of(servers, around=_with_one_place(tmp_path)) as site:
        session = await site.session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hang", 7)
            await began.wait()
            with pytest.raises(AssertionError, match="too many requests at a time"):
                await site.session()
            await session.post("notifications/cancelled", {"requestId": 7}, None)
            await cancelled.wait()


@pytest.mark.parametrize("event_id", ["9-1", "1-9", "x", "1", "-", "1-x", "0-", "+1-1", "1" * 5000 + "-1"])
async def test_event_that_is_not_kept_is_a_bad_request(servers, site_of, event_id):
    async with site_of(servers) as site:
        session = await site.session()
        async with session.listen(**{"last-event-id": event_id}) as stream:
            await stream.response.aread()

    assert stream.response.status_code == 400


async def test_what_belongs_to_no_request_comes_by_the_get_stream(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        servers.change("tools")
        servers.change("tools")
        async with session.listen() as stream:
            first = await stream.event()
            servers.change("prompts")
            second = await stream.event()
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            again = await resumed.event()

    assert first == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert second == again == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}


async def test_change_of_a_server_that_a_client_may_not_see_is_not_told(servers, site_of):
    async with site_of(servers) as site:
        site.principal = Principal("ann", servers=frozenset({"two"}))
        session = await site.session()
        servers.change("tools", "one")
        servers.change("prompts", "two")
        async with session.listen() as stream:
            event = await stream.event()

    assert event["method"] == "notifications/prompts/list_changed"


async def test_change_of_somebody_elses_list_is_not_told(servers, site_of):
    async with site_of(servers) as site:
        site.principal = Principal("ann", owner="key:a")
        session = await site.session()
        servers.change("tools", owner="key:b")
        servers.change("prompts", owner="key:a")
        async with session.listen() as stream:
            event = await stream.event()

    assert event["method"] == "notifications/prompts/list_changed"


async def test_second_get_stream_takes_over_from_the_first(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        async with session.listen() as first, session.listen() as second:
            servers.change("tools")
            assert await first.events() == []
            assert (await second.event())["method"] == "notifications/tools/list_changed"


async def test_client_is_asked_outside_of_a_request_on_its_get_stream(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session(capabilities={"roots": {}})
        await session.call("quiet")
        (caller,) = servers.callers
        async with anyio.create_task_group() as tasks, session.listen() as stream:
            answered = asyncio.ensure_future(caller.session.asked("roots/list", {}))
            question = await stream.event()
            await session.answer(question["id"], {"roots": []})
            assert await answered == {"roots": []}
            tasks.cancel_scope.cancel()


async def test_question_fails_when_the_session_ends(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session(capabilities={"elicitation": {}})
        servers.tool(curious)
        async with session.stream("tools/call", {"name": "curious"}) as stream:
            await stream.event()
            (caller,) = servers.callers
            waiting = asyncio.ensure_future(caller.asked("elicitation/create", {}))
            await stream.event()
            await session.http.delete(site.url, headers=session.headers)
            with pytest.raises(RpcError, match="is gone"):
                await waiting
            with pytest.raises(RpcError, match="is gone"):
                await caller.asked("elicitation/create", {})


async def test_log_level_is_kept_for_the_session_and_passed_on(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        wrong = await session.post("logging/setLevel", {"level": "loud"})
        await session.post("logging/setLevel", {"level": "error"})
        await session.call("quiet")

    assert wrong.json()["error"]["code"] == -32602
    assert [method for method, _ in servers.asked] == ["logging/setLevel", "tools/call"]
    assert (servers.callers[-1].log_level, servers.callers[-1].session.log_level) == ("error", "error")


async def test_notification_of_the_client_is_passed_on_except_what_concerns_us_alone(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        for method in ("notifications/initialized", "notifications/progress", "notifications/roots/list_changed"):
            await session.post(method, {"x": 1}, None)
        await servers.until(lambda: servers.told)

    assert servers.told == [("notifications/roots/list_changed", {"x": 1})]


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "nonsense"])
async def test_methods_of_the_other_era_are_unknown(servers, site_of, method):
    async with site_of(servers) as site:
        session = await site.session()
        answer = await session.post(method)

    assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32601)


async def test_stream_is_closed_after_a_while_and_its_client_comes_back_for_the_answer(servers, site_of):
    go_on = anyio.Event()

    async def slow(_, __):
        await go_on.wait()
        return text("done")

    servers.tool(slow)
    servers.tool(quiet)
    async with site_of(servers, sse_close_after=0.05) as site:
        session = await site.session()
        quick = await session.call("quiet", 2)
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            assert await stream.events() == [{}]
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            go_on.set()
            events = await resumed.events()

    assert quick.headers["content-type"] == "text/event-stream"
    assert (stream.ids, stream.retry) == (["2-0"], "500")
    assert [event for event in events if event] == [{"jsonrpc": "2.0", "id": 1, "result": text("done")}]


async def test_answers_that_nobody_came_back_for_are_forgotten_over_their_bound_in_bytes_the_oldest_first(
    servers, site_of
):
    go_on = anyio.Event()

    async def large(_, __):
        await go_on.wait()
        return text("x" * 1_500_000)

    servers.tool(large)
    async with site_of(servers, sse_close_after=0.05) as site:
        session = await site.session()
        ids = []
        for number in range(5):
            async with session.stream("tools/call", {"name": "large"}, number) as stream:
                assert await stream.events() == [{}]
            ids += stream.ids
        go_on.set()
        found = []
        for last in reversed(ids):
            async with session.listen(**{"last-event-id": last}) as resumed:
                found.append(resumed.response.status_code)
                await resumed.response.aread()

    assert found == [200, 200, 200, 400, 400]


async def test_client_that_does_not_know_how_to_come_back_keeps_its_stream(servers, site_of):
    async def slow(_, __):
        await anyio.sleep(0.05)
        return text("done")

    servers.tool(slow)
    async with site_of(servers, sse_close_after=0.01) as site:
        session = await site.session("2025-06-18")
        answer = await session.call("slow")

    assert answer.json()["result"] == text("done")


async def test_client_that_does_not_read_its_stream_holds_up_nobody_and_loses_progress_only(servers, site_of):
    flooded = anyio.Event()

    async def flood(_, caller):
        for step in range(40):
            caller.notified("notifications/resources/updated", {"uri": f"x:{step}"})
            for _ in range(30):
                caller.notified("notifications/progress", {"progress": step, "message": "x" * 20_000})
            await anyio.lowlevel.checkpoint()
        flooded.set()
        return text("done")

    servers.tool(flood)
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "flood"}, 9) as stream:
            with anyio.fail_after(20):
                await flooded.wait()
            beside = await session.call("quiet")
            events = await stream.events()

    updates = [event["params"]["uri"] for event in events if event.get("method") == "notifications/resources/updated"]
    assert beside.json()["result"] == text("done")
    assert site.dropped() > 0
    assert updates == [f"x:{step}" for step in range(40)]
    assert events[-1]["id"] == 9


async def test_end_of_the_gateway_ends_open_streams_and_sessions(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        async with session.listen() as stream:
            site.endpoint.end_sessions()
            assert await stream.events() == []

    assert len(servers.ended) == 1


async def test_nothing_is_left_of_many_sessions_and_their_requests(servers, site_of):
    servers.tool(quiet)
    servers.tool(chatty)
    began, _ = servers.hanging()

    def held():
        return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))

    async def cycle(site):
        session = await site.session()
        await session.call("quiet")
        async with session.stream("tools/call", {"name": "chatty"}, 2) as stream:
            await stream.events()
        async with session.listen(), anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hang", 3)
            await began.wait()
            tasks.cancel_scope.cancel()
        await session.http.delete(site.url, headers=session.headers)
        await session.http.aclose()

    async with site_of(servers) as site:
        await cycle(site)
        before = held()
        for _ in range(30):
            await cycle(site)
        with anyio.fail_after(20):
            # A connection that its client has closed is closed here as soon as the loop reads its end.
            while any(now > then for now, then in zip(held(), before, strict=True)):
                await anyio.lowlevel.checkpoint()

    assert len(servers.ended) == 31
