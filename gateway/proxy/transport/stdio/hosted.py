"""A server's process that is run by the parent of several workers, as a `Transport`.

Turns a Unix socket of the parent into the pipe of a conversation (`stdio_transport.py`): it carries the lines of the
process, and notices of the parent. It knows no messages and no other workers.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, cast

import anyio
from pydantic import TypeAdapter
from structlog.typing import FilteringBoundLogger

from gateway.config.gateway_config import UpstreamConfig
from gateway.config.programs import inherited
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.proxy.caller import Exchange
from gateway.proxy.transport.stdio.server_process import GatheredBytes
from gateway.proxy.transport.stdio.stdio_transport import StdioTransport
from gateway.proxy.transport.transport_interface import LinkLost, Transport

# A worker first sends one JSON line that says what is to run; from then on its lines are what it would have written to
# the process. The parent's lines are the process's own if they begin with a brace, and else notices of the parent. No
# line of a server can be mistaken for a notice, since the parent checks how each line begins.

WELCOME: Final = b"W"
"""The process runs. Followed by the number from which the requests of this connection must be numbered."""
REFUSED: Final = b"X"
"""The process does not start. Followed by the operating system's error as JSON: number, text and file."""
ENDED: Final = b"E"
"""The process can't be used any more. Followed by the cause, as a JSON string."""
FULL: Final = b"F"
"""The process does not read: nothing more may be written until `ROOM`."""
ROOM: Final = b"R"
LONG: Final = b"L"
"""A line over the bound was dropped. Followed by the request that it answered, or -1, and its length in bytes."""
SHARED: Final = b"~"
"""Followed by a question of the server, as it came, that may be for callers of several workers."""
STRANGE: Final = b"?"
"""Followed by a line that is not a message, as it came."""
MESSAGE: Final = b"{"
"""The first byte of a line of the server that is passed on as it came."""

SHIFT: Final = 40
"""Each connection numbers its requests and progress tokens from its own number, shifted left by this many bits:
JavaScript, too, can represent whole numbers up to 2 ** 53."""
MOST_CONNECTIONS: Final = (1 << 53 - SHIFT) - 1
"""How many connections one process can have in its life with distinct numbers."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The process that a worker wants to talk to."""

    server: str
    command: str
    args: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str | None
    shared: bool
    """Whether all workers that want the same share one process; otherwise this worker gets its own."""
    line_bound: int
    """Longest line of the process that is passed on, in bytes."""
    concurrency: int
    """Calls of clients that the process may run at a time; more wait."""

    @staticmethod
    def by(config: UpstreamConfig, environ: Mapping[str, str], *, shared: bool, line_bound: int) -> "Wanted":
        """Make it from an upstream's settings, and the environment from which the process may inherit."""
        cwd = None if config.cwd is None else str(config.cwd)
        env = {**inherited(config.inherit_env, environ), **config.env}
        program = (config.name, config.command or "", config.args, env, cwd)
        return Wanted(*program, shared, line_bound, config.concurrency)

    def as_line(self) -> bytes:
        """Return it as one line; equal values give equal lines."""
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "Wanted":
        """Read what `as_line` returned. Raises `ValueError` for anything else."""
        return TypeAdapter(Wanted).validate_json(line)


def refusal(error: OSError) -> bytes:
    """The notice that says why the process does not start."""
    return REFUSED + json.dumps([error.errno, error.strerror or str(error), error.filename]).encode()


def refused(why: bytes) -> OSError:
    """The error that `refusal` was made from. `why`: what follows the notice's first byte."""
    number, words, name = json.loads(why)
    return OSError(words) if number is None else OSError(number, words, name)


def ending(cause: str) -> bytes:
    """The notice that the process can't be used any more."""
    return ENDED + json.dumps(cause).encode()


def long_line(number: int | None, length: int) -> bytes:
    """The notice that a line was dropped. `number`: the request that it answered, if known."""
    return b"%b%d %d" % (LONG, -1 if number is None else number, length)


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
            WELCOME: self._welcome,
            REFUSED: self._refused,
            ENDED: lambda said: self.lose(json.loads(said)),
            FULL: lambda _: self._fill("process"),
            ROOM: lambda _: self._clear("process"),
            LONG: self._left_out,
            SHARED: lambda line: transport.take_question(line, unclaimed),
            STRANGE: transport.take,
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
            if line.startswith(MESSAGE):
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
            self.begun.set_exception(refused(why))
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
