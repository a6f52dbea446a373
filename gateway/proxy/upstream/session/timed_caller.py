"""Keeps the time limit of a call fair: asking its client costs none of it, and progress of its server extends it.

Wraps a caller so that each question to it pauses the call's clock, since a person may be thinking, and the answer
resumes it with the time that was left. A report of progress shows that the server is at work: it extends the clock.
"""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any

from gateway.protocol.eras import PROGRESS
from gateway.proxy.caller import Caller, ForwardingCaller
from gateway.proxy.upstream.session.clock import Clock


class TimedCaller(ForwardingCaller):
    """A caller whose questions do not cost the call's time, and whose server's progress extends it."""

    __slots__ = ("_asking", "_clock")

    def __init__(self, caller: Caller, clock: Clock) -> None:
        """`clock`: the running clock of the call."""
        super().__init__(caller)
        self._clock = clock
        self._asking = 0

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Pass the notification on; progress extends the clock."""
        if method == PROGRESS:
            self._clock.extend()
        super().notified(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Pass the question on, with the clock paused."""
        with self.paused():
            return await super().asked(method, params)

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        """Pause the clock while the context lasts; overlapping questions count as one pause."""
        self._asking += 1
        self._clock.pause()
        try:
            yield
        finally:
            self._asking -= 1
            if self._asking == 0:
                self._clock.resume()


@contextmanager
def all_paused(callers: Iterable[Caller]) -> Generator[None, None, None]:
    """Pause the clocks of all these calls while the context lasts: one of them asks, but it is not known which."""
    with ExitStack() as clocks:
        for caller in callers:
            if isinstance(caller, TimedCaller):
                clocks.enter_context(caller.paused())
        yield
