"""What SIGINT, SIGTERM and SIGHUP do to a gateway.

Before it is ready the first two end it at once. Then the first one drains: running requests may finish, and who has not
finished in time is told. A second one ends everything at once. SIGHUP ends nothing, whenever it comes: it asks for the
configuration to be read anew. A parent asks for the same without signals. It knows no room; who has one says what
draining means.
"""

import signal
from collections.abc import AsyncIterator, Callable, Coroutine

import anyio
from anyio.abc import TaskStatus

from gateway.observe.logs import get_logger

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
        """Ctrl-C ended the gateway before it was ready."""

    def ready(self, drain: Callable[[], Coroutine[None, None, None]]) -> None:
        """From now on the first signal calls `drain`, which returns when everything has been told to end."""
        self._drain = drain

    def stop(self) -> None:
        """Drain, or end at once where nothing is ready yet. Asked again, nothing more happens."""
        self._stopped.set()

    def end(self) -> None:
        """End everything at once."""
        self.scope.cancel()

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Wait for signals; to be started before anything that they must end."""
        try:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._take, signals)
                    task_status.started()
                    await self._stopped.wait()
                    await self._stop()
        finally:
            # Ending servers may take seconds, and a terminal that closes meanwhile must not leave them behind.
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
