"""One start of one worker: its process, and the socket on which it and its parent talk.

Turns a plan and a number into a running process, and ends the process when the context ends.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from gateway.app.options import ServeOptions
from gateway.config.replicas import WorkerConfig
from gateway.errors import GatewayError
from gateway.workers.control_lines import Order, fault_of, order_line
from gateway.workers.handed import Descriptors, Handed
from gateway.workers.ports import LoopbackPorts

_END_TIME: Final = 10.0
"""Seconds that a worker gets to end when it is told to end at once. Then it is killed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all workers are started with."""

    options: ServeOptions
    count: int
    folder: Path
    faces: socket.socket
    peers: tuple[str, ...]
    ports: LoopbackPorts | None
    """Where the workers find each other; None: the settings name their addresses and the key."""
    key: bytes


class Started:
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
async def started(plan: Plan, number: int) -> AsyncGenerator[Started]:
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


async def _launch(plan: Plan, number: int) -> Started:
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
    return Started(process, reader, writer)


def _open(plan: Plan, number: int, theirs: socket.socket, handed_over: ExitStack) -> Descriptors:
    """Open what the worker inherits. `handed_over` closes it here once the worker has it."""
    if plan.ports is None:
        return Descriptors(theirs.fileno(), plan.faces.fileno(), None, None)
    place = handed_over.enter_context(plan.ports.socket_of(number))
    key, write = os.pipe()
    handed_over.callback(os.close, key)
    os.write(write, plan.key)
    os.close(write)
    return Descriptors(theirs.fileno(), plan.faces.fileno(), place.fileno(), key)
