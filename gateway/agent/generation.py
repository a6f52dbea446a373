"""One generation: the conversation's ids go to the engine, events come out, and the conversation grows by what came.

What comes is read by `model_output.py`. The ids that the conversation grows by are those that the engine's cache holds
when the model has ended its turn: the end-of-turn id, which the engine samples but never processes, is left out, and
the template's own turn end takes its place.
"""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from gateway.agent.choice import Hold
from gateway.agent.conversation import Conversation, Spliced
from gateway.agent.events import AgentEvent, Emit, GenerationFinished
from gateway.agent.generation_options import GenerationOptions
from gateway.agent.model_output import ModelOutput
from gateway.agent.refused_grammar import loosened_hold, looseness
from gateway.agent.replay import replayed
from gateway.engine.interface import GenerateRequest, GenerationEnd, GenerationEvent
from gateway.engine.slots import Place
from gateway.errors import EngineError, EngineLost, EngineUnavailable, GrammarRefused
from gateway.observe.metrics import Metrics
from gateway.toolcalls import CallClosed


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """How it ended, and the calls that were closed."""

    stopped: bool
    """The model (or a stop string, or the one call that may be) ended it; False: it ran into a length limit."""
    calls: tuple[CallClosed, ...]
    started: int
    """Calls that were told of, those that broke off included: each has an index of the response."""
    stats: GenerationFinished
    stop: str | None = None
    """The stop string that ended it."""


class Generation:
    """One run. Make one, then `await run()` once."""

    def __init__(self, conversation: Conversation, options: GenerationOptions, emit: Emit, metrics: Metrics) -> None:
        self._conversation = conversation
        self._options = options
        self._emit = emit
        self._metrics = metrics
        self._output = ModelOutput(conversation, options)
        self._ttft = 0.0
        self._stay = conversation.place()
        self._moved = 0
        """Engines that were lost over it."""
        self._answered = False
        """Whether the engine that it has now has given an id."""
        self._held_by: Hold | None = None
        """What holds it there: not always what was asked for, since an engine may refuse that."""

    async def run(self) -> GenerationResult:
        """Generate until the model stops, a stop string comes or a limit is reached.

        Raises `EngineUnavailable` and `EngineRefused`; what came before stays emitted, and the ids are kept.
        """
        started = time.perf_counter()
        run = partial(self._run, self._options.hold, started)
        done: tuple[GenerationEnd | None, Place | None] = None, None
        try:
            done = await replayed(self._stay, run, self._rewind)
        finally:
            self._output.remember(done[0])
        return self._finish(*done, time.perf_counter() - started)

    async def _run(self, hold: Hold | None, started: float) -> tuple[GenerationEnd | None, Place | None]:
        """Generate with the engine that there is, behind what others have generated already."""
        conversation, principal = self._conversation, self._conversation.principal
        conversation.ready, self._answered = self._stay.ready, False
        taken = conversation.ready.slots.take(self._context, principal.name, alone=principal.alone)
        async with AsyncExitStack() as stack:
            place = await self._stay.turn(stack.enter_async_context(taken))
            end: GenerationEnd | None = None
            try:
                try:
                    end = await self._generate(place, hold, started)
                except GrammarRefused:
                    if hold is None:
                        raise
                    request = self._request(place, hold)
                    hold = await self._stay.wait(loosened_hold(hold, request, conversation.ready, self._metrics))
                    end = await self._generate(place, hold, started)
            finally:
                told = end is not None and end.told
                held = [*conversation.ids, *self._output.ids]
                place.slot.holds(held, at_rest=told, answered=end is not None or self._answered)
        return end, place

    async def _generate(self, place: Place, hold: Hold | None, started: float) -> GenerationEnd | None:
        self._held_by = hold
        generating = self._conversation.ready.engine.generate(self._request(place, hold))
        async with AsyncExitStack() as stack:
            events = await self._stay.wait(stack.enter_async_context(generating))
            if not self._output.ids:
                for told in looseness(hold):
                    await self._emit(told)
            return await self._follow(self._stay.each(events), started)

    async def _rewind(self, error: EngineError) -> tuple[GenerationEnd, None] | None:
        """Make ready to go on from the ids that are there; give the end where nothing is left to generate.

        Raises `EngineLost` where a grammar holds what is there: another engine would begin it anew.
        """
        self._output.rewind()
        hold, ids = self._held_by, self._output.ids
        if len(ids) >= self._options.max_tokens:
            end = GenerationEnd.untold(len(ids))
            await self._tell(self._output.close(end.ended_by))
            return end, None
        if ids and hold is not None and (not hold.triggers or any(each.token_id in ids for each in hold.triggers)):
            raise EngineLost(
                "the engine was lost while a grammar held its answer, and no other can go on there: what came stands; "
                f"ask again ({error.message})"
            )
        self._moved += 1
        return None

    @property
    def _context(self) -> list[int]:
        """What the engine is given: the prompt, and what a lost one has generated."""
        ids = self._conversation.ids
        return [*ids, *self._output.ids] if self._output.ids else ids

    def _request(self, place: Place, hold: Hold | None) -> GenerateRequest:
        conversation = self._conversation
        return GenerateRequest(
            prompt=self._context,
            slot=place.pinned,
            reuse=place.reuse,
            salt=place.salt,
            session=conversation.home,
            max_tokens=self._options.max_tokens - len(self._output.ids),
            sampling=self._options.sampling,
            grammar=hold.grammar if hold else None,
            triggers=hold.triggers if hold else (),
            logprobs=self._options.logprobs is not None
            or (conversation.trail is not None and conversation.trail.logprobs),
            top_logprobs=self._options.logprobs or 0,
        )

    async def _follow(self, events: AsyncIterator[GenerationEvent], started: float) -> GenerationEnd | None:
        """Feed the parser until the end; None when a stop string or the one call that may be cut it short."""
        async for event in events:
            if isinstance(event, GenerationEnd):
                await self._tell(self._output.close(event.ended_by))
                return event
            if not self._answered:
                self._answered = True
                self._stay.answered()
                self._ttft = self._ttft or time.perf_counter() - started
            await self._tell(self._output.feed(event))
            if self._output.over:
                return None
        raise EngineUnavailable("the engine's stream ended without an end; ask again")

    async def _tell(self, events: list[AgentEvent]) -> None:
        for event in events:
            await self._emit(event)

    def _finish(self, end: GenerationEnd | None, place: Place | None, seconds: float) -> GenerationResult:
        conversation, output = self._conversation, self._output
        timings = place.shown(end.timings) if end is not None and place is not None else None
        if timings is not None and self._moved:
            # Of what was processed there, the ids of this answer were no prompt.
            timings = replace(timings, cache_n=min(timings.cache_n, output.prompt))
        prefilled = 0
        if timings is not None:
            # The last id that was held may not be told of. If the slot is lost, so is what was processed ahead of time.
            prefilled = max(min(conversation.spliced.prefilled, timings.cache_n + 1 - conversation.held), 0)
            timings = timings.counting(prefilled)
        stats = GenerationFinished(
            prompt=output.prompt,
            generated=len(output.ids),
            reinjected_leaf=conversation.spliced.leaf,
            reinjected_shim=conversation.spliced.shim,
            scaffold=conversation.spliced.scaffold,
            held=conversation.held,
            timings=timings,
            ttft=self._ttft + conversation.spliced.seconds,
            guessed=output.guessed,
            reasoning=output.reasoned,
            prefilled=prefilled,
            prefilled_seconds=conversation.spliced.prefilled_seconds if prefilled else 0.0,
            moved=self._moved,
        )
        self._count(end, seconds)
        # The last id before a length limit was sampled, but not processed any more.
        conversation.held = len(conversation.ids) - (end is not None and end.reason == "length")
        conversation.spliced = Spliced()
        conversation.guessed = output.guessed
        stopped = end is None or end.reason == "stop"
        return GenerationResult(stopped, tuple(output.calls), output.shown, stats, output.stop)

    def _count(self, end: GenerationEnd | None, seconds: float) -> None:
        if end is None:
            return
        self._metrics.ids_repaired(repaired=end.repaired, ambiguous=end.ambiguous, missed=end.missed)
        self._metrics.generation_finished(
            prompt_n=end.timings.prompt_n,
            cache_n=end.timings.cache_n,
            generated=len(self._output.ids),
            ttft=self._ttft,
            seconds=seconds,
        )
        if self._conversation.guessed and not self._moved:
            self._metrics.guess_judged(right=end.timings.cache_n >= self._conversation.held)
