"""The parent's socket for servers over stdio: workers that want the same server share one process.

Turns what a worker wants into the process that it talks to: one that runs already, or a new one. If that process is
ending, the worker waits until it has ended, so that there are never two.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.proxy.transport.stdio.host_protocol import Wanted
from gateway.proxy.transport.stdio.watchdog import Watchdog
from gateway.workers.stdio.shared_process import SharedProcess
from gateway.workers.stdio.worker_line import WorkerLine

log = get_logger("workers")


class StdioHost:
    """The server processes of one gateway."""

    def __init__(self) -> None:
        """Start with no processes."""
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
