"""One connection between two replicas: the greeting of both sides, then records."""

import asyncio
import socket
from typing import Final, Literal

from gateway.replicas.keys import ReplicaKeys
from gateway.replicas.records import HELLO_BYTES, Hello, Records

_READ: Final = 256 * 1024
_PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence, seconds between two probes, and how many of them go unanswered; not every system has each."""


class Link:
    """A connection on which both sides have shown nothing yet but their greeting. One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, records: Records) -> None:
        self._reader = reader
        self._writer = writer
        self._records = records
        self._waiting: list[tuple[bytes, bytes]] = []
        # Who has just stopped waiting for a client's going still holds the reader for a moment.
        self._reading = asyncio.Lock()
        self.ended = False
        """Whether this side has closed it."""

    @staticmethod
    async def open(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        keys: ReplicaKeys,
        side: Literal["asks", "answers"],
    ) -> "Link":
        """Greet. Raises `RecordFault`, and OSError or EOFError where the connection ends."""
        _look_after(writer)
        mine = Hello.new(keys.current[0])
        if side == "asks":
            writer.write(mine.bytes)
            theirs = Hello.read(await reader.readexactly(HELLO_BYTES))
            return Link(reader, writer, Records(keys, mine, theirs, side))
        theirs = Hello.read(await reader.readexactly(HELLO_BYTES))
        records = Records(keys, theirs, mine, side)
        writer.write(mine.bytes)
        return Link(reader, writer, records)

    async def send(self, *records: tuple[bytes, bytes]) -> None:
        """Send records together; waits while the other side does not read. Raises OSError."""
        self._writer.write(b"".join([self._records.seal(kind, data) for kind, data in records]))
        await self._writer.drain()

    async def receive(self) -> tuple[bytes, bytes] | None:
        """The next record; None: the other side has closed the connection. Raises `RecordFault`, OSError."""
        async with self._reading:
            while not self._waiting:
                data = await self._reader.read(_READ)
                if not data:
                    return None
                self._waiting = self._records.feed(data)
            return self._waiting.pop(0)

    @property
    def rests(self) -> bool:
        """Whether it is open, and nothing has come on it that nobody waits for."""
        return not (self._waiting or self._reader.at_eof() or self._writer.is_closing())

    def close(self) -> None:
        """End it at once; what the other side has not taken is not waited for."""
        self.ended = True
        self._writer.transport.abort()


def _look_after(writer: asyncio.StreamWriter) -> None:
    """Have the kernel notice a machine that has vanished without a word: its connections would rest here for ever."""
    kept = writer.get_extra_info("socket")
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if (option := getattr(socket, name, None)) is not None:
            kept.setsockopt(socket.IPPROTO_TCP, option, value)
