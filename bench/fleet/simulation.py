"""The fleet from its first request to its last: events in the order of their times, and what came of them.

Turns conversations, engines and a policy into reuse, waiting and cost. Every draw is from the seed, and events of one
moment stand in the order in which they were made, so the same scene gives the same figures on any machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from bench.fleet.costs import Costs
from bench.fleet.engine import Engine, Request
from bench.fleet.policies import POLICIES, Policy
from bench.fleet.traces import Conversation


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is."""

    engines: int
    gateways: int = 1
    slots: int = 4
    cache: int = 40_000
    """Ids that an engine keeps."""
    stays: bool = True
    """Whether a conversation comes to the same gateway each time; else to any."""
    losses: tuple[float, ...] = ()
    """When an engine is lost, with all that it holds."""
    joins: tuple[float, ...] = ()
    """When one comes."""


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    firsts: list[float] = field(default_factory=list[float])
    prompt: int = 0
    processed: int = 0
    held: int = 0
    """Ids of prompts that some engine had processed or written before."""
    moved: int = 0
    asked_again: int = 0
    ended: float = 0.0
    by_engine: dict[str, int] = field(default_factory=dict[str, int])

    def summary(self) -> dict[str, Any]:
        """As figures."""
        firsts = sorted(self.firsts)
        places = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        tails = {name: round(firsts[int(part * (len(firsts) - 1))], 4) for name, part in places.items()}
        busiest = max(self.by_engine.values()) * len(self.by_engine) / len(firsts)
        return {
            "answers": len(firsts),
            "found_again": round((self.prompt - self.processed) / self.held, 4) if self.held else None,
            "processed_an_answer": round(self.processed / len(firsts), 1),
            "first_s": tails,
            "moved": self.moved,
            "asked_again": self.asked_again,
            "busiest": round(busiest, 3),
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
        made = POLICIES[policy]
        self._policies: list[Policy] = [made(scene.slots, Random(f"{seed}/{n}")) for n in range(scene.gateways)]
        self._events: list[tuple[float, int, str, Request | None]] = []
        self._count = 0
        self._last: dict[int, tuple[str, int]] = {}
        for _ in range(scene.engines):
            self._join()
        for time in scene.losses:
            self._at(time, "loss")
        for time in scene.joins:
            self._at(time, "join")
        for each in conversations:
            self._at(each.began, "come", Request(each, 0, each.preamble + each.turns[0].added, each.began))

    def run(self) -> Outcome:
        """All of it."""
        while self._events:
            now, _, what, request = heappop(self._events)
            if request is None:
                self._lose(now) if what == "loss" else self._join()
            elif what == "come":
                self._come(request, now)
            elif request.engine in self._engines and request.first:
                self._end(request, now)
        return self.outcome

    def _at(self, time: float, what: str, request: Request | None = None) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, what, request))

    def _join(self) -> None:
        name = f"engine-{self._made}"
        self._made += 1
        self._engines[name] = Engine(name, self._scene.slots, self._scene.cache, self._costs)

    def _come(self, request: Request, now: float) -> None:
        scene, conversation = self._scene, request.conversation
        stays = conversation.number % scene.gateways
        request.gateway = stays if scene.stays else self._random.randrange(scene.gateways)
        name = request.engine = self._policies[request.gateway].choose(conversation, self._engines)
        engine = self._engines[name]
        if engine.has_room:
            self._begin(engine, request, now)
        else:
            engine.waiting.append(request)

    def _begin(self, engine: Engine, request: Request, now: float) -> None:
        self._at(engine.begin(request, now), "end", request)

    def _end(self, request: Request, now: float) -> None:
        engine, outcome, conversation = self._engines[request.engine], self.outcome, request.conversation
        engine.end(request)
        self._policies[request.gateway].ended(engine.name)
        before, held = self._last.get(conversation.number, (engine.name, 0))
        outcome.firsts.append(request.first - request.came)
        outcome.prompt += request.prompt
        outcome.processed += request.processed
        outcome.held += held or conversation.preamble
        outcome.moved += before != engine.name
        outcome.by_engine[engine.name] = outcome.by_engine.get(engine.name, 0) + 1
        outcome.ended = now
        self._last[conversation.number] = (engine.name, request.prompt + request.answered)
        if request.turn + 1 < len(conversation.turns):
            turn = request.turn + 1
            prompt = request.prompt + request.answered + conversation.turns[turn].added
            again = now + conversation.turns[request.turn].pause
            self._at(again, "come", Request(conversation, turn, prompt, again))
        if engine.waiting:
            self._begin(engine, engine.waiting.popleft(), now)

    def _lose(self, now: float) -> None:
        """One engine is gone; what ran or waited there is asked again, and waits from when it came."""
        if len(self._engines) == 1:
            return
        gone = self._engines.pop(self._random.choice(sorted(self._engines)))
        running = [e[3] for e in self._events if e[2] == "end" and e[3] is not None and e[3].engine == gone.name]
        for request in [*running, *gone.waiting]:
            self.outcome.asked_again += 1
            self._at(now, "come", Request(request.conversation, request.turn, request.prompt, request.came))


def simulate(
    scene: Scene, policy: str, conversations: Sequence[Conversation], costs: Costs, seed: int = 0
) -> dict[str, Any]:
    """The figures of one scene under one policy."""
    return Simulation(scene, policy, conversations, costs, seed).run().summary()
