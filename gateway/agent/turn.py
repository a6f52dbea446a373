"""The turn: from a prompt to its answer, through as many generations and tool calls as it takes.

This is the data path of docs/architecture.md in one place. It generates, runs the calls of the gateway's tools, splices
the ids of their results and generates again, until the model is done, a limit is reached, or a call belongs to the
client. A model that makes the same calls again although their results stay the same, as small models do, is told so
beside the result; if it makes them once more, it has to answer in words. It emits events and knows no HTTP.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.agent.calls.runner import CallRunner, FinishedCall, RunningCalls
from gateway.agent.calls.splices import fitted, parts_of, prefill, spans_of_result
from gateway.agent.calls.tool_finder import ToolFinder
from gateway.agent.events import Emit, Finished, FinishReason, GenerationFinished, IdsSpliced
from gateway.agent.figures import Reuse, changes_of, figures_of, note_call, note_generation, reuse_of
from gateway.agent.generate.engine_spans import traced
from gateway.agent.generate.generation import Generation, GenerationResult
from gateway.agent.generate.generation_options import FREE, GenerationOptions, ToolChoice, hold_for
from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Conversation
from gateway.context.memory import RequestFigures
from gateway.engine.interface import Sampling
from gateway.observe.metrics import Metrics
from gateway.proxy.result_tokens import IdPiece
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

NO_MORE = "no more calls may be made for this answer; answer without another"
"""What the model is told about calls beyond `max_calls`."""
ANSWER_ROOM = 64
"""Ids of context that results leave free for the model's answer."""
_SEEN: Final = "\n[You have made this call {count} times with the same result."
NOTE: Final = f"{_SEEN} Another one will not help: answer with what you have.]"
END_NOTE: Final = f"{_SEEN} No more calls can be made: answer in words, now.]"


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What a client may ask of one answer."""

    choice: ToolChoice = FREE
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    stops: tuple[str, ...] = ()
    parallel: bool | None = None
    """Whether a turn may hold more than one call. None: a turn with a required call may not, a free one may."""
    form: AnswerForm | None = None
    """The form that the answer's text must have; a turn that makes calls has none."""
    ids: bool = False
    """Whether the ids of the context are emitted as events too."""
    show_calls: bool | None = None
    """Whether calls that the gateway runs are part of the answer too; None: as configured."""
    tell_calls: bool = False
    """Whether their events are emitted even if they are not part of it, for APIs that have another place for them.
    For a call that `choice` does not allow, only `ToolFinished` is emitted."""
    logprobs: int | None = None
    """How many of the likeliest ids are reported for each id of the content (`ContentSampled`); None: nothing is."""
    asks: Callable[[CallClosed], bool] = lambda call: False
    """Whether the client has to approve a call of a gateway's tool: it ends the answer, like a call of the client's."""
    max_calls: int | None = None
    """How many calls the gateway may make; further calls are answered without being made. None: no limit."""


class Answer:
    """One answer being made. Make one, then `await run()` once."""

    def __init__(
        self,
        calls: CallRunner,
        limits: LimitsConfig,
        metrics: Metrics,
        conversation: Conversation,
        options: AnswerOptions,
        emit: Emit,
        *,
        show_calls: bool,
        tracing: "Tracing | None" = None,
    ) -> None:
        self._runner = calls
        self._limits = limits
        self._metrics = metrics
        self._conversation = conversation
        self._options = options
        self._emit = emit
        self._show_calls = show_calls
        self._tracing = tracing
        self._budget = options.max_tokens or limits.completion_tokens
        self._called = 0
        self._made = 0
        self._generations: list[GenerationFinished] = []
        self._reuse = Reuse()
        self._repeats = Repeats(limits.repeated_calls)
        asked = conversation.asked
        finds = bool(asked.deferred) or asked.search is not None
        self._finder = ToolFinder(conversation, limits.result_tokens) if finds else None
        self._choice = self._with_reads(options.choice)

    async def run(self) -> Finished:
        """Generate, call and splice until the answer is complete.

        Raises `EngineUnavailable` and `EngineRefused` when the engine fails; what was emitted before stands.
        """
        reason: FinishReason = "length"
        stop: str | None = None
        for diagnostic in self._conversation.asked.diagnostics:
            await self._emit(diagnostic)
        for turn in range(self._limits.turns):
            last = turn == self._limits.turns - 1
            held = self._conversation
            async with self._running() as calls:
                result = await self._generate(None if last else calls)
                mixed = result.stopped and any(map(self._is_client_s, result.calls))
                if last and mixed:
                    for call in result.calls:
                        self._start_ours(call, calls)
                if result.stopped and result.calls and not (last or mixed):
                    await prefill(held, calls, held.room - ANSWER_ROOM, self._metrics)
            # All calls that were started are over here.
            if mixed:
                # The client answers its own calls; when it comes back, ours are already answered.
                await self._tell(await calls.finished(self._conversation.ready.token_map, self._context))
                reason = "tool_calls"
                break
            if not result.stopped or not result.calls:
                # A generation that a limit cut off may have completed calls before: they have run, and the next request
                # continues with their results.
                room = max(self._conversation.room - ANSWER_ROOM, 0)
                await self._tell(await calls.finished(self._conversation.ready.token_map, room))
                reason, stop = "stop" if result.stopped else "length", result.stop
                break
            # A call that the client requires is for the first generation, or for the one after the model has searched
            # for tools.
            self._choice = self._with_reads(self._choice_after(result.calls))
            if last or not await self._splice(calls) or self._left() <= 0:
                break
        return self._finished(reason, stop)

    @property
    def figures(self) -> RequestFigures | None:
        """The figures of the generations that have finished."""
        return figures_of(self._generations, self._reuse, changes_of(self._conversation))

    async def _generate(self, calls: RunningCalls | None) -> GenerationResult:
        """Generate once. `calls` runs each of our calls as soon as it is closed; None: none is run yet."""

        def start(call: CallClosed, room: int) -> None:
            if calls is not None and room > ANSWER_ROOM:
                self._start_ours(call, calls)

        wanted, always = self._options, self._conversation.ready.settings.hold_calls
        options = GenerationOptions(
            max_tokens=self._left(),
            sampling=wanted.sampling,
            hold=hold_for(self._conversation, self._choice, parallel=wanted.parallel, always=always, form=wanted.form),
            stops=wanted.stops,
            one_call=wanted.parallel is False,
            ids=wanted.ids,
            logprobs=wanted.logprobs,
            first_index=self._called,
            tells=lambda name: self._shows(name) or self._tells(name),
            shows=self._shows,
            asks=self._is_client_s,
            on_call=start,
            words=self._repeats.are_over,
        )
        generation = Generation(self._conversation, options, self._emit, self._metrics)
        run = generation.run if self._tracing is None else partial(traced, self._tracing, generation)
        result = await run()
        self._generations.append(result.stats)
        note_generation(self._conversation, result.stats)
        self._called += result.started
        if len(self._generations) == 1 and result.stats.timings is not None:
            self._reuse = reuse_of(self._conversation, result.stats.timings.cache_n, result.in_slot)
        await self._emit(result.stats)
        return result

    def _shows(self, name: str) -> bool:
        # A call of a client's tool that was not found yet is answered here: the client must not make it, too.
        theirs = name in self._conversation.asked.client_tools
        return self._choice.allows(name) and (self._conversation.is_clients(name) if theirs else self._show_calls)

    def _tells(self, name: str) -> bool:
        """Whether events of a call that is not part of the answer are emitted."""
        theirs = name in self._conversation.asked.client_tools
        return self._options.tell_calls and self._choice.allows(name) and not theirs

    def _is_client_s(self, call: CallClosed) -> bool:
        # A client's tool that may not be called now is answered here, like a name that is not a tool at all.
        if not self._choice.allows(call.name):
            return False
        if self._conversation.is_clients(call.name):
            return True
        # One that was not found yet is not made, so nobody has to approve it.
        return self._conversation.has(call.name) and self._options.asks(call)

    def _choice_after(self, calls: Sequence[CallClosed]) -> ToolChoice:
        """The choice for the generations after one that made these calls."""
        finder = self._finder
        searched = finder is not None and bool(calls) and all(finder.finds(call.name) for call in calls)
        return self._choice if searched else self._choice.after_first()

    def _with_reads(self, choice: ToolChoice) -> ToolChoice:
        """The choice that also allows to read results: an allowed tool returned them."""
        reader = None if choice.names is None else self._runner.reader_of(self._conversation)
        return choice if reader is None else choice.also(reader.names)

    def _running(self) -> AbstractAsyncContextManager[RunningCalls]:
        """A context in which the calls of the next generation may be started."""
        if self._finder is not None:
            self._finder.begin()
        held, asked = self._conversation, self._conversation.asked
        rights = (held.tools, asked.principal, held.ready.token_map.map_id, self._choice.allows)
        return self._runner.running(*rights, finder=self._finder, conversation=held)

    def _start_ours(self, call: CallClosed, calls: RunningCalls) -> None:
        most = self._options.max_calls
        if self._is_client_s(call):
            return
        if most is not None and self._made >= most:
            calls.refuse(call, NO_MORE)
            return
        if call.flaw:
            calls.refuse(call, call.flaw)
            return
        self._made += 1
        calls.start(call)

    @property
    def _context(self) -> int:
        return self._conversation.ready.facts.context

    def _left(self) -> int:
        """Ids that may still be generated, by the client's limit on the whole answer and by the context."""
        return min(self._budget - sum(g.generated for g in self._generations), self._conversation.room)

    async def _splice(self, calls: RunningCalls) -> bool:
        """Report the results of all calls and splice them in the calls' order; False when there is no room for them."""
        conversation = self._conversation
        scaffold = await conversation.around_results()
        room = conversation.room - scaffold.size - ANSWER_ROOM
        outcomes = self._repeats.noted(
            await calls.finished(conversation.ready.token_map, max(room, 0)), conversation.ready.token_map
        )
        if self._repeats.are_over:
            self._choice = ToolChoice("none")
        if room > 0:
            most = [self._runner.share(room, len(outcomes), defines=bool(each.defined)) for each in outcomes]
            scaffold, outcomes = await fitted(conversation, scaffold, outcomes, most)
        await self._tell(outcomes)
        if room <= 0:
            return False
        conversation.splice(scaffold, [outcome.ids for outcome in outcomes], [*map(spans_of_result, outcomes)])
        if self._options.ids:
            await self._emit(IdsSpliced(parts_of(scaffold, outcomes)))
        for outcome in outcomes:
            conversation.spliced.leaf += outcome.finished.leaf_ids
            conversation.spliced.shim += outcome.finished.shim_ids
            conversation.spliced.seconds += outcome.ids_seconds
        self._count()
        return True

    async def _tell(self, outcomes: Sequence[FinishedCall]) -> None:
        for outcome in outcomes:
            finished = outcome.finished
            # Kept although nobody may be looking: whoever looks later finds the server.
            sources = spans_of_result(outcome)
            self._conversation.lived.add_result(finished.call_id, finished.name, outcome.ids, sources)
            self._conversation.define(outcome.defined)
            note_call(self._conversation, outcome)
            await self._emit(finished)

    def _count(self) -> None:
        spliced = self._conversation.spliced
        self._metrics.ids_spliced("leaf", spliced.leaf)
        self._metrics.ids_spliced("shim", spliced.shim)
        self._metrics.ids_spliced("scaffold", spliced.scaffold)

    def _finished(self, reason: FinishReason, stop: str | None) -> Finished:
        timings = [g.timings for g in self._generations if g.timings is not None]
        return Finished(
            reason=reason,
            prompt_ids=sum(g.prompt for g in self._generations),
            cached_ids=sum(t.cache_n for t in timings),
            completion_ids=sum(g.generated for g in self._generations),
            reasoning_ids=sum(g.reasoning for g in self._generations),
            stop=stop,
        )


class Repeats:
    """Counts the turns of one answer that made the same calls with the same results, one after another."""

    def __init__(self, most: int) -> None:
        """`most`: how many such turns there may be before the model is told; 0: it never is."""
        self._most = most
        self._last: list[tuple[str, str, object]] = []
        self._count = 0
        self.are_over = False
        """Whether the model was told and went on, so that it must answer in words."""

    def noted(self, outcomes: Sequence[FinishedCall], token_map: TokenMap) -> list[FinishedCall]:
        """Return the outcomes of the next turn, with a note beside the last if they are those of the turn before."""
        turn = [(one.finished.name, _canonical(one.finished.arguments), _result(one)) for one in outcomes]
        self._count = self._count + 1 if turn == self._last else 1
        self._last = turn
        self.are_over = 0 < self._most < self._count
        if not self._most or self._count < self._most:
            return [*outcomes]
        note = (END_NOTE if self.are_over else NOTE).format(count=self._count)
        return [*outcomes[:-1], _with_note(outcomes[-1], tuple(token_map.encode(note)))]


def _with_note(outcome: FinishedCall, ids: tuple[int, ...]) -> FinishedCall:
    finished = replace(outcome.finished, shim_ids=outcome.finished.shim_ids + len(ids))
    return replace(outcome, pieces=(*outcome.pieces, IdPiece(ids, "shim")), finished=finished)


def _result(outcome: FinishedCall) -> object:
    """What tells a result from others: of a kept one the model sees more once it can read on."""
    return outcome.ids if outcome.kept is None else outcome.kept.result.handle


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
