"""The agent: it opens, answers and remembers conversations.

Turns a request's messages into a conversation with its prompt, and a conversation into an answer (`turn.py`), using one
pool of engines and one proxy. It emits events and knows no HTTP.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gateway.agent.calls.request_tools import (
    EVERY_TOOL,
    NO_DEFERRAL,
    NO_TOOL,
    Deferral,
    Deferring,
    ToolOffers,
    ToolScope,
    aliases_of,
    check_left_out,
    find_forms,
    gathered,
    is_heavy,
    with_suggestions,
)
from gateway.agent.calls.runner import CallRunner
from gateway.agent.events import Emit, Finished, ToolFinished
from gateway.agent.generate.generation_options import FREE, ToolChoice, check_choice
from gateway.agent.results.large_results import SPECS
from gateway.agent.turn import ANSWER_ROOM, Answer, AnswerOptions
from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Asked, Conversation
from gateway.context.compose.recall import Recall
from gateway.context.history.template_messages import (
    begun_text,
    check_length,
    check_size,
    in_their_places,
    tool_definitions,
    with_readable_calls,
    with_tool_names,
    without_volatile,
)
from gateway.context.memory import ContextChange
from gateway.context.memory.defined_tools import ToolDigests
from gateway.engine.interface import Message
from gateway.engine.pool.engine_choice import home_key
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import NO_OPTIONS
from gateway.engine.start.ready_engine import ReadyEngine, checked_options, larger_context
from gateway.errors import ContextExceeded, TemplateRefused
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import TrajectoryLog
from gateway.proxy.caller import ANYBODY, Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Diagnostic

if TYPE_CHECKING:
    from gateway.context.shared_conversations import SharedMemory
    from gateway.observe.tracing import Tracing


class Agent:
    """Answers requests with one pool of engines and one proxy."""

    def __init__(
        self,
        pool: EnginePool,
        calls: CallRunner,
        limits: LimitsConfig,
        metrics: Metrics,
        *,
        show_calls: bool = False,
        defer_client_tools: Deferring = "auto",
        suggested_tools: int = 3,
        volatile: Sequence[str] = (),
        trajectories: TrajectoryLog | None = None,
        shared: "SharedMemory | None" = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        """`volatile`: see `EngineConfig`; `show_calls`, `defer_client_tools`, `suggested_tools`: see `AgentConfig`.

        `shared`: what other replicas remember; None: replicas share nothing.
        `tracing`: makes a span for each generation; None: there are none.
        """
        self._pool = pool
        self._calls = calls
        self._limits = limits
        self._metrics = metrics
        self._show_calls = show_calls
        self._defer_client_tools: Deferring = defer_client_tools
        self._suggested_tools = suggested_tools
        self._tracing = tracing
        self._volatile = re.compile("|".join(f"(?:{pattern})" for pattern in volatile)) if volatile else None
        self._digests = ToolDigests()
        self.recall = Recall(limits, metrics, trajectories, shared)

    async def open(
        self,
        messages: Sequence[Message],
        *,
        choice: ToolChoice = FREE,
        client_tools: Sequence[ToolSpec] = (),
        deferral: Deferral = NO_DEFERRAL,
        gateway_tools: ToolScope = EVERY_TOOL,
        principal: Principal = ANYBODY,
        options: Mapping[str, object] = NO_OPTIONS,
        continues: bool = False,
        model: str | None = None,
        changes: Sequence[ContextChange] = (),
    ) -> Conversation:
        """The conversation that `messages` (see `context/history/client_messages.py`) begin, as prompt ids.

        The gateway's own tools are those that `principal` may call and `gateway_tools` holds.
        `deferral`: which of the client's tools are defined only where the model finds them.
        `options`: variables for the chat template; those that it does not use are left out.
        `continues`: the answer continues the last message, which is the model's own; this is not remembered.
        `model`: the model that is asked for, where there are several.
        `changes`: what was taken out of the messages.

        Raises `EngineUnavailable`, `MapDiffers`, `TemplateRefused`, `ModelUnknown`, and `ContextExceeded` when the
        conversation does not fit.
        """
        ready = self._pool.ready(model)
        if options:
            ready = ready.with_options(checked_options(options, ready.token_map, "chat_template_kwargs"))
        names, offers = frozenset(tool.name for tool in client_tools), self._calls.offers
        entries = offers.entries(principal)
        if entries and (aliases := aliases_of(entries, besides=names)):
            choice, messages = choice.renamed(aliases), with_tool_names(messages, aliases)
        named = choice.names or ()
        ours = offers.divide(entries, ready.facts.context, named, gateway_tools)
        digests = self._digests
        offered = gathered(
            *(ours, client_tools, deferral, named, ready.facts.context, self._defer_client_tools, digests)
        )
        tools = offered.tools
        check_choice(choice, tools)
        if offered.search is not None:
            messages, offered = await with_suggestions(
                messages, offered, digests, self._suggested_tools, ready.facts.context, choice.allows
            )
        check_size(messages, ready.facts.context)
        check_length(sum(digests.of(tool)[1] for tool in tools), ready.facts.context, "tools")
        messages, begun = (messages[:-1], begun_text(messages)) if continues else (messages, "")
        messages, unreadable = with_readable_calls(without_volatile(messages, self._volatile))
        owner_of = partial(offers.server_of, besides=names)
        # A single engine without sessions has no use for it.
        homed = self._pool.several or ready.facts.can.sessions
        home = home_key(principal.name, messages) if homed else b""

        async def made_with(ready: ReadyEngine) -> Conversation:
            placed = await in_their_places(messages, ready.template)
            check_left_out(named, tools, ready)
            odd = (Diagnostic("definition", fault.message) for fault in ready.forms.faults(tools, owner_of))
            asked = Asked(
                ready.tool_format.format,
                ready.forms.offered(tools),
                deferred=offered.deferred,
                digests=digests,
                search=offered.search,
                result_tools=SPECS if gateway_tools != NO_TOOL else (),
                client_tools=names,
                principal=principal,
                server_of=offers.server_of,
                may_call=choice.mode != "none",
                model=model,
                home=home,
                diagnostics=(*unreadable, *odd, *((offered.note,) if offered.note is not None else ())),
            )
            return await self.recall.begin(asked, ready, placed, remembered=not continues)

        async def begun_with(ready: ReadyEngine) -> Conversation:
            try:
                return await made_with(ready)
            except TemplateRefused:
                if not await find_forms(tools, ready, owner_of):
                    raise
            return await made_with(ready)

        conversation = await self._pool.open(ready, home, begun_with)
        conversation.note_changes(*changes)
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
        """Make calls of the gateway's tools, all of which a client has approved; return what the model is told of each.

        `conversation`: the one that will hold their results; `scope`: the tools that the client wants.
        """
        ready, principal = conversation.ready, conversation.asked.principal
        offered = self.offers.specs(principal, scope)
        async with self._calls.running(offered, principal, ready.token_map.map_id, approved=True) as running:
            for call in calls:
                running.start(call)
        outcomes = await running.finished(ready.token_map, max(conversation.room - ANSWER_ROOM, 0))
        return [(ready.token_map.decode(outcome.ids), outcome.finished) for outcome in outcomes]

    async def answer(self, conversation: Conversation, options: AnswerOptions, emit: Emit) -> Finished:
        """Generate, call and splice until the answer is complete; every event goes to `emit`, `Finished` last.

        Raises `EngineUnavailable` and `EngineRefused` when the engine fails; what was emitted before stands.
        """
        shows = self._show_calls if options.show_calls is None else options.show_calls
        answer = Answer(
            *(self._calls, self._limits, self._metrics, conversation, options, emit),
            show_calls=shows,
            tracing=self._tracing,
        )
        ended, shared, figures = "broken", None, None
        before = conversation.continuation.before
        known = None if before is None else before.engine
        try:
            with self._pool.stay(conversation.ready, conversation.asked.home, known) as conversation.stay:
                finished = await answer.run()
            ended = finished.reason
        finally:
            # Before anybody learns that the answer is complete: the next request may arrive at once.
            figures = answer.figures
            shared = self.recall.keep(conversation, ended, figures)
        if shared is not None:
            await shared
        if conversation.continuation.has_answers and figures is not None:
            await emit(figures)
        await emit(finished)
        return finished


def _too_long(conversation: Conversation) -> str:
    ready, asked = conversation.ready, conversation.asked
    words = (
        f"the conversation has {len(conversation.ids)} tokens; the engine's context holds {ready.facts.context}: "
        f"{larger_context(ready)}"
    )
    ours = [tool for tool in asked.tools if tool.name not in asked.client_tools]
    theirs = [tool for tool in asked.tools if tool.name in asked.client_tools]
    if taken := _heavy(theirs, ready):
        words += f". The definitions of the client's tools take about {taken} tokens: send fewer"
    if taken := _heavy(ours, ready):
        words += (
            f". The definitions of the gateway's tools take about {taken} tokens: offer fewer (`include`, `exclude`), "
            'or let the model search for them (`tool_search = "auto"`)'
        )
    return words


def _heavy(tools: Sequence[ToolSpec], ready: ReadyEngine) -> int:
    """Tokens of these definitions if they take much of the context, else 0."""
    written = json.dumps(tool_definitions(tools), ensure_ascii=False).encode("utf-8", "replace").decode()
    taken = len(ready.token_map.encode(written)) if tools else 0
    return taken if is_heavy(taken, ready.facts.context) else 0
