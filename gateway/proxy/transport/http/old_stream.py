"""The transport before Streamable HTTP: one event stream for everything that a server says (HTTP+SSE, 2024-11-05).

The stream's first event names the address that takes our messages. The answers come on the stream, and with its end
everything that waits fails. It knows no method.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gateway.escape import escape_text
from gateway.http1.connection import Connection
from gateway.protocol.lines import LongEvent, SseEvent
from gateway.protocol.mending import BrokenAnswer, number_of
from gateway.protocol.messages import Failure, Malformed, Notification, Request, Response
from gateway.proxy.transport.http.channel import Channel
from gateway.proxy.transport.http.http_answers import read_messages, read_refusal
from gateway.proxy.transport.http.streams import Position
from gateway.proxy.transport.server_link import LinkLost, NoAnswer, PeerError, Unfit, too_long

if TYPE_CHECKING:
    from gateway.http1.origin import Address

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
