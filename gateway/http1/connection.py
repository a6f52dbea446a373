"""One HTTP/1.1 connection to a server: a request out, its answer in as it comes, then the next request.

Turns a request into a status, headers and pieces of a body, each bounded; a slow reader makes the server wait. It
parses with llhttp, asks for no compression, undoes what comes compressed all the same, and follows no redirects. It
knows no pool and no MCP. Written by hand because a call through the usual clients costs five to thirty times the CPU
(docs/adr/0009).
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.config.address import Origin


class NoAnswer(Exception):
    """This request gets no usable answer, but others still can: it is too long or malformed, or has a bad status."""


class LinkLost(Exception):
    """The connection ended before the answer arrived. `sent`: whether the server may have begun to act on the request.

    Over a pipe it ends all requests. Over HTTP each request has a connection of its own, and the others go on.
    """

    def __init__(self, cause: str, *, sent: bool = True) -> None:
        super().__init__(cause)
        self.sent = sent


# The gateway asks for no compression, but servers behind some proxies compress all the same (RFC 9110, 8.4.1). gzip and
# deflate are decoded here, in portions, so that whoever reads them can stop at a bound; br and zstd by the SDK, if its
# extra `wire` is there.

_PORTION: Final = 64 * 1024
_FREE: Final = 16 * 1024 * 1024
"""Bytes that a body may become whatever it was."""
_GROWTH: Final = 200
"""Times that a longer body may grow: JSON grows tenfold, a body of line ends a thousandfold."""
_MAGIC: Final = 2
"""Bytes by which gzip and zlib are told from neither."""
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS


class BodyDecoder(Protocol):
    """Decodes one body."""

    def feed(self, data: bytes) -> None:
        """Add what came. Raises as `take`."""
        ...

    def take(self) -> bytes:
        """The next portion; empty if more must come first. Raises `NoAnswer`: it is not compressed as the header says,
        or grows too much."""
        ...


def decoder_for(encoding: str) -> BodyDecoder | None:
    """What decodes a body with this `Content-Encoding`; None: it is not compressed. Raises `NoAnswer`: it is compressed
    in a way that can't be decoded here."""
    # Some servers write other words there, such as `utf-8` and `none`, which mean nothing.
    match encoding.strip().lower():
        case "gzip" | "x-gzip" | "deflate":
            return Inflater()
        case "br" | "zstd" as coding:
            return _SdkDecoder(coding)
        case "compress" | "x-compress" as coding:
            raise NoAnswer(f"its answer is compressed with {coding!r}, although the request accepted no compression")
        case _:
            return None


class _SdkDecoder:
    def __init__(self, coding: Literal["br", "zstd"]) -> None:
        # Imported here because no server should need it.
        from leaf_sdk.errors import CodingUnavailable
        from leaf_sdk.wire.decompression import Decoder as Decompressor

        try:
            self._inner = Decompressor(coding, _FREE)
        except CodingUnavailable:
            raise NoAnswer(
                f"its answer is compressed with {coding!r}, although the request accepted no compression; with the "
                "package codec-leaf[wire] installed, this gateway can read it"
            ) from None
        self._ready = b""

    def feed(self, data: bytes) -> None:
        from leaf_sdk.errors import BodyInvalid, BodyTooLarge

        try:
            self._ready += self._inner.feed(data)
        except BodyTooLarge:
            raise NoAnswer(f"its compressed answer becomes more than {_FREE // 2**20} MiB") from None
        except BodyInvalid:
            raise NoAnswer("its answer is compressed, but damaged") from None

    def take(self) -> bytes:
        data, self._ready = self._ready, b""
        return data


class Inflater:
    """Decodes gzip and deflate."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ANY_HEADER)
        self._left = b""
        self._begun = False
        self._fed = self._given = 0

    def feed(self, data: bytes) -> None:
        """See `BodyDecoder`."""
        self._left += data
        self._fed += len(data)

    def take(self) -> bytes:
        """See `BodyDecoder`."""
        if not self._begun and len(self._left) < _MAGIC:
            return b""
        try:
            data = self._inflate.decompress(self._left, _PORTION)
        except zlib.error:
            if self._begun:
                raise NoAnswer("its answer is compressed, but damaged") from None
            # Many servers send `deflate` without the header of zlib that the RFC asks for.
            self._inflate, self._begun = zlib.decompressobj(-zlib.MAX_WBITS), True
            return self.take()
        self._begun = True
        self._left = self._inflate.unconsumed_tail
        self._given += len(data)
        if self._given > _FREE and self._given > _GROWTH * self._fed:
            raise NoAnswer(f"its compressed answer grows to more than {_GROWTH} times its size")
        return data


# A header's value from outside can't begin a second line.


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Headers as they stand in a request. Raises `NoAnswer`: a name or a value can't stand in a header, so nothing was
    sent."""
    text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if text.count("\r") != len(headers) or text.count("\n") != len(headers) or "\0" in text:
        bad = next((name for name, value in headers.items() if any(c in name + value for c in "\r\n\0")), "")
        raise NoAnswer(f"header {bad[:100]!r} contains a line break or a NUL, so nothing was sent: correct its value")
    # An environment variable may hold bytes that are not text; they are sent as they are.
    return text.encode("utf-8", "surrogateescape")


CONNECT_TIME: Final = 10.0
"""Seconds to connect to a server somewhere else."""
KEPT_TIME: Final = 4.0
"""Seconds that an idle connection is kept: less than the five after which common servers close one."""
_HEAD_BOUND: Final = 64 * 1024
_HEADERS_BOUND: Final = 256
"""Header lines that are kept: joining the values of one name costs more with each value."""
_FRAMING_BOUND: Final = 512 * 1024
"""Bytes of chunk heads and trailers in a row. More than one read of the socket gives: it may end within a body."""
SEPARATOR: Final = b"\n"
"""Stands between the values of several `Set-Cookie` headers, which hold commas."""
_UNREAD: Final = 256 * 1024
"""Bytes of a body that may wait for the reader before the server is made to wait."""
_DRAINED: Final = 64 * 1024
"""Bytes left of an answer that are read and thrown away, so that the connection can be used again."""


class Connection(asyncio.Protocol):
    """One connection, for one request at a time."""

    def __init__(
        self,
        origin: Origin,
        soon: Callable[[Callable[[bytes], None], bytes], object],
        *,
        guarded: bool = False,
        via: bytes = b"",
        with_headers: bytes = b"",
    ) -> None:
        """Make the protocol of a connection that is yet to be opened.

        Args:
            origin: the server that it goes to.
            soon: calls a function at the end of the loop's turn (`call_soon`). So the requests of one turn are sent
                together: a sleeping server is woken once for all of them, which saves a tenth of the CPU of 16
                concurrent calls.
            guarded: the connection was made for a URL that somebody else named, and is for one request.
            via: what stands before the path in a request line, if the connection goes to a proxy.
            with_headers: header lines for that proxy.
        """
        self.origin = origin
        self.guarded = guarded
        self.idle_since = 0.0
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        """Names in lower case; the values of a repeated name are joined by `, ` (of `Set-Cookie` by `SEPARATOR`)."""
        self.complete = True
        """Whether the whole answer has arrived."""
        self._soon = soon
        self._via = via
        self._with_headers = with_headers
        self._parser = HttpResponseParser(self)
        # Servers written by hand end the lines of their heads with a line feed alone. Behind us is no other parser that
        # could see another end of the answer.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._decoder: BodyDecoder | None = None
        self._headed = True
        self._reusable = False
        self._error: Exception | None = None
        self._chunks: list[bytes] = []
        self._unread = 0
        self._fed = 0
        self._lines = 0
        self._framing = 0
        """Bytes after the head since the last byte of the body: heads of chunks, and trailers."""
        self._paused = False
        self._strayed = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_drained: Callable[[], None] | None = None

    def send(self, method: str, path: str, headers: bytes, body: bytes) -> None:
        """Send a request. `headers`: whole lines, without the content length and the blank line."""
        self.headers = {}
        self.status = self._fed = self._framing = 0
        self.complete = self._headed = self._reusable = False
        self._error = self._decoder = None
        line = b"%s %s%s HTTP/1.1\r\n" % (method.encode(), self._via, path.encode())
        length = b"content-length: %d\r\n" % len(body) if body or method == "POST" else b""
        self._soon(self._write, b"".join((line, headers, self._with_headers, length, b"\r\n", body)))

    def _write(self, request: bytes) -> None:
        if self._transport.is_closing():
            # `connection_lost` will not be called again.
            self._break(LinkLost("the connection ended before the request was sent", sent=False))
            return
        self._transport.write(request)

    async def head(self) -> None:
        """Wait for the status and the headers.

        Raises:
            LinkLost: the connection broke before they arrived.
            NoAnswer: what arrived is not HTTP.
        """
        while not self._headed:
            await self._progress()

    def decode(self) -> None:
        """Decompress the body of this answer, if it is compressed. Raises `NoAnswer`: it is compressed in a way that
        can't be decoded here."""
        self._decoder = decoder_for(self.header("content-encoding"))

    async def chunk(self) -> bytes:
        """The next bytes of the body; empty at its end. Raises like `head`."""
        if self._decoder is not None:
            return await self._decoded(self._decoder)
        while not self._chunks:
            if self.complete:
                return b""
            await self._progress()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._unread = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def _decoded(self, decoder: BodyDecoder) -> bytes:
        while not (data := decoder.take()):
            self._decoder = None
            try:
                came = await self.chunk()
            finally:
                self._decoder = decoder
            if not came:
                break
            decoder.feed(came)
        return data

    async def read(self, bound: int) -> bytes | None:
        """The whole body; None as soon as it is known to be longer than `bound` bytes. Raises like `head`."""
        told = self.headers.get(b"content-length", b"0")
        if told.isdigit() and int(told) > bound:
            return None
        parts: list[bytes] = []
        length = 0
        while data := await self.chunk():
            length += len(data)
            if length > bound:
                return None
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def header(self, name: str) -> str:
        """The value of a header (name in lower case); empty where there is none."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    def fail(self, cause: str) -> None:
        """Abort the running request now."""
        self._break(LinkLost(cause))
        self._transport.abort()

    @property
    def usable(self) -> bool:
        """Whether another request can be sent."""
        if not self.complete or not self._reusable or self._chunks or self._transport.is_closing():
            return False
        # Bytes left to write: the answer came before the whole request was sent.
        return self._transport.get_write_buffer_size() == 0

    def drain(self, on_drained: Callable[[], None]) -> None:
        """Throw away the rest of the answer; `on_drained` is called when it is complete, which may be never."""
        self._chunks.clear()
        self._unread = 0
        self._on_drained = on_drained
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Close it, in the middle of an answer or not."""
        self._transport.abort()

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of asyncio that carries it."""
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read more of the answer. Bytes that were not asked for end the connection."""
        if self.complete:
            self._transport.abort()
            return
        self._fed += len(data)
        self._framing += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._break(NoAnswer("its answer is not valid HTTP/1.1"))
            self._transport.abort()
            return
        if not self._headed and self._fed > _HEAD_BOUND:
            self._break(NoAnswer(f"the head of its answer is over {_HEAD_BOUND} bytes"))
            self._transport.abort()
        elif self._framing > _FRAMING_BOUND and not self.complete:
            self._break(NoAnswer(f"the chunk headers or trailers of its answer are over {_FRAMING_BOUND} bytes"))
            self._transport.abort()
        elif self._strayed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended. A body without a length ends with its connection (RFC 9112, 6.3)."""
        if self.complete:
            return
        if self._headed and exc is None and not {b"content-length", b"transfer-encoding"} & self.headers.keys():
            self.complete = True
            self._wake()
            return
        where = "in the middle of its answer" if self._fed else "before it answered"
        self._break(LinkLost(f"the connection ended {where}" + (f": {exc}" if exc else "")))

    def on_message_begin(self) -> None:
        """An answer begins; a second one that we did not ask for makes the connection useless."""
        self._strayed = self.complete
        if not self._headed:
            self.headers = {}
            self._lines = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is ignored."""
        self._lines += 1
        if self._headed or self._lines > _HEADERS_BOUND:
            return
        name = name.lower()
        value = value.strip()
        if name in self.headers:
            value = self.headers[name] + (SEPARATOR if name == b"set-cookie" else b", ") + value
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        """The head is complete, unless it is an interim response (RFC 9110, 15.2)."""
        if self._strayed:
            return
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._headed = True
            self._wake()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._strayed:
            return
        self._framing = 0
        self._unread += len(data)
        if self._on_drained is not None:
            if self._unread > _DRAINED:
                self._transport.abort()
            return
        self._chunks.append(data)
        if self._unread > _UNREAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        """The answer is complete."""
        if self._strayed or not self._headed:
            return
        self.complete = True
        self._reusable = self._parser.should_keep_alive()
        self._wake()
        if self._on_drained is not None:
            on_drained, self._on_drained = self._on_drained, None
            on_drained()

    def _progress(self) -> asyncio.Future[None]:
        """A future that is done when something has arrived. Raises like `head`.

        Not a coroutine, since almost every id of a stream waits here.
        """
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _break(self, error: Exception) -> None:
        if not self.complete and self._error is None:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
