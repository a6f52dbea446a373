"""Event streams of an HTTP server that are read again after they broke off.

Turns connections into events for a reader until that has what it wants, waits between two connections as the server
asked, and goes on behind the last event that came (Streamable HTTP, "Resumability and Redelivery"). It knows no message
and no session.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio

from gateway.http1.connection import Connection
from gateway.protocol.lines import portions
from gateway.protocol.sse import Event, EventParser, LongEvent
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError

PAUSE: Final = 1.0
"""Seconds before a stream is asked for again, where the server did not say."""
_SHORTEST: Final = 0.1
_LONGEST: Final = 30.0
_LONGEST_ASKED: Final = 300.0
_FAILURES: Final = 5
"""Connections in a row that may fail before the answer of a request is given up."""

Take = Callable[[Event | LongEvent], dict[str, Any] | None]


class Source(Protocol):
    """Where streams come from."""

    @property
    def closed(self) -> asyncio.Event:
        """Set when nobody wants a stream any more."""
        ...

    async def open_stream(self, last_id: str | None) -> Connection | None:
        """A stream from behind that event; None where the server offers none.

        Raises:
            LinkLost, NoAnswer: not now.
        """
        ...

    def release(self, connection: Connection, *, drain: bool = False) -> None:
        """Give it back; `drain`: nothing that matters is to come."""
        ...


class Position:
    """Where a stream stands, over all the connections that carry it."""

    def __init__(self, bound: int) -> None:
        """`bound`: longest data of an event, in bytes."""
        self.last_id: str | None = None
        self._bound = bound
        self._retry: int | None = None
        self._failures = 0

    async def read(self, connection: Connection, take: Take) -> dict[str, Any] | None:
        """Give events to `take` until it returns something; None at the end of the connection.

        Raises:
            LinkLost, NoAnswer: it broke off.
        """
        parser = EventParser(self._bound, last_id=self.last_id)
        try:
            while data := await connection.chunk():
                for portion in portions(data):
                    if (outcome := self._take(portion, parser, take)) is not None:
                        return outcome
                    if len(portion) < len(data):
                        # A stream of many short lines does not hold up everybody else.
                        await anyio.lowlevel.checkpoint()
            return None
        finally:
            self.last_id = parser.last_id
            self._retry = self._retry if parser.retry is None else parser.retry

    def _take(self, data: bytes, parser: EventParser, take: Take) -> dict[str, Any] | None:
        for event in parser.feed(data):
            self._failures = 0
            if (outcome := take(event)) is not None:
                return outcome
        if (over := parser.over) is not None:
            # Whatever it is that does not end, it is not read for ever.
            take(LongEvent(over, ended=False))
        if parser.last_id != self.last_id:
            self._failures = 0
            self.last_id = parser.last_id
        return None

    def failed(self) -> int:
        """Another connection without anything new. How many in a row."""
        self._failures += 1
        return self._failures

    def ended(self, began: float) -> None:
        """A connection ended in good order. One that was in vain, and for which nobody set a pace, counts as failed."""
        if asyncio.get_running_loop().time() - began >= _LONGEST:
            self._failures = 0
        elif self._retry is None:
            self._failures += 1

    def seconds(self, roll: float) -> float:
        """The pause before the next connection: what the server asked for, and longer with every failure in a row.

        Args:
            roll: between 0 and 1; it spreads what many gateways do at once.
        """
        asked = PAUSE if self._retry is None else min(max(self._retry / 1000, _SHORTEST), _LONGEST_ASKED)
        backoff = min(_LONGEST, PAUSE * 2 ** min(self._failures - 1, 10)) if self._failures else 0.0
        return max(asked, backoff * (1 + roll) / 2)

    async def pause(self, closed: asyncio.Event) -> None:
        """Wait that long, or until `closed`."""
        with anyio.move_on_after(self.seconds(random.random())):  # noqa: S311 - not a secret
            await closed.wait()


async def follow(source: Source, connection: Connection, take: Take, bound: int, *, resumable: bool) -> dict[str, Any]:
    """The outcome of one request's stream, over as many connections as it needs; `connection` is released.

    Raises:
        LinkLost: it broke off, and can't be resumed.
    """
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


async def _resume(source: Source, position: Position) -> Connection | None:
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


async def listen(source: Source, take: Take, bound: int, failing: Callable[[Exception], None]) -> None:
    """Read the stream of what belongs to no request for as long as the source is not closed, over any failure.

    Args:
        failing: told of the first failure in a row.
    """
    position = Position(bound)
    while not source.closed.is_set():
        try:
            connection = await source.open_stream(position.last_id)
            if connection is None:
                return
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
