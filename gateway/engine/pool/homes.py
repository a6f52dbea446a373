"""Which of several engines answers a conversation, as pure functions.

Turns the beginning of a conversation into its home: rendezvous hashing over the engines' names, so that gateways that
know nothing of each other choose alike, and an engine that comes or goes moves no other engine's conversations. Turns
that order, and how busy each engine is, into the engine to ask. It knows no engine, and has no clock.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import Any, Final

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
