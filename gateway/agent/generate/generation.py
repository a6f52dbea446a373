"""One generation: sends the conversation's ids to the engine, emits events, and appends what the model wrote.

`model_output.py` reads what the engine generates. The ids that are appended are those that the engine's cache holds
when the model has ended its turn: the end-of-turn id, which the engine samples but never processes, is left out, and
the template's own turn end takes its place.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.agent.events import AgentEvent, Emit, GenerationFinished
from gateway.agent.generate.generation_options import GenerationOptions, Hold
from gateway.agent.generate.model_output import ModelOutput
from gateway.agent.generate.recovery import loosened_hold, looseness, lost_grammar, replayed
from gateway.context.compose.conversation import Conversation, Spliced
from gateway.engine.interface import GenerateRequest, GenerationEnd, GenerationEvent, Retention, Sampling
from gateway.engine.slots.allocation import Place
from gateway.errors import EngineError, EngineUnavailable, GrammarRefused
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.format import call_triggers
from gateway.toolcalls.stream.output_events import CallClosed

_UNTRACED: Final[Mapping[str, str]] = MappingProxyType({})
_NEVER = -100.0
"""The bias with which OpenAI's API bans an id."""


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """How the generation ended, and the calls that were closed."""

    stopped: bool
    """True: the model, a stop string or the only call allowed ended it; False: it ran into a length limit."""
    calls: tuple[CallClosed, ...]
    started: int
    """Calls that the client was told of, including those that broke off: each takes an index of the response."""
    stats: GenerationFinished
    stop: str | None = None
    """The stop string that ended it, if one did."""
    in_slot: int = 0
    """Ids at the prompt's beginning that the slot is known to have held before it."""


class Generation:
    """One run. Make one, then `await run()` once."""

    def __init__(self, conversation: Conversation, options: GenerationOptions, emit: Emit, metrics: Metrics) -> None:
        self._conversation = conversation
        self._options = options
        self._emit = emit
        self._metrics = metrics
        self._output = ModelOutput(conversation, options)
        self._trace: Mapping[str, str] = {}
        self._ttft = 0.0
        self._stay = conversation.stay
        self._moved = 0
        """How many engines were lost during it."""
        self._answered = False
        """Whether the current engine has given an id."""
        self._held_by: Hold | None = None
        """The hold in use there: not always the one that was asked for, since an engine may refuse that."""

    @property
    def conversation(self) -> Conversation:
        """The conversation that it continues."""
        return self._conversation

    @property
    def options(self) -> GenerationOptions:
        """What it is asked to do."""
        return self._options

    @property
    def generated(self) -> int:
        """How many ids it has generated so far that stay in the context."""
        return len(self._output.ids)

    @property
    def ttft(self) -> float | None:
        """Seconds from its beginning to the first id; None before that."""
        return self._ttft or None

    async def run(self, trace: Mapping[str, str] = _UNTRACED) -> GenerationResult:
        """Generate until the model stops, a stop string appears or a limit is reached. `trace`: see `GenerateRequest`.

        Raises `EngineUnavailable` and `EngineRefused`; what was emitted before stands, and its ids are kept.
        """
        started = time.perf_counter()
        self._trace = trace
        run = partial(self._run, self._options.hold, started)
        done: tuple[GenerationEnd | None, Place | None] = None, None
        try:
            done = await replayed(self._stay, run, self._rewind)
        finally:
            self._output.remember(done[0])
        return self._finish(*done, time.perf_counter() - started)

    async def _run(self, hold: Hold | None, started: float) -> tuple[GenerationEnd | None, Place | None]:
        """Generate on the current engine, after the ids that earlier engines generated."""
        conversation, principal = self._conversation, self._conversation.asked.principal
        self._answered = False
        context, hints = self._context, await conversation.hints()
        prompt = len(context)
        taken = conversation.ready.slots.take(context, principal.name, alone=principal.alone, hints=hints)
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
                    hold = await self._stay.wait(loosened_hold(hold, request, conversation, self._metrics))
                    end = await self._generate(place, hold, started)
            finally:
                held = [*conversation.ids, *self._output.ids]
                place.leaves(held, prompt, end, answered=self._answered)
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
        """Prepare to continue from the ids so far; return the end where nothing is left to generate.

        Raises `EngineLost` where a grammar is active: another engine would start it from the beginning.
        """
        self._output.rewind()
        hold, ids = self._held_by, self._output.ids
        if len(ids) >= self._options.max_tokens:
            end = GenerationEnd.unreported(len(ids))
            await self._tell(self._output.close(end.ended_by))
            return end, None
        if ids and hold is not None and (not hold.triggers or any(each.token_id in ids for each in hold.triggers)):
            raise lost_grammar(error)
        self._moved += 1
        return None

    @property
    def _context(self) -> list[int]:
        """The ids that the engine is given: the prompt, and what lost engines generated."""
        ids = self._conversation.ids
        return [*ids, *self._output.ids] if self._output.ids else ids

    def _request(self, place: Place, hold: Hold | None) -> GenerateRequest:
        conversation = self._conversation
        return GenerateRequest(
            prompt=self._context,
            slot=place.pinned,
            reuse=place.reuse,
            salt=place.salt,
            session=conversation.asked.home,
            retention=retention_of(conversation, self._metrics, words=self._options.words),
            max_tokens=self._options.max_tokens - len(self._output.ids),
            sampling=self._sampling,
            grammar=hold.grammar if hold else None,
            triggers=hold.triggers if hold else (),
            logprobs=self._options.logprobs is not None
            or (conversation.observer is not None and conversation.observer.logprobs),
            top_logprobs=self._options.logprobs or 0,
            trace=self._trace,
        )

    @property
    def _sampling(self) -> Sampling:
        """How ids are drawn. Where the model has to answer in words, not the token with which its calls begin."""
        sampling, conversation = self._options.sampling, self._conversation
        if not self._options.words:
            return sampling
        triggers = call_triggers(conversation.asked.format, conversation.ready.token_map)
        return replace(sampling, logit_bias=(*sampling.logit_bias, *((each.token_id, _NEVER) for each in triggers)))

    async def _follow(self, events: AsyncIterator[GenerationEvent], started: float) -> GenerationEnd | None:
        """Feed the parser until the end; return None when a stop string or the only call allowed cut it short."""
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
        raise EngineUnavailable("the engine's stream broke off before the generation was complete; ask again")

    async def _tell(self, events: list[AgentEvent]) -> None:
        for event in events:
            await self._emit(event)

    def _finish(self, end: GenerationEnd | None, place: Place | None, seconds: float) -> GenerationResult:
        conversation, output = self._conversation, self._output
        timings = None
        # An engine that was cut off at the limit reported nothing.
        if end is not None and end.reported and place is not None:
            # After a move the new engine's prompt included ids of this answer; only the part before is the prompt.
            timings = place.shown(end.timings).within(output.prompt)
        prefilled = 0
        if timings is not None:
            # `+ 1`: the last id that was held may not be counted. If the slot is lost, so is what was prefilled.
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
        # The last id before a length limit was sampled, but never processed.
        conversation.held = len(conversation.ids) - (end is not None and end.reason == "length")
        conversation.spliced = Spliced()
        conversation.guessed = output.guessed
        stopped = end is None or end.reason == "stop"
        in_slot = place.in_slot if place is not None else 0
        return GenerationResult(stopped, tuple(output.calls), output.shown, stats, output.stop, in_slot)

    def _count(self, end: GenerationEnd | None, seconds: float) -> None:
        if end is None:
            return
        timings = end.timings.within(len(self._conversation.ids))
        self._metrics.ids_repaired(repaired=end.repaired, ambiguous=end.ambiguous, missed=end.missed)
        self._metrics.ids_padded(end.padded)
        self._metrics.generation_finished(
            prompt_n=timings.prompt_n,
            cache_n=timings.cache_n,
            generated=len(self._output.ids),
            ttft=self._ttft,
            seconds=seconds,
        )
        if self._conversation.guessed and not self._moved:
            self._metrics.guess_judged(right=end.timings.cache_n >= self._conversation.held)


# How long what a generation leaves in the engine's cache will be needed: as long as its tools usually take.
#
# Turns the durations of earlier calls into what a router is told before it knows whether the model will call
# anything. It chooses no slot and sends nothing. The gateway does not see how long a client's own tools take.

_MOST: Final = 0.9
"""The part of the calls that are waited for."""
_CALLS: Final = 20
"""Fewer calls than this say nothing about the slowest tenth."""
_LONGEST: Final = 10.0
"""Seconds; a cache that is kept for longer costs others more than processing it again. vllm-router's own bound for the
times that it chooses by itself (`max_acting_ttl_seconds`)."""


def retention_of(conversation: Conversation, metrics: Metrics, *, words: bool = False) -> Retention | None:
    """What follows a generation; None for an engine that does not ask. `words`: whether it may call no more tools."""
    if not conversation.ready.facts.can.retention:
        return None
    asked, tools = conversation.asked, conversation.tools
    calls = bool(tools) and asked.may_call and not words
    if not calls or any(conversation.is_clients(tool.name) for tool in tools):
        return Retention(conversation.first_answer_id, continues=calls)
    servers = {asked.server_of(tool.name) for tool in tools} - {None}
    return Retention(conversation.first_answer_id, True, usual_seconds(metrics.call_times(*filter(None, servers))))


def usual_seconds(times: Sequence[tuple[float, int]]) -> float | None:
    """Seconds after which nine of ten calls are over; None: too few calls are known, or these take too long.

    `times`: upper bounds in seconds, and how many calls took no longer than this and longer than the bound before.
    """
    known = sum(count for _, count in times)
    if known < _CALLS:
        return None
    over = 0
    for bound, count in times:
        over += count
        if over >= _MOST * known:
            return bound if bound <= _LONGEST else None
    return None
