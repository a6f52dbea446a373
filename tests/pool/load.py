"""Conversations with tools, many at a time, and what became of each of their answers."""

import re
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from gateway.agent import AnswerOptions
from gateway.agent.events import GenerationFinished, IdsGenerated, IdsSpliced
from gateway.agent.generate.generation_options import ToolChoice
from gateway.app.services import Services, open_services
from gateway.config import EngineConfig, GatewayConfig, LimitsConfig, TokensConfig, UpstreamConfig
from gateway.engine.interface import Sampling
from gateway.errors import EngineError, EngineLost, EngineUnavailable
from gateway.proxy.caller import ANYBODY
from gateway.serve.http.error_answers import error_answer
from gateway.toolcalls.stream.output_events import Content
from tests.pool.ledger import CURRENT, Asked, Ledger, watched_engines

SAYS = Path(__file__).parents[1] / "e2e" / "servers" / "says.py"
RESULT = '[{"type": "text", "text": "It is a quarter past four, and it rains."}]'
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_CALL = 96
"""Ids of an answer that begins with a call."""
QUESTIONS = ("What is it like there?", "And what follows from that?", "Say that in other words.")


@dataclass
class Outcome:
    """What became of all answers."""

    answers: int = 0
    whole: int = 0
    moved: int = 0
    """Engines that were lost over answers which went on."""
    ended: Counter[str] = field(default_factory=Counter[str])
    """Answers that ended early, by the code of their error."""
    left: Counter[str] = field(default_factory=Counter[str])
    """Those that no engine could take, by the reason, while one was there."""
    unnamed: list[str] = field(default_factory=list[str])
    """Errors that should not be."""
    faults: list[str] = field(default_factory=list[str])
    """Ids that were lost, doubled or changed."""
    resumed: list[float] = field(default_factory=list[float])
    """Seconds from the last id before a loss to the next behind it."""
    calls: int = 0
    """Results of tools that were spliced."""
    held: int = 0
    found: int = 0
    """Ids that an engine held of a conversation, and those that were found again."""

    @property
    def reuse(self) -> float:
        return self.found / self.held if self.held else 1.0

    def lines(self) -> list[str]:
        """For a person."""
        resumed = sorted(self.resumed)
        middle = f"{resumed[len(resumed) // 2]:.2f} s, at most {resumed[-1]:.2f} s" if resumed else "-"
        return [
            f"answers: {self.answers}, with results of tools: {self.calls}",
            f"whole: {self.whole}, ended early: {dict(self.ended)}",
            *(f"ended although an engine was there, {count} times: {why}" for why, count in self.left.most_common()),
            f"engines lost over answers that went on: {self.moved}; time to the next id, median: {middle}",
            f"ids lost, doubled or changed: {len(self.faults)}; errors without a name: {len(self.unnamed)}",
            f"reuse: {self.reuse:.4f} ({self.found} of {self.held} ids)",
        ]


class Conversations:
    """Conversations over one running gateway."""

    def __init__(self, services: Services, *, tokens: int) -> None:
        """`tokens`: of each answer at most."""
        self.services = services
        self.outcome = Outcome()
        self.asked: list[Asked] = []
        """What engines were asked, in order."""
        self._tokens = tokens

    def is_open(self, url: str) -> bool:
        """Whether the engine at an address is used."""
        return any(
            status.ready is not None and getattr(status.ready.engine, "url", None) == url
            for status in self.services.engines.statuses()
        )

    async def talk(self, number: int, turns: int, until: float = 0.0) -> None:
        """One conversation: a call that must be made, and questions behind it; again from the start until a time."""
        again = 0
        while not again or time.monotonic() < until:
            again += 1
            messages: list[dict[str, Any]] = [
                {"role": "system", "content": "You tell of a place. Call the tool before you do."},
                {"role": "user", "content": f"What is it like in town number {number} of {again}?"},
            ]
            for turn in range(turns):
                said = await self._answered(messages, forced=turn == 0, seed=number * 100 + turn)
                if said is None:
                    break
                messages = [*messages, {"role": "assistant", "content": said}]
                messages.append({"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]})
                if until and time.monotonic() > until:
                    break

    async def _answered(self, messages: list[dict[str, Any]], *, forced: bool, seed: int) -> str | None:
        """The text of an answer; None where it ended early."""
        outcome, agent = self.outcome, self.services.agent
        choice = ToolChoice("required") if forced else ToolChoice()
        options = AnswerOptions(
            choice,
            max_tokens=_CALL if forced else self._tokens,
            sampling=Sampling(temperature=0.8, seed=seed),
            ids=True,
        )
        outcome.answers += 1
        texts: list[str] = []
        times: list[tuple[float, bool]] = []
        ledger: Ledger | None = None
        conversation = None

        async def listen(event: Any) -> None:
            assert ledger is not None
            ledger.hear(event)
            match event:
                case Content():
                    texts.append(event.text)
                case IdsGenerated():
                    times.append((time.monotonic(), len(ledger.asked) > 1))
                    moves.append(len(ledger.asked))
                case IdsSpliced():
                    outcome.calls += 1
                    moves.append(-1)
                case GenerationFinished():
                    outcome.moved += event.moved
                    if event.held and event.timings is not None and not event.moved:
                        outcome.held += event.held
                        outcome.found += min(event.timings.cache_n, event.held)
                case _:
                    pass

        moves: list[int] = []
        try:
            conversation = await agent.open(messages, choice=choice, principal=ANYBODY)
            specials = frozenset(conversation.ready.token_map.special_ids)
            ledger = Ledger(list(conversation.ids), specials)
            CURRENT.set(ledger)
            await agent.answer(conversation, options, listen)
        except EngineError as error:
            self._ended(error)
            return None
        finally:
            if conversation is not None and ledger is not None:
                self.asked += ledger.asked
                outcome.faults += ledger.faults(conversation.ids)
                outcome.resumed += _gaps(times, moves)
        outcome.whole += 1
        return "".join(texts)

    def _ended(self, error: EngineError) -> None:
        code = error_answer(error)[1]["error"]["code"]
        self.outcome.ended[code] += 1
        if not isinstance(error, EngineLost) and any(
            each.ready is not None for each in self.services.engines.statuses()
        ):
            self.outcome.left[ADDRESS.sub("ENGINE", error.message)] += 1
        if not isinstance(error, EngineLost | EngineUnavailable):
            self.outcome.unnamed.append(error.message)


def _gaps(times: list[tuple[float, bool]], moves: list[int]) -> list[float]:
    """Seconds between ids of one turn that came from two engines."""
    asked = iter(times)
    last: tuple[float, int] | None = None
    found: list[float] = []
    for move in moves:
        if move < 0:
            last = None
            continue
        now = next(asked)[0]
        if last is not None and move > last[1]:
            found.append(now - last[0])
        last = now, move
    return found


def config_of(engines: Mapping[str, EngineConfig], **limits: Any) -> GatewayConfig:
    """A gateway over these engines, with one tool."""
    upstream = UpstreamConfig(name="up", command=sys.executable, args=(str(SAYS), RESULT))
    config = GatewayConfig(upstreams=(upstream,), limits=LimitsConfig(**limits), tokens=TokensConfig())
    if len(engines) == 1:
        return replace(config, engine=next(iter(engines.values())))
    return replace(config, engines=engines)


@asynccontextmanager
async def conversations(config: GatewayConfig, *, tokens: int) -> AsyncGenerator[Conversations]:
    """A running gateway whose engines are watched."""
    async with watched_engines(), open_services(config) as services:
        yield Conversations(services, tokens=tokens)


async def run(talks: Conversations, count: int, turns: int, *, until: float = 0.0) -> Outcome:
    """So many conversations at a time."""
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(talks.talk, number, turns, until)
    return talks.outcome
