"""The pump: what is sent can be read at once, waits no longer than it may, and stops at a client that does not read."""

import anyio
import pytest

from gateway.serve.codec.stream import FramePump
from gateway.serve.codec.wire import Visible, WireOffer, read_version
from gateway.serve.replying import ClientStalled
from leaf_sdk.wire import CODINGS, Decoder, Dictionary, Extras, Frame, FrameReader, Usage

pytestmark = pytest.mark.anyio
MAP = "sha256:" + "a" * 64
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


@pytest.mark.parametrize("form", ["msgpack", "protobuf", "msgpack-delta"])
@pytest.mark.parametrize("coding", CODINGS)
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
    pump = FramePump(wire(max_delay=0.02), Visible((0, 5)), socket.send)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump.keep_time)
            for n in range(1, 4):
                await pump.put(Frame((n,)))
            assert [frame.ids for frame in socket.frames] == [(1,)]
            await socket.came.wait()
            assert [frame.ids for frame in socket.frames] == [(1,), (2, 3)]
            await pump.put(Frame((4,)))
            await socket.came.wait()
            assert socket.frames[-1].ids == (4,)
            tasks.cancel_scope.cancel()


async def test_batch_holds_everything_but_the_first_ids_until_the_end():
    socket = Socket("protobuf", "gzip")
    pump = FramePump(wire("protobuf", "batch", "gzip"), Visible((0, 5)), socket.send)

    for n in range(100):
        await pump.put(Frame((n,)))
    assert [frame.ids for frame in socket.frames] == [(0,)]
    await pump.put(LAST)

    assert [frame.ids for frame in socket.frames] == [(0,), tuple(range(1, 100))]


async def test_client_that_does_not_read_is_given_up_and_gets_nothing_more():
    async def stuck(_message) -> None:
        await anyio.sleep_forever()

    pump = FramePump(wire(), Visible((0, 5)), stuck, stall=0.01)

    with anyio.fail_after(5):
        with pytest.raises(ClientStalled):
            await pump.put(Frame((1,)))
        with pytest.raises(ClientStalled):
            await pump.put(LAST)


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (None, (0, 2)),
        ("0.4", (0, 4)),
        (" v0.4.1", (0, 4)),
        ("1.0", (1, 0)),
        ("new", (0, 2)),
        ("0.x", (0, 2)),
        ("", (0, 2)),
    ],
)
def test_client_version_is_read_leniently(value, version):
    assert read_version(value) == version


def test_client_is_sent_no_header_that_is_newer_than_it():
    names = ["Codec-Tokenizer-Map", "Codec-Zstd-Dict", "Codec-Map", "Codec-Safety-Policy"]

    assert Visible((0, 1))(names) == []
    assert Visible((0, 2))(names) == names[:2]
    assert Visible((0, 3))(names) == names[:3]
    assert Visible((0, 5))(names) == names
