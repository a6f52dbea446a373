"""One connection between two replicas: the greeting of both sides, then records.

An asyncio protocol that turns bytes into records and back. If one side is too fast, data waits in the kernel, or the
sender waits.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, cast

import anyio

from gateway.replicas.keys import ReplicaKeys
from gateway.replicas.records import FULL, HELLO_BYTES, Hello, NoRoom, RecordFault, Records

_HELD: Final = 512 * 1024
"""Bytes of received records that may wait to be taken; over that, reading pauses."""
_PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence, seconds between two probes, and how many may go unanswered. Not every system has all options."""


class Link(asyncio.Protocol):
    """A connection to another replica, for one request at a time. The other side is unproven until a record comes."""

    def __init__(
        self, keys: ReplicaKeys, side: Literal["asks", "answers"], met: Callable[["Link"], object] | None = None
    ) -> None:
        """`met`: called once the link is connected."""
        self._keys = keys
        self._side: Literal["asks", "answers"] = side
        self._met = met
        self._loop = asyncio.get_running_loop()
        self._out: asyncio.Transport
        self._mine = Hello.new(keys.current[0])
        self._hello = bytearray()
        self._records: Records | None = None
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._held = 0
        self._some = asyncio.Event()
        """Set when something has arrived, or the connection has ended."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._end: Exception | Literal[False] | None = False
        """The error that ended it; None: the other side closed it; False: it has not ended."""
        self.heard_at = self._loop.time()

    @staticmethod
    async def connect(host: str, port: int, keys: ReplicaKeys) -> "Link":
        """Connect to another replica and greet it. Raises `RecordFault`; OSError or EOFError if the connection ends."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: Link(keys, "asks"), host, port)
        try:
            await link.greeted()
        except BaseException:
            link.close()
            raise
        return link

    async def greeted(self) -> None:
        """Wait for the other side's greeting. Raises like `connect`."""
        while self._records is None:
            if self._end is not False:
                raise self._end or EOFError("it closed the connection before it had sent its greeting")
            await self._something()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established."""
        self._out = cast("asyncio.Transport", transport)
        _look_after(transport.get_extra_info("socket"))
        if self._side == "asks":
            self._out.write(self._mine.bytes)
        if self._met is not None:
            self._met(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self.heard_at = self._loop.time()
        if self._end is not False:
            return
        try:
            self._take(data)
        except RecordFault as fault:
            self._out.pause_reading()
            self._over(fault)

    def _take(self, data: bytes) -> None:
        if self._records is None:
            self._hello += data
            if len(self._hello) < HELLO_BYTES:
                return
            data = bytes(self._hello[HELLO_BYTES:])
            self._records = self._greet(bytes(self._hello[:HELLO_BYTES]))
            self._some.set()
        for record in self._records.feed(data):
            self._waiting.append(record)
            self._held += len(record[1])
        if self._waiting:
            self._some.set()
        if self._held > _HELD:
            self._out.pause_reading()

    def _greet(self, said: bytes) -> Records:
        if said == FULL:
            raise NoRoom("it accepts no more connections from other replicas at the moment")
        theirs = Hello.read(said)
        if self._side == "asks":
            return Records(self._keys, self._mine, theirs, self._side)
        records = Records(self._keys, theirs, self._mine, self._side)
        self._out.write(self._mine.bytes)
        return records

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._over(exc)
        self._writable.set()

    def eof_received(self) -> None:
        """The other side has closed it."""
        self._over(None)

    def _over(self, why: Exception | None) -> None:
        if self._end is False:
            self._end = why
        self._some.set()

    def pause_writing(self) -> None:
        """The other side reads too slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The other side has caught up."""
        self._writable.set()

    def tell(self, *records: tuple[bytes, bytes]) -> None:
        """Send records together, without waiting for the other side to read. Raises OSError."""
        if self._records is None or self._out.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._out.write(b"".join([self._records.seal(kind, data) for kind, data in records]))

    async def send(self, *records: tuple[bytes, bytes], within: float | None = None) -> None:
        """Send records together, waiting up to `within` seconds for the other side to read. Raises OSError."""
        self.tell(*records)
        if not self._writable.is_set():
            with anyio.fail_after(within):
                await self._writable.wait()
            if self._out.is_closing():
                raise ConnectionResetError("the connection was closed")

    async def heard(self) -> None:
        """Wait until there is something to receive, or the connection has ended."""
        while not self._waiting and self._end is False:
            await self._something()

    async def _something(self) -> None:
        self._some.clear()
        await self._some.wait()

    async def receive(self) -> tuple[bytes, bytes] | None:
        """The next record; None: the other side has closed the connection. Raises `RecordFault`, OSError."""
        while not self._waiting:
            if self._end is not False:
                if self._end is None:
                    return None
                raise self._end
            await self._something()
        record = self._waiting.popleft()
        before, self._held = self._held, self._held - len(record[1])
        if before > _HELD >= self._held and not self._out.is_closing():
            self._out.resume_reading()
        return record

    @property
    def is_idle(self) -> bool:
        """Whether it is open and idle, and nothing unexpected has arrived."""
        return not (self._waiting or self._end is not False or self._out.is_closing())

    def refuse(self) -> None:
        """Tell the other side that there is no room, and close the connection."""
        self._out.write(FULL)
        self._out.close()

    def end(self) -> None:
        """Close it once everything has been sent."""
        self._out.close()

    def close(self) -> None:
        """Close it at once; what has not been sent is lost."""
        self._out.abort()


def _look_after(kept: Any) -> None:
    """Let the kernel detect a machine that vanished without closing its connections; they would stay open otherwise."""
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if (option := getattr(socket, name, None)) is not None:
            kept.setsockopt(socket.IPPROTO_TCP, option, value)
