"""The pump: what is sent can be read at once, waits no longer than it may, and stops at a client that does not read."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from gateway.agent.events import IdsGenerated
from gateway.errors import EngineUnavailable
from gateway.observe.metrics import Metrics
from gateway.serve.codec.frame_negotiation import Visible, WireOffer
from gateway.serve.codec.frames import FramedAnswer, FramePump, FrameReply
from gateway.serve.generation.answers import Answering
from gateway.serve.http.middleware import EXPIRED
from leaf_sdk.wire import CODINGS, Decoder, Dictionary, Extras, Frame, FrameReader, Usage
from tests.cases import each_of

pytestmark = pytest.mark.anyio
MAP = "sha256:" + "a" * 64
JSON_EVENT = 200
LAST = Frame(done=True, finish_reason="length", extras=Extras(usage=Usage(1, 2)))


class Socket:
    """What was sent, read as it comes."""

    def __init__(self, form, coding, dictionary=None) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.frames: list[Frame] = []
        self.came = anyio.Event()
        self.ended = False
        self._reader = FrameReader(form)
        self._decoder = Decoder(coding, dictionary=dictionary)

    async def send(self, message) -> None:
        if message["type"] == "http.response.start":
            self.headers = dict(message["headers"])
            return
        self.frames += self._reader.feed(self._decoder.feed(message["body"]))
        self.ended = not message["more_body"]
        self.came.set()
        self.came = anyio.Event()


def wire(form="msgpack", flush="interactive", coding="identity", **offer):
    offered = WireOffer(**offer)
    return offered.wire(form, flush, MAP, accept_encoding=coding, expected_ids=None)


@each_of("form", ["msgpack", "protobuf"])
@each_of("coding", CODINGS)
async def test_each_flush_can_be_read_at_once_in_every_form_and_coding(form, coding):
    dictionary = Dictionary(b"some bytes that are a dictionary")
    how = wire(form, "at_once", coding, dictionaries={form: dictionary})
    socket = Socket(form, coding, how.dictionary)
    pump = FramePump(how, Visible((0, 5)), socket.send)

    for n in range(1, 4):
        await pump.put(Frame((n,)))
        assert socket.frames[-1].ids == (n,)
    await pump.put(LAST)

    assert socket.ended
    assert socket.frames[-1].extras.usage == Usage(1, 2)
    assert socket.frames[-1].extras.seq == 3
    assert socket.headers.get(b"content-encoding", b"identity") == coding.encode()
    assert (b"codec-zstd-dict" in socket.headers) == (coding == "zstd")


async def test_ids_that_wait_leave_together_when_their_time_is_over():
    socket = Socket("msgpack", "identity")
    pump = FramePump(wire(max_delay=0.2), Visible((0, 5)), socket.send)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump.keep_time)
            for n in range(1, 4):
                await pump.put(Frame((n,)))
            assert [frame.ids for frame in socket.frames] == [(1,)]
            await socket.came.wait()
            assert [frame.ids for frame in socket.frames] == [(1,), (2, 3)]
            came = socket.came
            await pump.put(Frame((4,)))
            await pump.put(Frame((5,)))
            while socket.frames[-1].ids[-1] != 5:
                await came.wait()
                came = socket.came
            # Behind the pause 4 may have left at once; 5 must not wait for ever.
            assert [token for frame in socket.frames for token in frame.ids] == [1, 2, 3, 4, 5]
            tasks.cancel_scope.cancel()


async def test_clock_goes_on_where_ids_left_by_their_number_before_their_time():
    socket = Socket("msgpack", "identity")
    how = wire(max_delay=0.2)
    pump = FramePump(replace(how, policy=replace(how.policy, max_ids=3)), Visible((0, 5)), socket.send)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump.keep_time)
            for n in range(1, 6):
                await pump.put(Frame((n,)))
            assert [frame.ids for frame in socket.frames] == [(1,), (2, 3, 4)]
            # The clock was set for 2; when it rings, 5 waits, and must not wait for ever.
            await socket.came.wait()
            assert socket.frames[-1].ids == (5,)
            tasks.cancel_scope.cancel()


async def test_batch_holds_everything_but_the_first_ids_until_the_end():
    socket = Socket("protobuf", "gzip")
    pump = FramePump(wire("protobuf", "batch", "gzip"), Visible((0, 5)), socket.send)

    for n in range(100):
        await pump.put(Frame((n,)))
    assert [frame.ids for frame in socket.frames] == [(0,)]
    await pump.put(LAST)

    assert [frame.ids for frame in socket.frames] == [(0,), tuple(range(1, 100))]


def test_client_is_sent_no_header_that_is_newer_than_it():
    names = ["Codec-Tokenizer-Map", "Codec-Zstd-Dict", "Codec-Map", "Codec-Safety-Policy"]

    assert Visible((0, 1))(names) == []
    assert Visible((0, 2))(names) == names[:2]
    assert Visible((0, 3))(names) == names[:3]
    assert Visible((0, 5))(names) == names


@pytest.mark.parametrize("origin", ["https://maps.example", "https://maps.example/"])
def test_map_is_named_by_its_url_and_its_hash_where_the_operator_publishes_maps(origin):
    headers = dict(wire(maps_origin=origin).headers(Visible((0, 5))))

    digest = MAP.removeprefix("sha256:")
    url = f"https://maps.example/.well-known/codec/maps/sha256/{digest}.json"
    assert headers[b"codec-tokenizer-map"].decode() == url
    assert headers[b"codec-tokenizer-map-hash"].decode() == MAP


def test_map_is_named_by_its_hash_alone_where_nobody_says_that_it_is_published():
    headers = dict(wire().headers(Visible((0, 5))))

    assert headers[b"codec-tokenizer-map"].decode() == MAP
    assert b"codec-tokenizer-map-hash" not in headers


async def still_there() -> dict[str, str]:
    await anyio.sleep_forever()
    raise AssertionError


def answer_of(make, flush="interactive"):
    counted: list[str] = []
    answering = Answering(make, counted.append)
    metrics = Metrics()
    answer = FramedAnswer(
        answering, FrameReply(), wire(flush=flush, coding="gzip"), Visible((0, 5)), metrics.wire, json_event=JSON_EVENT
    )
    return answer, counted, metrics


async def test_failure_in_the_middle_is_a_last_frame_and_what_waited_comes_before_it():
    async def make(emit) -> None:
        for n in range(1, 4):
            await emit(IdsGenerated((n,)))
        raise EngineUnavailable("the engine left; ask again")

    socket = Socket("msgpack", "gzip")
    answer, counted, metrics = answer_of(make)
    await answer({}, still_there, socket.send)

    last = socket.frames[-1]
    assert [i for frame in socket.frames for i in frame.ids] == [1, 2, 3]
    assert (last.done, last.finish_reason, last.extras.error) == (True, "error", "the engine left; ask again")
    assert socket.ended
    assert counted == ["engine_error"]
    page = metrics.render().decode()
    assert 'codec_wire_streams_total{coding="gzip",format="msgpack",reason="only_one"} 1.0' in page
    assert 'codec_wire_ids_total{coding="gzip",format="msgpack"} 3.0' in page
    assert f'codec_wire_json_bytes_total{{coding="gzip",format="msgpack"}} {3 * JSON_EVENT}.0' in page


class SlowReader(Socket):
    """A socket whose client reads one piece and then none until it is told to."""

    def __init__(self, form, coding) -> None:
        super().__init__(form, coding)
        self.waits = anyio.Event()
        self.reads = anyio.Event()

    async def send(self, message) -> None:
        if self.frames:
            self.waits.set()
            await self.reads.wait()
        await super().send(message)


async def test_failure_while_a_client_does_not_read_cuts_nothing_out_of_what_is_compressed():
    socket = SlowReader("msgpack", "gzip")

    async def make(emit) -> None:
        await emit(IdsGenerated((1,)))
        await emit(IdsGenerated((2,)))
        # The clock sends it, and can't.
        await socket.waits.wait()
        raise EngineUnavailable("the engine left; ask again")

    await read_late(socket, make, "interactive", {})

    assert [i for frame in socket.frames for i in frame.ids] == [1, 2]
    assert [frame.extras.error for frame in socket.frames if frame.done] == ["the engine left; ask again"]


async def test_stop_while_a_client_does_not_read_cuts_nothing_out_of_what_is_compressed():
    socket = SlowReader("msgpack", "gzip")

    async def make(emit) -> None:
        for n in range(1, 100):
            await emit(IdsGenerated((n,)))
            await anyio.lowlevel.checkpoint()

    await read_late(socket, make, "at_once", {EXPIRED: socket.waits})

    ids = [i for frame in socket.frames for i in frame.ids]
    assert ids == list(range(1, len(ids) + 1))
    assert len(ids) < 99
    assert "the gateway is stopping" in socket.frames[-1].extras.error


async def read_late(socket: SlowReader, make, flush, scope) -> None:
    async def read() -> None:
        await socket.waits.wait()
        await anyio.wait_all_tasks_blocked()
        socket.reads.set()

    answer, _, _ = answer_of(make, flush=flush)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await answer(scope, still_there, socket.send)


async def test_great_frame_is_compressed_while_others_have_their_turn():
    turns = 0
    socket = Socket("protobuf", "br")
    pump = FramePump(wire("protobuf", "batch", "br"), Visible((0, 5)), socket.send)

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    prompt = tuple(n * 7919 % 49152 for n in range(20_000))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await pump.put(Frame((1,), extras=Extras(prompt_ids=prompt)))
        during = turns
        await pump.put(LAST)
        tasks.cancel_scope.cancel()

    assert during > 1
    assert socket.frames[0].extras.prompt_ids == prompt
    assert socket.frames[-1].done


async def test_failure_before_the_first_frame_is_an_http_error():
    async def make(_emit) -> None:
        raise EngineUnavailable("the engine left; ask again")

    sent: list[dict[str, object]] = []

    async def send(message) -> None:
        sent.append(message)

    answer, _, _ = answer_of(make)
    await answer({"type": "http"}, still_there, send)

    assert sent[0]["status"] == 503
    assert b"the engine left" in sent[1]["body"]


async def test_unforeseen_failure_tells_the_client_only_that_it_happened():
    async def make(emit) -> None:
        await emit(IdsGenerated((1,)))
        raise KeyError("a secret")

    socket = Socket("msgpack", "gzip")
    answer, _, _ = answer_of(make)
    await answer({}, still_there, socket.send)

    assert socket.frames[-1].extras.error == "the gateway failed; its log says why"


async def test_client_that_leaves_cancels_the_answer():
    left, cancelled = anyio.Event(), anyio.Event()

    async def make(emit) -> None:
        await emit(IdsGenerated((1,)))
        left.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def receive() -> dict[str, str]:
        await left.wait()
        return {"type": "http.disconnect"}

    socket = Socket("msgpack", "gzip")
    answer, counted, _ = answer_of(make)
    with anyio.fail_after(20):
        await answer({}, receive, socket.send)

    assert cancelled.is_set()
    assert counted == ["cancelled"]
    assert not socket.ended
