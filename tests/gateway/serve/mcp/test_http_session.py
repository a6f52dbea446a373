"""Streamable HTTP of the handshake era, byte by byte, in front of servers that do what the test says."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from gateway.protocol.messages import Request
from gateway.proxy.caller import ANYBODY, Principal
from gateway.serve.http.request_parts import VALUES
from gateway.serve.mcp.http import HttpRequest, Rejected, read_json_body
from tests.gateway.serve.mcp.http_requests import chatty, curious, quiet, text

pytestmark = pytest.mark.anyio


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
        (admitted,) = live.admit([message])
        live.cancel(7)
        frame = await live.answer(admitted, request, live.standing)
        was_busy = live.idle_since is None
        live.dismiss([admitted])
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
                return await live.answer(admitted, request, live.standing)
            finally:
                left.append(asyncio.current_task().cancelling())

        (admitted,) = live.admit([message])
        task = asyncio.ensure_future(answer())
        await began.wait()
        for _ in range(by_client):
            live.cancel(7)
        for _ in range(by_another):
            task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        live.dismiss([admitted])

    assert left == [by_another]
    assert isinstance(ended, asyncio.CancelledError if by_another else bytes)


async def test_requests_of_one_id_at_the_same_time_are_each_answered_in_their_own_response(servers, site_of):
    """claude.ai numbers each request 1, calls at the same time too (anthropics/claude-ai-mcp 539; python-sdk 3060)."""
    gates, over = ({each: anyio.Event() for each in "abc"} for _ in range(2))

    @servers.tool
    async def say(params, caller):
        caller.notified("notifications/message", {"level": "info", "data": params["arguments"]["what"]})
        await gates[params["arguments"]["what"]].wait()
        return text(params["arguments"]["what"])

    async with site_of(servers) as site:
        session = await site.session()
        answers = {}

        async def call(what):
            answers[what] = await session.post("tools/call", {"name": "say", "arguments": {"what": what}}, 1)
            over[what].set()

        async with anyio.create_task_group() as tasks:
            for what in gates:
                tasks.start_soon(call, what)
            await servers.until(lambda: len(servers.asked) == 3)
            # Whose work it should end can't be told.
            await session.post("notifications/cancelled", {"requestId": 1}, None)
            for what in "bca":
                gates[what].set()
                await over[what].wait()
        (live,) = site.endpoint._sessions.live()
        assert live.idle_since is not None

    for what, answer in answers.items():
        events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if "data: {" in line]
        assert [each["params"]["data"] for each in events[:-1]] == [what]
        assert (events[-1]["id"], events[-1]["result"]) == (1, text(what))


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


async def test_body_of_too_many_values_is_refused_before_it_is_read():
    body = b"[%s]" % b",".join([b"[]"] * VALUES)

    async def receive():
        return {"type": "http.request", "body": body}

    with pytest.raises(Rejected, match=f"more than {VALUES} lists") as refused:
        await read_json_body(SimpleNamespace(headers={"content-type": "application/json"}, receive=receive), len(body))
    assert refused.value.status == 400
