"""The turn: from a request to its answer, through as many generations and tool calls as it takes.

This is the data path of docs/architecture.md in one place. It builds the prompt, generates, runs the calls of the
gateway's tools, splices their ids and generates again, until the model is done, a limit is reached, or a call belongs
to the client. It speaks in events and knows no HTTP.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.agent.calls import CallRunner, FinishedCall, RunningCalls
from gateway.agent.choice import FREE, Hold, ToolChoice, check_choice, hold_for
from gateway.agent.conversation import Conversation
from gateway.agent.events import Emit, Finished, FinishReason, GenerationFinished, IdsSpliced, ToolFinished
from gateway.agent.generation import Generation, GenerationOptions, GenerationResult
from gateway.agent.history import begun_text, check_size, tool_definitions, without_volatile
from gateway.agent.late_system import in_their_places
from gateway.agent.offers import EVERY_TOOL, ToolOffers, ToolScope, is_heavy
from gateway.agent.prefill import prefill
from gateway.agent.prompt import begin
from gateway.agent.recall import Recall
from gateway.agent.sources import spans_of_result
from gateway.agent.splices import fitted, parts_of
from gateway.config import LimitsConfig
from gateway.engine.interface import Message, Sampling
from gateway.engine.readiness import EngineRoute
from gateway.engine.template_options import NO_OPTIONS, checked_options
from gateway.errors import ContextExceeded, EngineUnavailable
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import Span, Trajectories
from gateway.proxy.caller import ANYBODY, Principal
from gateway.toolcalls import AnswerForm, CallClosed, ToolSpec

_ANSWER_ROOM = 64
"""Ids of context that results leave to the model's answer."""


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What a client may ask of one answer."""

    choice: ToolChoice = FREE
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    stops: tuple[str, ...] = ()
    parallel: bool | None = None
    """Whether a turn may hold more than one call. Not said: a constrained one may not, a free one may."""
    form: AnswerForm | None = None
    """What the answer's text must be; a turn that calls has none."""
    ids: bool = False
    """Whether the ids of the context are told as events too."""
    show_calls: bool | None = None
    """Whether calls that the gateway runs are part of the answer too; None: as the configuration has it."""
    tell_calls: bool = False
    """Whether their events come although they are no part of it, for APIs that have another place for them. A call
    that `choice` does not allow is told by its `ToolFinished` alone."""
    logprobs: int | None = None
    """How many of the likeliest ids are told with each that content was read from (`ContentSampled`); None: nothing."""
    max_calls: int | None = None
    """How many calls the gateway may make; it answers those beyond without making them."""


class Agent:
    """Answers requests with one engine and one proxy."""

    def __init__(
        self,
        route: EngineRoute,
        calls: CallRunner,
        limits: LimitsConfig,
        metrics: Metrics,
        *,
        hold_calls: bool = False,
        show_calls: bool = False,
        volatile: Sequence[str] = (),
        trajectories: Trajectories | None = None,
    ) -> None:
        """`hold_calls`, `volatile`: see `EngineConfig`; `show_calls`: see `AgentConfig`."""
        self._route = route
        self._hold_calls = hold_calls
        self._calls = calls
        self._limits = limits
        self._metrics = metrics
        self._show_calls = show_calls
        self._volatile = re.compile("|".join(f"(?:{pattern})" for pattern in volatile)) if volatile else None
        self.recall = Recall(limits, metrics, trajectories)

    async def open(
        self,
        messages: Sequence[Message],
        *,
        choice: ToolChoice = FREE,
        client_tools: Sequence[ToolSpec] = (),
        gateway_tools: ToolScope = EVERY_TOOL,
        principal: Principal = ANYBODY,
        bare: bool = False,
        options: Mapping[str, object] = NO_OPTIONS,
        continues: bool = False,
    ) -> Conversation:
        """The conversation that `messages` (see `history.checked_messages`) begin, as prompt ids.

        The gateway's own tools are those that `principal` may call and `gateway_tools` holds. `bare`: without them, and
        remembered by nobody. `options`: what the chat template is to be told; those that it does not name are left out.
        `continues`: the answer goes on with the last message, the model's own; it is remembered by nobody either.

        Raises `EngineUnavailable`, `MapDiffers`, `TemplateRefused`, and `ContextExceeded` when it does not fit.
        """
        ready = self._route.ready()
        if options:
            ready = ready.with_options(checked_options(options, ready.token_map, "chat_template_kwargs"))
        ours = () if bare else self._calls.offers.to(principal, ready.facts.context, choice.names or (), gateway_tools)
        tools = _merged(ours, client_tools)
        check_choice(choice, tools)
        check_size(messages, ready.facts.context)
        messages, begun = (messages[:-1], begun_text(messages)) if continues else (messages, "")
        messages = await in_their_places(without_volatile(messages, self._volatile), ready.template)
        names = frozenset(tool.name for tool in client_tools)
        fmt = ready.tool_format.format
        conversation = Conversation(ready, fmt, tools, [], names, principal, may_call=choice.may_call)
        await (begin(conversation, messages) if bare or continues else self.recall.begin(conversation, messages))
        if begun:
            conversation.begin_turn(begun)
        if conversation.room <= 0:
            raise ContextExceeded(_too_long(conversation), len(conversation.ids), ready.facts.context)
        return conversation

    @property
    def offers(self) -> ToolOffers:
        """The gateway's tools."""
        return self._calls.offers

    async def call(
        self, calls: Sequence[CallClosed], conversation: Conversation, scope: ToolScope
    ) -> list[tuple[str, ToolFinished]]:
        """Make calls of the gateway's tools that a client has approved; gives what the model is told of each.

        `conversation`: the one that their results will stand in; `scope`: the tools that the client wants.
        """
        ready, principal = conversation.ready, conversation.principal
        offered = self.offers.specs(principal, scope)
        async with self._calls.running(offered, principal, ready.token_map.map_id) as running:
            for call in calls:
                running.start(call)
        outcomes = running.finished(ready.token_map, max(conversation.room - _ANSWER_ROOM, 0))
        return [(ready.token_map.decode(outcome.ids), outcome.finished) for outcome in outcomes]

    async def answer(self, conversation: Conversation, options: AnswerOptions, emit: Emit) -> Finished:
        """Generate, call and splice until the answer is complete; every event goes to `emit`, `Finished` last.

        Raises `EngineUnavailable` and `EngineRefused` when the engine fails; what was emitted before stands.
        """
        shows = self._show_calls if options.show_calls is None else options.show_calls
        answer = _Answer(
            *(self._calls, self.recall, self._limits, self._metrics, conversation, options, emit),
            hold_calls=self._hold_calls,
            show_calls=shows,
        )
        ended = "broken"
        try:
            finished = await answer.run()
            ended = finished.reason
        except EngineUnavailable:
            self._route.report_loss()
            raise
        finally:
            self.recall.keep(conversation, ended)
        return finished


class _Answer:
    """The state of one answer."""

    def __init__(
        self,
        calls: CallRunner,
        recall: Recall,
        limits: LimitsConfig,
        metrics: Metrics,
        conversation: Conversation,
        options: AnswerOptions,
        emit: Emit,
        *,
        hold_calls: bool,
        show_calls: bool,
    ) -> None:
        self._runner = calls
        self._recall = recall
        self._limits = limits
        self._metrics = metrics
        self._conversation = conversation
        self._options = options
        self._emit = emit
        self._hold_calls = hold_calls
        self._show_calls = show_calls
        self._budget = options.max_tokens or limits.completion_tokens
        self._choice = options.choice
        self._called = 0
        self._made = 0
        self._generations: list[GenerationFinished] = []

    async def run(self) -> Finished:
        reason: FinishReason = "length"
        stop: str | None = None
        for turn in range(self._limits.turns):
            last = turn == self._limits.turns - 1
            held = self._conversation
            map_id = held.ready.token_map.map_id
            async with self._runner.running(held.tools, held.principal, map_id, self._choice.allows) as calls:
                result = await self._generate(None if last else calls)
                mixed = result.stopped and any(map(self._is_client_s, result.calls))
                if last and mixed:
                    for call in result.calls:
                        self._start_ours(call, calls)
                if result.stopped and result.calls and not (last or mixed):
                    await prefill(held, calls, held.room - _ANSWER_ROOM, self._metrics)
            # All calls that were started are over here. The client's choice of a call is for the first generation.
            self._choice = self._choice.after_first()
            if mixed:
                # The client answers its own calls; it finds ours answered when it comes back.
                await self._tell(calls.finished(self._conversation.ready.token_map, self._context))
                reason = "tool_calls"
                break
            if not result.stopped or not result.calls:
                # What a limit cut off may have had whole calls before it; they have run, and are told.
                await self._tell(calls.finished(self._conversation.ready.token_map, 0))
                reason, stop = "stop" if result.stopped else "length", result.stop
                break
            if last or not await self._splice(calls) or self._left() <= 0:
                break
        finished = self._finished(reason, stop)
        await self._emit(finished)
        return finished

    async def _generate(self, calls: RunningCalls | None) -> GenerationResult:
        """Generate once. `calls` runs each call of ours from when it is closed; None: none is run yet."""

        def start(call: CallClosed, room: int) -> None:
            if calls is not None and room > _ANSWER_ROOM:
                self._start_ours(call, calls)

        options = GenerationOptions(
            max_tokens=self._left(),
            sampling=self._options.sampling,
            hold=self._hold(),
            stops=self._options.stops,
            one_call=self._options.parallel is False,
            ids=self._options.ids,
            logprobs=self._options.logprobs,
            first_index=self._called,
            tells=lambda name: self._shows(name) or (self._options.tell_calls and self._choice.allows(name)),
            shows=self._shows,
            on_call=start,
        )
        result = await Generation(self._conversation, options, self._emit, self._metrics).run()
        self._generations.append(result.stats)
        self._called += result.started
        if len(self._generations) == 1 and (told := self._recall.compare(self._conversation, result.stats.timings)):
            await self._emit(told)
        await self._emit(result.stats)
        return result

    def _shows(self, name: str) -> bool:
        return self._choice.allows(name) and (self._show_calls or name in self._conversation.client_tools)

    def _is_client_s(self, call: CallClosed) -> bool:
        # One of them that may not be called now is answered here, as what is no tool at all is.
        return self._choice.allows(call.name) and call.name in self._conversation.client_tools

    def _start_ours(self, call: CallClosed, calls: RunningCalls) -> None:
        most = self._options.max_calls
        if self._is_client_s(call):
            return
        if most is not None and self._made >= most:
            calls.refuse(call, f"this answer may make {most} calls, which have been made; answer without another")
            return
        self._made += 1
        calls.start(call)

    @property
    def _context(self) -> int:
        return self._conversation.ready.facts.context

    def _left(self) -> int:
        """Ids that may still be generated: the client's limit over the whole answer, and the context."""
        return min(self._budget - sum(g.generated for g in self._generations), self._conversation.room)

    def _hold(self) -> Hold | None:
        """What holds the next generation."""
        parallel, form = self._options.parallel, self._options.form
        return hold_for(self._conversation, self._choice, parallel=parallel, always=self._hold_calls, form=form)

    async def _splice(self, calls: RunningCalls) -> bool:
        """Tell the results of all calls and splice them in the calls' order; False when there is no room for them."""
        conversation = self._conversation
        scaffold = await conversation.around_results()
        room = conversation.room - scaffold.size - _ANSWER_ROOM
        outcomes = calls.finished(conversation.ready.token_map, max(room, 0))
        if room > 0:
            scaffold, outcomes = await fitted(conversation, scaffold, outcomes, self._runner.share(room, len(outcomes)))
        await self._tell(outcomes)
        if room <= 0:
            return False
        conversation.splice(scaffold, [outcome.ids for outcome in outcomes], [*map(self._sources, outcomes)])
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
            sources = self._sources(outcome)
            self._conversation.lived.add_result(finished.call_id, finished.name, outcome.ids, sources)
            await self._emit(finished)

    def _sources(self, outcome: FinishedCall) -> tuple[Span, ...]:
        if self._conversation.trail is None:
            return ()
        return spans_of_result(outcome, self._runner.ledger.server_of(outcome.finished.name))

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


def _too_long(conversation: Conversation) -> str:
    context, tools = conversation.ready.facts.context, conversation.tools
    written = json.dumps(tool_definitions(tools), ensure_ascii=False).encode("utf-8", "replace").decode()
    taken = len(conversation.ready.token_map.encode(written)) if tools else 0
    words = f"the conversation has {len(conversation.ids)} tokens; the engine's context holds {context}"
    if not is_heavy(taken, context):
        return words
    return (
        f"{words}. The definitions of {len(tools)} tools take about {taken} of them: send fewer, offer fewer "
        '(`include`, `exclude`), or let the model look for those of the gateway (`tool_search = "auto"`)'
    )


def _merged(ours: Sequence[ToolSpec], theirs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The gateway's tools and the client's; where names clash the client's counts, since it is told of that call."""
    names = {tool.name for tool in theirs}
    return (*theirs, *(tool for tool in ours if tool.name not in names))
