"""The engines of a pool: which serve a model, which is a conversation's home, and whether an answer may leave one.

A member remembers what its engine last served, so that a model is still known when all its engines are down. How often
an answer may move to a replacement is decided here, too. Nothing here has a clock.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import ceil
from typing import Any, Final, Literal, Protocol

from gateway.breaker import Breaker, BreakerState
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import (
    EngineError,
    EngineStarting,
    EngineUnavailable,
    MapDiffers,
    ModelUnknown,
)

# How often answers may be moved from engine to engine, as pure state machines.
#
# An answer may itself be the reason why its engines are lost, and must not bring all of them down. And more requests do
# not help a pool that loses more answers than it completes. Moves of answers that only waited for a slot do not count.

_MOVES: Final = 16
"""Most moves of one answer in all."""
_IN_VAIN: Final = 3
"""Most moves of one answer without an id in between."""
_BUDGET: Final = 128.0
"""Moves of one pool before any answer has ended."""
_BACK: Final = 0.5
"""Moves that the end of an answer adds to the budget."""
_SPREAD: Final = 1.25
"""An engine that runs more than this many times the mean passes conversations on to the next in their order."""
_KNOWN_SPREAD: Final = 2.0
"""The same for an engine that already holds the conversation: a move costs processing its whole prompt."""
_COLDEST: Final = 0.1
"""The least part of its full share that an engine takes, however new it is."""
WARM: Final = 15.0
"""Seconds after which a new engine takes its full share."""
_QUEUED: Final = 60
"""Answers beyond its slots that an engine is given; a few less than may wait there."""
EngineState = Literal["ready", "starting", "down"]
_FAILURES: Final = 3
"""Answers in a row that an engine may lose before it gets no more for a while."""
_PAUSE: Final = 5.0
_SHOWN: Final = 20


class MovesOfAnswer:
    """The moves of one answer."""

    def __init__(self) -> None:
        self.made = 0
        self._in_vain = 0

    def may_move(self) -> bool:
        """Whether the answer may move once more; counts the move if so."""
        if self.made >= _MOVES or self._in_vain >= _IN_VAIN:
            return False
        self.made += 1
        self._in_vain += 1
        return True

    def went_on(self) -> None:
        """Note that an engine has generated an id."""
        self._in_vain = 0


class RetryBudget:
    """The moves that one pool may make: each costs one, and the end of each answer gives half a move back."""

    def __init__(self) -> None:
        self._left = _BUDGET

    def take(self) -> bool:
        """Pay for a move. Returns whether the budget allowed it."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def answered(self) -> None:
        """Note that an answer is over, however it ended."""
        self._left = min(self._left + _BACK, _BUDGET)


class Route(Protocol):
    """One engine, across all its starts (`EngineRoute`)."""

    def ready(self) -> ReadyEngine:
        """The running engine. Raises `EngineError` while there is none."""
        ...

    def report_loss(self) -> None:
        """Report that a request found the engine gone."""
        ...


# Which of several engines answers a conversation, as pure functions.
#
# Turns the beginning of a conversation into its home: rendezvous hashing over the engines' names, so that gateways that
# know nothing of each other choose alike, and an engine that comes or goes moves no other engine's conversations. Turns
# that order, and how busy each engine is, into the engine to ask. It knows no engine, and has no clock.


@dataclass(frozen=True, slots=True)
class Load:
    """How busy an engine is."""

    running: int
    """Answers that are being made with it."""
    slots: int
    """Generations that it runs at a time; further ones wait."""
    warmth: float = 1.0
    """The part of its share that it takes by now, 0 to 1: a new engine is warmed up."""


def home_key(principal: str, messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The key of a conversation's home: depends on who asks, what the prompt begins with, and the first question.

    Nothing after that changes it, and neither do its tools, so a conversation keeps its home.
    """
    first = next((number for number, each in enumerate(messages) if each.get("role") == "user"), len(messages))
    beginning = [[each.get("role"), each.get("content")] for each in messages[: first + 1]]
    return key_of(principal, beginning)


def key_of(*parts: object) -> bytes:
    """A key made from JSON values."""
    said = json.dumps(parts, ensure_ascii=True, separators=(",", ":"), sort_keys=True, default=str)
    return blake2b(said.encode(), digest_size=16).digest()


def order_of(key: bytes, names: Iterable[str]) -> list[str]:
    """The engines in a key's order: its home first, then those that take over."""
    return sorted(names, key=lambda name: (blake2b(name.encode(), digest_size=16, key=key).digest(), name))


def warmth(age: float) -> float:
    """The part of its share that an engine takes this many seconds after it came up."""
    return min(age / WARM, 1.0)


def with_room(loads: Mapping[str, Load]) -> Mapping[str, Load]:
    """The engines that have room for another answer; all of them if none has."""
    return {name: load for name, load in loads.items() if load.running < load.slots + _QUEUED} or loads


def choose(order: Sequence[str], loads: Mapping[str, Load], known: str | None = None) -> str:
    """The engine to ask.

    Args:
        order: all engines that may be asked, the home first; not empty.
        loads: how busy each of them is, without this conversation.
        known: the engine that holds the conversation, if one is known to.
    """
    warmest = max(load.warmth for load in loads.values()) or 1.0
    mean = (sum(load.running for load in loads.values()) + 1) / len(loads)
    if (
        known is not None
        and known in loads
        and loads[known].running < _bound(loads[known], mean * _KNOWN_SPREAD, warmest)
    ):
        return known
    for name in order:
        if loads[name].running < _bound(loads[name], mean * _SPREAD, warmest):
            return name
    # No engine is below its bound, since some are cold: take the least busy one in relation to its bound.
    return min(order, key=lambda name: loads[name].running / _bound(loads[name], mean, warmest))


def _bound(load: Load, mean: float, warmest: float) -> int:
    part = max(load.warmth / warmest, _COLDEST)
    return max(ceil(max(mean, load.slots) * part), 1)


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


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The state of one engine, to be shown to people."""

    name: str
    ready: ReadyEngine | None
    state: EngineState
    reason: str | None
    running: int
    breaker: BreakerState


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


def status_of(member: Member, ready: ReadyEngine | None, now: float) -> MemberStatus:
    """The status of a member. `ready`: its running engine; None: there is none."""
    why = why_down(member) if ready is None else None
    return MemberStatus(
        name=member.name,
        ready=ready,
        state=state_of(why),
        reason=None if why is None else why.message,
        running=member.running,
        breaker=member.breaker.state(now),
    )


def kind_of(ready: ReadyEngine) -> tuple[object, ...]:
    """What interchangeable engines have in common."""
    settings, can = ready.settings, replace(ready.facts.can, rewind="anywhere")
    return (
        *(ready.facts.model, ready.token_map.map_id, ready.facts.chat_template, ready.facts.bos, can),
        *(ready.tool_format, settings.reasoning, settings.hold_calls),
    )
