"""A worker's connection: lines out of the bytes of a Unix socket, and lines into bytes.

What a worker does not read is kept up to a bound. Beyond it the connection is cut, so that a worker that hangs neither
holds up others nor fills the memory. It does not know what the lines mean.
"""

import asyncio
from typing import Final, Protocol, cast

from gateway.observe.logs import get_logger
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.proxy.transport.stdio.host_protocol import Wanted

_LONGEST: Final = 256 * 1024 * 1024
"""Bytes of a worker's line. Bodies of requests are bounded long before they get here."""
_UNREAD: Final = 16 * 1024 * 1024
"""Bytes that may wait for a worker, or those of four lines of the greatest length, if that is more."""

log = get_logger("workers")


class ServerProcess(Protocol):
    """The process that a worker talks to."""

    def receive(self, line: "WorkerLine", data: bytes) -> None:
        """Take a line that the worker wrote."""
        ...

    def leave(self, line: "WorkerLine") -> None:
        """Called when the worker does not need the process any more, or has ended."""
        ...


class Host(Protocol):
    """Finds the process that a worker wants."""

    def connect(self, line: "WorkerLine", wanted: Wanted) -> None:
        """Find what a worker wants. Make the line `talk_to` that process once it is there."""
        ...


class WorkerLine(asyncio.Protocol):
    """The connection of one worker."""

    def __init__(self, host: Host) -> None:
        """Start without a connection."""
        self.process: ServerProcess | None = None
        self.wanted: Wanted | None = None
        self.number = 0
        """Its number among the connections of its process."""
        self.over = False
        """Whether the worker does not need the process any more."""
        self._host = host
        self._splitter = LineSplitter(_LONGEST)

    def talk_to(self, process: ServerProcess, number: int) -> None:
        """From now on, pass on to this process what the worker writes."""
        self.process, self.number = process, number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A worker has connected."""
        self._socket = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take lines. The first one says what the worker wants; the others are for its process."""
        for line in self._splitter.feed(data):
            if isinstance(line, LongLine):
                self.cut("a worker sent a line that is too long", bytes=line.length)
                return
            if self.wanted is None:
                self._greeted(line)
            elif self.process is not None:
                self.process.receive(self, line)

    def eof_received(self) -> bool:
        """The worker does not need the process any more, and waits for the connection to end."""
        self._leave()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker is gone."""
        self._leave()

    def write(self, data: bytes) -> None:
        """Send whole lines to the worker."""
        if self._socket.is_closing() or self.wanted is None:
            return
        self._socket.write(data)
        if (waiting := self._socket.get_write_buffer_size()) > max(_UNREAD, 4 * self.wanted.line_bound):
            self.cut("a worker does not read its server's answers", server=self.wanted.server, bytes=waiting)

    def close(self) -> None:
        """End the connection once all that was written has been sent."""
        self._socket.close()

    def cut(self, why: str, **fields: object) -> None:
        """End the connection now, and log why."""
        log.warning(why, **fields)
        self._socket.abort()

    def _greeted(self, line: bytes) -> None:
        try:
            self.wanted = Wanted.from_line(line)
        except ValueError as error:
            self.cut("a connection did not begin as a worker's does", cause=str(error)[:200])
        else:
            self._host.connect(self, self.wanted)

    def _leave(self) -> None:
        if not self.over:
            self.over = True
            if self.process is not None:
                self.process.leave(self)
            elif self.wanted is None:
                self.close()
