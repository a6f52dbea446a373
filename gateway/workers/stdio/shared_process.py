"""Servers over stdio that workers share: one process each, behind the parent's socket, and a switch between the two.

Turns what either side writes into what the other is to get (`switch.py`). It ends the process when the last worker
leaves, or when one leaves because the process gave no sign of life. While the process does not read, nothing is written
to it, and the workers are told.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, cast

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.protocol.messages import is_json
from gateway.proxy.transport.stdio import hosted
from gateway.proxy.transport.stdio.hosted import SHIFT, Wanted
from gateway.proxy.transport.stdio.server_process import Child, Watchdog, run_child
from gateway.proxy.transport.transport_interface import ServerLog
from gateway.workers.stdio.switch import SERVER, Switch, To

# What a worker does not read is kept up to a bound. Beyond it the connection is cut, so that a worker that hangs
# neither holds up others nor fills the memory.

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


_HANGS: Final = "it did not respond to another worker"
_USED_UP: Final = "it has had so many connections that there are no numbers left for new ones"


class SharedProcess:
    """One process, from before it starts until nothing of it is left."""

    def __init__(self, wanted: Wanted) -> None:
        """Start nothing: `run` does that."""
        self.gone = asyncio.Event()
        """Set when nothing of it is left."""
        self.over = asyncio.Event()
        """Set when nobody may join any more."""
        self._wanted = wanted
        self._switch = Switch(wanted.concurrency)
        self._splitter = LineSplitter(wanted.line_bound)
        self._lines: dict[int, WorkerLine] = {}
        self._leaving: list[WorkerLine] = []
        """Workers that left when the process was no longer needed, and wait until nothing of it is left."""
        self._runs = False
        self._loop = asyncio.get_running_loop()
        log = get_logger("gateway.proxy").bind(server=wanted.server)
        self._log = ServerLog(log)
        self._child = _Child(self._said, self._end, self._tell_room, log, self._log)

    async def run(self, watchdog: Watchdog) -> None:
        """Run it until nobody needs it, or it ends."""
        wanted = self._wanted
        cwd = None if wanted.cwd is None else Path(wanted.cwd)
        config = UpstreamConfig(wanted.server, wanted.command, wanted.args, wanted.env, cwd=cwd, inherit_env=False)
        try:
            async with run_child(config, self._child, watchdog):
                self._runs = True
                for line in self._lines.values():
                    self._welcome(line)
                await self.over.wait()
        except (OSError, ValueError) as error:
            # ValueError: an argument that can't be given to a program.
            why = error if isinstance(error, OSError) else OSError(str(error))
            self._send((each, hosted.refusal(why)) for each in self._lines)
        finally:
            self.over.set()
            for line in (*self._lines.values(), *self._leaving):
                line.close()
            self.gone.set()

    def join(self, line: WorkerLine) -> None:
        """Add a worker."""
        line.talk_to(self, self._switch.seats.join().number)
        self._lines[line.number] = line
        if self._runs:
            self._welcome(line)
        if line.number >= hosted.MOST_CONNECTIONS:
            self._end(_USED_UP)

    def receive(self, line: WorkerLine, data: bytes) -> None:
        """Take a line that a worker wrote."""
        if line.number in self._lines and not self.over.is_set():
            self._send(self._switch.from_worker(line.number, data, self._loop.time()))

    def leave(self, line: WorkerLine) -> None:
        """Remove a worker that does not need the process any more, or has ended."""
        if self._lines.pop(line.number, None) is None:
            return
        self._send(self._switch.leave(line.number, self._loop.time()))
        if not self._lines or self.over.is_set():
            self._leaving.append(line)
            self.over.set()
            return
        line.close()
        if self._switch.hangs:
            self._end(_HANGS)

    def _said(self, data: bytes) -> None:
        out: list[To] = []
        for line in self._splitter.feed(data):
            out += self._switch.from_server(line)
        if (unfinished := self._splitter.over) is not None:
            out += self._switch.left_out(unfinished)
        self._send(out)

    def _end(self, cause: str) -> None:
        """Tell all workers that the process is of no use any more. At once, because ending it may take seconds."""
        rest = self._splitter.close()
        if rest and isinstance(rest[0], bytes) and is_json(rest[0]):
            # Only its line end is missing.
            self._send(self._switch.from_server(rest[0]))
        elif rest:
            self._log.warning("upstream's output ended in the middle of a line")
        if not self.over.is_set():
            self._send((each, hosted.ending(cause)) for each in self._lines)
            self.over.set()

    def _welcome(self, line: WorkerLine) -> None:
        self._send([(line.number, b"%b%d" % (hosted.WELCOME, line.number << SHIFT))])
        if self._child.full:
            self._send([(line.number, hosted.FULL)])

    def _tell_room(self, room: bool) -> None:
        self._send((each, hosted.ROOM if room else hosted.FULL) for each in self._lines)

    def _send(self, out: Iterable[To]) -> None:
        """Send lines. All lines for the same receiver are sent in one piece."""
        said: dict[int, list[bytes]] = {}
        for to, line in out:
            said.setdefault(to, []).extend((line, b"\n"))
        for to, lines in said.items():
            if to == SERVER:
                self._child.write(b"".join(lines))
            elif (worker := self._lines.get(to)) is not None:
                worker.write(b"".join(lines))


class _Child(Child):
    """A process that reports when it stops reading and when it reads again."""

    def __init__(
        self,
        on_output: Callable[[bytes], None],
        on_end: Callable[[str], None],
        on_room: Callable[[bool], None],
        log: FilteringBoundLogger,
        server_log: ServerLog,
    ) -> None:
        super().__init__(on_output, on_end, log, server_log)
        self._on_room = on_room

    def pause_writing(self) -> None:
        super().pause_writing()
        self._on_room(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._on_room(True)


# If the process that a worker wants is ending, the worker waits until it has ended, so that there are never two.


class StdioHost:
    """The server processes of one gateway."""

    def __init__(self) -> None:
        self._watchdog = Watchdog()
        self._shared: dict[bytes, SharedProcess] = {}

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncGenerator[None]:
        """Answer workers on this socket while the context lasts; then end all processes. Raises `ConfigError`."""
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_unix_server(lambda: WorkerLine(self), str(path))
        except OSError as error:
            raise ConfigError(
                f"workers need a socket at {str(path)!r} ({error}): set TMPDIR to another directory"
            ) from error
        os.chmod(path, 0o600)  # noqa: PTH101
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    yield
                finally:
                    server.close()
                self._tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._watchdog.close()

    def connect(self, line: WorkerLine, wanted: Wanted) -> None:
        """Connect a worker to the server that it wants."""
        self._tasks.start_soon(self._attach, line, wanted)

    async def _attach(self, line: WorkerLine, wanted: Wanted) -> None:
        what = wanted.as_line()
        while (process := self._shared.get(what)) is not None and process.over.is_set():
            try:
                await process.gone.wait()
            except asyncio.CancelledError:
                # Everything is ending: this worker has to learn that nothing more will come.
                line.close()
                raise
        if line.over:
            line.close()
            return
        if process is not None:
            process.join(line)
            return
        process = SharedProcess(wanted)
        process.join(line)
        if wanted.shared:
            self._shared[what] = process
        try:
            await process.run(self._watchdog)
        except Exception:
            log.exception("a server's process can't be run", server=wanted.server)
        finally:
            if wanted.shared:
                del self._shared[what]
