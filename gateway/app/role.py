"""The role in which a gateway process runs: where it listens, and what besides signals may end it.

`process.py` runs the same gateway on its own and as a worker. The role of a process on its own is here, that of a
worker in `gateway/workers`.
"""

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
from anyio.abc import TaskStatus

from gateway.config.gateway_config import ServeConfig
from gateway.observe.logs import get_logger
from gateway.serve.http.http_server import listening, take_passed_sockets

# Before the gateway is ready, SIGINT or SIGTERM ends it at once. After that the first one drains it, and a second one
# ends everything. SIGHUP never ends anything: the configuration is read again. A parent asks for the same without
# signals.

log = get_logger("serve")


class Shutdown:
    """The signals of one process. `scope` holds everything that a signal may end."""

    def __init__(self, scope: anyio.CancelScope, hangup: Callable[[], None]) -> None:
        """`hangup` is called for every SIGHUP, from the start to the end."""
        self.scope = scope
        self.reload = hangup
        self._stopped = anyio.Event()
        self._drain: Callable[[], Coroutine[None, None, None]] | None = None
        self.interrupted = False
        """Whether Ctrl-C ended the gateway before it was ready."""

    def ready(self, drain: Callable[[], Coroutine[None, None, None]]) -> None:
        """From now on the first signal calls `drain`, which returns when everything has been told to end."""
        self._drain = drain

    def stop(self) -> None:
        """Drain, or end at once if nothing is ready yet. Calling it again has no further effect."""
        self._stopped.set()

    def end(self) -> None:
        """End everything at once."""
        self.scope.cancel()

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Wait for signals. Start it before anything that they must end."""
        try:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._take, signals)
                    task_status.started()
                    await self._stopped.wait()
                    await self._stop()
        finally:
            # Ending servers may take seconds, and a terminal that closes meanwhile must not leave servers behind.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def _stop(self) -> None:
        if self._drain is None:
            log.info("stopped while starting")
            self.end()
            return
        log.info("stopping: running requests may finish; a second signal ends them")
        await self._drain()

    async def _take(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if number == signal.SIGHUP:
                self.reload()
            elif self._stopped.is_set():
                self.end()
            else:
                self.interrupted = self._drain is None and number == signal.SIGINT
                self.stop()


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that listen, or will once a server runs on them."""

    faces: socket.socket
    admin: socket.socket
    replicas: socket.socket | None = None
    """For the other replicas; None: it is opened at the address in the settings."""


class ProcessRole(Protocol):
    """What a process gets from its surroundings: its sockets, and orders to end."""

    def listening(self, serve: ServeConfig) -> AbstractContextManager[Listeners]:
        """Open the sockets, and close them with the context. Raises `ConfigError`."""
        ...

    def ready(self) -> None:
        """Called once the gateway takes requests."""
        ...

    async def follow(self, shutdown: Shutdown) -> None:
        """Pass on to `shutdown` what a parent orders, for as long as this process lives."""
        ...


class _Alone:
    @contextmanager
    def listening(self, serve: ServeConfig) -> Generator[Listeners]:
        passed = take_passed_sockets(os.environ, os.getpid())
        with (
            listening("faces", serve.host, serve.port, passed) as faces,
            listening("admin", serve.admin_host, serve.admin_port, passed) as admin,
        ):
            yield Listeners(faces, admin)

    def ready(self) -> None:
        return

    async def follow(self, shutdown: Shutdown) -> None:
        return


ALONE: Final[ProcessRole] = _Alone()
