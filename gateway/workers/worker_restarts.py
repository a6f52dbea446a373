"""One worker over all its starts: it is started again whenever it ends, after longer pauses if it keeps failing."""

import asyncio
import os
import random
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import Process, TaskStatus

from gateway.app.options import ServeOptions
from gateway.config.replicas import WorkerConfig
from gateway.errors import GatewayError
from gateway.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.supervision.lifecycle import Backoff
from gateway.workers.handover import Descriptors, Handed, Order, fault_of, order_line

# The parent holds the ports without listening on them. So nobody else can take a port while its worker is down, and a
# request for something that lived in that worker is refused at once.

_LOOPBACK = "127.0.0.1"


class LoopbackPorts:
    """A port for each worker, held for as long as the context lasts."""

    def __init__(self, count: int) -> None:
        self._held = [_bound(0) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._held:
            each.close()

    @property
    def addresses(self) -> tuple[str, ...]:
        """HOST:PORT of each."""
        return tuple(f"{_LOOPBACK}:{each.getsockname()[1]}" for each in self._held)

    def socket_of(self, number: int) -> socket.socket:
        """A new socket at the address of a worker, for it to listen on."""
        return _bound(self._held[number].getsockname()[1])


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    # This lets several sockets of one user bind the same port. Only those that listen get connections.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((_LOOPBACK, port))
    return bound


_END_TIME: Final = 10.0
"""Seconds that a worker gets to end when it is told to end at once. Then it is killed."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What all workers are started with."""

    options: ServeOptions
    count: int
    folder: Path
    faces: socket.socket
    peers: tuple[str, ...]
    ports: LoopbackPorts | None
    """Where the workers find each other; None: the settings name their addresses and the key."""
    key: bytes


class StartedWorker:
    """One running worker."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    async def ready(self) -> None:
        """Wait until it takes requests. Raises `GatewayError` if it ends before that."""
        line = b""
        with suppress(OSError):
            line = await self._reader.readline()
        if (fault := fault_of(line)) is not None:
            raise fault

    def order(self, order: Order) -> None:
        """Send it an order. Does nothing if the worker has ended."""
        with suppress(OSError):
            self._writer.write(order_line(order))

    async def ended(self) -> int:
        """Wait for it to end; returns its exit status."""
        return await self._process.wait()

    async def end(self) -> None:
        """End it now, whatever it is doing."""
        if self._process.returncode is None:
            self.order("end")
            with anyio.move_on_after(_END_TIME):
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._writer.close()


@asynccontextmanager
async def started(plan: WorkerPlan, number: int) -> AsyncGenerator[StartedWorker]:
    """Start a worker, and end it with the context. Raises `GatewayError` if no process can be started."""
    try:
        run = await _launch(plan, number)
    except OSError as error:
        raise GatewayError(f"its process can't be started: {error}") from error
    try:
        yield run
    finally:
        with anyio.CancelScope(shield=True):
            await run.end()


async def _launch(plan: WorkerPlan, number: int) -> StartedWorker:
    with ExitStack() as handed_over:
        ours, theirs = socket.socketpair()
        handed_over.callback(theirs.close)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            descriptors = _open(plan, number, theirs, handed_over)
            worker = WorkerConfig(number, plan.count, plan.folder, plan.peers)
            argument = Handed(worker, plan.options, descriptors).as_argument()
            # -P: nothing is imported from the current folder. A session of its own: Ctrl-C is for the parent.
            process = await anyio.open_process(
                [sys.executable, "-P", "-m", "gateway.workers.worker", argument],
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=None,
                pass_fds=descriptors.open,
                start_new_session=True,
            )
        except BaseException:
            writer.close()
            raise
    return StartedWorker(process, reader, writer)


def _open(plan: WorkerPlan, number: int, theirs: socket.socket, handed_over: ExitStack) -> Descriptors:
    """Open what the worker inherits. `handed_over` closes it here once the worker has it."""
    if plan.ports is None:
        return Descriptors(theirs.fileno(), plan.faces.fileno(), None, None)
    place = handed_over.enter_context(plan.ports.socket_of(number))
    key, write = os.pipe()
    handed_over.callback(os.close, key)
    os.write(write, plan.key)
    os.close(write)
    return Descriptors(theirs.fileno(), plan.faces.fileno(), place.fileno(), key)


_STEADY: Final = 30.0
"""Seconds that a worker must have run for its end not to count as another failure."""

WorkerStart = Callable[[int], AbstractAsyncContextManager[StartedWorker]]
log = get_logger("workers")


class Minder:
    """Minds one worker."""

    def __init__(
        self,
        number: int,
        start: WorkerStart,
        backoff: Backoff,
        restarted: Callable[[int], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`restarted` is called with the worker's number at every start but the first."""
        self.number = number
        self.restarts = 0
        self.ready = False
        """Whether it takes requests."""
        self._start = start
        self._backoff = backoff
        self._restarted = restarted
        self._clock = clock
        self._run: StartedWorker | None = None
        self._stopped = anyio.Event()
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """The id of its process; None: there is none now."""
        return None if self._run is None else self._run.pid

    def order(self, order: Order) -> None:
        """Give the worker an order, if it is running."""
        if self._run is not None:
            self._run.order(order)

    def stop(self) -> None:
        """Have it drain, and do not start it again."""
        self._stopped.set()
        self.order("drain")

    async def keep(self, *, task_status: TaskStatus[None]) -> None:
        """Keep it running until `stop`. Tells `task_status` once it is ready.

        Raises `GatewayError` if the first start fails.
        """
        try:
            await self._life(task_status.started)
        except GatewayError as fault:
            raise type(fault)(f"worker {self.number}: {fault.message}") from fault
        while not self._stopped.is_set():
            with anyio.move_on_after(self._pause()):
                await self._stopped.wait()
                return
            self.restarts += 1
            self._restarted(self.number)
            await self._again()

    async def _again(self) -> None:
        try:
            await self._life(self._say_ready)
        except GatewayError as fault:
            self._failures += 1
            if not self._stopped.is_set():
                log.error("a worker can't be started", worker=self.number, cause=escape_text(fault.message))

    async def _life(self, ready: Callable[[], None]) -> None:
        """One start of the worker, up to its end. Raises `GatewayError` if it never becomes ready."""
        async with self._start(self.number) as run:
            self._run = run
            try:
                await run.ready()
                since = self._clock()
                self.ready = True
                ready()
                status = await run.ended()
            finally:
                self.ready, self._run = False, None
        self._failures = 0 if status == 0 or self._clock() - since >= _STEADY else self._failures + 1
        if not self._stopped.is_set():
            log.warning("a worker ended and is started again", worker=self.number, status=status)

    def _pause(self) -> float:
        return self._backoff.pause(self._failures, random.random()) if self._failures else 0.0  # noqa: S311

    def _say_ready(self) -> None:
        log.info("a worker is ready again", worker=self.number, restarts=self.restarts)
