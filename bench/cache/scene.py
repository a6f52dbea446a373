"""Conversations that outnumber an engine's slots: what each says, and in which order they come back.

Pure: a shape and a seed give the same ids and the same order each time. No model takes part: its answers are drawn
here, as long as a client's would be, so that the requests are the same whichever engine answers.
"""

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

OPENING: Final = "opening"
"""The part of a conversation that nobody has asked for before."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How conversations begin."""

    name: str
    preambles: int
    preamble: int
    """Ids that conversations with the same preamble share."""
    own: int
    """Ids after those with which a conversation begins."""


SHAPES: Final = (
    Shape("one preamble of 1,500, own 100", 1, 1500, 100),
    Shape("five preambles of 1,500, own 100", 5, 1500, 100),
    Shape("five preambles of 300, own 1,000", 5, 300, 1000),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """How many conversations there are, of how many turns, and on how many slots."""

    shape: Shape
    talks: int = 40
    slots: int = 4
    turns: int = 6
    answer: int = 8
    """Ids that the model writes per turn."""
    added: int = 92
    """Ids that a client adds per turn: a tool's result, the next question."""
    seed: int = 1

    @property
    def longest(self) -> int:
        """Ids that a conversation has at its end."""
        return self.shape.preamble + self.shape.own + self.turns * self.answer + (self.turns - 1) * self.added

    @property
    def whole(self) -> int:
        """Ids of all conversations at their longest: W."""
        return self.talks * self.longest


@dataclass(slots=True)
class Talk:
    """One conversation, turn by turn."""

    ids: list[int]
    """Everything said so far."""
    added: list[list[int]]
    """What the client adds before each turn except the first."""
    shared: int
    """Ids at its beginning that others have as well."""
    turn: int = 0
    held: int = field(default=0)
    """Ids that an engine would have if it kept everything: the last of an answer is sampled but not processed."""

    def prompt(self) -> list[int]:
        """Return the next prompt."""
        if self.turn:
            self.ids += self.added[self.turn - 1]
        return list(self.ids)

    def answered(self, ids: list[int]) -> None:
        """Take what the model has written."""
        self.ids += ids
        self.held = len(self.ids) - 1
        self.turn += 1


def talks(scene: Scene, vocabulary: int) -> list[Talk]:
    """Return all conversations of a scene, in ordinary ids below `vocabulary`."""
    drawn, shape = random.Random(scene.seed), scene.shape

    def ids(count: int) -> list[int]:
        return drawn.choices(range(_FIRST, vocabulary), k=count)

    preambles = [ids(shape.preamble) for _ in range(shape.preambles)]
    made: list[Talk] = []
    for number in range(scene.talks):
        begin = [*preambles[number % shape.preambles], *ids(shape.own)]
        made.append(Talk(begin, [ids(scene.added) for _ in range(scene.turns - 1)], shape.preamble))
    return made


_FIRST: Final = 1000
"""Smaller ids may be control tokens."""


@dataclass(frozen=True, slots=True)
class Start:
    """One request: of which conversation, and when it arrives, begins and ends."""

    talk: int
    came: float
    """When it arrives: from then on it waits for a slot."""
    begin: float
    end: float
    """Seconds, on an engine that takes the time of `Order` for each answer."""


LEAST_TOOL: Final = 0.2
LONGEST_TOOL: Final = 20.0
"""Seconds; a tool's time is drawn log-uniformly between the two."""


@dataclass(frozen=True, slots=True)
class Order:
    """How conversations take turns."""

    name: str
    tools: bool = True
    """Whether tools take time; if not, conversations take strict turns."""
    answer: float = 1.0
    """Seconds that an answer takes on average."""
    at_once: int | None = None
    """How many answers are made at a time; None for as many as there are slots."""


def starts(scene: Scene, order: Order) -> Iterator[Start]:
    """Yield all requests of a scene, as they would start on its slots, first come, first served."""
    drawn = random.Random(scene.seed)
    arrivals = [(0.0, number, number) for number in range(scene.talks)]
    free, left, count = [0.0] * (order.at_once or scene.slots), [scene.turns] * scene.talks, scene.talks
    while arrivals:
        came, _, talk = heapq.heappop(arrivals)
        begin = max(came, heapq.heappop(free))
        end = begin + order.answer * (drawn.uniform(0.5, 1.5) if order.tools else 1.0)
        heapq.heappush(free, end)
        yield Start(talk, came, begin, end)
        left[talk] -= 1
        if left[talk]:
            away = math.exp(drawn.uniform(math.log(LEAST_TOOL), math.log(LONGEST_TOOL))) if order.tools else 1e-3
            heapq.heappush(arrivals, (end + away, count, talk))
            count += 1


ORDERS: Final = (
    Order("an answer in 1 s"),
    Order("an answer in 5 s", answer=5.0),
    Order("an answer in 0.2 s", answer=0.2),
    Order("strict turns, all at once", tools=False),
)
"""The first is played on engines, all of them on the paging alone."""
ONE_BY_ONE: Final = Order("strict turns, one at a time", tools=False, at_once=1)
