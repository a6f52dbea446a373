"""Conversations of agents, drawn from a seed: what is asked, when, and how long a tool works in between.

Turns a seed into conversations. An agent is of a kind; all of a kind begin with the same ids (instructions and tools).
Tools take 0.2 to 20 s, log-uniform, as in `bench/cache`; now and then a person comes back after minutes. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: what is new in it, what is answered, and the pause behind it."""

    added: int
    answered: int
    pause: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation."""

    number: int
    kind: int
    began: float
    preamble: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Crowd:
    """How conversations are drawn."""

    conversations: int
    seconds: float
    """They begin at random times of so many seconds."""
    kinds: int = 20
    turns: int = 6
    herd: float | None = None
    """When half of them begin together, if they do: a thundering herd."""


def draw(crowd: Crowd, seed: int) -> Sequence[Conversation]:
    """The conversations, in the order in which they begin."""
    random = Random(f"{seed}/fleet")
    preambles = [round(_log_uniform(random, 300, 3000)) for _ in range(crowd.kinds)]
    found = [_conversation(crowd, preambles, number, random) for number in range(crowd.conversations)]
    return sorted(found, key=lambda each: (each.began, each.number))


def _conversation(crowd: Crowd, preambles: Sequence[int], number: int, random: Random) -> Conversation:
    kind = min(int(random.paretovariate(1.0)) - 1, crowd.kinds - 1)
    began = random.random() * crowd.seconds
    if crowd.herd is not None and number % 2:
        began = crowd.herd
    turns = tuple(_turn(random) for _ in range(1 + random.randrange(2 * crowd.turns - 1)))
    return Conversation(number, kind, began, preambles[kind], turns)


def _turn(random: Random) -> Turn:
    comes_back = random.random() < 0.05
    pause = _log_uniform(random, 60, 600) if comes_back else _log_uniform(random, 0.2, 20)
    return Turn(round(_log_uniform(random, 20, 600)), round(_log_uniform(random, 8, 120)), pause)


def _log_uniform(random: Random, least: float, most: float) -> float:
    return exp(random.uniform(log(least), log(most)))
