"""Event streams that break off and go on, and the stream of what belongs to no request."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest

from gateway.protocol.mending import BrokenAnswer
from gateway.protocol.messages import Failure, Response
from gateway.proxy.transport.http.streams import Position, StreamAnswers
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, SessionForgotten, Transport
from tests.cases import each_of

from .raw_server import Asked, RawServer, Reply, raw_server

pytestmark = pytest.mark.anyio
HANDSHAKE = "2025-11-25"
NOTICE = {"jsonrpc": "2.0", "method": "n", "params": {}}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.proxy.transport.http.streams.PAUSE", 0.01)
    monkeypatch.setattr("gateway.proxy.transport.http.streams._SHORTEST", 0.001)


async def call(transport: Transport, *args: Any) -> dict[str, Any]:
    with anyio.fail_after(20):
        return await transport.request("tools/call", {"name": "x"}, *args)


async def shake(transport: Transport) -> None:
    transport.use_version(HANDSHAKE)
    with anyio.fail_after(20):
        await transport.request("initialize", {})
        await transport.notify("notifications/initialized")


def serving(
    on_call: Callable[[Asked, Reply], Awaitable[None]] | None = None,
    on_get: Callable[[Asked, Reply], Awaitable[None]] | None = None,
) -> Callable[[Asked, Reply], Awaitable[None]]:
    """Handshake done honestly; calls and streams are the test's."""

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            await (on_get(asked, reply) if on_get else reply.whole(405))
        elif asked.method == "DELETE" or "id" not in asked.message or "method" not in asked.message:
            await reply.whole(202)
        elif asked.message["method"] == "tools/call" and on_call:
            await on_call(asked, reply)
        else:
            await reply.result(asked, {}, mcp_session_id="s-1")

    return answer


def result_of(server: RawServer) -> dict[str, Any]:
    (calling,) = [asked for asked in server.asked if asked.body and b"tools/call" in asked.body]
    return {"jsonrpc": "2.0", "id": calling.message["id"], "result": {"done": True}}


def gets(server: RawServer) -> list[Asked]:
    return [asked for asked in server.asked if asked.method == "GET"]


async def primed(_: Asked, reply: Reply) -> None:
    """Gives an id and a pace, and lets the client come back (SEP-1699)."""
    await reply.stream()
    await reply.chunk(b"id: e-1\nretry: 1\ndata: \n\n")
    await reply.end()


async def test_answer_is_fetched_from_behind_the_last_event_after_the_server_closed_the_stream(opened, make_listener):
    async def on_get(asked: Asked, reply: Reply) -> None:
        if "last-event-id" not in asked.headers:
            await reply.whole(405)
            return
        await reply.stream()
        if asked.headers["last-event-id"] == "e-1":
            await reply.event(NOTICE, "id: e-2")
        else:
            await reply.event(result_of(server), "id: e-3")
        await reply.end()

    mine = make_listener()
    async with raw_server(serving(primed, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        assert await call(transport, mine) == {"done": True}

    resumed = [asked for asked in gets(server) if "last-event-id" in asked.headers]
    assert [asked.headers["last-event-id"] for asked in resumed] == ["e-1", "e-2"]
    for asked in resumed:
        assert asked.headers["accept"] == "text/event-stream"
        assert asked.headers["mcp-session-id"] == "s-1"
        assert asked.headers["mcp-protocol-version"] == HANDSHAKE
        assert "content-length" not in asked.headers
    assert mine.heard == [("n", {})]
    assert server.methods.count("tools/call") == 1


async def test_stream_that_breaks_in_the_middle_of_an_event_goes_on_behind_the_last_whole_one(opened, make_listener):
    async def on_call(_: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.event(NOTICE, "id: 7")
        await reply.chunk(b'id: 8\ndata: {"jsonrpc"')
        reply.drop()

    async def on_get(asked: Asked, reply: Reply) -> None:
        if asked.headers.get("last-event-id") != "7":
            await reply.whole(405)
            return
        await reply.stream()
        await reply.event(result_of(server), "id: 8")
        await reply.end()

    mine = make_listener()
    async with raw_server(serving(on_call, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        assert await call(transport, mine) == {"done": True}

    assert mine.heard == [("n", {})]


async def test_stream_without_ids_that_ends_early_is_a_lost_request(opened):
    async def on_call(_: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.event(NOTICE)
        await reply.end()

    async with raw_server(serving(on_call)) as server, opened(server.url) as transport:
        await shake(transport)
        with pytest.raises(LinkLost, match="ended before the answer") as lost:
            await call(transport)

    assert lost.value.sent


async def test_modern_stream_is_never_resumed(opened):
    async with raw_server(serving(primed)) as server, opened(server.url) as transport:
        transport.use_version("2026-07-28")
        with pytest.raises(LinkLost):
            await call(transport)
        await transport.notify("notifications/initialized")
        await anyio.wait_all_tasks_blocked()

    assert gets(server) == []


async def test_server_that_does_not_resume_loses_the_request(opened):
    async with raw_server(serving(primed)) as server, opened(server.url) as transport:
        await shake(transport)
        with pytest.raises(LinkLost, match="does not resume"):
            await call(transport)


async def test_resumption_that_fails_again_and_again_is_given_up(opened):
    async def on_get(asked: Asked, reply: Reply) -> None:
        await reply.whole(503 if "last-event-id" in asked.headers else 405)

    async with raw_server(serving(primed, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        with pytest.raises(LinkLost, match="can't be resumed: HTTP 503"):
            await call(transport)

    assert len([asked for asked in gets(server) if "last-event-id" in asked.headers]) == 6


@pytest.mark.parametrize("numbered", [True, False])
async def test_failures_between_connections_that_bring_something_are_no_row(opened, numbered):
    # One more failure in a row would be one too many.
    row = 6

    async def on_get(asked: Asked, reply: Reply) -> None:
        last = asked.headers.get("last-event-id")
        if last is None:
            await reply.whole(405)
        elif len(gets(server)) % row:
            await reply.whole(503)
        else:
            await reply.stream()
            if len(gets(server)) < 3 * row:
                await reply.event(NOTICE, *([f"id: {len(gets(server))}"] if numbered else []))
            else:
                await reply.event(result_of(server))
            await reply.end()

    async with raw_server(serving(primed, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        assert await call(transport) == {"done": True}


async def test_caller_that_goes_away_during_the_pause_is_told_and_nothing_more_is_asked(opened, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.streams._SHORTEST", 3600.0)
    async with raw_server(serving(primed)) as server, opened(server.url) as transport:
        await shake(transport)
        waiting = asyncio.ensure_future(call(transport))
        await server.until(lambda: "tools/call" in server.methods)
        await anyio.wait_all_tasks_blocked()
        waiting.cancel()
        await server.until(lambda: "notifications/cancelled" in server.methods)
        await asyncio.gather(waiting, return_exceptions=True)

    assert [asked for asked in gets(server) if "last-event-id" in asked.headers] == []


async def test_leaving_during_the_pause_fails_who_waits(opened, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.streams._SHORTEST", 3600.0)
    async with raw_server(serving(primed)) as server:
        async with opened(server.url) as transport:
            await shake(transport)
            waiting = asyncio.ensure_future(call(transport))
            await server.until(lambda: "tools/call" in server.methods)
            await anyio.wait_all_tasks_blocked()
        with pytest.raises(LinkLost):
            await waiting


async def test_own_stream_is_asked_for_once_where_it_is_not_offered(opened):
    async with raw_server(serving()) as server, opened(server.url) as transport:
        await shake(transport)
        await server.until(lambda: len(gets(server)) == 1)
        for _ in range(5):
            await call(transport)

    assert len(gets(server)) == 1


async def test_own_stream_brings_pushes_and_questions_and_goes_on_where_it_broke_off(opened, listener):
    async def on_get(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        match len(gets(server)):
            case 1:
                await reply.event({**NOTICE, "params": {"n": 1}}, "id: 1")
                await reply.event({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage"})
                reply.drop()
            case 2:
                await reply.event({**NOTICE, "params": {"n": 2}}, "id: 2")
                await reply.end()
            case _:
                await reply.event({**NOTICE, "params": {"n": 3}})
                await reply.gone()

    async with raw_server(serving(None, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        await listener.until(lambda: len(listener.heard) == 3)
        await server.until(lambda: "-" in server.methods)

    assert [params["n"] for _, params in listener.heard] == [1, 2, 3]
    assert [asked.headers.get("last-event-id") for asked in gets(server)] == [None, "1", "2"]
    (answer,) = [asked.message for asked in server.asked if asked.body and b'"id":"q"' in asked.body]
    assert answer["result"] == {"method": "sampling/createMessage"}


async def test_own_stream_is_tried_for_ever_and_the_failure_is_told_once(opened, listener, caplog):
    async def on_get(asked: Asked, reply: Reply) -> None:
        if len(gets(server)) < 9:
            await reply.whole(503)
            return
        await reply.stream()
        await reply.event(NOTICE)
        await reply.gone()

    async with raw_server(serving(None, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        await listener.until(lambda: len(listener.heard) == 1)

    assert caplog.text.count("stream can't be opened") == 1


async def test_own_stream_that_finds_the_session_forgotten_ends_the_wire(opened):
    async def on_get(_: Asked, reply: Reply) -> None:
        if len(gets(server)) == 1:
            await reply.stream()
            await reply.chunk(b"retry: 100\n\n")
            await reply.end()
        else:
            await reply.whole(404)

    async with raw_server(serving(None, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        with anyio.fail_after(20):
            await transport.closed.wait()
        with pytest.raises(SessionForgotten):
            await call(transport)


REFUSALS = {
    "modelcontextprotocol/typescript-sdk": (409, b"Conflict: Only one SSE stream is allowed per session"),
    "render-oss/render-mcp-server 26": (400, b"Session registration failed: session already exists"),
    "robhunter/agentdeals 1098": (400, b"Bad Request"),
    "a proxy in between": (405, b""),
}


@pytest.mark.parametrize("report", REFUSALS)
async def test_own_stream_is_opened_again_where_the_server_still_takes_the_last_one_for_open(
    opened, listener, report, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.transport.http.streams.PAUSE", 0.01)

    async def on_get(asked: Asked, reply: Reply) -> None:
        number = len(gets(server))
        if 1 < number < 5:
            await reply.whole(*REFUSALS[report])
            return
        await reply.stream()
        await reply.chunk(b"retry: 100\n\n")
        await reply.event({**NOTICE, "params": {"n": number}}, "id: 1")
        await (reply.end() if number == 1 else reply.gone())

    async with raw_server(serving(None, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        with anyio.fail_after(60):
            await listener.until(lambda: len(listener.heard) == 2)

    assert [params["n"] for _, params in listener.heard] == [1, 5]


async def test_own_stream_begins_anew_where_the_server_no_longer_knows_the_last_event(opened, listener, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.streams.PAUSE", 0.01)

    async def on_get(asked: Asked, reply: Reply) -> None:
        if len(gets(server)) > 1 and "last-event-id" in asked.headers:
            await reply.whole(400, b"Unknown event id")
            return
        await reply.stream()
        await reply.chunk(b"retry: 100\n\n")
        await reply.event({**NOTICE, "params": {"n": len(gets(server))}}, "id: 1")
        await (reply.end() if len(gets(server)) == 1 else reply.gone())

    async with raw_server(serving(None, on_get)) as server, opened(server.url) as transport:
        await shake(transport)
        with anyio.fail_after(60):
            await listener.until(lambda: len(listener.heard) == 2)


async def test_leaving_closes_the_own_stream(opened):
    gone = asyncio.Event()

    async def on_get(_: Asked, reply: Reply) -> None:
        try:
            await reply.stream()
            await reply.gone()
        finally:
            gone.set()

    async with raw_server(serving(None, on_get)) as server:
        async with opened(server.url) as transport:
            await shake(transport)
            await server.until(lambda: len(gets(server)) == 1)
        with anyio.fail_after(20):
            await gone.wait()


class TestPauses:
    @pytest.fixture(autouse=True)
    def _true_pauses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gateway.proxy.transport.http.streams.PAUSE", 1.0)
        monkeypatch.setattr("gateway.proxy.transport.http.streams._SHORTEST", 0.1)

    def test_pause_without_failures_is_a_second_or_what_the_server_asked_for(self):
        position = Position(100)
        asked = [position.seconds(1.0)]
        for milliseconds in (500, 0, 10**9 - 1):
            position._retry = milliseconds
            asked.append(position.seconds(0.0))

        assert asked == [1.0, 0.5, 0.1, 300.0]

    def test_pause_doubles_with_failures_up_to_half_a_minute_and_the_roll_halves_it_at_most(self):
        position = Position(100)
        pauses = []
        for _ in range(8):
            position.failed()
            pauses.append((position.seconds(0.0), position.seconds(1.0)))

        assert [long for _, long in pauses] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
        assert pauses[5] == (15.0, 30.0)


class _Pieces:
    """A connection that has everything at once."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = [*pieces, b""]

    async def chunk(self) -> bytes:
        return self._pieces.pop(0)


@each_of("line", [b"\n", b"\r\n", b": x\n", b"id: 1\n", b"data:\n", b"data: {}\n\n"])
async def test_stream_of_many_short_lines_lets_others_have_their_turn(line: bytes) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    task = asyncio.create_task(others())
    await Position(100_000).read(cast("Any", _Pieces(line * 6500)), lambda _: None)
    task.cancel()

    assert turns >= 100


async def test_short_event_is_read_without_giving_up_the_turn() -> None:
    turned = False

    def turn() -> None:
        nonlocal turned
        turned = True

    asyncio.get_running_loop().call_soon(turn)
    outcome = await Position(100).read(cast("Any", _Pieces(b"data: {}\n\n" * 3)), lambda event: {"it": 1})

    assert outcome == {"it": 1}
    assert not turned


@pytest.mark.parametrize(("last", "outcome"), [(b'data: {"n": 2}', {"n": 2}), (b'data: {"n": 2', None)])
async def test_last_event_counts_without_its_blank_line_if_it_is_whole_json(last, outcome) -> None:
    heard = []

    def take(event: Any) -> dict[str, Any] | None:
        heard.append(json.loads(event.data))
        return heard[-1] if heard[-1]["n"] == 2 else None

    assert await Position(100).read(cast("Any", _Pieces(b'data: {"n": 1}\n\n', last)), take) == outcome
    assert heard == [{"n": 1}, *([outcome] if outcome else [])]


@pytest.mark.parametrize(("failures", "kept"), [(4, "e"), (5, None)])
def test_position_in_a_stream_is_forgotten_after_as_many_refusals_as_a_server_may_need_to_notice(failures, kept):
    position = Position(100)
    position.last_id = "e"
    for _ in range(failures):
        position.failed()
    position.refused()

    assert position.last_id == kept


@pytest.mark.parametrize(("lasted", "retry", "failures"), [(0.0, None, 3), (30.0, None, 1), (0.0, 5, 2)])
async def test_connection_that_ended_soon_counts_as_failed_unless_the_server_asked_for_a_pause(lasted, retry, failures):
    position = Position(100)
    position.failed()
    position._retry = retry
    position.ended(asyncio.get_running_loop().time() - lasted)

    assert position.failed() == failures


class TestAnswersOnTheStream:
    """Answers to a POST that the server only accepted."""

    async def test_answer_is_found_whether_it_comes_before_or_after_it_is_awaited(self):
        answers = StreamAnswers()
        answers.take(Response(1, {"n": 1}))
        late = asyncio.create_task(answers.result(2))
        await anyio.lowlevel.checkpoint()
        answers.take(Response("2", {"n": 2}))
        answers.take(Response(2, {"n": 3}))

        assert await answers.result(1) == {"n": 1}
        assert await late == {"n": 2}

    async def test_error_and_answer_that_can_not_be_used_are_failures(self):
        answers = StreamAnswers()
        answers.take(Failure(1, {"code": 5, "message": "so"}))
        answers.take(BrokenAnswer(2, "its answer is odd"))
        with pytest.raises(PeerError) as failed:
            await answers.result(1)
        with pytest.raises(NoAnswer, match="its answer is odd"):
            await answers.result(2)

        assert failed.value.error == {"code": 5, "message": "so"}

    async def test_only_the_latest_answers_that_nobody_awaits_are_kept(self):
        answers = StreamAnswers()
        for number in range(17):
            answers.take(Response(number, {"n": number}))
        answers.take(Failure(None, {"code": 5, "message": "of nothing"}))
        lost = asyncio.create_task(answers.result(0))
        await anyio.lowlevel.checkpoint()

        with anyio.fail_after(20):
            assert await answers.result(1) == {"n": 1}
            assert await answers.result(16) == {"n": 16}
        assert not lost.done()
        answers.lose(LinkLost("it went"))
        with pytest.raises(LinkLost, match="it went"):
            await lost
