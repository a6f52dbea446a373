"""Signals end a gateway in order: at once before it is ready, drained after that, and at once at the second."""

import os
import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.app.role import ALONE, Shutdown
from gateway.config.gateway_config import ServeConfig

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _hangup_as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


class Watched:
    """A process that waits for signals, and what they did."""

    def __init__(self) -> None:
        self.hangups = 0
        self.drains = 0
        self.happened = anyio.Event()
        self.shutdown = Shutdown(anyio.CancelScope(), self._hung_up)

    def _hung_up(self) -> None:
        self.hangups += 1
        self.happened.set()

    async def drain(self) -> None:
        self.drains += 1
        self.happened.set()

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        with anyio.fail_after(20), self.shutdown.scope:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.shutdown.watch)
                yield
                tasks.cancel_scope.cancel()

    async def send(self, number: signal.Signals) -> None:
        self.happened = anyio.Event()
        os.kill(os.getpid(), number)
        await self.happened.wait()


@pytest.mark.parametrize(("number", "interrupted"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
async def test_signal_before_the_gateway_is_ready_ends_it_at_once(
    caplog: pytest.LogCaptureFixture, number: signal.Signals, interrupted: bool
) -> None:
    caplog.set_level("INFO")
    watched = Watched()
    async with watched.watching():
        os.kill(os.getpid(), number)
        await anyio.sleep_forever()

    assert watched.shutdown.scope.cancelled_caught
    assert watched.shutdown.interrupted is interrupted
    assert "stopped while starting" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_drains_what_is_ready_and_a_second_one_ends_it(
    caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    caplog.set_level("INFO")
    watched = Watched()
    watched.shutdown.ready(watched.drain)
    async with watched.watching():
        await watched.send(number)
        assert (watched.drains, watched.shutdown.scope.cancel_called) == (1, False)
        assert "stopping: running requests may finish" in caplog.text
        os.kill(os.getpid(), number)
        await anyio.sleep_forever()

    assert watched.drains == 1
    assert not watched.shutdown.interrupted


async def test_parent_can_stop_and_end_without_signals() -> None:
    watched = Watched()
    watched.shutdown.ready(watched.drain)
    async with watched.watching():
        watched.shutdown.stop()
        await watched.happened.wait()
        watched.shutdown.stop()
        watched.shutdown.end()
        await anyio.sleep_forever()

    assert watched.drains == 1


async def test_hangup_is_passed_on_and_ignored_once_the_gateway_ends() -> None:
    watched = Watched()
    async with watched.watching():
        await watched.send(signal.SIGHUP)
        await watched.send(signal.SIGHUP)
        assert not watched.shutdown.scope.cancel_called

    assert watched.hangups == 2
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


async def test_process_of_its_own_listens_where_its_settings_say_and_has_no_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as passed,
        ALONE.listening(ServeConfig(port=0, admin_port=0)) as listeners,
    ):
        ports = [each.getsockname()[1] for each in (listeners.faces, listeners.admin)]
        for port in ports:
            socket.create_connection(("127.0.0.1", port), timeout=20).close()
        monkeypatch.setattr(
            "gateway.app.role.take_passed_sockets",
            lambda environ, pid: {"admin": os.dup(passed.fileno())} if pid == os.getpid() else {},
        )
        with ALONE.listening(ServeConfig(port=0, admin_port=0)) as others:
            assert others.admin.getsockname() == passed.getsockname()
            assert others.faces.getsockname() != passed.getsockname()

    assert len({*ports}) == 2
    assert listeners.replicas is None
    assert [each.fileno() for each in (listeners.faces, listeners.admin)] == [-1, -1]
    ALONE.ready()
    with anyio.fail_after(20):
        await ALONE.follow(Watched().shutdown)
