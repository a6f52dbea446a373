"""One server's process and the workers that talk to it: the switch between a pipe and sockets.

Turns what either side writes into what the other is to get (`switch.py`). It ends the process when the last worker
leaves, or when one leaves because the process gave no sign of life. While the process does not read, nothing is written
to it, and the workers are told.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.protocol.lines import LineSplitter
from gateway.protocol.messages import is_json
from gateway.proxy.transport.server_messages import ServerLog
from gateway.proxy.transport.stdio import host_protocol
from gateway.proxy.transport.stdio.host_protocol import SHIFT, Wanted
from gateway.proxy.transport.stdio.server_process import Child, run_child
from gateway.proxy.transport.stdio.watchdog import Watchdog
from gateway.workers.stdio.switch import SERVER, Switch, To
from gateway.workers.stdio.worker_line import WorkerLine

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
            self._send((each, host_protocol.refusal(why)) for each in self._lines)
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
        if line.number >= host_protocol.MOST_CONNECTIONS:
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
        """Take what the process wrote."""
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
            self._send((each, host_protocol.ending(cause)) for each in self._lines)
            self.over.set()

    def _welcome(self, line: WorkerLine) -> None:
        self._send([(line.number, b"%b%d" % (host_protocol.WELCOME, line.number << SHIFT))])
        if self._child.full:
            self._send([(line.number, host_protocol.FULL)])

    def _tell_room(self, room: bool) -> None:
        self._send((each, host_protocol.ROOM if room else host_protocol.FULL) for each in self._lines)

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
        """The process has stopped reading."""
        super().pause_writing()
        self._on_room(False)

    def resume_writing(self) -> None:
        """The process reads again."""
        super().resume_writing()
        self._on_room(True)
