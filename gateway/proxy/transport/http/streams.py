"""Event streams of an HTTP server: resumed after they break off, or the only one, before Streamable HTTP.

Turns connections into events for a reader until it has what it wants, waits between two connections as the server
asked, and continues after the last event received (Streamable HTTP, "Resumability and Redelivery"). It knows no
session.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio

from gateway.escape import escape_text
from gateway.http1.connection import Connection
from gateway.protocol.lines import EventParser, LongEvent, SseEvent, portions
from gateway.protocol.mending import BrokenAnswer, number_of
from gateway.protocol.messages import Failure, Malformed, Notification, Request, Response, is_json
from gateway.proxy.transport.http.channel import Channel
from gateway.proxy.transport.http.http_answers import read_messages, read_refusal
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, Unfit, too_long

if TYPE_CHECKING:
    from gateway.config.address import Address

PAUSE: Final = 1.0
"""Seconds before a stream is opened again, unless the server said otherwise."""
_SHORTEST: Final = 0.1
_LONGEST: Final = 30.0
_LONGEST_ASKED: Final = 300.0
_FAILURES: Final = 5
"""Connections in a row that may fail before a request is given up, or the events that a stream missed."""

Take = Callable[[SseEvent | LongEvent], dict[str, Any] | None]


class Position:
    """The position in a stream, across all connections that carry it."""

    def __init__(self, bound: int) -> None:
        """`bound`: longest data of one event, in bytes."""
        self.last_id: str | None = None
        self._bound = bound
        self._retry: int | None = None
        self._failures = 0

    async def read(self, connection: Connection, take: Take) -> dict[str, Any] | None:
        """Give events to `take` until it returns something; None at the end of the connection.

        Raises:
            LinkLost, NoAnswer: the connection broke off.
        """
        parser = EventParser(self._bound, last_id=self.last_id)
        try:
            while data := await connection.chunk():
                for portion in portions(data):
                    if (outcome := self._take(portion, parser, take)) is not None:
                        return outcome
                    if len(portion) < len(data):
                        # So that a stream of many short lines does not hold up everything else.
                        await anyio.lowlevel.checkpoint()
            # Some servers leave out the last blank line, by which the standard tells whole events from broken ones.
            whole = (event for event in parser.close() if isinstance(event, SseEvent) and is_json(event.data))
            return next((found for event in whole if (found := take(event)) is not None), None)
        finally:
            self.last_id = parser.last_id
            self._retry = self._retry if parser.retry is None else parser.retry

    def _take(self, data: bytes, parser: EventParser, take: Take) -> dict[str, Any] | None:
        for event in parser.feed(data):
            self._failures = 0
            if (outcome := take(event)) is not None:
                return outcome
        if (over := parser.over) is not None:
            # An event that does not end must not be read for ever.
            take(LongEvent(over, ended=False))
        if parser.last_id != self.last_id:
            self._failures = 0
            self.last_id = parser.last_id
        return None

    def failed(self) -> int:
        """Count a failed connection. Return how many failed in a row."""
        self._failures += 1
        return self._failures

    def refused(self) -> None:
        """Note that the server refuses to go on. For a while it may take the last connection for open still (official
        SDKs: 409); after that, it may not know the last event any more."""
        if self._failures >= _FAILURES:
            self.last_id = None

    def ended(self, began: float) -> None:
        """Note that a connection ended properly. A short one counts as failed, unless the server asked for a pause."""
        if asyncio.get_running_loop().time() - began >= _LONGEST:
            self._failures = 0
        elif self._retry is None:
            self._failures += 1

    def seconds(self, roll: float) -> float:
        """Seconds before the next connection: what the server asked for, or more with every failure in a row. `roll`:
        between 0 and 1; it spreads the connections of many gateways."""
        asked = PAUSE if self._retry is None else min(max(self._retry / 1000, _SHORTEST), _LONGEST_ASKED)
        backoff = min(_LONGEST, PAUSE * 2 ** min(self._failures - 1, 10)) if self._failures else 0.0
        return max(asked, backoff * (1 + roll) / 2)

    async def pause(self, closed: asyncio.Event) -> None:
        """Wait for the next connection's turn, or until `closed` is set."""
        with anyio.move_on_after(self.seconds(random.random())):  # noqa: S311 - not a secret
            await closed.wait()


async def follow(source: Channel, connection: Connection, take: Take, bound: int, *, resumable: bool) -> dict[str, Any]:
    """Return the outcome of one request's stream, over as many connections as it needs. Releases `connection`. Raises
    `LinkLost`: the stream broke off, and can't be resumed."""
    position = Position(bound)
    current: Connection | None = connection
    while True:
        cause = "its event stream ended before the answer"
        if current is not None:
            drain = False
            try:
                if (outcome := await position.read(current, take)) is not None:
                    drain = True
                    return outcome
            except PeerError:
                drain = True
                raise
            except LinkLost as lost:
                cause = str(lost)
            finally:
                source.release(current, drain=drain)
        if not resumable or position.last_id is None or source.closed.is_set():
            raise LinkLost(cause)
        current = await _resume(source, position)


async def _resume(source: Channel, position: Position) -> Connection | None:
    await position.pause(source.closed)
    try:
        connection = await source.open_stream(position.last_id)
    except (LinkLost, NoAnswer) as error:
        if source.closed.is_set() or position.failed() > _FAILURES:
            raise LinkLost(f"its event stream broke off, and it can't be resumed: {error}") from None
        return None
    if connection is None:
        raise LinkLost("its event stream ended before the answer, and the server does not resume streams")
    return connection


async def listen(source: Channel, take: Take, bound: int, failing: Callable[[Exception], None]) -> None:
    """Read the stream of what belongs to no request until the source is closed, in spite of failures. `failing`: called
    with the first of several failures in a row."""
    position, was_open = Position(bound), False
    while not source.closed.is_set():
        try:
            connection = await source.open_stream(position.last_id)
            if connection is None:
                if not was_open:
                    return
                position.refused()
                raise NoAnswer("it does not open its event stream again")
            was_open = True
            began = asyncio.get_running_loop().time()
            try:
                await position.read(connection, take)
            finally:
                source.release(connection)
            position.ended(began)
        except (LinkLost, NoAnswer) as error:
            if position.failed() == 1:
                failing(error)
        await position.pause(source.closed)


# An answer may come on the server's own stream before its POST has been accepted (HTTP 202), so the latest few that
# nobody awaits yet are kept.

_KEPT: Final = 16

StreamAnswer = Response | Failure | BrokenAnswer


class StreamAnswers:
    """The answers on the stream of one session."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[StreamAnswer]] = {}
        self._early: dict[int, StreamAnswer] = {}

    def take(self, message: StreamAnswer) -> None:
        """Give an answer to whoever awaits it, or keep it for a moment."""
        number = number_of(message.id)
        if number is None:
            return
        if (future := self._waiting.get(number)) is None:
            self._early[number] = message
            if len(self._early) > _KEPT:
                del self._early[next(iter(self._early))]
        elif not future.done():
            future.set_result(message)

    def lose(self, lost: LinkLost) -> None:
        """Fail whoever waits."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(lost)

    async def result(self, number: int) -> dict[str, Any]:
        """Return the result of this request, which has been sent.

        Raises:
            PeerError, NoAnswer, LinkLost: see `Transport.request`.
        """
        message = self._early.pop(number, None)
        if message is None:
            future = self._waiting[number] = asyncio.get_running_loop().create_future()
            try:
                message = await future
            finally:
                del self._waiting[number]
        if isinstance(message, Response):
            return message.result
        raise PeerError(message.error) if isinstance(message, Failure) else NoAnswer(message.detail)


# The transport before Streamable HTTP (HTTP+SSE, 2024-11-05): the stream's first event names the address that takes our
# messages. The answers come on the stream, and with its end everything that waits fails.

REFUSALS: Final = frozenset({400, 404, 405})
"""Statuses with which such a server refuses the POST of Streamable HTTP (2025-11-25, "Backwards Compatibility")."""
OLD_PATH: Final = "/sse"
"""How the path of such a server's address ends, as a rule."""
FIRST: Final = "endpoint"
"""The kind of the first event."""
_FIRST_TIME: Final = 5.0
"""Seconds that a server has to name the address."""


class OldStream:
    """The stream of one session."""

    def __init__(
        self,
        channel: Channel,
        pushed: Callable[[Request | Notification | Malformed], None],
        passed_over: Callable[[LongEvent], None],
        bound: int,
    ) -> None:
        """Opens nothing yet.

        Args:
            channel: to the server's own address.
            pushed: takes what is not an answer.
            passed_over: told of what is over `bound` bytes and answers nothing; raises if the stream is to be given up.
        """
        self._channel = channel
        self._pushed = pushed
        self._passed_over = passed_over
        self._bound = bound
        self._named: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def open(self, ended: Callable[[LinkLost], None]) -> tuple[Channel, asyncio.Task[None]] | None:
        """Open the stream. Return the way for messages, and the task that reads; None: the server offers no such thing.

        Args:
            ended: told when the stream is over.

        Raises:
            LinkLost, NoAnswer: it can't be opened now, or the address is not one of the server's own.
        """
        connection = await self._channel.open_stream(None)
        if connection is None:
            return None
        reading = asyncio.ensure_future(self._read(connection, ended))
        try:
            await asyncio.wait([reading, self._named], timeout=_FIRST_TIME, return_when=asyncio.FIRST_COMPLETED)
            if self._named.done():
                return self._channel.beside(self._named.result()), reading
        except BaseException:
            reading.cancel()
            raise
        reading.cancel()
        return None

    async def ask(self, number: int, body: bytes, channel: Channel) -> dict[str, Any]:
        """Return the result of a request that is sent on `channel`. Raises as `Transport.request` does."""
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            connection = await channel.post(body)
            try:
                if connection.status == 404:
                    raise channel.forget()
                if connection.status >= 300:
                    raise await read_refusal(connection, in_session=True)
            finally:
                channel.release(connection, drain=True)
            return await answer
        finally:
            del self._waiting[number]
            answer.cancel()

    async def _read(self, connection: Connection, ended: Callable[[LinkLost], None]) -> None:
        lost = LinkLost("its event stream ended")
        try:
            await Position(self._bound).read(connection, self._take)
        except LinkLost as error:
            lost = error
        except NoAnswer as error:
            lost = LinkLost(str(error))
        finally:
            self._channel.release(connection)
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(lost)
        ended(lost)

    def _take(self, event: SseEvent | LongEvent) -> None:
        if isinstance(event, LongEvent):
            answer = self._waiting.get(event.data.answered_id() or 0)
            if answer is None:
                self._passed_over(event)
            elif not answer.done():
                answer.set_exception(Unfit(too_long(self._bound)))
        elif event.kind == FIRST and not self._named.done():
            self._name(event.data)
        elif event.kind == "message":
            for message in read_messages(event.data, self._channel.version):
                if isinstance(message, Response | Failure | BrokenAnswer):
                    self._answer(message)
                else:
                    self._pushed(message)

    def _name(self, place: bytes) -> None:
        """Read the address for messages: one of the server's own, since our credentials must go nowhere else."""
        own = self._channel.address
        try:
            named = own.joined(place.decode().strip())
        except ValueError:
            named = None
        if named is None or named.origin != own.origin:
            where = escape_text(place.decode("utf-8", "replace"), 200)
            self._named.set_exception(
                NoAnswer(f"it wants messages at {where!r}, which is no address of its own: correct its base URL")
            )
        else:
            self._named.set_result(named)

    def _answer(self, message: Response | Failure | BrokenAnswer) -> None:
        number = number_of(message.id)
        if message.id is None and len(self._waiting) == 1:
            (number,) = self._waiting
        answer = None if number is None else self._waiting.get(number)
        if answer is None or answer.done():
            return
        if isinstance(message, Response):
            answer.set_result(message.result)
        else:
            failed = isinstance(message, Failure)
            answer.set_exception(PeerError(message.error) if failed else NoAnswer(message.detail))
