"""Whether an engine's own loop still turns. One that is stuck in a step answers health checks, and nobody else.

llama.cpp answers `/slots` between two steps of the loop that serves all slots, so an engine that neither answers that
nor sends any id is stuck. Turns such questions, asked from time to time, into the sentence that says so.
"""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import anyio

from gateway.errors import EngineError, EngineRefused

_ASK: Final = 2.0
"""Seconds for one question; it is asked again until the engine counts as stuck."""


class Pulse:
    """The pulse of one running engine."""

    def __init__(self, ask: Callable[[], Awaitable[object]], told: Callable[[], float], seconds: float) -> None:
        """Start as alive.

        Args:
            ask: a question that the engine answers between two steps.
            told: when it last sent ids, by the monotonic clock.
            seconds: how long it may do neither.
        """
        self._ask = ask
        self._told = told
        self._seconds = seconds
        self._answered = monotonic()

    async def stuck(self) -> str | None:
        """Ask, unless ids came just now; say for how long the engine has been stuck, if it counts as that."""
        if monotonic() - self._told() > _ASK and await self.answers():
            return None
        silent = monotonic() - max(self._answered, self._told())
        if silent < self._seconds:
            return None
        return f"the engine is stuck: it has answered nobody for {silent:.0f} s (engine.idle_timeout)"

    async def answers(self) -> bool:
        """Whether it answers one question in time."""
        with anyio.move_on_after(min(_ASK, self._seconds)):
            try:
                await self._ask()
            except EngineRefused:
                # It does not know the question, but it answers.
                pass
            except EngineError:
                return False
            self._answered = monotonic()
            return True
        return False
