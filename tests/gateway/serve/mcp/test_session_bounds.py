"""What one session may have open at a time (questions, requests, messages, answers), and when it can't be asked."""

import asyncio
from types import SimpleNamespace

import anyio
import pytest

from gateway.errors import RpcError
from gateway.protocol.messages import Failure, Notification, Request, Response
from gateway.proxy.caller import ANYBODY
from gateway.serve.mcp.http_session import CarriedStream, HttpSession, place_of
from gateway.serve.mcp.outbox import Outbox
from gateway.serve.mcp.sessions import Asks
from tests.cases import each_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def session():
    """A session of a gateway that never ends passing on a notification."""

    async def pass_on(*_):
        await anyio.sleep_forever()

    core = SimpleNamespace(pass_on=pass_on, servers=SimpleNamespace(session_ended=lambda _: None))
    return HttpSession(
        core,
        session_id="s",
        version="2025-11-25",
        capabilities={"roots": {}},
        principal=ANYBODY,
        token_map=None,
        dropped=lambda: None,
    )


def outbox():
    return Outbox(lambda: None, lambda: None)


async def test_client_with_64_unanswered_questions_is_asked_no_more_until_one_is_answered():
    asks = Asks({})
    async with anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(asks.ask, outbox(), "ping", {})
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RpcError, match="the client has 64 unanswered requests: 'ping' was not asked"):
            await asks.ask(outbox(), "ping", {})
        asks.settle(Response("g1", {}))
        await anyio.wait_all_tasks_blocked()
        last = asyncio.ensure_future(asks.ask(outbox(), "ping", {}))
        await anyio.wait_all_tasks_blocked()
        asks.settle(Response("g65", {"answered": True}))
        assert await last == {"answered": True}
        tasks.cancel_scope.cancel()


async def test_answer_that_nobody_waits_for_changes_nothing():
    asks = Asks({})
    asking = asyncio.ensure_future(asks.ask(outbox(), "ping", {}))
    await anyio.wait_all_tasks_blocked()
    for message in (Response("g2", {}), Response(1, {}), Failure(None, {}), Response("g1", {"first": 1})):
        asks.settle(message)
    asks.settle(Response("g1", {"second": 2}))
    asks.settle(Failure("g1", {"code": 1, "message": "no"}))
    asks.close()

    assert await asking == {"first": 1}


async def test_requests_of_a_session_run_up_to_1024_at_a_time_those_of_a_batch_all_or_none(session):
    def requests(first, count):
        return [Request(number, "ping", {}) for number in range(first, first + count)]

    running = session.admit(requests(0, 1000))
    with pytest.raises(RpcError, match="1024 requests are running"):
        session.admit(requests(1000, 25))
    session.admit(requests(1000, 24))
    session.dismiss(running[:1])
    session.admit(requests(2000, 1))
    with pytest.raises(RpcError, match="1024 requests are running"):
        session.admit(requests(3000, 1))


async def test_notifications_of_a_client_are_passed_on_up_to_256_at_a_time(session):
    for _ in range(300):
        session.take(Notification("notifications/roots/list_changed", {}))

    assert len(session._notes) == 256
    session.end()


async def test_of_answers_that_nobody_read_the_last_64_wait_for_their_client(session):
    streams = [session.open_stream() for _ in range(66)]
    for stream in streams:
        CarriedStream(session, stream).detach()
        stream.finish(b"{}")
        session.release(stream)

    assert [session.find(f"{stream.number}-0") is None for stream in streams] == [True] * 2 + [False] * 64


async def test_client_that_opens_no_get_stream_can_not_be_asked_outside_of_its_requests(session, monkeypatch):
    monkeypatch.setattr("gateway.serve.mcp.http_session._GET_TIME", 0.01)
    with pytest.raises(RpcError, match="can't be asked 'roots/list': it has not opened its GET stream"):
        await session.asked("roots/list", {})

    assert session.standing.waiting == 0


@each_of(
    ("event_id", "place"),
    [
        ("3-14", (3, 14)),
        ("0-0", (0, 0)),
        (f"{'9' * 15}-{'9' * 15}", (10**15 - 1, 10**15 - 1)),
        (f"1-{'9' * 16}", None),
        (f"{'9' * 16}-1", None),
        *((text, None) for text in ("", "3", "3-", "-3", "3-14-1", "3--1", "٣-1", "3-²", "a-1", "1-b")),
    ],
)
async def test_id_of_an_event_is_two_numbers(event_id, place):
    assert place_of(event_id) == place
