"""A server's process that the parent of several workers runs, as a `Transport`.

Turns a Unix socket of the parent into the pipe of a conversation (`transport.py`): the lines are the process's own, and
words of the parent besides (`words.py`). It knows no message and no other worker.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.proxy.caller import Exchange
from gateway.proxy.transport.interface import LinkLost, Transport
from gateway.proxy.transport.stdio import words
from gateway.proxy.transport.stdio.gathered import Gathered
from gateway.proxy.transport.stdio.transport import StdioTransport
from gateway.proxy.transport.stdio.words import Wanted

_ENDING: Final = 20.0
"""Seconds in which the parent ends a process, which may take it that long."""
_WORDS: Final = 64 * 1024
"""Bytes of a word of the parent's at most, besides a line of the process."""
_PARENT_GONE: Final = "the gateway's parent process, which runs it, ended"


class HostedPipe(asyncio.Protocol):
    """The socket, from the connection to its end."""

    def __init__(self, transport: StdioTransport, line_bound: int, unclaimed: Exchange) -> None:
        """`unclaimed` answers what may be for clients of several workers."""
        self.room = asyncio.Event()
        self.room.set()
        self.full = False
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Whether the process runs: done once that is known."""
        self.gone = asyncio.Event()
        """Set when nothing more comes: of a process of this worker alone nothing is left then."""
        self._hearer = transport
        self._splitter = LineSplitter(line_bound + _WORDS)
        self._unsent = Gathered(self._send)
        self._ended = False
        self._deaf: set[str] = set()
        """Who does not read: the process, the parent."""
        self._words: dict[bytes, Callable[[bytes], None]] = {
            words.WELCOME: self._welcome,
            words.REFUSED: self._refused,
            words.ENDED: lambda said: self.lose(json.loads(said)),
            words.FULL: lambda _: self._fill("process"),
            words.ROOM: lambda _: self._clear("process"),
            words.LONG: self._left_out,
            words.SHARED: lambda line: transport.take_question(line, unclaimed),
            words.STRANGE: transport.take,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The parent is there."""
        self._socket = cast("asyncio.Transport", transport)

    def write(self, data: bytes) -> None:
        """As `Pipe.write`."""
        self._unsent.add(data)

    def pause_writing(self) -> None:
        """The parent does not read."""
        self._fill("parent")

    def resume_writing(self) -> None:
        """It reads again."""
        self._clear("parent")

    def data_received(self, data: bytes) -> None:
        """Lines of the process, and words of the parent."""
        for line in self._splitter.feed(data):
            if isinstance(line, LongLine):
                raise RuntimeError("the parent sent a line over the limit that it was told")
            if line.startswith(words.MESSAGE):
                self._hearer.take(line)
            else:
                self._words[line[:1]](line[1:])

    def connection_lost(self, exc: Exception | None) -> None:
        """The parent has ended the connection, or has ended itself."""
        self.lose(_PARENT_GONE)
        self.gone.set()

    def lose(self, cause: str) -> None:
        """Nothing more is said."""
        if self._ended:
            return
        self._unsent.flush()
        self._ended = True
        self._deaf.clear()
        self._clear("")
        if not self.begun.done():
            self.begun.set_exception(LinkLost(cause))
        self._hearer.lose(cause)

    def leave(self) -> None:
        """This worker needs the process no more."""
        self.lose("the gateway ended it")
        if not self.gone.is_set():
            self._socket.write_eof()

    def close(self) -> None:
        """Wait for nothing more."""
        self._socket.abort()

    def _welcome(self, number: bytes) -> None:
        self._hearer.count_from(int(number))
        if not self.begun.done():
            self.begun.set_result(None)

    def _refused(self, why: bytes) -> None:
        if not self.begun.done():
            self.begun.set_exception(words.refused(why))
        self.lose("its process does not start")

    def _left_out(self, told: bytes) -> None:
        number, length = map(int, told.split())
        self._hearer.warn_of_length(length)
        if number >= 0:
            self._hearer.fail_too_long(number)

    def _send(self, data: bytes) -> None:
        if not self._ended:
            self._socket.write(data)

    def _fill(self, who: str) -> None:
        if not self._ended:
            self._deaf.add(who)
            self.full = True
            self.room.clear()

    def _clear(self, who: str) -> None:
        self._deaf.discard(who)
        if not self._deaf:
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
    """Speak to the process that the parent runs; leaving the context ends it, unless others speak to it as well.

    Args:
        config: an upstream whose `command` is set.
        pushes: who hears and answers what the server says of its own accord.
        host: the parent's socket.
        unclaimed: the process is shared with other workers, and this answers what may be for clients of several; None:
            it is to be this worker's own.
        line_bound: longest message that is read, in bytes.
        log: receives what the server does wrong.

    Raises:
        OSError: the program can't be started.
        LinkLost: the parent is not there, or the process ended before it was.
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
        pipe.write(Wanted.by(config, shared=unclaimed is not None, line_bound=line_bound).as_line())
        await pipe.begun
        yield transport
    finally:
        pipe.leave()
        with anyio.move_on_after(_ENDING, shield=True):
            await pipe.gone.wait()
        pipe.close()
