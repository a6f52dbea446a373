"""The engines of a pool: which of them serve a model, and what a client is told if none does.

A member remembers what its engine last served, so that a model is still known when all its engines are down. It chooses
nothing, and has no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.breaker import Breaker
from gateway.engine.pool.stay import Route
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineError, EngineStarting, EngineUnavailable, MapDiffers, ModelUnknown

EngineState = Literal["ready", "starting", "down"]

_FAILURES: Final = 3
"""Answers in a row that an engine may lose before it gets no more for a while."""
_PAUSE: Final = 5.0
_SHOWN: Final = 20


@dataclass(slots=True)
class Member:
    """One engine of the pool."""

    name: str
    route: Route
    aliases: tuple[str, ...] = ()
    breaker: Breaker = field(default_factory=lambda: Breaker(_FAILURES, _PAUSE))
    running: int = 0
    """Answers that are being made with it."""
    start: int | None = None
    """The number of its engine's last known start."""
    since: float = 0.0
    model: str | None = None
    """The model that it serves, or served when it was last seen."""

    def seen(self, ready: ReadyEngine, now: float) -> None:
        """Note that its engine is up."""
        if self.start != ready.number:
            self.start, self.since, self.model = ready.number, now, ready.facts.model
            self.breaker.reset()

    def runs(self, more: int) -> int:
        """Count answers that begin or end with it. Returns how many are being made now."""
        self.running += more
        return self.running


def wanted(members: Sequence[Member], model: str | None) -> set[str]:
    """Names of the members that may serve a request for a model. Raises `ModelUnknown`."""
    models = {member.model for member in members if member.model is not None}
    by_name = {member.name for member in members if model is not None and member.model == model}
    by_alias = {member.name for member in members if model in member.aliases}
    if by_name or by_alias:
        return by_name or by_alias
    if len(models) > 1 and model is not None:
        raise unknown(members, model)
    return {member.name for member in members}


def unknown(members: Sequence[Member], model: str) -> ModelUnknown:
    """The error for a model that no member serves or served; it names the models that there are."""
    models = {member.model for member in members if member.model is not None}
    known = [*sorted(models), *sorted({alias for member in members for alias in member.aliases})]
    listed = ", ".join(map(repr, known[:_SHOWN]))
    expected = listed if len(known) == 1 else f"one of {listed}"
    return ModelUnknown(f"there is no model {model[:200]!r} here; expected {expected}")


def closed(members: Sequence[Member]) -> EngineError:
    """The error that says why none of these members is up."""
    reasons = [(member.name, why_down(member)) for member in members]
    if len(reasons) == 1:
        return reasons[0][1]
    said = "; ".join(f"{name}: {error.message}" for name, error in reasons[:_SHOWN])
    differing = next((error for _, error in reasons if isinstance(error, MapDiffers)), None)
    if differing is not None and all(isinstance(error, MapDiffers) for _, error in reasons):
        return differing
    starting = any(isinstance(error, EngineStarting) for _, error in reasons)
    return (EngineStarting if starting else EngineUnavailable)(f"no engine is up: {said}")


def state_of(error: EngineError | None) -> EngineState:
    """The state of an engine, or of several, by the error that says why it can't be used; None: it can."""
    if error is None:
        return "ready"
    return "starting" if isinstance(error, EngineStarting) else "down"


def why_down(member: Member) -> EngineError:
    """The error that says why a member's engine is not up."""
    try:
        member.route.ready()
    except EngineError as error:
        return error
    return EngineUnavailable(f"engine {member.name!r} was down a moment ago; try again")
