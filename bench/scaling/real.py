"""The same conversations on real engines: embedded ones with SmolLM2, behind a gateway's own pool or a balancer.

Turns conversations into messages of about as many tokens, plays them with their pauses through the gateway's agent, and
returns what the engine counted for each request. With homes, one gateway has all engines; under any other policy each
engine has a gateway of its own, and a balancer in front of them applies the policy. `lived` turns what was played back
into conversations for the simulation, with the lengths and homes that they had. Simulates nothing.
"""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import astuple, dataclass, field, replace
from random import Random
from time import monotonic
from typing import Any, Final

import anyio

from bench.scaling.engine import Size
from bench.scaling.policies import POLICIES, Policy
from bench.scaling.traces import Conversation, Crowd, Turn
from codec_bench.workload import prompt_text
from gateway.agent import AnswerOptions
from gateway.agent.events import GenerationFinished, IdsGenerated
from gateway.app.services import Services, open_services
from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.interface import Sampling, shared_prefix

BYTES_AN_ID: Final = 23_060
"""Bytes per id of a slot file of SmolLM2 (cache.json)."""
_LONGEST: Final = 1024
"""Ids that a slot has room for."""
SMALL: Final = Crowd(
    *(8, 30.0, 3, 4),
    preamble=(60, 240),
    added=(10, 60),
    answered=(6, 16),
    tool=(0.05, 2.0),
    person=(3.0, 8.0),
)
"""For one engine: conversations about a tenth as long as those of the simulation."""


@dataclass(slots=True)
class Asked:
    """One request, as the engine counted it."""

    prompt: int
    processed: int
    reused: int
    held: int
    """Ids of the conversation that an engine had when its last answer ended."""
    answered: int
    first_s: float
    placed: float
    """When the pool or the balancer was asked for an engine."""
    ended: float
    """When it learned that the engine had answered."""


@dataclass(slots=True)
class Talk:
    """One conversation while it is played."""

    drawn: Conversation
    began: float
    """When all of them began."""
    asked: list[Asked] = field(default_factory=list[Asked])
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    home: bytes = b""
    beginning: list[int] = field(default_factory=list[int])
    """Its first prompt."""


def settings(engines: int, size: Size) -> GatewayConfig:
    """Return the settings of a gateway over so many embedded engines, named as in the simulation."""
    each = EngineConfig(
        kind="embedded",
        context=size.slots * _LONGEST,
        slots=size.slots,
        threads=1,
        slot_files_bytes=size.cache * BYTES_AN_ID,
    )
    if engines == 1:
        return GatewayConfig(engine=each)
    return GatewayConfig(engines={f"engine-{number}": each for number in range(engines)})


class Front:
    """Where requests arrive: the gateway, or a balancer in front of several."""

    def __init__(self, gateways: Sequence[Services], policy: Policy) -> None:
        self._gateways = {f"engine-{number}": each for number, each in enumerate(gateways)}
        self._policy = policy
        self.balances = len(gateways) > 1
        """Whether this chooses the engine, and not a gateway's pool."""

    @contextmanager
    def gateway(self, drawn: Conversation) -> Generator[Services]:
        """Provide the gateway for one request."""
        if not self.balances:
            yield self._gateways["engine-0"]
            return
        name = self._policy.choose(drawn, dict.fromkeys(self._gateways, 0.0), monotonic())
        try:
            yield self._gateways[name]
        finally:
            self._policy.ended(name)


@asynccontextmanager
async def fronted(engines: int, size: Size, policy: str) -> AsyncGenerator[Front]:
    """Run engines and gateways whose slots are swapped."""
    apart = policy != "homes"
    async with AsyncExitStack() as stack:
        configured = [settings(1, size)] * engines if apart else [settings(engines, size)]
        gateways = [await stack.enter_async_context(open_services(each)) for each in configured]
        for services in gateways:
            await _files_are_known(services)
        yield Front(gateways, POLICIES[policy](size.slots, Random(policy)))


async def play(
    conversations: Sequence[Conversation], engines: int, size: Size, policy: str = "homes", *, apart: bool = False
) -> list[Talk]:
    """Play them at the same time, with their pauses; `apart`: one request at a time, in the order of the turns."""
    async with fronted(engines, size, policy) as front:
        began = monotonic()
        talks = [Talk(each, began) for each in conversations]
        if apart:
            for turn in range(max(len(talk.drawn.turns) for talk in talks)):
                for talk in talks:
                    if turn < len(talk.drawn.turns):
                        await _ask(front, talk)
        else:
            async with anyio.create_task_group() as tasks:
                for talk in talks:
                    tasks.start_soon(_live, front, talk)
    return talks


async def _files_are_known(services: Services) -> None:
    """Wait until the engine's model has been read: before that nothing is swapped."""
    for status in services.engines.statuses():
        if status.ready is None or (swapper := status.ready.slots.swapper) is None:
            raise SystemExit(f"engine {status.name!r} does not swap its slots; nothing was measured")
        await swapper.adopted.wait()


async def _live(front: Front, talk: Talk) -> None:
    await anyio.sleep(talk.drawn.began)
    for turn in talk.drawn.turns:
        await _ask(front, talk)
        await anyio.sleep(turn.pause)


async def _ask(front: Front, talk: Talk) -> None:
    """Send the next request of a conversation."""
    drawn, number = talk.drawn, len(talk.asked)
    turn = drawn.turns[number]
    if not talk.messages:
        talk.messages.append({"role": "system", "content": prompt_text(Random(f"kind {drawn.kind}"), drawn.preamble)})
    # The text differs from the first word on, so that what is shared ends where the preamble does.
    said = prompt_text(Random(f"{drawn.number}/{number}"), turn.added)
    talk.messages.append({"role": "user", "content": f"{drawn.number} {said}"})
    with front.gateway(drawn) as services:
        answer = await _answered(services, talk, turn.answered, balanced=front.balances)
    talk.messages.append({"role": "assistant", "content": answer})


async def _answered(services: Services, talk: Talk, most: int, *, balanced: bool) -> str:
    came, first, end = monotonic(), 0.0, None
    conversation = await services.agent.open(talk.messages)
    talk.home = conversation.asked.home
    talk.beginning = talk.beginning or list(conversation.ids)
    # A balancer has chosen before the gateway has read anything.
    before, placed = len(conversation.ids), came if balanced else monotonic()

    async def listen(event: Any) -> None:
        nonlocal first, end
        if isinstance(event, IdsGenerated):
            first = first or monotonic() - came
        elif isinstance(event, GenerationFinished):
            end = event

    options = AnswerOptions(max_tokens=most, sampling=Sampling(0.0, seed=1), ids=True)
    await services.agent.answer(conversation, options, listen)
    ended = monotonic()
    if end is None or end.timings is None:
        raise SystemExit("an answer had no account of the engine; nothing was measured")
    last = talk.asked[-1] if talk.asked else None
    # The last id of an answer is sampled, and not processed.
    held = last.prompt + last.answered - 1 if last is not None else 0
    timings = end.timings
    times = (round(first, 3), round(placed - talk.began, 6), round(ended - talk.began, 6))
    talk.asked.append(Asked(before, timings.prompt_n, timings.cache_n, held, timings.generated_n, *times))
    return conversation.ready.token_map.decode(conversation.ids[before:])


@dataclass(frozen=True, slots=True)
class Played:
    """A played conversation: the lengths and the home that it had, and what engines counted."""

    conversation: Conversation
    asked: Sequence[Asked]

    def row(self) -> dict[str, Any]:
        """Return it as JSON."""
        one = self.conversation
        head = {"number": one.number, "kind": one.kind, "began": one.began, "preamble": one.preamble}
        asked = [[*astuple(turn), *astuple(each)] for turn, each in zip(one.turns, self.asked, strict=True)]
        return {**head, "opening": one.opening, "home": one.home.hex(), "asked": asked}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Played":
        """Read it from JSON."""
        turns = tuple(Turn(*each[:_OF_TURN]) for each in row["asked"])
        head = {name: row[name] for name in ("number", "kind", "began", "preamble", "opening")}
        conversation = Conversation(**head, turns=turns, home=bytes.fromhex(row["home"]))
        return cls(conversation, [Asked(*each[_OF_TURN:]) for each in row["asked"]])


_OF_TURN: Final = 3
"""Fields of a `Turn`."""


def lived(talks: Sequence[Talk]) -> list[Played]:
    """Return what was played."""
    found: list[Played] = []
    opening = min((shared_prefix(one.beginning, talks[0].beginning) for one in talks), default=0)
    for talk in talks:
        like = [other.beginning for other in talks if other.drawn.kind == talk.drawn.kind and other is not talk]
        preamble = max((shared_prefix(each, talk.beginning) for each in like), default=talk.drawn.preamble)
        turns: list[Turn] = []
        at = preamble
        for turn, asked in zip(talk.drawn.turns, talk.asked, strict=True):
            turns.append(replace(turn, added=asked.prompt - at, answered=asked.answered))
            at = asked.prompt + asked.answered
        own = replace(talk.drawn, preamble=preamble, turns=tuple(turns), opening=min(opening, preamble), home=talk.home)
        found.append(Played(own, talk.asked))
    return found
