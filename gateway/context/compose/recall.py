"""Conversations of one gateway from request to request: continued from what is remembered, kept, and compared.

Joins the memory, the prompt and the reasons for lost ids for the agent; which remembered conversation a request
continues is decided in `memory/conversation_memory.py`. What is kept of a finished answer, its trajectory and the
record of how it was made, only where somebody asks for them, is made here too. For the operator it keeps figures of the
last requests that continued a conversation, and no text except the few words around what a client changed.
"""

import json
import secrets
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Asked, Context, Continuation, Conversation, Observer, readable
from gateway.context.compose.id_sources import DefinitionCache, span_without_tool
from gateway.context.compose.prompt import Composer, with_texts
from gateway.context.memory import (
    NO_TOOLS,
    SUMMARY,
    AnswerRecord,
    ConversationMemory,
    History,
    KeptResult,
    Miss,
    Misses,
    Recalled,
    Remembered,
    RequestFigures,
    root_digest,
)
from gateway.context.memory import recalled as continued
from gateway.context.memory.defined_tools import are_replaced, completed, with_definitions
from gateway.engine.interface import Message, shared_prefix
from gateway.engine.pool.pool import Stay
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.observe.logs import get_logger
from gateway.observe.trajectories import Span, TrajectoryAnswer, TrajectoryLog

if TYPE_CHECKING:
    from gateway.context.shared_conversations import SharedMemory

_LINES: Final = 64

log = get_logger("agent")


class FiguresMetrics(Protocol):
    """Counts the tokens of requests."""

    def request_answered(self, *, prompt: int, cached: int) -> None:
        """A request had `prompt` prompt tokens, and `cached` of them came from the cache."""
        ...

    def prompt_ids_lost(self, reason: str, n: int) -> None:
        """A request processed `n` ids again that the engine had held for its conversation."""
        ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """One request that continued a conversation."""

    when: datetime
    principal: str
    conversation: int | None
    """The conversation's number; None where the answer is not remembered and continues from nothing."""
    answer_id: str
    figures: RequestFigures


class Recall:
    """What is remembered by one gateway."""

    def __init__(
        self,
        limits: LimitsConfig,
        metrics: FiguresMetrics,
        trajectories: TrajectoryLog | None = None,
        shared: "SharedMemory | None" = None,
    ) -> None:
        """`shared`: what other replicas remember; None: replicas share nothing."""
        self._memory = ConversationMemory(limits.memory_bytes * 7 // 8, limits.principal_share)
        self._misses = Misses(limits.memory_bytes // 8)
        self._metrics = metrics
        self._trajectories = trajectories
        self._shared = shared
        self._keys = [secrets.token_bytes(32)] if shared is None else shared.keys
        self._last: deque[Comparison] = deque(maxlen=_LINES)
        self._definitions = DefinitionCache()
        self._numbers = count()
        """Numbers for new conversations."""
        self._watched: Callable[[], bool] = lambda: False
        """Whether somebody is watching; until `watch` is called, nobody is."""

    async def begin(
        self, asked: Asked, ready: ReadyEngine, messages: Sequence[Message], *, remembered: bool = True
    ) -> Conversation:
        """Return the conversation that messages begin, continuing what is remembered of it.

        `remembered`: whether its answer will be; if not, it continues nothing.

        Raises `EngineUnavailable`, `MapDiffers`, `TemplateRefused`.
        """
        if not remembered:
            defined = completed(NO_TOOLS, messages, 0, asked)
            if defined.later:
                defined = await with_texts(defined, ready)
                messages = with_definitions(messages, defined)
            context = await Composer(asked, ready, defined).begin(messages)
            return Conversation(asked, Stay(ready), context, defined=defined)
        history = History(self._root(asked, ready, self._keys[0]), messages)
        recalled = await self._recalled(asked, ready, history)
        watched = self.is_watched
        observer = None
        if self._trajectories is not None or watched:
            observer = Observer(watched, self._trajectories is not None and self._trajectories.logprobs)
        composer = Composer(asked, ready, NO_TOOLS, history, None if observer is None else self._definitions)
        if recalled is not None:
            replaced = are_replaced(recalled.last.tools, asked, ready.facts.context)
            found = None if replaced else await self._continued(composer, history, recalled)
            miss = Miss("tools_changed", recalled.last.held) if replaced else None if found else _refused(recalled)
        else:
            found, miss = None, self._miss(asked, history) if history.answers else None
        inherited = () if found else self._inherited(asked, history)
        composer, context, continuation = found or await self._begun(composer, history, miss, inherited)
        held = 0 if continuation.before is None else continuation.before.held
        results = inherited if continuation.before is None else continuation.before.results
        return Conversation(asked, Stay(ready), context, continuation, composer.defined, results, observer, held=held)

    async def _begun(
        self, composer: Composer, history: History, miss: Miss | None, inherited: Sequence[KeptResult]
    ) -> tuple[Composer, Context, Continuation]:
        asked = composer.asked
        defined = completed(NO_TOOLS, history.messages, 0, asked)
        if inherited:
            defined = defined.having(asked.result_tools, _place_of_summary(history.messages), asked.digests)
        messages: Sequence[Message] = history.messages
        if defined.later:
            defined = await with_texts(defined, composer.ready)
            messages = with_definitions(messages, defined)
        composer = replace(composer, defined=defined)
        return composer, await composer.begin(messages), Continuation(history, miss=miss)

    def _inherited(self, asked: Asked, history: History) -> tuple[KeptResult, ...]:
        """The results of the conversation that the history's summary stands for."""
        place = _place_of_summary(history.messages)
        if place < 0:
            return ()
        node = self._memory.summed_up(asked.principal.name, history.messages[place][SUMMARY])
        return () if node is None or not readable(node.results, asked) else node.results

    def sum_up(self, conversation: Conversation, text: str) -> None:
        """Note that a text stands for a conversation, so that its results are found behind it."""
        history, results = conversation.continuation.history, conversation.results
        digest = history.with_answer(conversation.lived.shown) if history is not None and results else b""
        if (node := self._memory.same(digest, conversation.answer_id)) is not None:
            self._memory.sum_up(node, text)

    async def _continued(
        self, composer: Composer, history: History, recalled: Recalled
    ) -> tuple[Composer, Context, Continuation] | None:
        """What continues a remembered answer; None where the template refuses what was lived."""
        last, asked, messages = recalled.last, composer.asked, history.messages
        ran = {str(each.message["tool_call_id"]) for each in last.lived if each.turn is None}
        defined = completed(last.tools, messages, last.place + 1, asked, ran)
        if defined.later:
            defined = await with_texts(defined, composer.ready)
            recalled = continued(last, with_definitions(messages, defined))
        composer = replace(composer, defined=defined)
        ids = last.ids()
        context = await composer.go_on(recalled, ids)
        if context is None:
            return None
        kept = shared_prefix(ids, context.ids)
        if context.sources is not None:
            context.sources.keep(min(kept, last.original_ids))
        return composer, context, Continuation(history, last, kept)

    async def _recalled(self, asked: Asked, ready: ReadyEngine, history: History) -> Recalled | None:
        owner, schemas = asked.principal.name, asked.schemas

        def lacks(node: Remembered) -> tuple[int, int]:
            return node.tools.lacks(asked.digests.all_of(asked.tools))

        recalled = self._memory.recall(owner, history, schemas, lacks)
        behind = -1 if recalled is None else recalled.last.place
        if self._shared is None or not history.answers or history.answers[-1][0] <= behind:
            return recalled
        # Under earlier secrets the same history has other digests.
        others = [History(self._root(asked, ready, key), history.messages) for key in self._keys[1:]]
        more = await self._shared.recall(self._memory, owner, [history, *others], behind, self._numbers.__next__)
        return self._memory.recall(owner, history, schemas, lacks) if more else recalled

    def keep(self, conversation: Conversation, ended: str, figures: RequestFigures | None) -> Awaitable[object] | None:
        """Remember a finished answer, write its trajectory, and count its tokens. `ended`: how it ended.

        Returns what can be awaited until the answer is in the shared store; None: it is not written there.
        """
        if self._trajectories is not None and (answer := answer_of(conversation, ended)) is not None:
            self._trajectories.record(answer)
        # Whoever was watching when the answer began may have left since.
        record = record_of(conversation, ended, figures) if self.is_watched else None
        node, history = (
            _remember(self._memory, self._numbers.__next__, conversation, record, figures),
            conversation.continuation.history,
        )
        if node is not None and history is not None:
            messages = [*history.messages, node.shown.message]
            self._misses.note(node.number, node.owner, history.root, messages, node.held)
        if figures is not None:
            self._note(conversation, node or conversation.continuation.before, figures)
        return None if node is None or self._shared is None else self._shared.keep(node)

    def _note(self, conversation: Conversation, node: Remembered | None, figures: RequestFigures) -> None:
        """Count the tokens of a request, and list it if it continued a conversation."""
        self._metrics.request_answered(prompt=figures.prompt, cached=figures.cached)
        if not conversation.continuation.has_answers:
            return
        number = None if node is None else node.number
        self._last.append(
            Comparison(datetime.now(UTC), conversation.asked.principal.name, number, conversation.answer_id, figures)
        )
        if (loss := figures.loss) is not None:
            self._metrics.prompt_ids_lost(loss, figures.recomputed)
            miss = figures.recall_miss
            place = {} if miss is None else {"message": miss.message, "at": miss.at}
            log.info("cached tokens were recomputed", reason=loss, tokens=figures.recomputed, **place)

    @property
    def changes(self) -> tuple[int, datetime | None]:
        """A value that changes whenever what can be reported of conversations does."""
        return self._memory.changes, self._last[-1].when if self._last else None

    def last(self) -> list[Comparison]:
        """The last requests that continued conversations and whose figures are known, the latest first."""
        return list(reversed(self._last))

    def watch(self, watched: Callable[[], bool]) -> None:
        """Record how each answer is made, if somebody is watching (`watched`) both when it begins and when it ends."""
        self._watched = watched

    def forget_records(self) -> None:
        """Forget how answers were made; keep the answers."""
        self._memory.forget_records()

    @property
    def is_watched(self) -> bool:
        """Whether somebody is watching."""
        return self._watched()

    def conversations(self, most: int) -> list[Remembered]:
        """The last answers of the remembered conversations of all principals, the latest first; at most `most`."""
        return self._memory.conversations(most)

    def branches(self, number: int) -> list[Remembered]:
        """The last answer of each branch of one conversation, the latest first; empty where none is remembered."""
        return self._memory.branches(number)

    def last_user_text(self, number: int) -> str | None:
        """The text of the last user message of a conversation; None where it is no longer kept."""
        return self._misses.last_user_text(number)

    def _miss(self, asked: Asked, history: History) -> Miss:
        lost = self._memory.forgotten(history)
        if lost is not None:
            return Miss("memory_full", results_lost=lost)
        return self._misses.explain(asked.principal.name, history.root, history.messages)

    def _root(self, asked: Asked, ready: ReadyEngine, key: bytes) -> bytes:
        """A digest of what two histories must have in common besides their messages."""
        options = json.dumps(ready.template.options) if ready.template.options else ""
        return root_digest(key, asked.principal.name, ready.token_map.map_id, ready.facts.chat_template, options)


def _place_of_summary(messages: Sequence[Message]) -> int:
    return next((place for place, message in enumerate(messages) if SUMMARY in message), -1)


def _refused(recalled: Recalled) -> Miss:
    """Why a remembered conversation is rendered from its client's messages."""
    lost = any(turn.lived is not None and turn.lived.turn is None for turn in recalled.lived)
    return Miss("template_rewrote", recalled.last.held, results_lost=lost)


def _remember(
    memory: ConversationMemory,
    number: Callable[[], int],
    conversation: Conversation,
    record: AnswerRecord | None,
    figures: RequestFigures | None,
) -> Remembered | None:
    """Keep a finished answer, however it ended, if its client can continue it.

    `number`: gives the number for a new conversation; `record`: how the answer was made.
    """
    lived, history, last = conversation.lived, conversation.continuation.history, conversation.lived.last
    if history is None or last is None or not lived.whole:
        return None
    before, kept, shown = conversation.continuation.before, conversation.continuation.kept, lived.shown
    # `kept` ids are the beginning of the prompt; the last turn follows the rest of it.
    added = array("I", conversation.ids[kept : lived.start]) + last.ids
    node = Remembered(
        owner=conversation.asked.principal.name,
        before=before,
        place=len(history.messages),
        shown=shown,
        # The form is read here, where no call is waiting for its result.
        lived=tuple(each.formed(conversation.ready.token_map) for each in lived.messages),
        kept=kept,
        added=added,
        held=min(conversation.held, kept + len(added)),
        engine=conversation.ready.number,
        engine_name=conversation.ready.name,
        number=before.number if before is not None else number(),
        answer_id=conversation.answer_id,
        original_ids=lived.start + last.own,
        model=conversation.ready.facts.model,
        map_id=conversation.ready.token_map.map_id,
        made=monotonic(),
        # The words around what a client changed are kept only while somebody is watching.
        figures=None if figures is None else replace(figures, recall_miss=None),
        record=record,
        tools=conversation.defined,
        results=conversation.results,
        strangers=history.strangers(before.place + 1 if before is not None else 0, len(history.messages)),
    )
    memory.remember(node, history.with_answer(shown))
    return node


def answer_of(conversation: Conversation, ended: str) -> TrajectoryAnswer | None:
    """Return the trajectory's line for a finished answer; None where none is to be written."""
    sources, observer, ready = conversation.context.sources, conversation.observer, conversation.ready
    if sources is None or observer is None or not observer.sampled:
        return None
    before = conversation.continuation.before
    return TrajectoryAnswer(
        answer_id=conversation.answer_id,
        before=None if before is None else before.answer_id,
        principal=conversation.asked.principal.name,
        map_id=ready.token_map.map_id,
        model=ready.facts.model,
        ended=ended,
        kept=sources.kept,
        ids=array("I", conversation.ids[sources.kept :]),
        spans=sources.spans,
        sampled=observer.sampled,
    )


def record_of(conversation: Conversation, ended: str, figures: RequestFigures | None) -> AnswerRecord | None:
    """Return the record of a finished answer, as it is remembered; None where nobody was watching."""
    sources, observer, last = conversation.context.sources, conversation.observer, conversation.lived.last
    if sources is None or observer is None or not observer.watched or last is None:
        return None
    # Its last turn may be remembered cut, as its client saw it.
    before = _cut(sources.spans, conversation.lived.start - sources.kept)
    spans = (*before, *(last.spans or (span_without_tool("model", len(last.ids)),)))
    miss = None if figures is None else figures.recall_miss
    return AnswerRecord(ended, sources.kept, spans, tuple(observer.generations), tuple(observer.calls), miss)


def _cut(spans: list[Span], count: int) -> list[Span]:
    """The spans of the first `count` ids."""
    cut: list[Span] = []
    for span in spans:
        if count <= span.count:
            return [*cut, span.of(count)] if count > 0 else cut
        cut.append(span)
        count -= span.count
    return cut
