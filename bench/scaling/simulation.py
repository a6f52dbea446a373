"""A simulation from its first request to its last: events in the order of their times, and their outcome.

Turns conversations, engines and a policy into reuse, waiting and cost. Every draw is from the seed, and events at the
same moment are in the order in which they were made, so the same scene gives the same figures on any machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from bench.scaling.costs import Costs
from bench.scaling.engine import Engine, Request, Size
from bench.scaling.policies import POLICIES, Policy
from bench.scaling.traces import Conversation
from gateway.engine.pool.engine_choice import WARM

TAILS: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Scene:
    """The engines and gateways of a simulation, and how they change."""

    engines: int
    gateways: int = 1
    size: Size = field(default_factory=Size)
    """The size of each engine."""
    stays: bool = True
    """Whether a conversation comes to the same gateway each time, instead of to any."""
    losses: tuple[float, ...] = ()
    """When an engine is lost, with all that it holds."""
    joins: tuple[float, ...] = ()
    """When an engine joins."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a simulation."""

    firsts: list[float] = field(default_factory=list[float])
    prompt: int = 0
    processed: int = 0
    held: int = 0
    """Ids of conversations that came back which some engine had."""
    reused: int = 0
    """How many of those were reused."""
    moved: int = 0
    """Requests that came to another engine than the conversation's previous one."""
    went_on: int = 0
    """Answers that were continued elsewhere because their engine was lost."""
    busy: float = 0.0
    """Seconds that engines worked."""
    ended: float = 0.0
    by_engine: dict[str, int] = field(default_factory=dict[str, int])
    last: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """By conversation: the engine that answered last, and how many ids it has of it."""

    def note(self, request: Request) -> None:
        """Count a request that has been answered."""
        talk = request.conversation
        before, held = self.last.get(talk.number, (request.engine, 0))
        self.prompt += talk.prompt(request.turn)
        self.processed += request.processed
        self.held += held
        self.reused += min(request.reused, held)
        self.moved += before != request.engine
        self.by_engine[request.engine] = self.by_engine.get(request.engine, 0) + 1
        # The last id of an answer is sampled, and not processed.
        self.last[talk.number] = (request.engine, request.prompt + request.answered - 1)

    @property
    def found_again(self) -> float | None:
        """The share that was reused of what engines had of conversations that came back."""
        return round(self.reused / self.held, 4) if self.held else None

    def summary(self) -> dict[str, Any]:
        """Return the figures."""
        firsts, answers = sorted(self.firsts), len(self.firsts)
        tails = {name: round(firsts[int(part * (answers - 1))], 4) for name, part in TAILS.items()}
        return {
            "answers": answers,
            "found_again": self.found_again,
            "processed": self.processed,
            "engine_s_an_answer": round(self.busy / answers, 4),
            "first_s": tails,
            "moved": self.moved,
            "went_on": self.went_on,
            "busiest": round(max(self.by_engine.values()) * len(self.by_engine) / answers, 3),
            "seconds": round(self.ended, 1),
        }


class Simulation:
    """One scene under one policy. Use `simulate`."""

    def __init__(
        self, scene: Scene, policy: str, conversations: Sequence[Conversation], costs: Costs, seed: int
    ) -> None:
        self.outcome = Outcome()
        self._scene, self._costs = scene, costs
        self._random = Random(f"{seed}/events")
        self._made = 0
        self._engines: dict[str, Engine] = {}
        self._came: dict[str, float] = {}
        slots, made = scene.size.slots, POLICIES[policy]
        self._policies: list[Policy] = [made(slots, Random(f"{seed}/{n}")) for n in range(scene.gateways)]
        self._events: list[tuple[float, int, str, Request | None]] = []
        self._count = 0
        for _ in range(scene.engines):
            self._join(-WARM)
        for time in scene.losses:
            self._at(time, "lose")
        for time in scene.joins:
            self._at(time, "join")
        for each in conversations:
            self._ask(each, 0, each.began)

    def run(self) -> Outcome:
        """Run it to the end."""
        while self._events:
            now, _, what, request = heappop(self._events)
            if request is not None:
                self._come(request, now)
            elif what == "lose":
                self._lose(now)
            elif what == "join":
                self._join(now)
            elif (engine := self._engines.get(what)) is not None and engine.wakes == now:
                self._wake(engine, now)
        self.outcome.busy += sum(engine.busy for engine in self._engines.values())
        return self.outcome

    def _at(self, time: float, what: str, request: Request | None = None) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, what, request))

    def _ask(self, conversation: Conversation, turn: int, time: float) -> None:
        self._at(time, "come", Request.of(conversation, turn, time))

    def _join(self, now: float) -> None:
        name = f"engine-{self._made}"
        self._made += 1
        self._engines[name] = Engine(name, self._scene.size, self._costs)
        self._came[name] = now

    def _come(self, request: Request, now: float) -> None:
        scene, conversation = self._scene, request.conversation
        stays = conversation.number % scene.gateways
        request.gateway = stays if scene.stays else self._random.randrange(scene.gateways)
        name = request.engine = self._policies[request.gateway].choose(conversation, self._came, now)
        engine, before = self._engines[name], self._engines[name].wakes
        engine.come(request, now)
        if engine.wakes != before:
            self._at(engine.wakes, name)

    def _wake(self, engine: Engine, now: float) -> None:
        for request in engine.wake(now):
            self._end(request, now)
        if engine.wakes < float("inf"):
            self._at(engine.wakes, engine.name)

    def _end(self, request: Request, now: float) -> None:
        outcome, talk = self.outcome, request.conversation
        self._policies[request.gateway].ended(request.engine)
        outcome.note(request)
        outcome.firsts.append((now if request.first is None else request.first) - request.came)
        outcome.ended = now
        if request.turn + 1 < len(talk.turns):
            self._ask(talk, request.turn + 1, now + talk.turns[request.turn].pause)

    def _lose(self, now: float) -> None:
        """Lose one engine; others continue its answers from the ids already written."""
        if len(self._engines) == 1:
            return
        gone = self._engines.pop(self._random.choice(sorted(self._engines)))
        del self._came[gone.name]
        going_on = gone.lost(now)
        self.outcome.busy += gone.busy
        for request in going_on:
            self.outcome.went_on += 1
            self._at(now, "come", request.rest())


def simulate(
    scene: Scene, policy: str, conversations: Sequence[Conversation], costs: Costs, seed: int = 0
) -> dict[str, Any]:
    """Return the figures of one scene under one policy."""
    return Simulation(scene, policy, conversations, costs, seed).run().summary()
