"""Conversations of one gateway from request to request: begun behind what is remembered, kept, and compared.

Puts the memory, the prompt and the reasons of what was lost together for the agent. Of each request that carries a
conversation on it keeps a line of figures, without any text, for who runs the gateway.
"""

import json
import secrets
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from gateway.agent.conversation import Conversation
from gateway.agent.events import PromptCompared
from gateway.agent.history import tool_definitions
from gateway.agent.memory import (
    AnswerRecord,
    ConversationMemory,
    History,
    Miss,
    Misses,
    Notes,
    Recalled,
    Remembered,
    root_digest,
    schemas_of,
)
from gateway.agent.prompt import begin, compared, new_number
from gateway.agent.records import note_prompt, record_of
from gateway.agent.sources import answer_of
from gateway.agent.trail import Trail
from gateway.config import LimitsConfig
from gateway.engine.interface import Message, Timings
from gateway.observe.logs import get_logger
from gateway.observe.trajectories import Trajectories

if TYPE_CHECKING:
    from gateway.agent.shared_memory import SharedMemory

_LINES: Final = 64

log = get_logger("agent")


class LossMetrics(Protocol):
    """Counts ids that were lost."""

    def prompt_ids_lost(self, reason: str, n: int) -> None:
        """A request processed `n` ids again that the engine had held for its conversation."""
        ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """One request that carried a conversation on."""

    when: datetime
    principal: str
    conversation: int | None
    """Its number; None where nothing was recalled."""
    told: PromptCompared


class Recall:
    """What is remembered by one gateway."""

    def __init__(
        self,
        limits: LimitsConfig,
        metrics: LossMetrics,
        trajectories: Trajectories | None = None,
        shared: "SharedMemory | None" = None,
    ) -> None:
        """`shared`: what other replicas remember; None: each has its own."""
        self._memory = ConversationMemory(limits.memory_bytes * 7 // 8, limits.principal_share)
        self._misses = Misses(limits.memory_bytes // 8)
        self._metrics = metrics
        self._trajectories = trajectories
        self._shared = shared
        self._keys = [secrets.token_bytes(32)] if shared is None else shared.keys
        self._last: deque[Comparison] = deque(maxlen=_LINES)
        self._watched: Callable[[], bool] = lambda: False
        """Whether somebody looks. Until it is told, nobody does."""

    async def begin(self, conversation: Conversation, messages: Sequence[Message]) -> None:
        """Give a conversation its prompt, behind what is remembered of it.

        Raises `EngineUnavailable`, `MapDiffers`, `TemplateRefused`.
        """
        history = conversation.history = History(self._root(conversation, self._keys[0]), messages)
        recalled = await self._recalled(conversation, history)
        if recalled is None and history.answers:
            conversation.miss = self._miss(conversation, history)
        watched = self.is_watched
        if self._trajectories is not None or watched:
            conversation.trail = Trail(self._trajectories is not None and self._trajectories.logprobs)
            conversation.notes = Notes() if watched else None
        await begin(conversation, history.messages, recalled)

    async def _recalled(self, conversation: Conversation, history: History) -> Recalled | None:
        owner, schemas = conversation.principal.name, schemas_of(conversation.tools)
        recalled = self._memory.recall(owner, history, schemas)
        behind = -1 if recalled is None else recalled.last.place
        if self._shared is None or not history.answers or history.answers[-1][0] <= behind:
            return recalled
        # By a secret that was exchanged it has other digests.
        others = [History(self._root(conversation, key), history.messages) for key in self._keys[1:]]
        more = await self._shared.recall(self._memory, owner, [history, *others], behind, new_number)
        return self._memory.recall(owner, history, schemas) if more else recalled

    def keep(self, conversation: Conversation, ended: str) -> Awaitable[object] | None:
        """Remember an answer that is over, and write its trajectory. `ended`: how.

        Gives what can be waited for until other replicas remember it too; None: none will.
        """
        if self._trajectories is not None and (answer := answer_of(conversation, ended)) is not None:
            self._trajectories.record(answer)
        # Who looked when it began may have gone since.
        record = record_of(conversation, ended) if self.is_watched else None
        node, history = _remember(self._memory, conversation, record), conversation.history
        if node is not None and history is not None:
            messages = [*history.messages, node.shown.message]
            self._misses.note(node.number, node.owner, history.root, messages, node.held)
        return None if node is None or self._shared is None else self._shared.keep(node)

    def compare(self, conversation: Conversation, timings: Timings | None) -> PromptCompared | None:
        """Say what the first prompt has found again and why not more; None where there was nothing to be found.

        `timings`: the engine's account as the principal may see it; None where it gave none.
        """
        if timings is None or conversation.history is None or not conversation.history.answers:
            return None
        told, before = compared(conversation, timings.cache_n), conversation.before
        number = None if before is None else before.number
        note_prompt(conversation, told)
        self._last.append(Comparison(datetime.now(UTC), conversation.principal.name, number, told))
        if told.lost and told.reason is not None:
            self._metrics.prompt_ids_lost(told.reason, told.lost)
            place = {} if told.miss is None else {"message": told.miss.message, "at": told.miss.at}
            log.info("ids of a prompt were lost", reason=told.reason, ids=told.lost, **place)
        return told

    @property
    def changes(self) -> tuple[int, datetime | None]:
        """What is another value once there is more or less to be told of conversations."""
        return self._memory.changes, self._last[-1].when if self._last else None

    def last(self) -> list[Comparison]:
        """The last requests that carried conversations on, the latest first."""
        return list(reversed(self._last))

    def watch(self, watched: Callable[[], bool]) -> None:
        """Keep with each answer how it was made, where somebody looks (`watched`) from its beginning to its end."""
        self._watched = watched

    def forget_records(self) -> None:
        """Keep the answers, and no longer how they were made."""
        self._memory.forget_records()

    @property
    def is_watched(self) -> bool:
        """Whether somebody looks."""
        return self._watched()

    def conversations(self, most: int) -> list[Remembered]:
        """The last answers of conversations that are remembered, of all principals, the latest first."""
        return self._memory.conversations(most)

    def branches(self, number: int) -> list[Remembered]:
        """The last answers of one conversation, the latest first; empty where nothing of it is remembered."""
        return self._memory.branches(number)

    def _miss(self, conversation: Conversation, history: History) -> Miss:
        lost = self._memory.forgotten(history)
        if lost is not None:
            return Miss("memory_full", results_lost=lost)
        return self._misses.explain(conversation.principal.name, history.root, history.messages)

    def _root(self, conversation: Conversation, key: bytes) -> bytes:
        """What two histories must have in common, besides their messages."""
        ready, tools = conversation.ready, json.dumps(tool_definitions(conversation.tools))
        if ready.template.options:
            tools += json.dumps(ready.template.options)
        return root_digest(key, conversation.principal.name, ready.token_map.map_id, ready.facts.chat_template, tools)


def _remember(memory: ConversationMemory, conversation: Conversation, record: AnswerRecord | None) -> Remembered | None:
    """Keep an answer that is over, however it ended, if its client can come back to it. `record`: how it was made."""
    lived, history, last = conversation.lived, conversation.history, conversation.lived.last
    if history is None or last is None or not lived.whole:
        return None
    before, shown = conversation.before, lived.shown
    # What is kept is a part of the prompt, and the last turn comes behind that.
    added = array("I", conversation.ids[conversation.kept : lived.start]) + last.ids
    node = Remembered(
        owner=conversation.principal.name,
        before=before,
        place=len(history.messages),
        shown=shown,
        # Read now, not between a call and its result.
        lived=tuple(each.formed(conversation.ready.token_map) for each in lived.messages),
        kept=conversation.kept,
        added=added,
        held=min(conversation.held, conversation.kept + len(added)),
        engine=conversation.ready.number,
        engine_name=conversation.ready.name,
        number=before.number if before is not None else new_number(),
        answer_id=conversation.answer_id,
        written=lived.start + last.own,
        model=conversation.ready.facts.model,
        map_id=conversation.ready.token_map.map_id,
        made=monotonic(),
        record=record,
        strangers=history.strangers(before.place + 1 if before is not None else 0, len(history.messages)),
    )
    memory.remember(node, history.with_answer(shown))
    return node
