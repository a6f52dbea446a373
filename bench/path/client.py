"""The client of the bench: one request, its answer decoded as it arrives, and the time at which each id was decoded.

Turns a way and a request into a `Got`. Cheap on purpose, since it shares the machine with what it measures: it handles
everything that one read of the socket returned at once. An answer that is cut off or missing ends the run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast
from urllib.parse import urlsplit

from httptools import HttpResponseParser

from bench.path.ways import Way
from bench.wire.sse import EventReader
from leaf_sdk.wire import Decoder, FrameReader

_MOST = 1 << 26


@dataclass(slots=True)
class Got:
    """What arrived, and when, by this machine's `perf_counter`."""

    ids: list[int] = field(default_factory=list[int])
    """Empty if the answer is text."""
    text: str = ""
    times: list[float] = field(default_factory=list[float])
    """When each id (or each event of text) had been decoded."""
    wire_bytes: int = 0
    """All bytes received on the socket, including the head and the sizes of chunks."""
    asked: float = 0.0
    """When the request was sent."""

    @property
    def first_ms(self) -> float:
        """Seconds from the request to the first decoded token."""
        return (self.times[0] - self.asked) * 1e3

    @property
    def a_second(self) -> float:
        """Tokens per second after the first."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


class Stream(asyncio.Protocol):
    """One connection for one answer, made by `open_stream`."""

    def __init__(self, way: Way) -> None:
        self.got = Got()
        self.done = asyncio.get_running_loop().create_future()
        self._way = way
        self._coding = "identity"
        self._decoder: Decoder | None = None
        self._read: Callable[[bytes], None] = self._texts_of(EventReader())
        if way.form != "json":
            self._read = self._ids_of(FrameReader(way.form))
        self._parser = HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._whole = False

    def ask(self, request: bytes) -> None:
        """Send the request; `done` has the answer."""
        self.got.asked = perf_counter()
        self._out.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._out = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.got.wire_bytes += len(data)
        self._parser.feed_data(data)
        if self._pieces:
            body = b"".join(self._pieces)
            self._pieces.clear()
            self._read(self._opened().feed(body))
        if self._whole and not self.done.done():
            self._opened().close()
            self.done.set_result(self.got)
            self._out.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the answer was cut after {len(self.got.times)} tokens: {exc!r}"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-encoding":
            self._coding = value.decode()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._whole = True
        if self._parser.get_status_code() != 200:
            said = b"".join(self._pieces)[:500]
            self.done.set_exception(ConnectionError(f"status {self._parser.get_status_code()}: {said!r}"))
            self._pieces.clear()

    def _opened(self) -> Decoder:
        """Return the decoder of the answer's coding: a short answer is sent uncompressed, whatever was asked for."""
        if self._decoder is None:
            coding = self._way.coding if self._coding == self._way.coding else "identity"
            self._decoder = Decoder(coding, _MOST, self._way.dictionary() if coding == "zstd" else None)
        return self._decoder

    def _texts_of(self, reader: EventReader) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            texts = reader.feed(data)
            self.got.text += "".join(texts)
            self.got.times += [perf_counter()] * len(texts)

        return read

    def _ids_of(self, reader: FrameReader) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            frames = reader.feed(data)
            count = 0
            for frame in frames:
                if frame.extras.error is not None:
                    raise ConnectionError(f"the stream ended with an error: {frame.extras.error}")
                self.got.ids += frame.ids
                count += len(frame.ids)
            self.got.times += [perf_counter()] * count

        return read


async def open_stream(url: str, way: Way) -> Stream:
    """Connect; nothing is asked yet."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: Stream(way), parts.hostname or "", parts.port or 80)
    return stream


async def fetch(url: str, way: Way, request: bytes) -> Got:
    """Ask for one stream and wait for all of it."""
    stream = await open_stream(url, way)
    stream.ask(request)
    return await stream.done
