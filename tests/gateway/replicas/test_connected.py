"""What a replica does with the records of another one that asks it, and what it leaves behind when it ends."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from bench.processes import free_ports
from gateway.errors import ConfigError, OwnerGone
from gateway.replicas import Replica
from gateway.replicas.connected import Connected, Listener
from gateway.replicas.forwarder import ALIVE, BODY, END, GONE, REQUEST, START, head_of
from gateway.replicas.sealed_records import FULL
from tests.gateway.replicas.test_forwarding import KEYS, Client, answer, read, scope
from tests.gateway.replicas.test_link import Pair, Wire, settle

pytestmark = pytest.mark.anyio

BOOT = b"this run"
HEAD = (REQUEST, head_of(scope(), BOOT))
JSON = b'{"status": 200, "headers": [["content-type", "application/json"]]}'
ANSWERED = [(START, JSON), (END, b"")]

App = Callable[[Any, Any, Any], Awaitable[None]]


async def at_once(scope: Any, receive: Any, send: Any) -> None:
    """Answers before it has read anything."""
    await answer(send, 200)


async def reading(scope: Any, receive: Any, send: Any) -> None:
    await read(receive)
    await answer(send, 200)


def connect(listener: Listener) -> Pair:
    return Pair.greeted(listener.link())


async def ask(pair: Pair, *records: tuple[bytes, bytes]) -> list[tuple[bytes, bytes] | None]:
    """What the replica says to these records, as far as it does so at once; None: it closed the connection."""
    if records:
        pair.asks.tell(*records)
    for _ in range(3):
        pair.carry()
        await settle()
    found: list[tuple[bytes, bytes] | None] = []
    with anyio.move_on_after(0):
        while not found or found[-1] is not None:
            found.append(await pair.asks.receive())
    return found


async def test_requests_on_one_connection_are_answered_in_turn() -> None:
    listener = Listener(KEYS, BOOT, reading)
    pair = connect(listener)

    assert [await ask(pair, HEAD, (BODY, b"x"), (END, b"y")) for _ in range(3)] == [ANSWERED] * 3
    assert await ask(pair, HEAD) == []
    assert await ask(pair, (END, b"")) == ANSWERED
    await listener.stop()


async def test_beginning_of_an_answer_goes_with_the_first_of_its_body_unless_it_is_streamed() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        kind = b"text/event-stream" if scope["path"] == "/stream" else b"text/plain"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await go_on.wait()
        # Of what else a server may send, the others need nothing.
        await send({"type": "http.response.debug", "info": {}})
        await send({"type": "http.response.body", "body": b"one"})

    listener = Listener(KEYS, BOOT, app)
    heads = [(REQUEST, head_of(scope(path), BOOT)) for path in ("/stream", "/plain")]
    pairs = [connect(listener) for _ in heads]
    before = [await ask(pair, head, (END, b"")) for pair, head in zip(pairs, heads, strict=True)]
    go_on.set()
    after = [await ask(pair) for pair in pairs]
    await listener.stop()

    assert [[each and each[0] for each in found] for found in before] == [[START], []]
    assert [[each and each[0] for each in found] for found in after] == [[END], [START, END]]


async def test_request_for_an_earlier_run_is_told_that_it_is_gone_and_its_connection_ends() -> None:
    listener = Listener(KEYS, BOOT, reading)
    pair = connect(listener)

    assert await ask(pair, (REQUEST, head_of(scope(), b"old run!")), (END, b"")) == [(GONE, b""), None]
    await listener.stop()


async def test_replica_that_leaves_answers_only_what_no_other_one_can() -> None:
    listener = Listener(KEYS, BOOT, reading)
    for_any = (REQUEST, head_of(scope(), b""))
    before = [await ask(connect(listener), head, (END, b"")) for head in (HEAD, for_any)]
    listener.leave()
    after = [await ask(connect(listener), head, (END, b"")) for head in (HEAD, for_any)]
    await listener.stop()

    assert before == [ANSWERED, ANSWERED]
    assert after == [ANSWERED, [(GONE, b""), None]]


async def test_rest_of_a_request_that_was_answered_early_is_read_before_the_next_one() -> None:
    listener = Listener(KEYS, BOOT, at_once)
    pair = connect(listener)

    assert await ask(pair, HEAD, (BODY, b"x")) == ANSWERED
    assert await ask(pair, (BODY, b"x"), (END, b"x")) == []
    assert await ask(pair, HEAD, (END, b"")) == ANSWERED
    await listener.stop()


async def test_connection_that_ends_before_the_rest_of_a_request_is_closed() -> None:
    listener = Listener(KEYS, BOOT, at_once)
    pair = connect(listener)
    await ask(pair, HEAD, (BODY, b"x"))
    pair.asks.end()
    pair.carry()
    await settle()

    assert pair.answering.asked == ["close"]
    await listener.stop()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([(BODY, HEAD[1])], "where a request should begin"),
        ([HEAD, (START, b"")], "in the middle of a request"),
        ([(REQUEST, b"{}")], "a request that can't be read"),
    ],
)
async def test_record_that_belongs_elsewhere_ends_its_connection_and_the_operator_is_told(
    records: list[tuple[bytes, bytes]], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener(KEYS, BOOT, reading)
    said = await ask(connect(listener), *records)
    other = await ask(connect(listener), HEAD, (END, b""))
    await listener.stop()

    assert (said, other) == ([None], ANSWERED)
    assert reason in caplog.text


async def test_more_than_the_request_is_no_part_of_it() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([await receive(), await receive()])
        await answer(send, 200)

    listener = Listener(KEYS, BOOT, app)
    await ask(connect(listener), HEAD, (END, b"x"), (BODY, b"y"))
    await listener.stop()

    assert seen == [{"type": "http.request", "body": b"x", "more_body": False}, {"type": "http.disconnect"}]


async def test_request_whose_app_fails_ends_its_connection_and_the_operator_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise LookupError("a bug")

    listener = Listener(KEYS, BOOT, app)
    said = await ask(connect(listener), HEAD, (END, b""))
    await listener.stop()

    assert said == [None]
    assert "a request from another replica failed" in caplog.text


async def test_app_that_fails_behind_its_answer_takes_nothing_from_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.replicas.connected._ALIVE", 0.0)
    fail, go_on = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        if scope["path"] == "/next":
            await go_on.wait()
            return await answer(send, 200)
        looking = asyncio.ensure_future(receive())
        await answer(send, 200)
        await fail.wait()
        assert (await looking)["type"] == "http.disconnect"
        raise OSError("of something else")

    listener = Listener(KEYS, BOOT, app)
    pair = connect(listener)
    first = await ask(pair, HEAD, (END, b""))
    none = await ask(pair, (REQUEST, head_of(scope("/next"), BOOT)), (END, b""))
    fail.set()
    await settle()
    alive = asyncio.ensure_future(listener.tell_alive())
    still = await ask(pair)
    alive.cancel()
    go_on.set()
    after = await ask(pair)
    await listener.stop()

    assert (first, none, after[-2:]) == (ANSWERED, [], ANSWERED)
    assert {*still} == {(ALIVE, b"")}


async def test_only_who_waits_for_an_answer_is_told_that_it_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.connected._ALIVE", 0.0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        if scope["path"] == "/slow":
            await anyio.sleep_forever()
        await answer(send, 200)

    listener = Listener(KEYS, BOOT, app)
    waits, ended, has_it = (connect(listener) for _ in range(3))
    for pair in (waits, ended):
        await ask(pair, (REQUEST, head_of(scope("/slow"), BOOT)), (END, b""))
    await ask(has_it, HEAD, (END, b""))
    # Whose connection is lost keeps nobody else from being told.
    ended.answers.close()
    alive = asyncio.ensure_future(listener.tell_alive())
    told = [await ask(pair) for pair in (waits, has_it)]
    alive.cancel()
    await listener.stop()

    assert {*told[0]} == {(ALIVE, b"")}
    assert told[1] == []


async def test_64_connections_may_be_unproven_and_the_next_ones_are_told_that_there_is_no_room() -> None:
    def stranger() -> Wire:
        wire, link = Wire(), listener.link()
        link.connection_made(wire)
        links.append(link)
        return wire

    links, listener = list[Any](), Listener(KEYS, BOOT, reading)
    for _ in range(3):
        await ask(connect(listener), HEAD, (END, b""))
    strangers = [stranger() for _ in range(66)]
    links[0].eof_received()
    await settle()
    later = [stranger() for _ in range(2)]
    await listener.stop()

    assert [bytes(wire.sent) for wire in strangers] == [b""] * 64 + [FULL] * 2
    assert [bytes(wire.sent) for wire in later] == [b"", FULL]


async def test_connections_have_a_bound_and_one_that_ends_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.connected._MOST", 2)
    listener = Listener(KEYS, BOOT, reading)
    pairs = [connect(listener) for _ in range(2)]
    answers = [await ask(pair, HEAD, (END, b"")) for pair in pairs]
    refused = Pair(listener.link())
    pairs[0].asks.end()
    pairs[0].carry()
    await settle()
    after = await ask(connect(listener), HEAD, (END, b""))
    await listener.stop()

    assert answers == [ANSWERED] * 2
    assert bytes(refused.answering.sent) == FULL
    assert after == ANSWERED


async def test_connection_that_does_not_prove_in_time_that_it_knows_the_secret_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.replicas.connected._PROOF_TIME", 0.0)
    listener = Listener(KEYS, BOOT, reading)
    silent, greeting = Pair(listener.link()), connect(listener)
    await settle()
    await listener.stop()

    assert (silent.answering.asked, greeting.answering.asked) == (["close"], ["close"])
    assert caplog.text.count("no request arrived within 0 s") == 2


async def test_requests_have_ended_when_the_replica_has_even_if_that_was_cancelled() -> None:
    here, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        here.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await settle()
            ended.set()

    async def forward() -> None:
        with pytest.raises(OwnerGone):
            await asks.forward(Replica(f"127.0.0.1:{port}", b""), scope(), Client().receive, Client().send)

    (port,) = free_ports(1)
    owner, asks = Connected(KEYS, "127.0.0.1", port), Connected(KEYS, "127.0.0.1", 1)
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as serving:
            async with owner.listening(app):
                tasks.start_soon(forward)
                with anyio.fail_after(20):
                    await here.wait()
                serving.cancel()
                await anyio.sleep_forever()
        assert ended.is_set()


async def test_replica_that_ended_leaves_no_task_and_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "replicas")
    asks, owner = (Connected(KEYS, "127.0.0.1", port) for port in free_ports(2))
    found = asks.owner("session", owner.name("session", "ann"), "ann", {})
    assert found is not None
    tasks = asyncio.all_tasks()
    async with owner.listening(reading):
        async with asks.listening(reading):
            await asks.forward(found, scope(), Client().receive, Client().send)
        # The connection that was kept is closed, and so the task that serves it has ended, as all others have.
        with anyio.fail_after(20):
            while len(asyncio.all_tasks() - tasks) > 1:
                await settle()
    await settle()

    assert asyncio.all_tasks() == tasks
    assert found.address in caplog.text
    with pytest.raises(OwnerGone, match="can't be reached"):
        await asks.forward(found, scope(), Client().receive, Client().send)


async def test_replica_answers_at_a_socket_that_it_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        owner, asks, client = Connected(KEYS, "127.0.0.1", port), Connected(KEYS, "127.0.0.1", 1), Client()
        async with owner.listening(reading, listener), asks.listening(reading, socket.create_server(("127.0.0.1", 0))):
            await asks.forward(Replica(f"127.0.0.1:{port}", b""), scope(), client.receive, client.send)

    assert client.status == 200


async def test_address_that_somebody_else_has_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*replicas\.port must be free"):
            async with Connected(KEYS, "127.0.0.1", port).listening(reading):
                raise AssertionError("nobody can listen there")


async def test_replica_that_is_about_to_end_is_asked_elsewhere_for_what_any_other_has() -> None:
    asks, owner = (Connected(KEYS, "127.0.0.1", port) for port in free_ports(2))
    found = asks.owner("session", owner.name("session", "ann"), "ann", {})
    assert found is not None
    any_run = asks.at(found.address, {})
    assert any_run is not None
    # Before it listens, there is nothing to refuse.
    owner.leave()
    clients = [Client() for _ in range(3)]
    async with owner.listening(reading), asks.listening(reading):
        await asks.forward(any_run, scope(), clients[0].receive, clients[0].send)
        owner.leave()
        with pytest.raises(OwnerGone, match="was restarted or has stopped"):
            await asks.forward(any_run, scope(), clients[1].receive, clients[1].send)
        await asks.forward(found, scope(), clients[2].receive, clients[2].send)

    assert [client.status for client in clients] == [200, 0, 200]
