"""A worker's start: what it gets, what the two say, and what is left of it when it fails or has to end."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.app.options import ServeOptions
from gateway.errors import ConfigError, GatewayError
from gateway.workers.handover import READY, Handed
from gateway.workers.worker_restarts import LoopbackPorts, WorkerPlan, started

pytestmark = pytest.mark.anyio


class NoRoom(LoopbackPorts):
    """Ports of a process that may open no more files."""

    def socket_of(self, number: int) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")


class Program:
    """A worker's process, whose side of everything is the test's."""

    pid = 77

    def __init__(self, command: Sequence[str], **given: Any) -> None:
        self.handed = Handed.from_argument(command[-1])
        self.command = command[:-1]
        self.given = given
        numbers: tuple[int, ...] = given["pass_fds"]
        assert numbers == self.handed.descriptors.open
        self.link, self.faces, *own = (os.dup(number) for number in numbers)
        self.place = socket.socket(fileno=own[0]) if own else None
        self.key = os.read(own[1], 100) if own else None
        for each in own[1:]:
            os.close(each)
        self._files = {number: os.fstat(number).st_ino for number in numbers}
        self.returncode: int | None = None
        self.over = anyio.Event()

    def still_open_here(self) -> list[int]:
        """Those of the descriptors that the worker got that its parent has not closed."""
        found: list[int] = []
        for number, file in self._files.items():
            with suppress(OSError):
                found += [number] if os.fstat(number).st_ino == file else []
        return found

    def exit(self, status: int) -> None:
        self.returncode = status
        self.over.set()

    def kill(self) -> None:
        self.over.set()

    async def wait(self) -> int:
        await self.over.wait()
        if self.returncode is None:
            self.returncode = -9
        assert self.returncode is not None
        return self.returncode

    def close(self) -> None:
        """Close all that it was given."""
        os.close(self.faces)
        if self.place is not None:
            self.place.close()
        with suppress(OSError):
            os.close(self.link)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Program]]:
    """Those that were started."""
    made: list[Program] = []

    async def open_process(command: Sequence[str], **given: Any) -> Program:
        made.append(Program(command, **given))
        return made[-1]

    monkeypatch.setattr(anyio, "open_process", open_process)
    yield made
    for each in made:
        each.close()


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[WorkerPlan]:
    options = ServeOptions(None, {"serve.port": 1}, None, "info")
    with LoopbackPorts(2) as ports, socket.create_server(("127.0.0.1", 0)) as listener:
        yield WorkerPlan(options, 2, tmp_path, listener, ports.addresses, ports, b"k" * 64)


async def test_worker_gets_its_socket_its_place_and_the_key(plan: WorkerPlan, programs: list[Program]) -> None:
    async with started(plan, 1) as run:
        (program,) = programs
        os.write(program.link, READY)
        with anyio.fail_after(20):
            await run.ready()
        kept = program.still_open_here()
        program.exit(3)
        assert (run.pid, await run.ended()) == (77, 3)

    # The loop closes a socket at its next turn.
    await anyio.lowlevel.checkpoint()
    worker, place = program.handed.worker, program.place
    assert program.command == [sys.executable, "-P", "-m", "gateway.workers.worker"]
    assert (worker.number, worker.count, worker.folder, worker.peers) == (1, 2, plan.folder, plan.peers)
    assert program.handed.options == plan.options
    assert place is not None
    assert f"127.0.0.1:{place.getsockname()[1]}" == plan.peers[1]
    assert program.key == b"k" * 64
    assert (program.given["stdin"], program.given["start_new_session"]) == (subprocess.DEVNULL, True)
    # What all workers have stays open here too; of what is this one's, only our end of the link.
    assert kept == [program.handed.descriptors.faces]
    assert os.read(program.link, 100) == b""


async def test_worker_whose_settings_name_its_place_gets_neither_place_nor_key(
    plan: WorkerPlan, programs: list[Program]
) -> None:
    async with started(replace(plan, ports=None), 0):
        programs[0].exit(0)

    assert (programs[0].place, programs[0].handed.descriptors.key) == (None, None)


@pytest.mark.parametrize("line", [b"", b'{"failed": "no port", "config": true}\n'])
async def test_worker_that_is_never_ready_says_why(plan: WorkerPlan, programs: list[Program], line: bytes) -> None:
    async with started(plan, 0) as run:
        os.write(programs[0].link, line)
        os.close(programs[0].link)
        with anyio.fail_after(20), pytest.raises(GatewayError) as caught:
            await run.ready()
        programs[0].exit(1)

    assert isinstance(caught.value, ConfigError) == bool(line)
    assert caught.value.message == ("no port" if line else "it ended before it was ready")


async def test_worker_is_told_to_end_with_the_context(plan: WorkerPlan, programs: list[Program]) -> None:
    heard: list[bytes] = []

    async def obey() -> None:
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=os.dup(programs[0].link)))
        heard.extend([await reader.readline(), await reader.readline()])
        programs[0].exit(0)
        writer.close()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, started(plan, 0) as run:
            tasks.start_soon(obey)
            run.order("reload")

    assert heard == [b"reload\n", b"end\n"]
    assert programs[0].returncode == 0


async def test_worker_that_does_not_end_is_killed(
    plan: WorkerPlan, programs: list[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.workers.worker_restarts._END_TIME", 0.01)
    with anyio.fail_after(20):
        async with started(plan, 0):
            pass

    assert programs[0].returncode == -9


async def test_order_to_a_worker_that_has_ended_is_nothing(plan: WorkerPlan, programs: list[Program]) -> None:
    async with started(plan, 0) as run:
        programs[0].exit(0)
        os.close(programs[0].link)
        with anyio.fail_after(20), pytest.raises(GatewayError):
            await run.ready()
        for _ in range(3):
            run.order("drain")
            await anyio.lowlevel.checkpoint()


async def test_start_without_room_for_its_sockets_leaves_none_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pairs: list[socket.socket] = []
    real = socket.socketpair

    def pair(*args: Any, **named: Any) -> tuple[socket.socket, socket.socket]:
        pairs.extend(both := real(*args, **named))
        return both

    with NoRoom(1) as ports, socket.socket() as listener:
        plan = WorkerPlan(ServeOptions(None, {}, None, "info"), 1, tmp_path, listener, ports.addresses, ports, b"k")
        monkeypatch.setattr("socket.socketpair", pair)
        with pytest.raises(GatewayError, match="Too many open files"):
            async with started(plan, 0):
                pass

    with anyio.fail_after(10):
        while any(each.fileno() >= 0 for each in pairs):
            await anyio.lowlevel.checkpoint()
    assert len(pairs) == 2
