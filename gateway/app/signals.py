"""What SIGINT, SIGTERM and SIGHUP do to a gateway.

Before it is ready the first two end it at once. Then the first one drains: running requests may finish, and who has not
finished in time is told. A second one ends everything at once. SIGHUP ends nothing, whenever it comes: it asks for the
configuration to be read anew. It knows no room; `process.py` says what draining means.
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
        self._hangup = hangup
        self._drain: Callable[[], Coroutine[None, None, None]] | None = None
        self.interrupted = False
        """Ctrl-C ended the gateway before it was ready."""

    def ready(self, drain: Callable[[], Coroutine[None, None, None]]) -> None:
        """From now on the first signal calls `drain`, which returns when everything has been told to end."""
        self._drain = drain

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Wait for signals; to be started before anything that they must end."""
        try:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                task_status.started()
                await self._take(signals)
        finally:
            # Ending servers may take seconds, and a terminal that closes meanwhile must not leave them behind.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def _take(self, signals: AsyncIterator[signal.Signals]) -> None:
        number = await self._next_end(signals)
        if self._drain is None:
            self.interrupted = number == signal.SIGINT
            log.info("stopped while starting")
            self.scope.cancel()
            return
        log.info("stopping: running requests may finish; a second signal ends them")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain)
            await self._next_end(signals)
            self.scope.cancel()

    async def _next_end(self, signals: AsyncIterator[signal.Signals]) -> signal.Signals:
        """The next signal that means an end."""
        while (number := await anext(signals)) == signal.SIGHUP:
            self._hangup()
        return number
