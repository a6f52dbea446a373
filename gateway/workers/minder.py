"""One worker over all its starts: it is started again whenever it ends, after longer pauses if it keeps failing."""

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Final

import anyio
from anyio.abc import TaskStatus

from gateway.errors import GatewayError
from gateway.observe.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.supervision.lifecycle import Backoff
from gateway.workers.control_lines import Order
from gateway.workers.started import Started

_STEADY: Final = 30.0
"""Seconds that a worker must have run for its end not to count as another failure."""

Start = Callable[[int], AbstractAsyncContextManager[Started]]
log = get_logger("workers")


class Minder:
    """Minds one worker."""

    def __init__(
        self,
        number: int,
        start: Start,
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
        self._run: Started | None = None
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
