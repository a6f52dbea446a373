"""A prompt continued, and nothing else: no template, no tools, no turns.

Turns a text or ids into one generation's events. The prompt is the client's own, so markers in its text count, and ids
may be special; an id that the map does not have never reaches the engine. Text is only made where somebody reads it.
"""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from gateway.agent.end_hold import EndHold
from gateway.agent.events import Emit, Finished, FinishReason, GenerationFinished, IdsGenerated
from gateway.agent.history import check_length
from gateway.agent.stop import StopFilter
from gateway.config import LimitsConfig
from gateway.engine.interface import GenerateRequest, GenerationEnd, GenerationEvent, Sampling, Timings
from gateway.engine.readiness import EngineRoute, ReadyEngine
from gateway.errors import EngineUnavailable, RequestInvalid
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import ANYBODY, Principal
from gateway.toolcalls import Content
from leaf_sdk.vocab import Detokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as ids, and the engine that they are for."""

    ready: ReadyEngine
    ids: list[int]
    """A list, since slots hold lists, and a tuple is never equal to one."""
    principal: Principal = ANYBODY
    """Who asks."""


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """What a client may ask of one completion."""

    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    stops: tuple[str, ...] = ()
    text: bool = True
    """Whether `Content` is emitted."""
    ids: bool = False
    """Whether `IdsGenerated` is emitted."""


class Completer:
    """Continues prompts with one engine."""

    def __init__(self, route: EngineRoute, limits: LimitsConfig, metrics: Metrics) -> None:
        self._route = route
        self._limits = limits
        self._metrics = metrics

    def open(self, prompt: str | Sequence[int], principal: Principal = ANYBODY) -> Prompt:
        """Give the prompt's ids, with what the engine itself puts before a text.

        Raises `EngineUnavailable`, `MapDiffers`, and `RequestInvalid` when it is empty, too long or has unknown ids.
        """
        ready = self._route.ready()
        if isinstance(prompt, str):
            check_length(len(prompt), ready.facts.context, "prompt")
        ids = _encoded(prompt, ready) if isinstance(prompt, str) else list(prompt)
        unknown = next((token_id for token_id in ids if not ready.token_map.has_id(token_id)), None)
        if unknown is not None:
            raise RequestInvalid(f"prompt: the map {ready.token_map.map_id!r} has no id {unknown!r}", param="prompt")
        if not ids:
            raise RequestInvalid("prompt: expected a text or ids, got none", param="prompt")
        if len(ids) >= ready.facts.context:
            raise RequestInvalid(
                f"the prompt has {len(ids)} tokens; the engine's context holds {ready.facts.context}", param="prompt"
            )
        return Prompt(ready, ids, principal)

    async def answer(self, prompt: Prompt, options: CompletionOptions, emit: Emit) -> Finished:
        """Generate until the model ends, a stop string comes or a limit is reached; `Finished` is emitted last.

        Raises `EngineUnavailable` and `EngineRefused` when the engine fails; what was emitted before stands.
        """
        room = prompt.ready.facts.context - len(prompt.ids)
        most = min(options.max_tokens or self._limits.completion_tokens, room)
        run = _Completion(prompt, options, emit, most)
        try:
            finished = await run.run()
        except EngineUnavailable:
            self._route.report_loss()
            raise
        self._count(run)
        return finished

    def _count(self, run: "_Completion") -> None:
        end = run.end
        if end is None:
            return
        self._metrics.ids_repaired(repaired=end.repaired, ambiguous=end.ambiguous, missed=end.missed)
        self._metrics.generation_finished(
            prompt_n=end.timings.prompt_n,
            cache_n=end.timings.cache_n,
            generated=run.generated,
            ttft=run.ttft,
            seconds=run.seconds,
        )


class _Completion:
    """The state of one completion."""

    def __init__(self, prompt: Prompt, options: CompletionOptions, emit: Emit, most: int) -> None:
        self._prompt = prompt
        self._options = options
        self._emit = emit
        self._most = most
        self._stop = StopFilter(options.stops)
        self._text = Detokenizer(prompt.ready.token_map) if options.text or options.stops else None
        self._hold = EndHold(prompt.ready.token_map.special_ids)
        self._ids: list[int] = []
        self._guessed = False
        self._started = time.perf_counter()
        self.end: GenerationEnd | None = None
        """None when a stop string cut it short."""
        self.ttft = 0.0
        self.seconds = 0.0

    @property
    def generated(self) -> int:
        return len(self._ids)

    async def run(self) -> Finished:
        prompt, options = self._prompt, self._options
        principal = prompt.principal
        async with prompt.ready.slots.take(prompt.ids, principal.name, alone=principal.alone) as place:
            request = GenerateRequest(
                prompt.ids,
                place.pinned,
                self._most,
                options.sampling,
                reuse=place.reuse,
                salt=place.salt,
                # Where a stop string may end it, no id must be read before the one ahead of it has been judged.
                gather=not options.stops,
            )
            try:
                async with prompt.ready.engine.generate(request) as events:
                    self.end = await self._follow(events)
            finally:
                told = self.end is not None and self.end.told
                answered = self.end is not None or self.ttft > 0
                place.slot.holds([*prompt.ids, *self._ids], at_rest=told, answered=answered)
        self.seconds = time.perf_counter() - self._started
        timings = place.shown(self.end.timings) if self.end is not None else None
        await self._emit(self._stats(timings))
        reason: FinishReason = "stop" if self.end is None or self.end.reason == "stop" else "length"
        finished = Finished(reason, len(prompt.ids), timings.cache_n if timings else 0, len(self._ids))
        await self._emit(finished)
        return finished

    async def _follow(self, events: AsyncIterator[GenerationEvent]) -> GenerationEnd | None:
        async for event in events:
            if isinstance(event, GenerationEnd):
                await self._take(self._hold.close(event.ended_by))
                if self._text is not None:
                    await self._show(self._stop.feed(self._text.close()) + self._stop.close())
                return event
            self.ttft = self.ttft or time.perf_counter() - self._started
            self._guessed |= event.guessed
            await self._take(self._hold.feed(event.ids))
            if self._stop.hit:
                return None
        raise EngineUnavailable("the engine's stream ended without an end; ask again")

    async def _take(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        self._ids += ids
        if self._options.ids:
            await self._emit(IdsGenerated(tuple(ids)))
        if self._text is not None:
            await self._show(self._stop.feed(self._text.feed(ids)))

    async def _show(self, text: str) -> None:
        if text and self._options.text:
            await self._emit(Content(text))

    def _stats(self, timings: Timings | None) -> GenerationFinished:
        return GenerationFinished(
            prompt=len(self._prompt.ids),
            generated=len(self._ids),
            reinjected_leaf=0,
            reinjected_shim=0,
            scaffold=0,
            held=0,
            timings=timings,
            ttft=self.ttft,
            guessed=self._guessed,
        )


def _encoded(text: str, ready: ReadyEngine) -> list[int]:
    ids = ready.token_map.encode(text, specials=True)
    bos = list(ready.facts.bos)
    return ids if ids[: len(bos)] == bos else bos + ids
