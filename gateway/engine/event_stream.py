"""One request whose answer is a stream of lines, on an HTTP/1.1 connection of its own.

Turns a POST into a status and the lines of its body, all that one read brought at once. It follows nothing, keeps no
connection (closing it is how a generation is cancelled) and knows no JSON. A reader that is slow makes the engine wait;
an engine that is silent for too long is given up. `llama_cpp.py` stands above. Written by hand since every token of
every stream passes here: with httpx2 each costs two to five times the CPU (docs/adr/0009).
"""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import unquote, urlsplit

import httpx2
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_LINE: Final = 1 << 20
"""Bytes of one line; the final message of a generation, the longest, echoes the prompt and its settings."""
_UNREAD: Final = 256 * 1024
"""Bytes that wait for their reader before the engine is made to wait."""
_ERROR_BODY: Final = 64 * 1024
_CONNECT_TIME: Final = 5.0


class StreamLost(Exception):
    """The connection can't be made, broke before the answer, or carries something that is no HTTP."""


class StreamSilent(Exception):
    """Nothing came for too long."""


class LineOverLimit(Exception):
    """A line is longer than `MAX_LINE`."""


class Streams:
    """Where requests go and what all of them carry."""

    def __init__(self, url: str, headers: Mapping[str, str], *, idle_timeout: float) -> None:
        """`url`: before the path of every request. `idle_timeout`: seconds of silence that are borne."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._prefix = parts.path.rstrip("/")
        # The same trust as that of the client that asks the engine everything else.
        self._tls = httpx2.create_ssl_context(trust_env=False) if secure else None
        self._idle = idle_timeout
        named = {"host": parts.netloc.rpartition("@")[2], "content-type": "application/json", **headers}
        if parts.username is not None and "authorization" not in named:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            named["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        self._head = "".join(f"{name}: {value}\r\n" for name, value in named.items()).encode()

    async def post(self, path: str, body: bytes) -> "Answer":
        """Send a request and wait for the head of its answer. The caller closes it.

        Raises:
            StreamLost, StreamSilent: there is no answer.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_TIME):
                _, answer = await loop.create_connection(
                    lambda: Answer(self._idle), self._host, self._port, ssl=self._tls
                )
        except TimeoutError as error:
            raise StreamSilent(f"no connection within {_CONNECT_TIME:g} s") from error
        except OSError as error:
            raise StreamLost(str(error) or repr(error)) from error
        line = f"POST {self._prefix}{path} HTTP/1.1\r\n".encode()
        try:
            answer.send(b"%scontent-length: %d\r\n\r\n" % (line + self._head, len(body)) + body)
            await answer.headed()
        except BaseException:
            answer.close()
            raise
        return answer


class Answer(asyncio.Protocol):
    """The answer to one request. Made by `Streams.post`."""

    def __init__(self, idle_timeout: float) -> None:
        self.status = 0
        """Of the answer; 0 until its head is here."""
        self._loop = asyncio.get_running_loop()
        self._idle = idle_timeout
        self._heard = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._parser = HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._rest = b""
        self._lines: list[bytes] = []
        self._unread = 0
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def send(self, data: bytes) -> None:
        """Send the request, head and body."""
        self._transport.write(data)

    async def headed(self) -> None:
        """Wait for the status. Raises `StreamLost` and `StreamSilent`."""
        while not self.status:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StreamLost("the connection ended before the answer")
            await self._progress()

    async def lines(self) -> list[bytes]:
        """The lines that have come, without their line feeds; none at the end of the body, however that came.

        Raises:
            StreamLost, StreamSilent, LineOverLimit: once the lines before have been given.
        """
        while not self._lines:
            if self._error is not None:
                raise self._error
            if self._ended:
                return []
            await self._progress()
        lines, self._lines = self._lines, []
        self._unread = 0
        if self._paused:
            self._paused = False
            if not self._ended:
                self._transport.resume_reading()
        return lines

    async def body(self) -> bytes:
        """The whole of a short body: what an error says. Cut where it is long. Raises as `lines`."""
        whole = b""
        while len(whole) < _ERROR_BODY and (lines := await self.lines()):
            whole += b"\n".join(lines)
        return whole

    def close(self) -> None:
        """Be done with it, in the middle or at the end."""
        self._end()
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast(asyncio.Transport, transport)
        self._watch = self._loop.call_later(self._idle, self._look)

    def data_received(self, data: bytes) -> None:
        """Take what one read brought."""
        self._heard = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._error = StreamLost("the answer is no HTTP/1.1")
            self._transport.abort()
        if self._pieces:
            self._split()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over; whether that was the end of the answer, its last line says."""
        self._end()

    def on_headers_complete(self) -> None:
        """The head is here, unless it only announces the real one (RFC 9110, 15.2)."""
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self._ended:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        """The body is whole, unless what is complete is an announcement."""
        if self.status:
            if self._pieces:
                self._split()
            self._end()

    def _split(self) -> None:
        new = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        whole = self._rest + new
        *lines, self._rest = whole.split(b"\n")
        if len(whole) > MAX_LINE and max(map(len, (*lines, self._rest))) > MAX_LINE:
            self._rest = b""
            self._error = LineOverLimit()
            self._transport.abort()
            return
        self._lines += lines
        self._unread += len(new)
        # A line that is not whole yet is nothing that a reader could take.
        if self._unread > _UNREAD and self._lines and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            if self._rest:
                self._lines.append(self._rest)
                self._rest = b""
        if self._watch is not None:
            self._watch.cancel()
        self._wake()

    async def _progress(self) -> None:
        """Wait until something came."""
        self._heard = self._loop.time()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _look(self) -> None:
        """Has it been silent for too long? One timer a stream, moved on only when it rings: a token costs none."""
        left = self._heard + self._idle - self._loop.time()
        if self._waiter is None or left > 0:
            self._watch = self._loop.call_later(left if left > 0 else self._idle, self._look)
            return
        self._error = StreamSilent(f"silent for {self._idle:g} s")
        self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
