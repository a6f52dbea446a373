"""One generation: the conversation's ids go to the engine, events come out, and the conversation grows by what came.

It joins three things that don't know each other: the engine's stream, the tool-call parser and the stop strings. The
ids it appends are those that the engine's cache holds when the model has ended its turn: the end-of-turn id, which the
engine samples but never processes, is left out, and the template's own turn end takes its place.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap, zip_longest

from gateway.agent.choice import Hold, prompt_tail
from gateway.agent.conversation import Conversation, Spliced
from gateway.agent.end_hold import EndHold
from gateway.agent.events import ContentSampled, Emit, GenerationFinished, IdsGenerated, TokenLogprob
from gateway.agent.memory import Call, LivedTurn
from gateway.agent.memory.cut import cut_turn
from gateway.agent.refused_grammar import loosened_hold, looseness
from gateway.agent.replay import cut_off, replayed
from gateway.agent.stop import StopFilter
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, GenerationEvent, Sampling
from gateway.engine.left_behind import shared_prefix
from gateway.engine.slots import Place
from gateway.errors import EngineError, EngineLost, EngineUnavailable, GrammarRefused
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import Sampled
from gateway.toolcalls import CallClosed, CallStarted, Content, Diagnostic, Event, Policy, Reasoning, parser_for

log = get_logger("agent")


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What one generation is asked to do."""

    max_tokens: int
    sampling: Sampling
    hold: Hold | None = None
    stops: tuple[str, ...] = ()
    one_call: bool = False
    """End behind the first call, whatever the model goes on with."""
    ids: bool = False
    """Whether ids are emitted as they come, before what they say."""
    logprobs: int | None = None
    """How many of the likeliest ids are told with each that content is read from; None: nothing of it is."""
    first_index: int = 0
    """Calls that the response already shows: indexes are counted over the whole response."""
    tells: Callable[[str], bool] = lambda name: True
    """Whether the events of a tool's calls are told; others run in silence."""
    shows: Callable[[str], bool] = lambda name: True
    """Whether its calls are part of the answer that a client sends back."""
    on_call: Callable[[CallClosed, int], None] = lambda call, room: None
    """Hears of each call the moment it is closed, while the model may still be writing, and of the ids of context that
    are then left."""


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
        self._emit_event = emit
        self._metrics = metrics
        ready = conversation.ready
        forced = options.hold is not None and not options.hold.triggers
        self._parser = parser_for(
            conversation.format,
            ready.token_map,
            conversation.tools if conversation.may_call else (),
            prompt_tail=prompt_tail(conversation),
            # It takes any tokens that spell a marker, since not every server's grammars know tokens.
            by_text=forced,
            # Where nothing may be called nothing is a call, whatever the model writes.
            policy=None if conversation.tools and conversation.may_call else Policy(unknown_tool="content"),
            formed=options.hold is not None and options.hold.formed,
        )
        # What was begun for the model is read, so that what it writes is read as what follows; it is told of nothing.
        self._parser.feed(conversation.begun)
        self._begun, conversation.begun = bool(conversation.begun), ()
        self._stop = StopFilter(options.stops)
        self._hold = EndHold(ready.token_map.special_ids)
        self._prompt = len(conversation.ids)
        self._ids: list[int] = []
        self._calls: list[CallClosed] = []
        self._started = 0
        self._known = 0
        """Calls among them that a client sends back."""
        self._shown: dict[int, int] = {}
        """Indexes of calls that are told of, in this generation and in the response."""
        self._guessed = False
        self._logprobs: list[float | None] = []
        """Of all ids that came, those that end a turn as well."""
        self._weighed: list[TokenLogprob] = []
        """Ids since the last that was told, where probabilities are asked for."""
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._reasoned = self._reasoned_to = self._said_before = 0
        """Ids of reasoning; ids up to its last piece; pieces of other things before that."""
        self._told: list[str] = []
        """Content that has passed the stop strings."""
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
            self._remember(done[0])
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
                held = [*conversation.ids, *self._ids]
                place.slot.holds(held, at_rest=told, answered=end is not None or self._answered)
        return end, place

    async def _generate(self, place: Place, hold: Hold | None, started: float) -> GenerationEnd | None:
        self._held_by = hold
        generating = self._conversation.ready.engine.generate(self._request(place, hold))
        async with AsyncExitStack() as stack:
            events = await self._stay.wait(stack.enter_async_context(generating))
            if not self._ids:
                for told in looseness(hold):
                    await self._emit_event(told)
            return await self._follow(self._stay.each(events), started)

    async def _rewind(self, error: EngineError) -> tuple[GenerationEnd, None] | None:
        """Make ready to go on from the ids that are there; give the end where nothing is left to generate.

        Raises `EngineLost` where a grammar holds what is there: another engine would begin it anew.
        """
        hold, ids = self._held_by, self._ids
        dropped = self._hold.drop()
        # What was sampled and told nobody of is sampled again.
        del self._logprobs[len(ids) :], self._weighed[len(self._weighed) - min(dropped, len(self._weighed)) :]
        if len(ids) >= self._options.max_tokens:
            end = cut_off(len(ids))
            await self._end(end)
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
        return [*ids, *self._ids] if self._ids else ids

    def _request(self, place: Place, hold: Hold | None) -> GenerateRequest:
        conversation = self._conversation
        return GenerateRequest(
            prompt=self._context,
            slot=place.pinned,
            reuse=place.reuse,
            salt=place.salt,
            session=conversation.home,
            max_tokens=self._options.max_tokens - len(self._ids),
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
                await self._end(event)
                return event
            if not self._answered:
                self._answered = True
                self._stay.answered()
                self._ttft = self._ttft or time.perf_counter() - started
            self._guessed |= event.guessed
            if event.logprobs:
                self._weigh(event)
            ids = self._hold.feed(event.ids)
            if ids and self._called_enough:
                return None
            await self._feed(ids)
            if self._stop.hit:
                return None
        raise EngineUnavailable("the engine's stream ended without an end; ask again")

    async def _end(self, end: GenerationEnd) -> None:
        await self._feed(self._hold.close(end.ended_by))
        await self._emit_all(self._parser.close())
        await self._show(self._stop.close())

    def _weigh(self, event: Generated) -> None:
        """Keep how probable ids were, for a trajectory and for the client."""
        self._logprobs += event.logprobs
        if self._options.logprobs is not None:
            self._weighed += starmap(TokenLogprob, zip_longest(event.ids, event.logprobs, event.tops, fillvalue=()))

    async def _feed(self, ids: Sequence[int]) -> None:
        self._ids += ids
        if ids and self._options.ids:
            await self._emit_event(IdsGenerated(tuple(ids)))
        await self._emit_all(self._parser.feed(ids))

    @property
    def _called_enough(self) -> bool:
        return self._options.one_call and bool(self._calls)

    async def _emit_all(self, events: list[Event]) -> None:
        for event in events:
            if self._called_enough:
                break
            if isinstance(event, Content):
                self._content.append(event.text)
                await self._show(self._stop.feed(event.text))
            elif not self._stop.hit:
                # A stop string does not reach over what is no content: what was held for one stands before it.
                await self._show(self._stop.close())
                if (told := self._indexed(event)) is not None:
                    await self._emit_event(told)
                self._weighed.clear()

    async def _show(self, text: str) -> None:
        if text:
            self._told.append(text)
            if self._weighed:
                await self._emit_event(ContentSampled(tuple(self._weighed)))
                self._weighed.clear()
            await self._emit_event(Content(text))

    def _indexed(self, event: Event) -> Event | None:
        """The event as the response tells it; None where it belongs to a call that is not shown."""
        if isinstance(event, Diagnostic) and event.cause is not None:
            name = self._conversation.format.name
            log.error("the parser of a tool-call format failed", tool_format=name, exc_info=event.cause)
        if isinstance(event, Reasoning):
            self._note_reasoning(event.text)
        if isinstance(event, Content | Reasoning) or event.index is None:
            return event
        if isinstance(event, CallStarted):
            self._started += 1
            self._known += self._options.shows(event.name)
            if self._options.tells(event.name):
                self._shown[event.index] = self._options.first_index + len(self._shown)
        if isinstance(event, CallClosed):
            self._calls.append(event)
            self._options.on_call(event, self._conversation.room - len(self._ids))
        index = self._shown.get(event.index)
        if index is None:
            return replace(event, index=None) if isinstance(event, Diagnostic) else None
        return replace(event, index=index)

    def _note_reasoning(self, text: str) -> None:
        """Keep it, and count its ids: all since the last piece of it, unless other things were said between."""
        said, ids = len(self._content) + self._started, len(self._ids)
        before, self._said_before = self._said_before, said
        self._reasoned += ids - self._reasoned_to if said == before else 1
        self._reasoned_to = ids
        self._reasoning.append(text)

    def _remember(self, end: GenerationEnd | None) -> None:
        """Whatever happened, the context is the prompt and what was generated after it."""
        conversation = self._conversation
        conversation.ids += self._ids
        ended_by = end.ended_by if end is not None else None
        conversation.turn = LivedTurn(
            tuple(self._calls),
            self._begun or bool(self._content),
            bool(self._reasoning),
            ended_by,
            broken=self._started > len(self._calls),
        )
        if conversation.trail is not None:
            conversation.trail.wrote(self._sampled(end))
        self._note_turn(cut=end is None and not self._called_enough)

    def _sampled(self, end: GenerationEnd | None) -> Sampled:
        ended_by = end.ended_by if end is not None else None
        guessed = self._guessed or (end is not None and end.missed > 0)
        logprobs = tuple(self._logprobs[: len(self._ids) + (ended_by is not None)])
        return Sampled(self._prompt, len(self._ids), ended_by, guessed, logprobs)

    def _note_turn(self, *, cut: bool) -> None:
        """Note what was lived, and shown. `cut`: the client was shown less than the model wrote."""
        conversation, lived = self._conversation, self._conversation.lived
        content, reasoning, told = "".join(self._content), "".join(self._reasoning), "".join(self._told)
        lived.content.append(told)
        lived.reasoning.append(reasoning)
        shown = (call for call in self._calls if self._options.shows(call.name))
        lived.calls += (Call(call.id, call.name, call.arguments) for call in shown)
        ids: Sequence[int] | None = self._ids
        if cut:
            ids = cut_turn(self._ids, content, told, conversation.ready.token_map)
            content = told
        # Of one that broke off the client may make what it likes, if it knows of it; behind others it has no form.
        astray = conversation.turn.broken and (self._calls or self._known)
        if ids is None or astray or (cut and self._calls):
            lived.whole = False
        else:
            own = shared_prefix(ids, self._ids) if cut else len(ids)
            lived.add_turn(self._prompt, ids, content, reasoning, conversation.turn, own)

    def _finish(self, end: GenerationEnd | None, place: Place | None, seconds: float) -> GenerationResult:
        conversation = self._conversation
        timings = place.shown(end.timings) if end is not None and place is not None else None
        if timings is not None and self._moved:
            # Of what was processed there, the ids of this answer were no prompt.
            timings = replace(timings, cache_n=min(timings.cache_n, self._prompt))
        prefilled = 0
        if timings is not None:
            # The last id that was held may not be told of. If the slot is lost, so is what was processed ahead of time.
            prefilled = max(min(conversation.spliced.prefilled, timings.cache_n + 1 - conversation.held), 0)
            timings = timings.counting(prefilled)
        stats = GenerationFinished(
            prompt=self._prompt,
            generated=len(self._ids),
            reinjected_leaf=conversation.spliced.leaf,
            reinjected_shim=conversation.spliced.shim,
            scaffold=conversation.spliced.scaffold,
            held=conversation.held,
            timings=timings,
            ttft=self._ttft + conversation.spliced.seconds,
            guessed=self._guessed,
            reasoning=self._reasoned,
            prefilled=prefilled,
            prefilled_seconds=conversation.spliced.prefilled_seconds if prefilled else 0.0,
            moved=self._moved,
        )
        self._count(end, seconds)
        # The last id before a length limit was sampled, but not processed any more.
        conversation.held = len(conversation.ids) - (end is not None and end.reason == "length")
        conversation.spliced = Spliced()
        conversation.guessed = self._guessed
        stopped = end is None or end.reason == "stop"
        return GenerationResult(stopped, tuple(self._calls), len(self._shown), stats, self._stop.found)

    def _count(self, end: GenerationEnd | None, seconds: float) -> None:
        if end is None:
            return
        self._metrics.ids_repaired(repaired=end.repaired, ambiguous=end.ambiguous, missed=end.missed)
        self._metrics.generation_finished(
            prompt_n=end.timings.prompt_n,
            cache_n=end.timings.cache_n,
            generated=len(self._ids),
            ttft=self._ttft,
            seconds=seconds,
        )
        if self._conversation.guessed and not self._moved:
            self._metrics.guess_judged(right=end.timings.cache_n >= self._conversation.held)
