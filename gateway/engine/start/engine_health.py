"""What is logged about an engine that is not up, when it is tried again, and whether one that is up makes progress."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import anyio

from gateway.config import EngineConfig
from gateway.engine.interface import PROMPT_STEP, Activity
from gateway.errors import EngineError, EngineRefused, EngineStarting, MapDiffers, ModelUnusable
from gateway.escape import mask_text
from gateway.observe.logs import get_logger

# What is logged about an engine that is not up, and when it is tried again.
#
# Turns the errors of failed attempts into warnings, for the first failure and each new reason, and their number into
# pauses. A reason that was logged in this outage is logged again only after a long time, with the number of attempts
# since. It has no clock.

_AGAIN: Final = 3600.0
"""Seconds after which a reason that still holds is logged again."""
_MOST: Final = 32
"""Reasons that are remembered; one that holds a number may never come twice."""
STEADY: Final = 30.0
"""Seconds that an embedded engine must have been up for its end not to count as another failure: one that dies at its
first request would be started, and read its model, all the time."""

log = get_logger("engine")


class Pauses:
    """The pauses between two attempts to start or to reach an engine: each is twice as long as the one before."""

    def __init__(self, first: float, longest: float, steady: float) -> None:
        """Seconds. `steady`: how long the engine must have been up for the next pause to be the first again."""
        self._first = first
        self._longest = longest
        self._steady = steady
        self._next = first

    def after(self, up: float | None) -> float:
        """Seconds to wait now. `up`: how long the engine was up; None: it did not come up."""
        if up is not None and up >= self._steady:
            self._next = self._first
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause


class Outage:
    """The reasons why one engine is not up, since it last was."""

    def __init__(self, engine: str) -> None:
        """Start without a failure. `engine`: its name."""
        self._engine = engine
        self._attempts = 0
        self._logged: dict[str, float] = {}

    def failed(self, failure: EngineError, now: float) -> None:
        """Count a failed attempt, and log its reason unless it is known."""
        self._attempts += 1
        reason = failure.message
        last = self._logged.get(reason)
        if last is not None and now - last < _AGAIN:
            return
        if len(self._logged) >= _MOST:
            self._logged.pop(next(iter(self._logged)))
        self._logged[reason] = now
        if isinstance(failure, EngineStarting):
            log.info("engine starting", engine=self._engine, reason=reason)
            return
        level = log.error if isinstance(failure, MapDiffers) else log.warning
        level("engine down", engine=self._engine, reason=reason, failed_attempts=self._attempts)

    def recovered(self) -> int:
        """Note that the engine is up. Returns how many attempts had failed."""
        failed, self._attempts = self._attempts, 0
        self._logged.clear()
        return failed


def first_words(settings: EngineConfig) -> str:
    """What an engine does that has been neither reached nor refused yet."""
    if settings.kind == "url":
        return f"the engine at {mask_text(settings.url or '')!r} is being asked for the first time"
    model = "its model" if settings.model is None else repr(settings.model.name)
    return f"the embedded engine is loading {model}"


def until_file_changes(failure: EngineError) -> EngineError:
    """The same error, which also says what the gateway waits for."""
    words = f"{failure.message}; the gateway tries again when the model's file changes"
    if isinstance(failure, MapDiffers):
        return MapDiffers(words, sample=failure.sample, map_ids=failure.map_ids, engine_ids=failure.engine_ids)
    return ModelUnusable(words)


# Whether an engine still makes progress. One that is stuck answers health checks, and sends nobody an id.
#
# An engine is stuck if it has sent no id for a while and, asked for its figures, either does not answer (a llama.cpp
# server whose loop hangs), or is at work on requests and makes progress with none. Turns such questions, asked from
# time to time, into the sentence that says so. Which figures there are, the adapter of each engine knows.

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
