"""Continues a prompt, and nothing else: no template, no tools, no turns.

Turns a text or ids into one generation's events. The prompt is the client's own, so markers in its text count, and ids
may be special; an id that the map does not have never reaches the engine. Text is decoded only where somebody reads it.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.agent.events import Emit, Finished, FinishReason, GenerationFinished, IdsGenerated
from gateway.agent.generate.engine_spans import plain_span, sampling_attributes
from gateway.agent.generate.generation import form_refused, lost_grammar, replayed
from gateway.agent.generate.model_output import EndHold
from gateway.agent.generate.stop_strings import StopFilter
from gateway.config import LimitsConfig
from gateway.context.history.template_messages import check_length
from gateway.engine.interface import GenerateRequest, GenerationEnd, GenerationEvent, Sampling, Timings
from gateway.engine.pool.engine_choice import key_of
from gateway.engine.pool.pool import EnginePool, Stay
from gateway.engine.slots.allocation import Place
from gateway.engine.start.ready_engine import ReadyEngine, larger_context
from gateway.errors import EngineError, EngineUnavailable, GrammarRefused, RequestInvalid
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import ANYBODY, Principal
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.stream.output_events import Content
from gateway.toolcalls.stream.spelling import hidden_ids
from leaf_sdk.vocab import Detokenizer

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

_BEGINNING: Final = 64
"""Ids at the start of a prompt that decide which engine is its home (`engine/pool/engine_choice.py`)."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as ids, and the engine it is for."""

    ready: ReadyEngine
    ids: list[int]
    """A list, since slots hold lists, and a tuple never equals a list."""
    principal: Principal = ANYBODY
    """Who is asking."""
    model: str | None = None
    """The name that was asked for."""


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """What a client may ask of one completion."""

    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    stops: tuple[str, ...] = ()
    form: AnswerForm | None = None
    """The form that the text after the prompt must have; None: any."""
    text: bool = True
    """Whether `Content` is emitted."""
    ids: bool = False
    """Whether `IdsGenerated` is emitted."""


class Completer:
    """Continues prompts with the engines of one pool."""

    def __init__(
        self, pool: EnginePool, limits: LimitsConfig, metrics: Metrics, tracing: "Tracing | None" = None
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._metrics = metrics
        self._tracing = tracing

    def open(self, prompt: str | Sequence[int], principal: Principal = ANYBODY, model: str | None = None) -> Prompt:
        """Return the prompt's ids, with those that the engine itself puts before a text. `model`: see `Agent.open`.

        Raises `EngineUnavailable`, `MapDiffers`, `ModelUnknown`, and `RequestInvalid` when the prompt is empty, is too
        long or has unknown ids.
        """
        ready = self._pool.ready(model)
        if isinstance(prompt, str):
            check_length(len(prompt), ready.facts.context, "prompt")
        ids = _encoded(prompt, ready) if isinstance(prompt, str) else list(prompt)
        unknown = next((token_id for token_id in ids if not ready.token_map.has_id(token_id)), None)
        if unknown is not None:
            raise RequestInvalid(f"prompt: the map {ready.token_map.map_id!r} has no id {unknown!r}", param="prompt")
        if not ids:
            raise RequestInvalid("prompt: expected a text or token ids, got none", param="prompt")
        if len(ids) >= ready.facts.context:
            raise RequestInvalid(
                f"the prompt has {len(ids)} tokens; the engine's context holds {ready.facts.context}: "
                f"{larger_context(ready)}",
                param="prompt",
            )
        return Prompt(ready, ids, principal, model)

    async def answer(self, prompt: Prompt, options: CompletionOptions, emit: Emit) -> Finished:
        """Generate until the model ends, a stop string appears or a limit is reached; `Finished` is emitted last.

        Raises `EngineUnavailable` and `EngineRefused` when the engine fails; what was emitted before stands. Raises
        `RequestInvalid` where the engine refuses the grammar of the form.
        """
        room = prompt.ready.facts.context - len(prompt.ids)
        most = min(options.max_tokens or self._limits.completion_tokens, room)
        has_home = self._pool.several or prompt.ready.facts.can.sessions
        home = key_of(prompt.principal.name, prompt.ids[:_BEGINNING]) if has_home else b""
        asked: dict[str, Any] = {}
        if self._tracing is not None:
            asked = {"gen_ai.request.max_tokens": most, **sampling_attributes(options.sampling)}
        with (
            self._pool.stay(prompt.ready, home) as stay,
            plain_span(self._tracing, "text_completion", prompt.ready, prompt.model, asked) as span,
        ):
            run = _Completion(prompt, options, emit, most, stay, home, span.headers)
            span.told["gen_ai.response.finish_reasons"] = ["error"]
            finished = await run.run()
            span.told.update(
                {
                    "gen_ai.response.finish_reasons": [finished.reason],
                    "gen_ai.usage.input_tokens": finished.prompt_ids,
                    "gen_ai.usage.output_tokens": run.generated,
                    "gen_ai.usage.cache_read.input_tokens": finished.cached_ids,
                }
            )
        if run.end is not None and run.end.known is not None:
            self._metrics.request_answered(prompt=finished.prompt_ids, cached=finished.cached_ids)
        self._count(run)
        return finished

    def _count(self, run: "_Completion") -> None:
        end = run.end
        if end is None:
            return
        self._metrics.ids_repaired(repaired=end.repaired, ambiguous=end.ambiguous, missed=end.missed)
        self._metrics.ids_padded(end.padded)
        self._metrics.generation_finished(
            prompt_n=end.timings.prompt_n,
            cache_n=end.timings.cache_n,
            generated=run.generated,
            ttft=run.ttft,
            seconds=run.seconds,
        )


class _Completion:
    """The state of one completion."""

    def __init__(
        self,
        prompt: Prompt,
        options: CompletionOptions,
        emit: Emit,
        most: int,
        stay: Stay,
        home: bytes,
        trace: Mapping[str, str],
    ) -> None:
        self._prompt = prompt
        self._trace = trace
        self._stay = stay
        self._home = home
        self._moved = 0
        self._answered = False
        self._options = options
        self._emit = emit
        self._most = most
        self._stop = StopFilter(options.stops)
        self._text = Detokenizer(prompt.ready.token_map) if options.text or options.stops else None
        self._hidden = hidden_ids(prompt.ready.token_map, options.stops)
        self._hold = EndHold(prompt.ready.token_map.special_ids)
        self._ids: list[int] = []
        self._guessed = False
        self._started = time.perf_counter()
        self.end: GenerationEnd | None = None
        """None when a stop string cut the generation short."""
        self.ttft = 0.0
        self.seconds = 0.0

    @property
    def generated(self) -> int:
        return len(self._ids)

    async def run(self) -> Finished:
        end, place = await replayed(self._stay, self._run, self._rewind)
        prompt = len(self._prompt.ids)
        self.end = end and replace(end, timings=end.timings.within(prompt))
        self.seconds = time.perf_counter() - self._started
        timings = place.shown(self.end.known) if self.end and self.end.known and place else None
        await self._emit(self._stats(timings))
        reason: FinishReason = "stop" if self.end is None or self.end.reason == "stop" else "length"
        cached = timings.cache_n if timings else 0
        finished = Finished(reason, prompt, cached, len(self._ids), stop=self._stop.found)
        await self._emit(finished)
        return finished

    async def _run(self) -> tuple[GenerationEnd | None, Place | None]:
        """Continue on the current engine, after the ids that earlier engines generated."""
        ready, principal, options = self._stay.ready, self._prompt.principal, self._options
        context = [*self._prompt.ids, *self._ids] if self._ids else self._prompt.ids
        self._answered = False
        taken = ready.slots.take(context, principal.name, alone=principal.alone)
        async with AsyncExitStack() as stack:
            place = await self._stay.turn(stack.enter_async_context(taken))
            request = GenerateRequest(
                context,
                place.pinned,
                self._most - len(self._ids),
                options.sampling,
                reuse=place.reuse,
                salt=place.salt,
                session=self._home,
                trace=self._trace,
                grammar=options.form and options.form.grammar,
                # Where a stop string may end it, each id must be checked before the next one is read.
                gather=not options.stops,
            )
            end: GenerationEnd | None = None
            try:
                async with AsyncExitStack() as generating:
                    events = await self._stay.wait(generating.enter_async_context(ready.engine.generate(request)))
                    end = await self._follow(self._stay.each(events))
            except GrammarRefused as error:
                raise form_refused() from error
            finally:
                held = [*self._prompt.ids, *self._ids]
                place.leaves(held, len(context), end, answered=self._answered)
        return end, place

    async def _rewind(self, error: EngineError) -> tuple[GenerationEnd, None] | None:
        """Prepare to continue from the ids so far; return the end where nothing is left to generate.

        Raises `EngineLost` where a grammar is active.
        """
        self._hold.drop()
        if len(self._ids) >= self._most:
            end = GenerationEnd.unreported(len(self._ids))
            await self._close(end)
            return end, None
        if self._ids and self._options.form is not None:
            raise lost_grammar(error)
        self._moved += 1
        return None

    async def _close(self, end: GenerationEnd) -> None:
        await self._take(self._hold.close(end.ended_by))
        if self._text is not None:
            await self._show(self._stop.feed(self._text.close()) + self._stop.close())

    async def _follow(self, events: AsyncIterator[GenerationEvent]) -> GenerationEnd | None:
        async for event in events:
            if isinstance(event, GenerationEnd):
                await self._close(event)
                return event
            if not self._answered:
                self._answered = True
                self._stay.answered()
                self.ttft = self.ttft or time.perf_counter() - self._started
            self._guessed |= event.guessed
            await self._take(self._hold.feed(event.ids))
            if self._stop.hit:
                return None
        raise EngineUnavailable("the engine's stream broke off before the generation was complete; ask again")

    async def _take(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        self._ids += ids
        if self._options.ids:
            await self._emit(IdsGenerated(tuple(ids)))
        if self._text is not None:
            await self._show(self._stop.feed(self._text.feed([each for each in ids if each not in self._hidden])))

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
            moved=self._moved,
        )


def _encoded(text: str, ready: ReadyEngine) -> list[int]:
    ids = ready.token_map.encode(text, specials=True)
    bos = list(ready.facts.bos)
    return ids if ids[: len(bos)] == bos else bos + ids
