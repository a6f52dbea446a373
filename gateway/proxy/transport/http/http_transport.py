"""One MCP server behind a URL, as a `Transport`: Streamable HTTP in both eras.

Turns each request into a POST of its own, and the response (JSON, or an event stream that may be resumed) into its
answer; a push on a request's stream goes to that request. In the handshake era a stream is kept open for what belongs
to no request; in the modern era there is none, and closing a request's stream cancels the request. It knows no MCP
methods beyond what the transport needs.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Final

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.address import read_url
from gateway.config.gateway_config import UpstreamConfig
from gateway.escape import escape_text
from gateway.http1.connection import Connection, header_lines
from gateway.protocol.headers import routing_headers
from gateway.protocol.lines import LongEvent, SseEvent
from gateway.protocol.mending import BrokenAnswer, number_of
from gateway.protocol.messages import (
    Failure,
    Malformed,
    Notification,
    Request,
    Response,
    RpcMessage,
    encode_notification,
)
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds
from gateway.proxy.transport.http.channel import Channel, open_session
from gateway.proxy.transport.http.client import Authorizer, HttpClient, open_http_client
from gateway.proxy.transport.http.http_answers import (
    EVENTS,
    answer_type,
    read_json,
    read_messages,
    read_refusal,
    why_given_up,
)
from gateway.proxy.transport.http.streams import FIRST, OLD_PATH, REFUSALS, OldStream, StreamAnswers, follow, listen
from gateway.proxy.transport.transport_interface import (
    CANCELLED,
    NEVER_CANCELLED,
    LinkLost,
    NoAnswer,
    PeerError,
    Pending,
    ServerLog,
    ServerQuestions,
    Transport,
    encode_or_refuse,
)

__all__ = ["HttpClient", "open_http", "open_http_client"]

_NAME: Final = 128
"""Characters of the longest tool's name whose headers are kept."""
_NOTIFY_TIME: Final = 10.0
"""Seconds a server may take to accept a notification or an answer of ours."""
_MOST_CANCELLATIONS: Final = 16
"""Cancellations that may be in flight at a time; to a server that does not react, more would be no use."""


class HttpTransport:
    """The conversation with one server."""

    first_number = 0
    unread = ""

    def __init__(self, channel: Channel, pushes: Exchange, *, bound: int, log: FilteringBoundLogger) -> None:
        self._channel = channel
        self._pushes = pushes
        self._bound = bound
        self._server_log = ServerLog(log)
        self._questions = ServerQuestions(self._answer, self._server_log)
        self._tasks: set[asyncio.Future[Any]] = set()
        self._sent = 0
        self._old: OldStream | None = None
        """The stream of a server that speaks only the transport before Streamable HTTP."""
        self._may_be_old = False
        self._on_stream = StreamAnswers()
        self._listens = False
        """Whether the server has been, or is being, asked for a stream of its own."""

    @property
    def closed(self) -> asyncio.Event:
        """See `Transport.closed`. Set if the session was forgotten or we left; a server that is away may come back."""
        return self._channel.closed

    def use_version(self, version: str) -> None:
        """See `Transport.use_version`."""
        self._channel.use_version(version)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """See `Transport.request`. A connection that breaks fails only its own request; the session may live on."""
        self._sent += 1
        number = self._sent
        body = encode_or_refuse(number, method, params)
        lines = _routing_lines(method, params) if self._channel.modern else b""
        if headers:
            lines += header_lines(headers)
        opening = method == "initialize"
        takes = exchange or self._pushes
        try:
            if opening:
                return await self._open(number, body, takes)
            return await self._ask(number, body, lines, takes, later=method not in NEVER_CANCELLED)
        except asyncio.CancelledError:
            if not self._channel.modern and method not in NEVER_CANCELLED:
                self._tell_cancelled(number)
                if exchange is not None:
                    exchange.given_up()
            raise

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """See `Transport.notify`. `notifications/initialized` opens the stream of what belongs to no request."""
        modern = self._channel.modern
        lines = _routing_lines(method, params or {}) if modern else b""
        await self._deliver(encode_notification(method, params), lines)
        if method == "notifications/initialized" and not modern and self._old is None and not self.closed.is_set():
            self._listens = True
            self._spawn(self._listen())

    async def close(self) -> None:
        """Fail waiting requests, stop background tasks, and end the session."""
        self._questions.close()
        for task in self._tasks:
            task.cancel()
        left = LinkLost("the gateway closed the connection")
        self._on_stream.lose(left)
        await self._channel.lose(left)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.end_session()
        self._server_log.close()

    async def _open(self, number: int, body: bytes, exchange: Exchange) -> dict[str, Any]:
        """Begin a session, on the server's old stream if it takes no POST."""
        if self._channel.address.path.partition("?")[0].endswith(OLD_PATH):
            # Some of these servers never answer a POST there.
            result = await self._open_old(number, body)
            if result is not None:
                return result
        try:
            asked = self._ask(number, body, b"", exchange, opening=True)
            return await open_session(asked, self._channel, self._spawn)
        except (NoAnswer, PeerError):
            result = await self._open_old(number, body) if self._may_be_old else None
            if result is None:
                raise
            return result

    async def _open_old(self, number: int, body: bytes) -> dict[str, Any] | None:
        """Begin a session on the old stream; None: the server has none."""
        old = OldStream(
            self._channel,
            lambda message: self._take_push(message, self._pushes),
            lambda event: self._take_long(event, None),
            self._bound,
        )
        opened = await old.open(lambda lost: self._spawn(self._channel.lose(lost)))
        if opened is None:
            return None
        self._channel, reading = opened
        self._old = old
        self._spawn(reading)
        return await old.ask(number, body, self._channel)

    async def _ask(
        self,
        number: int,
        body: bytes,
        lines: bytes,
        exchange: Exchange,
        *,
        opening: bool = False,
        later: bool = False,
    ) -> dict[str, Any]:
        """`later`: whether the answer may come on the server's own stream."""
        channel = self._channel
        if self._old is not None:
            return await self._old.ask(number, body, channel)
        resumable, in_session = not channel.modern, channel.in_session and not opening
        connection = await channel.post(body, lines, opening=opening)
        if later and connection.status == 202 and self._listens and not answer_type(connection):
            await channel.stream_asked.wait()
            if channel.has_stream:
                channel.release(connection, drain=True)
                return await self._on_stream.result(number)
        kind = await self._admit(connection, opening=opening, in_session=in_session)
        if kind == EVENTS:
            return await follow(
                channel, connection, lambda event: self._take(event, number, exchange), self._bound, resumable=resumable
            )
        try:
            return await read_json(connection, number, self._bound, channel.version)
        finally:
            channel.release(connection)

    async def _admit(self, connection: Connection, *, opening: bool, in_session: bool) -> str:
        """Return the type of an answer that can be read; otherwise release the connection and raise."""
        channel = self._channel
        try:
            kind = answer_type(connection)
            if not kind:
                self._may_be_old = opening and connection.status in REFUSALS
                raise await read_refusal(connection, in_session=in_session)
            if opening:
                channel.begin_session(connection)
        except BaseException:
            channel.release(connection)
            raise
        return kind

    def _take(self, event: SseEvent | LongEvent, number: int | None, exchange: Exchange) -> dict[str, Any] | None:
        """Deliver what an event contains. Return the result if it is the one of request `number`.

        Raises:
            PeerError, NoAnswer: the event is another outcome of request `number`.
        """
        if isinstance(event, LongEvent):
            self._take_long(event, number)
            return None
        if event.kind == FIRST and number is not None:
            # Some servers of the old transport take a POST for the GET that begins its stream.
            self._may_be_old = True
            raise NoAnswer("it speaks only the older HTTP+SSE transport")
        result = None
        for message in read_messages(event.data, self._channel.version):
            if event.kind != "message" and not isinstance(message, Response | Failure):
                # Some servers call their answers something else, such as `response`; what else is there is not for us.
                continue
            if (answer := self._take_message(message, number, exchange)) is not None:
                result = answer
        return result

    def _take_message(
        self, message: RpcMessage | BrokenAnswer | Malformed, number: int | None, exchange: Exchange
    ) -> dict[str, Any] | None:
        """Like `_take`, for one message."""
        if number is None and isinstance(message, Response | Failure | BrokenAnswer):
            self._on_stream.take(message)
        elif isinstance(message, Response):
            return message.result if number_of(message.id) == number else None
        elif isinstance(message, Failure):
            if message.id is None or number_of(message.id) == number:
                raise PeerError(message.error)
        elif isinstance(message, BrokenAnswer):
            if message.id == number:
                raise NoAnswer(message.detail)
        else:
            self._take_push(message, exchange)
        return None

    def _take_push(self, message: Request | Notification | Malformed, exchange: Exchange) -> None:
        if isinstance(message, Malformed):
            self._server_log.warning("upstream sent an event that is not a JSON-RPC message", detail=message.detail)
        elif isinstance(message, Request):
            if self._channel.modern:
                method = escape_text(message.method, 100)
                self._server_log.warning("upstream sent a request, which 2026-07-28 does not allow", method=method)
            else:
                self._questions.take(message, exchange)
        elif message.method == CANCELLED:
            self._questions.take_back(message.params.get("requestId"))
        else:
            exchange.notified(message.method, message.params)

    def _take_long(self, event: LongEvent, number: int | None) -> None:
        error = why_given_up(event, self._bound, waiting=number is not None)
        if event.ended or error is not None:
            length = event.data.length
            self._server_log.warning("upstream sent a message over the limit", bytes=length, limit=self._bound)
        if error is not None:
            raise error

    def _tell_cancelled(self, number: int) -> None:
        if len(self._tasks) <= _MOST_CANCELLATIONS and not self.closed.is_set():
            params = {"requestId": number, "reason": "nobody waits for the answer any more"}
            self._spawn(self._deliver(encode_notification(CANCELLED, params), b""))

    async def _answer(self, message: bytes) -> None:
        await self._deliver(message, b"")

    async def _deliver(self, message: bytes, lines: bytes) -> None:
        """Send a message that nobody waits for; if the server does not accept it, log a warning."""
        with anyio.move_on_after(_NOTIFY_TIME) as time:
            try:
                connection = await self._channel.post(message, lines)
            except (LinkLost, NoAnswer) as error:
                if not self.closed.is_set():
                    self._server_log.warning("message to upstream not delivered", cause=escape_text(str(error), 300))
                return
            self._channel.release(connection, drain=True)
            if connection.status >= 400:
                self._server_log.warning("upstream refused a message", status=connection.status)
        if time.cancelled_caught:
            self._server_log.warning("message to upstream not delivered: no answer in time")

    async def _listen(self) -> None:
        await listen(
            self._channel, lambda event: self._take(event, None, self._pushes), self._bound, self._cannot_listen
        )

    def _cannot_listen(self, error: Exception) -> None:
        if not self.closed.is_set():
            self._server_log.warning(
                "upstream's event stream can't be opened; trying again", cause=escape_text(str(error), 300)
            )

    def _spawn(self, work: Coroutine[Any, Any, None] | asyncio.Future[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@asynccontextmanager
async def open_http(
    config: UpstreamConfig,
    pushes: Exchange,
    *,
    bound: int,
    log: FilteringBoundLogger,
    client: HttpClient,
    authorizer: Authorizer | None = None,
) -> AsyncGenerator[Transport]:
    """Open a transport to a URL. Nothing is sent before the first request; leaving the context ends the session.

    Args:
        config: an upstream whose `url` is set.
        pushes: takes and answers what the server sends of its own accord.
        bound: longest JSON body, and longest data of an event, that is read, in bytes.
        log: receives what the server does wrong.
        client: shared by the connections to all servers.
        authorizer: gets the access tokens; None: the server needs none, or the configured headers have it.

    Raises:
        LinkLost: the URL is not the URL of a server.
    """
    try:
        address = read_url(config.url or "")
    except ValueError as error:
        raise LinkLost(str(error), sent=False) from None
    channel = Channel(address, config.headers, client, authorizer)
    transport = HttpTransport(channel, pushes, bound=bound, log=log)
    try:
        yield transport
    finally:
        with anyio.CancelScope(shield=True):
            await transport.close()


def _routing_lines(method: str, params: Mapping[str, Any]) -> bytes:
    """Raises as `header_lines`."""
    if method == "tools/call" and isinstance(tool := params.get("name"), str) and len(tool) <= _NAME:
        return _call_lines(tool)
    return header_lines(routing_headers(method, params))


@lru_cache(maxsize=256)
def _call_lines(tool: str) -> bytes:
    return header_lines(routing_headers("tools/call", {"name": tool}))
