"""One connection of a client, with bounds on what it may send and on how long it may keep us waiting.

uvicorn's protocol with bounds: the bytes, headers and seconds of a request's head, silence in a body and between
requests, answers that nobody reads. Each request costs only a reading of the clock; one deadline for each connection
checks from time to time what is awaited. It knows no route.
"""

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.observe.client_metrics import EndReason
from gateway.serve.http.connection_limits import ClientConnections
from gateway.serve.http.response_writes import GatheredWrites

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from gateway.deadlines import Deadline


# For a request that could not be read. Those that were read are answered in the shapes of `error_answers.py`.


def plain_answer(status: int, words: str) -> bytes:
    """A complete HTTP/1.1 answer."""
    body = words.encode()
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: text/plain; charset=utf-8",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


_PIPELINED: Final = 16
"""Requests that may wait behind the running one; with that many, nothing more is read until they are answered."""
_HEAD_END: Final = b"\r\n\r\n"
_LINGER: Final = 5.0
"""Seconds to wait for the rest of a body after its answer; it is read and thrown away."""
_FAREWELL: Final = 1.0
"""Seconds between a refusal and the close: closing a socket with unread bytes could discard the refusal."""
_FIELD: Final = 4
"""Bytes of a header line besides its name and value."""
_FULL: Final = "too many connections are open: try again later"


class _HeadRefused(Exception):
    """Raised in a callback of the parser to stop it."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's side of one connection, with bounds, over a transport that gathers writes."""

    def __init__(
        self,
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: ClientConnections,
    ) -> None:
        """`connections`: all connections of this port. The other parameters are uvicorn's."""
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self._limits = limits = connections.limits
        self._pace = min(limits.body_timeout, limits.idle_timeout, limits.write_timeout) / 4
        """The most seconds between two checks; the check of a head comes when the head is due."""
        self._out: GatheredWrites
        self._deadline: Deadline | None = None
        self._running: RequestResponseCycle | None = None
        """The request being answered; `cycle` is the one being read, which may wait behind it."""
        self._address: str | None = None
        """The address under which the connection is counted; None: it was not admitted."""
        self._closing = False
        self._held = b""
        """Bytes that came when as many requests waited as may: parsed once those are answered."""
        self._unread = 0
        """Bytes that came since the parser last completed a head or a part of a body."""
        self._fault: tuple[EndReason, int, str] | None = None
        self._in_head = True
        self._head_since: float | None = self.loop.time()
        self._in_body = False
        self._heard = self._idle_since = self._taken_at = self.loop.time()
        self._taken = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A client connected."""
        self._out = GatheredWrites(cast("asyncio.Transport", transport), self._all.turn)
        super().connection_made(self._out)
        address = self.client[0] if self.client else ""
        if self._all.admit(address, transport.get_extra_info("socket").fileno()) is not None:
            self._closing = True
            self._out.write(plain_answer(503, _FULL))
            self._out.close()
            return
        self._address = address
        self._set_deadline(min(self._limits.head_timeout, self._pace))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._address is not None:
            self._all.leave(self._address)
            self._address = None
        self._drop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of heads and bodies."""
        if not self._held and not self.pipeline and data.count(_HEAD_END) < _PIPELINED:
            # The usual case: no more heads than may be queued.
            if not self._closing and self.parser is not None:
                self._take(data)
            return
        while data and not self._closing and self.parser is not None:
            if self._held or len(self.pipeline) >= _PIPELINED:
                self._held += data
                self._out.hold_back(held=True)
                return
            end = _few_heads(data)
            self._take(data[:end])
            data = data[end:]

    def _take(self, data: bytes) -> None:
        self._unread += len(data)
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._read_as_http(data, upgrade.args[0])
        except httptools.HttpParserError:
            self._refuse(*(self._fault or ("malformed", 400, "this is not an HTTP request")))
            return
        if self._unread > self._limits.head_bytes:
            self._refuse(*self._too_large())
            return
        self._heard = self.loop.time()
        if self._in_head and self._head_since is None:
            self._head_since = self._heard
            self._set_deadline(self._limits.head_timeout)

    def _take_held(self) -> None:
        """Parse the held bytes, now that the waiting requests are answered."""
        held, self._held = self._held, b""
        self.data_received(held)
        if not self._held:
            self._out.hold_back(held=False)

    def _read_as_http(self, data: bytes, read: int) -> None:
        """Read a request that asks for another protocol as if it did not (RFC 9110, 7.8).

        `read`: bytes of `data` that were read. The parser takes all that follows such a head, even the body, for the
        other protocol, whatever we answer. So the head is parsed again, without its `Upgrade` header.
        """
        while True:
            data = self._head_again() + data[read:]
            self.parser = cast("Any", httptools.HttpRequestParser(self))
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                read = upgrade.args[0]
            else:
                return

    def _head_again(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = (b"%s: %s\r\n" % pair for pair in self.headers if pair[0] != b"upgrade")
        return b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(lines))

    def on_message_begin(self) -> None:
        """A head begins."""
        # Here and below: calling by `super()` takes twice the time of calling by the class's name.
        self._in_head = True
        HttpToolsProtocol.on_message_begin(self)

    def on_headers_complete(self) -> None:
        """A head is complete: check it before uvicorn makes a request of it."""
        limits = self._limits
        if len(self.headers) > limits.head_fields:
            self._fault = ("head_size", 431, f"more than {limits.head_fields} headers (serve.connections.head_fields)")
        elif self._unread > limits.head_bytes and _size_of(self.url, self.headers) > limits.head_bytes:
            self._fault = self._too_large()
        elif self.parser.should_upgrade():
            if self.parser.get_method() != b"CONNECT":
                return
            self._fault = ("malformed", 400, "CONNECT is for proxies, and this server is not one")
        if self._fault is not None:
            raise _HeadRefused
        HttpToolsProtocol.on_headers_complete(self)
        # The request keeps the old list, so that trailers behind its body don't become its headers.
        self.headers = []
        self._unread = 0
        self._in_head = False
        self._head_since = None
        self._in_body = True
        if not self.pipeline:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        """A part of a body came."""
        self._unread = 0
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        if self._in_head:
            # It asked for another protocol, and is about to be parsed again.
            return
        self._in_body = False
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        """An answer is complete. Like uvicorn's method, but without a timer for each request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._idle_since = self.loop.time()
        self.flow.resume_reading()
        if self.pipeline:
            self._running, app = self.pipeline.pop()
            self._start_asgi_task(self._running, app)
            if self._held and not self.pipeline:
                self.loop.call_soon(self._take_held)
        elif self.cycle.body:
            # The part of the body that nobody read is not kept until the next request.
            self.cycle.body = bytearray()

    def _too_large(self) -> tuple[EndReason, int, str]:
        return "head_size", 431, f"a head of more than {self._limits.head_bytes} bytes (serve.connections.head_bytes)"

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._all.deadlines.after(seconds, self._look)

    def _look(self) -> None:
        """End the connection if its client is too late, else look again when it may be."""
        now = self.loop.time()
        if self._is_stalled(now):
            self._all.ended("write_time")
            self._out.abort()
        elif self._closing:
            self._out.close()
            self._set_deadline(self._pace)
        elif (awaited := self._awaited(now)) is None:
            self._set_deadline(self._pace)
        elif (left := awaited[1] - now) > 0:
            self._set_deadline(min(left, self._pace))
        else:
            self._end(awaited[0])
            self._set_deadline(self._pace)

    def _awaited(self, now: float) -> tuple[EndReason, float] | None:
        """What is awaited from the client, and until when; None: nothing."""
        limits = self._limits
        if self._held or self.flow.read_paused:
            # The client's time does not run while we read nothing.
            self._heard = now
            self._head_since = now if self._in_head else None
        if self._in_head:
            return "head_time", (now if self._head_since is None else self._head_since) + limits.head_timeout
        if self._in_body:
            if self.cycle.response_complete:
                return "body_time", self._idle_since + _LINGER
            if self.cycle.waiting_for_100_continue:
                self._heard = now
            return "body_time", self._heard + limits.body_timeout
        return ("idle", self._idle_since + limits.idle_timeout) if self.cycle.response_complete else None

    def _is_stalled(self, now: float) -> bool:
        """Whether there is something for the client, and it has taken none of it for too long."""
        waiting = self._out.unacknowledged()
        taken = self._out.handed_over - waiting
        if not waiting or taken != self._taken:
            self._taken, self._taken_at = taken, now
            return False
        return now - self._taken_at >= self._limits.write_timeout

    def _refuse(self, reason: EndReason, status: int, words: str) -> None:
        """Answer with what is wrong, and end the connection a moment later."""
        self._all.ended(reason)
        self.flow.pause_reading()
        self._stop_serving(status, words)
        self._set_deadline(_FAREWELL)

    def _end(self, reason: EndReason) -> None:
        """End the connection: nothing came for too long."""
        self._all.ended(reason)
        begun = reason != "idle" and (self._unread or self._in_body)
        self._stop_serving(408 if begun else None, "the rest of the request did not arrive in time")
        self._out.close()

    def _stop_serving(self, status: int | None, words: str) -> None:
        """Stop listening. Answer with `status`, if any, where that can't be mistaken for part of another answer."""
        self._closing = True
        if status is not None and self._may_speak():
            self._out.write(plain_answer(status, words))
        self._drop()

    def _may_speak(self) -> bool:
        running = self._running
        if running is None or running.response_complete:
            return not self._in_body
        return self._in_body and running is self.cycle and not running.response_started

    def _drop(self) -> None:
        """Tell the application that nobody waits for the running answer any more, and start no other request."""
        self.pipeline.clear()
        self._held = b""
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()


def _few_heads(data: bytes) -> int:
    """How many bytes of the data to parse so that they complete no more heads than may be queued."""
    at = 0
    for _ in range(_PIPELINED):
        found = data.find(_HEAD_END, at)
        if found < 0:
            return len(data)
        at = found + len(_HEAD_END)
    return at


def _size_of(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + _FIELD for name, value in headers)
