"""Whether an engine still makes progress. One that is stuck answers health checks, and sends nobody an id.

An engine is stuck if it has sent no id for a while and, asked for its figures, either does not answer (a llama.cpp
server whose loop hangs), or is at work on requests and makes progress with none. Turns such questions, asked from time
to time, into the sentence that says so. Which figures there are, the package of each engine knows.
"""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import anyio

from gateway.engine.interface import PROMPT_STEP, Activity
from gateway.errors import EngineError, EngineRefused

_ASK: Final = 2.0
"""Seconds for one question; it is asked again until the engine counts as stuck."""


class Pulse:
    """The pulse of one running engine."""

    def __init__(
        self, ask: Callable[[], Awaitable[Activity | None]], told: Callable[[], float], seconds: float
    ) -> None:
        """Start as alive.

        Args:
            ask: asks the engine what it is at work on; None: on nothing, or it can't be known.
            told: when it last sent ids, by the monotonic clock.
            seconds: how long it may send none and show no progress.
        """
        self._ask = ask
        self._told = told
        self._seconds = seconds
        self._moved = monotonic()
        self._last: Activity | None = None
        self._answers = True

    async def stuck(self) -> str | None:
        """Ask, unless ids came just now; say for how long the engine has been stuck, if it counts as that."""
        if monotonic() - self._told() > _ASK and await self.moves():
            return None
        silent = monotonic() - max(self._moved, self._told())
        if silent < self._limit:
            return None
        what = "made no progress with any request" if self._answers else "has answered nobody"
        return f"the engine is stuck: it {what} for {silent:.0f} s (engine.idle_timeout)"

    async def moves(self) -> bool:
        """Whether it answers one question in time, and is idle or has made progress since the last one."""
        self._answers = False
        with anyio.move_on_after(min(_ASK, self._seconds)):
            try:
                activity = await self._ask()
            except EngineRefused:
                # It does not know the question, but it answers.
                activity = None
            except EngineError:
                return False
            self._answers = True
            if activity is not None and activity == self._last:
                return False
            self._last, self._moved = activity, monotonic()
            return True
        return False

    async def advances(self) -> bool:
        """Like `moves`, but not for an idle engine, nor for one that does not say."""
        return await self.moves() and self._last is not None

    @property
    def prefills(self) -> bool:
        """Whether it may be in a step with a prompt in it, which it completes although nobody waits for it any more."""
        return self._answers and self._last is not None and self._last.prefills

    @property
    def _limit(self) -> float:
        return max(self._seconds, PROMPT_STEP) if self.prefills else self._seconds
