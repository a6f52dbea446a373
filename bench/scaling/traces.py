"""Conversations of agents, drawn from a seed: what is asked, when, and how long a tool works in between.

Turns a seed into conversations. Each agent is of some kind, and all of one kind begin with the same ids (instructions
and tools). Tools take 0.2 to 20 s, log-uniform, as in `bench/cache`; now and then a person comes back after minutes.
Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import exp, log
from random import Random
from typing import Final

from gateway.engine.pool.engine_choice import key_of

_COMES_BACK: Final = 0.05
"""The share of pauses that are a person's, not a tool's."""

Span = tuple[float, float]
"""The least and the most; drawn log-uniformly between them."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: what is new in it, what is answered, and the pause after it."""

    added: int
    answered: int
    pause: float


@dataclass(frozen=True)
class Conversation:
    """One conversation."""

    number: int
    kind: int
    began: float
    preamble: int
    turns: tuple[Turn, ...]
    opening: int = 0
    """Ids of the preamble that the preambles of all kinds have in common."""
    home: bytes = field(default=b"", repr=False)
    """What decides its home; if empty, its number and kind."""

    @cached_property
    def key(self) -> bytes:
        """What decides its home, never empty."""
        return self.home or key_of("principal", self.number, self.kind)

    def prompt(self, turn: int) -> int:
        """Return the number of ids of a request's prompt."""
        before = sum(each.added + each.answered for each in self.turns[:turn])
        return self.preamble + before + self.turns[turn].added


@dataclass(frozen=True, slots=True)
class Crowd:
    """How conversations are drawn."""

    conversations: int
    seconds: float
    """They begin at random times within so many seconds."""
    kinds: int = 20
    turns: int = 6
    """The turns of a conversation, on average."""
    herd: float | None = None
    """When half of them begin at once, if they do: a thundering herd."""
    preamble: Span = (300, 3000)
    added: Span = (20, 600)
    answered: Span = (8, 120)
    tool: Span = (0.2, 20)
    person: Span = (60, 600)


def draw(crowd: Crowd, seed: int) -> Sequence[Conversation]:
    """Return the conversations, in the order in which they begin."""
    random = Random(f"{seed}/fleet")  # The committed figures are those of this text.
    preambles = [round(_log_uniform(random, crowd.preamble)) for _ in range(crowd.kinds)]
    found = [_conversation(crowd, preambles, number, random) for number in range(crowd.conversations)]
    return sorted(found, key=lambda each: (each.began, each.number))


def _conversation(crowd: Crowd, preambles: Sequence[int], number: int, random: Random) -> Conversation:
    kind = min(int(random.paretovariate(1.0)) - 1, crowd.kinds - 1)
    began = random.random() * crowd.seconds
    if crowd.herd is not None and number % 2:
        began = crowd.herd
    turns = tuple(_turn(crowd, random) for _ in range(1 + random.randrange(2 * crowd.turns - 1)))
    return Conversation(number, kind, began, preambles[kind], turns)


def _turn(crowd: Crowd, random: Random) -> Turn:
    comes_back = random.random() < _COMES_BACK
    pause = _log_uniform(random, crowd.person if comes_back else crowd.tool)
    return Turn(round(_log_uniform(random, crowd.added)), round(_log_uniform(random, crowd.answered)), pause)


def _log_uniform(random: Random, span: Span) -> float:
    return exp(random.uniform(log(span[0]), log(span[1])))
