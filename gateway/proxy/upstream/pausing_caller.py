"""The time of a call stands still while its client is asked something: a person may be thinking.

Wraps a caller so that each question to it stops the call's clock, and its answer lets the clock run on with the time
that was left.
"""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any

from gateway.proxy.caller import Caller, ForwardingCaller
from gateway.proxy.upstream.clock import Clock


class PausingCaller(ForwardingCaller):
    """A caller whose questions do not cost the call's time."""

    __slots__ = ("_asking", "_clock")

    def __init__(self, caller: Caller, clock: Clock) -> None:
        """`clock`: of the call, running."""
        super().__init__(caller)
        self._clock = clock
        self._asking = 0

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Passed on, while the clock stands still."""
        with self.still():
            return await super().asked(method, params)

    @contextmanager
    def still(self) -> Generator[None, None, None]:
        """The clock stands still meanwhile; several questions at a time are one pause."""
        self._asking += 1
        self._clock.stand_still()
        try:
            yield
        finally:
            self._asking -= 1
            if self._asking == 0:
                self._clock.go_on()


@contextmanager
def all_still(callers: Iterable[Caller]) -> Generator[None, None, None]:
    """The clocks of all these calls stand still meanwhile: one of them asks, and nothing says which."""
    with ExitStack() as clocks:
        for caller in callers:
            if isinstance(caller, PausingCaller):
                clocks.enter_context(caller.still())
        yield
