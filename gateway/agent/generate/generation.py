"""One generation: sends the conversation's ids to the engine, emits events, and appends what the model wrote.

Where its engine is lost it continues on another; where the engine refuses its grammar, it finds one that is accepted.

`model_output.py` reads what the engine generates. The ids that are appended are those that the engine's cache holds
when the model has ended its turn: the end-of-turn id, which the engine samples but never processes, is left out, and
the template's own turn end takes its place.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from gateway.agent.events import Emit, GenerationFinished
from gateway.agent.generate.generation_options import GenerationOptions, Hold
from gateway.agent.generate.model_output import ModelOutput
from gateway.context.compose.conversation import Conversation, Spliced
from gateway.engine.interface import GenerateRequest, GenerationEnd, GenerationEvent, Retention
from gateway.engine.pool.pool import Stay, is_loss
from gateway.engine.rendering.template_forms import ToolFault
from gateway.engine.slots.allocation import Place
from gateway.errors import EngineError, EngineLost, EngineUnavailable, GrammarRefused, RequestInvalid
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.format import call_triggers
from gateway.toolcalls.grammar.refused_grammars import too_much
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Diagnostic

T = TypeVar("T")
_UNTRACED: Final[Mapping[str, str]] = MappingProxyType({})
_NEVER = -100.0
"""The bias with which OpenAI's API bans an id."""
log = get_logger("agent")


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
        context, hints = self._context(), await conversation.hints()
        prompt = len(context)
        taken = conversation.ready.slots.take(context, principal.name, alone=principal.alone, hints=hints)
        async with AsyncExitStack() as stack:
            place = await self._stay.turn(stack.enter_async_context(taken))
            end: GenerationEnd | None = None
            try:
                try:
                    end = await self._generate(context, place, hold, started)
                except GrammarRefused:
                    if hold is None:
                        raise
                    # Ids that came before the refusal were reported: the answer goes on behind them.
                    context = self._context()
                    request = self._request(context, place, hold)
                    hold = await self._stay.wait(loosened_hold(hold, request, conversation, self._metrics))
                    end = await self._generate(context, place, hold, started)
            finally:
                held = [*conversation.ids, *self._output.ids]
                place.leaves(held, prompt, end, answered=self._answered)
        return end, place

    def _context(self) -> list[int]:
        """The ids that the engine is given: the prompt, and what was generated so far."""
        ids = self._conversation.ids
        return [*ids, *self._output.ids] if self._output.ids else ids

    async def _generate(
        self, context: list[int], place: Place, hold: Hold | None, started: float
    ) -> GenerationEnd | None:
        self._held_by = hold
        generating = self._conversation.ready.engine.generate(self._request(context, place, hold))
        async with AsyncExitStack() as stack:
            events = await self._stay.wait(stack.enter_async_context(generating))
            if hold is not None and hold.loose and not self._output.ids:
                await self._emit(looseness(hold))
            return await self._follow(self._stay.each(events), started)

    async def _rewind(self, error: EngineError) -> tuple[GenerationEnd, None] | None:
        """Prepare to continue from the ids so far; return the end where nothing is left to generate.

        Raises `EngineLost` where a grammar is active: another engine would start it from the beginning.
        """
        self._output.rewind()
        hold, ids = self._held_by, self._output.ids
        if len(ids) >= self._options.max_tokens:
            end = GenerationEnd.unreported(len(ids))
            for event in self._output.close(end.ended_by):
                await self._emit(event)
            return end, None
        if ids and hold is not None and (not hold.triggers or any(each.token_id in ids for each in hold.triggers)):
            raise lost_grammar(error)
        self._moved += 1
        return None

    def _request(self, context: list[int], place: Place, hold: Hold | None) -> GenerateRequest:
        """What the engine is asked for. `context`: the prompt, and what was generated before."""
        conversation, sampling, words = self._conversation, self._options.sampling, self._options.words
        ready = conversation.ready
        if words:
            # The model has to answer in words: it must not draw the token with which its calls begin.
            banned = ((each.token_id, _NEVER) for each in call_triggers(conversation.asked.format, ready.token_map))
            sampling = replace(sampling, logit_bias=(*sampling.logit_bias, *banned))
        return GenerateRequest(
            prompt=context,
            slot=place.pinned,
            reuse=place.reuse,
            salt=place.salt,
            session=conversation.asked.home,
            retention=retention_of(conversation, self._metrics, words=words) if ready.facts.can.retention else None,
            max_tokens=self._options.max_tokens - len(self._output.ids),
            sampling=sampling,
            grammar=hold.grammar if hold else None,
            triggers=hold.triggers if hold else (),
            logprobs=self._options.logprobs is not None
            or (conversation.observer is not None and conversation.observer.logprobs),
            top_logprobs=self._options.logprobs or 0,
            trace=self._trace,
        )

    async def _follow(self, events: AsyncIterator[GenerationEvent], started: float) -> GenerationEnd | None:
        """Feed the parser until the end; return None when a stop string or the only call allowed cut it short."""
        async for event in events:
            if isinstance(event, GenerationEnd):
                for told in self._output.close(event.ended_by):
                    await self._emit(told)
                return event
            if not self._answered:
                self._answered = True
                self._stay.answered()
                self._ttft = self._ttft or time.perf_counter() - started
            for told in self._output.feed(event):
                await self._emit(told)
            if self._output.over:
                return None
        raise EngineUnavailable("the engine's stream broke off before the generation was complete; ask again")

    def _finish(self, end: GenerationEnd | None, place: Place | None, seconds: float) -> GenerationResult:
        conversation, output = self._conversation, self._output
        timings = None
        # An engine that was cut off at the limit reported nothing.
        if end is not None and end.known is not None and place is not None:
            # After a move the new engine's prompt included ids of this answer; only the part before is the prompt.
            timings = place.shown(end.known).within(output.prompt)
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
        return GenerationResult(stopped, tuple(output.calls), len(output.indexes), stats, output.stops.found, in_slot)

    def _count(self, end: GenerationEnd | None, seconds: float) -> None:
        if end is None:
            return
        timings = end.timings.within(len(self._conversation.ids))
        self._metrics.ids_repaired(repaired=end.repaired, ambiguous=end.ambiguous, missed=end.missed)
        if end.padded:
            self._metrics.ids_padded(end.padded)
        self._metrics.generation_finished(
            prompt_n=timings.prompt_n,
            cache_n=timings.cache_n,
            generated=len(self._output.ids),
            ttft=self._ttft,
            seconds=seconds,
        )
        if self._conversation.guessed and not self._moved and end.known is not None:
            self._metrics.guess_judged(right=end.known.cache_n >= self._conversation.held)


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


def retention_of(conversation: Conversation, metrics: Metrics, *, words: bool = False) -> Retention:
    """What follows a generation, for an engine that asks. `words`: whether it may call no more tools."""
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


# Generations that can't run as they were asked for: their engine is lost, or refuses the grammar.
#
# A lost generation continues on another engine from the prompt and the ids so far, so that no id is reported twice, and
# none is left out; the caller decides whether and where it can continue (`rewind`). For a refused grammar, grammars of
# fewer tools are tried on the engine, in the generation's own slot, generating one id each time. What is found is kept
# with the engine, so that no other request meets the refusal. `toolcalls.grammar.refused_grammars` bisects the tools.
# Where the engine takes no grammar that waits for a call, calls that a model decides on are free, as without
# `hold_calls`.

_PLAINEST: Final = ToolSpec("f", "", {"type": "object"})
"""A tool whose grammar is refused only by engines that refuse every grammar."""
_LOOSE: Final = (
    "no grammar holds the arguments of {}: the engine refuses it, or the schema is too large, or too many of its "
    "alternatives begin alike; any JSON object is accepted there"
)
_REFUSED: Final = "the engine refuses the grammar of its schema; the arguments of its calls may be any JSON object"


def lost_grammar(error: EngineError) -> EngineLost:
    """Return the error for an answer under a grammar, which another engine would start from the beginning."""
    return EngineLost(
        "the engine was lost during an answer under a grammar, which no other engine can continue; "
        f"keep the part that has arrived, or ask again ({error.message})"
    )


async def replayed(
    stay: Stay, run: Callable[[], Awaitable[T]], rewind: Callable[[EngineError], Awaitable[T | None]]
) -> T:
    """Run until one run completes; return its outcome.

    Args:
        stay: the engine, and those that can take its place.
        run: generates on the current engine.
        rewind: prepares to continue from what was generated; returns the outcome where nothing is left to do, and
            raises where the generation can't continue.

    Raises `EngineError`: the reason that the last engine was lost, or an error that another engine would give too.
    """
    while True:
        try:
            return await run()
        except EngineError as error:
            stay.lost(error)
            if not (stay.may_move and is_loss(error)):
                raise
            done = await rewind(error)
            if done is not None:
                return done
            stay.move(error)


async def loosened_hold(
    hold: Hold, request: GenerateRequest, conversation: Conversation, metrics: Metrics
) -> Hold | None:
    """Return what holds `request` in place of a hold whose grammar was refused; None where nothing does.

    Raises `RequestInvalid` where the engine refuses the grammar of the answer's form.
    """

    ready = conversation.ready

    async def takes(tools: Sequence[ToolSpec]) -> bool:
        grammar = replace(hold, tools=tuple(tools)).grammar
        try:
            async with ready.engine.generate(replace(request, grammar=grammar, max_tokens=1)) as events:
                # Read to the end, so that the slot is at rest afterwards.
                async for _ in events:
                    pass
        except GrammarRefused:
            return False
        return True

    def note(tool: ToolSpec) -> None:
        ready.loose.note(tool)
        metrics.grammar_refused()
        ready.forms.report(ToolFault(conversation.asked.owner_of(tool.name), tool.name, _REFUSED))

    if hold.formed and not await takes(()):
        raise form_refused()
    if hold.triggers and not await takes((_PLAINEST,)):
        ready.loose.note_lazy()
        metrics.grammar_refused()
        log.warning(
            "the engine refuses grammars that begin only at a call (`hold_calls`); "
            "only calls that `tool_choice` requires are held from now on"
        )
        return None
    found = await too_much(hold.tools, takes, note)
    loose = hold.loosening(found.__contains__)
    return loose if not hold.triggers or await takes(loose.tools) else None


def form_refused() -> RequestInvalid:
    """Return the error for a form of answer whose grammar the engine refuses."""
    return RequestInvalid("the engine refuses the grammar for this form of answer; send a simpler or smaller schema")


def looseness(hold: Hold) -> Diagnostic:
    """Report which tools' calls are held loosely."""
    return Diagnostic("loose", _LOOSE.format(", ".join(map(repr, sorted(hold.loose)))))
