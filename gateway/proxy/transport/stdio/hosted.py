"""A server's process that is run by the parent of several workers, as a `Transport`.

Turns a Unix socket of the parent into the pipe of a conversation (`stdio_transport.py`): it carries the lines of the
process, and notices of the parent (`host_protocol.py`). It knows no messages and no other workers.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.proxy.caller import Exchange
from gateway.proxy.transport.server_link import LinkLost, Transport
from gateway.proxy.transport.stdio import host_protocol
from gateway.proxy.transport.stdio.host_protocol import Wanted
from gateway.proxy.transport.stdio.server_process import GatheredBytes
from gateway.proxy.transport.stdio.stdio_transport import StdioTransport

_ENDING: Final = 20.0
"""Seconds to wait for the parent to end a process."""
_NOTICE: Final = 64 * 1024
"""Bytes that a notice of the parent may have in addition to a line of the process."""
_PARENT_GONE: Final = "the gateway's parent process, which ran it, has ended"


class HostedPipe(asyncio.Protocol):
    """The socket to the parent."""

    def __init__(self, transport: StdioTransport, line_bound: int, unclaimed: Exchange) -> None:
        """`unclaimed` answers questions that may be for clients of several workers."""
        self.room = asyncio.Event()
        self.room.set()
        self.full = False
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the process runs; fails if it does not start."""
        self.gone = asyncio.Event()
        """Set when nothing more comes. If the process was this worker's alone, nothing is left of it then."""
        self._transport = transport
        self._splitter = LineSplitter(line_bound + _NOTICE)
        self._unsent = GatheredBytes(self._send)
        self._ended = False
        self._not_reading: set[str] = set()
        """Which of `process` and `parent` do not read at the moment."""
        self._handlers: dict[bytes, Callable[[bytes], None]] = {
            host_protocol.WELCOME: self._welcome,
            host_protocol.REFUSED: self._refused,
            host_protocol.ENDED: lambda said: self.lose(json.loads(said)),
            host_protocol.FULL: lambda _: self._fill("process"),
            host_protocol.ROOM: lambda _: self._clear("process"),
            host_protocol.LONG: self._left_out,
            host_protocol.SHARED: lambda line: transport.take_question(line, unclaimed),
            host_protocol.STRANGE: transport.take,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the socket."""
        self._socket = cast("asyncio.Transport", transport)

    def write(self, data: bytes) -> None:
        """See `Pipe.write`."""
        self._unsent.add(data)

    def pause_writing(self) -> None:
        """Note that the parent does not read."""
        self._fill("parent")

    def resume_writing(self) -> None:
        """Note that the parent reads again."""
        self._clear("parent")

    def data_received(self, data: bytes) -> None:
        """Handle lines of the process and notices of the parent."""
        for line in self._splitter.feed(data):
            if isinstance(line, LongLine):
                raise RuntimeError("the parent sent a line longer than the agreed limit")
            if line.startswith(host_protocol.MESSAGE):
                self._transport.take(line)
            else:
                self._handlers[line[:1]](line[1:])

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the parent has closed the connection, or has ended."""
        self.lose(_PARENT_GONE)
        self.gone.set()

    def lose(self, cause: str) -> None:
        """End the conversation."""
        if self._ended:
            return
        self._unsent.flush()
        self._ended = True
        self._not_reading.clear()
        self._clear("")
        if not self.begun.done():
            self.begun.set_exception(LinkLost(cause))
        self._transport.lose(cause)

    def leave(self) -> None:
        """Tell the parent that this worker no longer needs the process."""
        self.lose("the gateway ended it")
        if not self.gone.is_set():
            self._socket.write_eof()

    def close(self) -> None:
        """Close the socket at once."""
        self._socket.abort()

    def _welcome(self, number: bytes) -> None:
        self._transport.count_from(int(number))
        if not self.begun.done():
            self.begun.set_result(None)

    def _refused(self, why: bytes) -> None:
        if not self.begun.done():
            self.begun.set_exception(host_protocol.refused(why))
        self.lose("its process could not be started")

    def _left_out(self, told: bytes) -> None:
        number, length = map(int, told.split())
        self._transport.warn_of_length(length)
        if number >= 0:
            self._transport.fail_too_long(number)

    def _send(self, data: bytes) -> None:
        if not self._ended:
            self._socket.write(data)

    def _fill(self, who: str) -> None:
        if not self._ended:
            self._not_reading.add(who)
            self.full = True
            self.room.clear()

    def _clear(self, who: str) -> None:
        self._not_reading.discard(who)
        if not self._not_reading:
            self.full = False
            self.room.set()


@asynccontextmanager
async def open_hosted(
    config: UpstreamConfig,
    pushes: Exchange,
    host: Path,
    *,
    unclaimed: Exchange | None = None,
    line_bound: int,
    log: FilteringBoundLogger,
) -> AsyncGenerator[Transport]:
    """Talk to a process that the parent runs. Leaving the context ends it, unless other workers talk to it as well.

    Args:
        config: an upstream whose `command` is set.
        pushes: takes and answers what the server sends of its own accord.
        host: the parent's socket.
        unclaimed: answers questions that may be for clients of several workers, which share the process; None: this
            worker gets a process of its own.
        line_bound: longest message that is read, in bytes.
        log: receives what the server does wrong.

    Raises:
        OSError: the program can't be started.
        LinkLost: the parent is not there, or the process ended before it was ready.
    """
    transport = StdioTransport(pushes, line_bound=line_bound, log=log)
    loop = asyncio.get_running_loop()
    pipe = HostedPipe(transport, line_bound, unclaimed or pushes)
    transport.talk_over(pipe)
    try:
        with anyio.CancelScope(shield=True):
            await loop.create_unix_connection(lambda: pipe, str(host))
    except OSError as error:
        raise LinkLost(f"{_PARENT_GONE} ({error})", sent=False) from error
    try:
        pipe.write(Wanted.by(config, os.environ, shared=unclaimed is not None, line_bound=line_bound).as_line())
        await pipe.begun
        yield transport
    finally:
        pipe.leave()
        with anyio.move_on_after(_ENDING, shield=True):
            await pipe.gone.wait()
        pipe.close()
