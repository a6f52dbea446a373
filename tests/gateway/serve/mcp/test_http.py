"""A POST of MCP: which answers its client takes, and its body within a bound."""

import asyncio
import json
from typing import Any

import anyio
import pytest

from gateway.proxy.caller import ANYBODY
from gateway.serve.http.middleware import LATE
from gateway.serve.mcp.http import (
    EVENTS,
    JSON,
    ClientGone,
    HttpRequest,
    Rejected,
    accepts,
    read_json_body,
    read_message_body,
    refuse_late,
    send_empty,
    send_frame,
    send_rejection,
    write_events,
)
from tests.cases import each_of

pytestmark = pytest.mark.anyio
BOUND = 10
OVER = f"the body is over the limit of {BOUND} bytes (limits.body_bytes)"


@each_of(
    ("accept", "json_too", "events"),
    [
        ("", True, True),
        ("*/*", True, True),
        ("application/json", True, False),
        ("text/event-stream", False, True),
        ("Application/JSON;q=0.9 , text/*", True, True),
        ("application/*", True, False),
        ("text/html", False, False),
        ("application/jsonx", False, False),
    ],
)
def test_accept_header_names_types_by_wildcards_too(accept: str, json_too: bool, events: bool) -> None:
    assert accepts(accept, JSON) == json_too
    assert accepts(accept, EVENTS) == events
    assert accepts(accept, JSON, EVENTS) == (json_too and events)


def request_of(*parts: bytes, leaves: bool = False, kind: str = JSON, **headers: str) -> HttpRequest:
    """A POST whose body comes in these parts; `leaves`: its client disconnects behind them."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if leaves:
        messages.append({"type": "http.disconnect"})
    else:
        messages[-1]["more_body"] = False

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_: Any) -> None:
        """Nothing is sent here."""

    named = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return HttpRequest("POST", named, set(), ANYBODY, None, {}, receive, send)


@pytest.mark.parametrize("parts", [[b"x" * BOUND], [b"x" * 4, b"x" * 6], [b"x" * 4, b"", b"x" * 6, b""], [b""]])
async def test_body_of_the_bound_is_read_whole_and_its_size_noted(parts: list[bytes]) -> None:
    request = request_of(*parts, content_length=str(BOUND))

    assert await read_json_body(request, BOUND) == b"".join(parts)
    assert request.size == sum(map(len, parts))


@pytest.mark.parametrize("parts", [[b"x" * (BOUND + 1)], [b"x" * 4, b"x" * 7, b"never read"]])
async def test_body_over_the_bound_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(Rejected, match="over the limit") as refused:
        await read_json_body(request_of(*parts), BOUND)
    assert (refused.value.status, refused.value.message) == (413, OVER)


@pytest.mark.parametrize(("announced", "taken"), [("10", True), ("11", False), ("0" * 16, False), ("-1", True)])
async def test_body_that_is_announced_over_the_bound_is_refused_unread(announced: str, taken: bool) -> None:
    request = request_of(b"{}", content_length=announced)
    if taken:
        assert await read_json_body(request, BOUND) == b"{}"
        return
    with pytest.raises(Rejected) as refused:
        await read_json_body(request, BOUND)
    assert refused.value.status == 413


@pytest.mark.parametrize("parts", [[], [b"{"]])
async def test_client_that_leaves_before_the_end_of_its_body_is_gone(parts: list[bytes]) -> None:
    with pytest.raises(ClientGone):
        await read_json_body(request_of(*parts, leaves=True), BOUND)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/jsonx"])
async def test_body_that_is_not_declared_as_json_is_refused(kind: str) -> None:
    assert await read_json_body(request_of(b"{}", kind="Application/JSON; charset=utf-8"), BOUND) == b"{}"
    with pytest.raises(Rejected, match="Content-Type") as refused:
        await read_json_body(request_of(b"{}", kind=kind), BOUND)
    assert refused.value.status == 415


async def test_client_that_takes_only_one_kind_of_answer_is_refused() -> None:
    assert await read_message_body(request_of(b"{}", accept=f"{JSON}, {EVENTS}"), BOUND) == b"{}"
    with pytest.raises(Rejected, match="Accept") as refused:
        await read_message_body(request_of(b"{}", accept=JSON), BOUND)
    assert refused.value.status == 406


async def test_request_that_came_after_a_stop_had_begun_is_told_when_to_come_again() -> None:
    request = request_of(b"{}")
    refuse_late(request)
    request.scope[LATE] = True
    with pytest.raises(Rejected, match="stopping") as refused:
        refuse_late(request)
    assert refused.value.status == 503
    assert dict(refused.value.headers) == {b"retry-after": b"2", b"connection": b"close"}


class Client:
    """What was sent to a client."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]


async def test_frame_nothing_and_a_refusal_are_sent_with_their_length_and_headers() -> None:
    frame, nothing, refusal = Client(), Client(), Client()
    await send_frame(frame.send, 201, b"{}", [(b"x", b"1")])
    await send_empty(nothing.send, 202, [(b"x", b"1")])
    await send_rejection(refusal.send, Rejected(405, "not so", headers=[(b"allow", b"POST")]))

    json_type = (b"content-type", b"application/json")
    assert frame.sent[0]["headers"] == [json_type, (b"content-length", b"2"), (b"x", b"1")]
    assert (frame.sent[0]["status"], frame.bodies) == (201, [b"{}"])
    assert nothing.sent[0]["headers"] == [(b"content-length", b"0"), (b"x", b"1")]
    assert (nothing.sent[0]["status"], nothing.bodies) == (202, [b""])
    assert (refusal.sent[0]["status"], refusal.sent[0]["headers"][-1]) == (405, (b"allow", b"POST"))
    told = json.loads(refusal.bodies[0])
    assert (told["error"]["code"], told["error"]["message"]) == (-32600, "not so")


class Events:
    """Events for one response, which are over behind the last."""

    def __init__(self, *waiting: bytes) -> None:
        self.ready = asyncio.Event()
        self.waiting = list(waiting)
        self.over = False

    def take(self) -> bytes:
        return self.waiting.pop(0) if self.waiting else b""


async def test_events_are_sent_as_they_come_until_they_are_over() -> None:
    client, events = Client(), Events(b"one", b"two")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_events, client.send, events)
        await anyio.wait_all_tasks_blocked()
        before = client.bodies
        events.waiting.append(b"three")
        events.over = True
        events.ready.set()

    assert before == [b"one", b"two"]
    assert client.bodies == [b"one", b"two", b"three", b""]
    assert [message.get("more_body", False) for message in client.sent[1:]] == [True, True, True, False]
    assert (b"content-type", b"text/event-stream") in client.sent[0]["headers"]
    assert client.sent[0]["status"] == 200


async def test_stream_that_is_silent_for_long_is_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serve.mcp.http.PING", 0.0)
    events, client = Events(), Client()

    async def send(message: Any) -> None:
        await client.send(message)
        events.over = len(client.sent) > 2

    with anyio.fail_after(20):
        await write_events(send, events)

    assert client.bodies == [b": ping\n\n", b": ping\n\n", b""]
