"""On which of several engines a conversation is answered, as pure functions.

Turns a conversation's first words into its home: rendezvous hashing over the engines' names, so that gateways that
know nothing of each other choose alike, and an engine that comes or goes moves no other's conversations. Turns that
order and how busy each engine is into the one that is asked. It knows no engine, and has no clock.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import Any, Final

_SPREAD: Final = 1.25
"""An engine with more than so many times the mean of what runs sends conversations on to the next of their order."""
_KNOWN_SPREAD: Final = 2.0
"""The same for one that holds the conversation already: a move costs its whole prompt."""
_COLDEST: Final = 0.1
"""Of what the others take an engine takes at least this part, however new it is."""
WARM: Final = 15.0
"""Seconds after which a new engine takes as much as the others."""
_QUEUED: Final = 60
"""Answers beyond its slots for which an engine is asked; a few less than may wait there."""


@dataclass(frozen=True, slots=True)
class Load:
    """How busy an engine is."""

    running: int
    """Answers that are being made with it."""
    slots: int
    """Generations that it runs at a time; up to so many nobody waits."""
    warmth: float = 1.0
    """The part of its share that it takes by now, 0 to 1: one that has just come is warmed up."""


def home_key(principal: str, messages: Sequence[Mapping[str, Any]], tools: object) -> bytes:
    """What a conversation's home hangs on: who asks, what the prompt begins with, and the first question.

    All that comes behind changes nothing, so that it has one home as long as it goes on. `tools`: definitions.
    """
    first = next((number for number, each in enumerate(messages) if each.get("role") == "user"), len(messages))
    beginning = [[each.get("role"), each.get("content")] for each in messages[: first + 1]]
    return key_of(principal, beginning, tools)


def key_of(*parts: object) -> bytes:
    """A key of JSON values."""
    said = json.dumps(parts, ensure_ascii=True, separators=(",", ":"), sort_keys=True, default=str)
    return blake2b(said.encode(), digest_size=16).digest()


def order_of(key: bytes, names: Iterable[str]) -> list[str]:
    """The engines in the order in which they are this key's home."""
    return sorted(names, key=lambda name: (blake2b(name.encode(), digest_size=16, key=key).digest(), name))


def warmth(age: float) -> float:
    """The part of its share that an engine takes so many seconds after it came."""
    return min(age / WARM, 1.0)


def with_room(loads: Mapping[str, Load]) -> Mapping[str, Load]:
    """The engines at which another answer may wait; all of them where there is none."""
    return {name: load for name, load in loads.items() if load.running < load.slots + _QUEUED} or loads


def choose(order: Sequence[str], loads: Mapping[str, Load], known: str | None = None) -> str:
    """The engine that is asked.

    Args:
        order: all that may be asked, the home first; not empty.
        loads: how busy each of them is, the conversation not counted.
        known: the one that holds the conversation, if one is known to.
    """
    warmest = max(load.warmth for load in loads.values()) or 1.0
    mean = (sum(load.running for load in loads.values()) + 1) / len(loads)
    if (
        known is not None
        and known in loads
        and loads[known].running < _most(loads[known], mean * _KNOWN_SPREAD, warmest)
    ):
        return known
    for name in order:
        if loads[name].running < _most(loads[name], mean * _SPREAD, warmest):
            return name
    # None is below its bound while some are cold: the one that is least busy for what it is.
    return min(order, key=lambda name: loads[name].running / _most(loads[name], mean, warmest))


def _most(load: Load, mean: float, warmest: float) -> int:
    part = max(load.warmth / warmest, _COLDEST)
    return max(ceil(max(mean, load.slots) * part), 1)
