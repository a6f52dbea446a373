"""The one stream of an older server, without the server: where messages go, and whose each answer is."""

import asyncio
import json
from typing import Any, cast

import anyio
import pytest

from gateway.config.address import Address, read_url
from gateway.proxy.transport.http.streams import OldStream
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, SessionForgotten, Unfit
from tests.gateway.proxy.transport.kept_log import settled

pytestmark = pytest.mark.anyio
BOUND = 500


class Streaming:
    """A connection on which the server says what a test has it say."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[bytes | Exception] = asyncio.Queue()

    def say(self, *messages: dict[str, Any], kind: str = "message") -> None:
        for each in messages:
            data = json.dumps({"jsonrpc": "2.0", **each})
            self._said.put_nowait(f"event: {kind}\ndata: {data}\n\n".encode())

    def name(self, place: str) -> None:
        self._said.put_nowait(f"event: endpoint\ndata: {place}\n\n".encode())

    def end(self, error: Exception | None = None) -> None:
        self._said.put_nowait(error or b"")

    async def chunk(self) -> bytes:
        said = await self._said.get()
        if isinstance(said, Exception):
            raise said
        return said


class Answering:
    """What a message was answered with."""

    def __init__(self, status: int) -> None:
        self.status = status

    def header(self, name: str) -> str:
        return ""

    async def read(self, bound: int) -> bytes:
        return b"no"


class Way:
    """The way to one address of the server."""

    version = "2025-11-25"

    def __init__(self, address: Address, stream: Streaming | None = None, status: int = 202) -> None:
        self.address, self.stream, self.status = address, stream, status
        self.sent: list[bytes] = []
        self.released: list[tuple[object, bool]] = []
        """And whether the rest of the answer is thrown away."""

    async def open_stream(self, last_id: str | None) -> Streaming | None:
        assert last_id is None
        return self.stream

    def beside(self, address: Address) -> "Way":
        return Way(address)

    async def post(self, body: bytes) -> Answering:
        self.sent.append(body)
        return Answering(self.status)

    def release(self, connection: object, *, drain: bool = False) -> None:
        self.released.append((connection, drain))

    def forget(self) -> SessionForgotten:
        return SessionForgotten("forgotten")


class Talk:
    """A conversation on such a stream."""

    def __init__(self) -> None:
        self.stream = Streaming()
        self.own = Way(read_url("http://a.example/sse"), self.stream)
        self.pushed: list[Any] = []
        self.too_long: list[int] = []
        self.ended: list[LinkLost] = []
        self.it = OldStream(
            cast("Any", self.own), self.pushed.append, lambda event: self.too_long.append(event.data.length), BOUND
        )
        self.way: Any = None

    async def begin(self) -> None:
        self.stream.name("/messages")
        opened = await self.it.open(self.ended.append)
        assert opened is not None
        self.way, self.reading = opened

    async def ask(self, *numbers: int) -> list[asyncio.Task[dict[str, Any]]]:
        asking = [asyncio.create_task(self.it.ask(number, b"{}", self.way)) for number in numbers]
        await settled()
        return asking


@pytest.fixture
async def talk() -> Talk:
    return Talk()


@pytest.mark.parametrize("place", ["/messages?s=1", " messages?s=1", "http://a.example/messages?s=1"])
async def test_messages_go_to_the_address_that_the_first_event_names(talk, place):
    talk.stream.name(place)
    talk.stream.name("/another")
    way, reading = await talk.it.open(talk.ended.append)
    await settled()
    reading.cancel()

    assert str(way.address) == "http://a.example/messages?s=1"


@pytest.mark.parametrize("place", ["http://b.example/messages", "https://a.example/messages", "http://["])
async def test_address_that_is_not_the_servers_own_is_refused(talk, place):
    talk.stream.name(place)
    with pytest.raises(NoAnswer, match="which is no address of its own: correct its base URL"):
        await talk.it.open(talk.ended.append)


async def test_server_without_a_stream_or_a_first_event_is_none_of_that_kind(talk, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.streams._FIRST_TIME", 0.01)
    assert await talk.it.open(talk.ended.append) is None
    await settled()
    assert talk.own.released == [(talk.stream, False)]
    ending = Talk()
    ending.stream.end()
    assert await ending.it.open(ending.ended.append) is None
    none = Talk()
    none.own.stream = None
    assert await none.it.open(none.ended.append) is None


async def test_opening_that_is_given_up_reads_no_further(talk):
    opening = asyncio.create_task(talk.it.open(talk.ended.append))
    await settled()
    opening.cancel()
    await settled()

    assert opening.cancelled()
    assert talk.own.released == [(talk.stream, False)]


async def test_each_answer_is_its_requests_and_a_late_or_unknown_one_nobodys(talk):
    await talk.begin()
    one, two = await talk.ask(1, 2)
    talk.stream.say({"id": 2, "result": {"n": 2}}, {"id": 2, "result": {"n": 3}}, {"id": 9, "result": {}})
    talk.stream.say({"id": "1", "error": {"code": 5, "message": "no"}})
    talk.stream.say({"id": 1, "result": {}}, kind="other")

    assert await two == {"n": 2}
    with pytest.raises(PeerError, match="no"):
        await one
    assert talk.way.sent == [b"{}", b"{}"]
    assert [is_drained for _, is_drained in talk.way.released] == [True, True]
    talk.reading.cancel()


async def test_error_without_an_id_is_that_of_the_only_request(talk):
    await talk.begin()
    one, two = await talk.ask(1, 2)
    talk.stream.say({"id": None, "error": {"code": 5, "message": "no"}})
    await settled()
    waiting = (one.done(), two.done())
    talk.stream.say({"id": 1, "result": {}})
    await settled()
    talk.stream.say({"id": None, "error": {"code": 5, "message": "no"}})
    with pytest.raises(PeerError, match="no"):
        await two

    assert waiting == (False, False)
    talk.reading.cancel()


async def test_answer_that_can_not_be_used_fails_its_own_request(talk):
    await talk.begin()
    one, two = await talk.ask(1, 2)
    talk.stream.say({"id": 1, "result": []}, {"id": 2, "result": {"x": "y" * BOUND}})
    with pytest.raises(NoAnswer, match="its answer"):
        await one
    with pytest.raises(Unfit, match="more than 500 bytes"):
        await two

    assert talk.too_long == []
    talk.reading.cancel()


async def test_what_is_no_answer_is_passed_on(talk):
    await talk.begin()
    (one,) = await talk.ask(1)
    talk.stream.say({"method": "n", "params": {"a": 1}}, {"method": "n", "params": {"x": "y" * BOUND}})
    talk.stream.say({"method": "n"}, kind="other")
    talk.stream.say({"id": 1, "result": {}})
    await one

    assert [each.params for each in talk.pushed] == [{"a": 1}]
    assert len(talk.too_long) == 1
    talk.reading.cancel()


@pytest.mark.parametrize(
    ("status", "failure"), [(202, None), (299, None), (300, NoAnswer), (404, SessionForgotten), (500, NoAnswer)]
)
async def test_message_that_is_refused_fails_its_request(talk, status, failure):
    await talk.begin()
    talk.way.status = status
    (one,) = await talk.ask(1)
    if failure is None:
        talk.stream.say({"id": 1, "result": {}})
        assert await one == {}
    else:
        with pytest.raises(failure):
            await one
    assert [is_drained for _, is_drained in talk.way.released] == [True]
    talk.reading.cancel()


@pytest.mark.parametrize(
    ("error", "words"), [(None, "its event stream ended"), (LinkLost("it broke"), "it broke"), (NoAnswer("no"), "no")]
)
async def test_end_of_the_stream_fails_who_waits_and_is_told(talk, error, words):
    await talk.begin()
    asking = await talk.ask(1, 2)
    talk.stream.say({"id": 1, "result": {}})
    talk.stream.end(error)
    await settled()

    assert await asking[0] == {}
    with pytest.raises(LinkLost, match=words):
        await asking[1]
    assert [str(each) for each in talk.ended] == [words]
    assert talk.own.released == [(talk.stream, False)]


async def test_request_that_is_given_up_is_not_waited_for(talk):
    await talk.begin()
    one, two = await talk.ask(1, 2)
    one.cancel()
    await settled()
    talk.stream.say({"id": 1, "result": {}}, {"id": 2, "result": {"n": 2}})
    with anyio.fail_after(20):
        assert await two == {"n": 2}
    talk.reading.cancel()
