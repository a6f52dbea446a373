"""What is logged about an engine that is not up: its first failure and each new reason, once.

Turns the errors of failed attempts into warnings. A reason that was logged in this outage is logged again only after a
long time, with the number of attempts since. It has no clock.
"""

from typing import Final

from gateway.config import EngineConfig
from gateway.config.masking import mask_text
from gateway.errors import EngineError, EngineStarting, MapDiffers, ModelUnusable
from gateway.observe.logs import get_logger

_AGAIN: Final = 3600.0
"""Seconds after which a reason that still holds is logged again."""
_MOST: Final = 32
"""Reasons that are remembered; one that holds a number may never come twice."""

log = get_logger("engine")


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
