"""Conversations that other replicas remember: written to the shared store, and read where this replica knows less.

Turns an answer that is kept here into a record, written once the answer is complete, and a history that goes further
than what is remembered here into the missing answers, with one query. What comes back is accepted only where every
answer stands in the history at its place. The engine's number has a meaning only in the process that wrote it, and the
conversation's number is not written. Changing the layout of the bytes requires a new format of sealed values
(`gateway/shared/store_records.py`).
"""

import secrets
import sys
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from gateway.config import LimitsConfig
from gateway.context.memory import ConversationMemory, History, Remembered
from gateway.context.memory.defined_tools import DefinedTool, DefinedTools
from gateway.context.memory.message_digests import Call, Shown
from gateway.context.memory.remembered import NO_ENGINE, Lived, LivedTurn
from gateway.observe.trajectories import Span
from gateway.shared import Shared, StoreBounds, StoreRecord
from gateway.shared.store_interface import packed, unpacked
from gateway.toolcalls.stream.output_events import CallClosed

_LAST: Final = 64
"""How many of a history's last answers are looked up."""


class SharedMemory:
    """What all replicas remember."""

    def __init__(self, shared: Shared, keys: Sequence[bytes], limits: LimitsConfig, ttl: float) -> None:
        """`keys`: for the digests, the current one first; `ttl`: seconds for which an unused record is kept."""
        self.keys: Final = keys
        self._shared = shared
        self._bounds = StoreBounds.of(limits.memory_bytes, limits.principal_share, ttl)
        self._process = secrets.token_bytes(8)

    def keep(self, node: Remembered) -> Awaitable[object]:
        """Write an answer that is remembered here to the store. Returns what can be awaited until that is done."""
        return self._shared.keep("memory", node.owner, self._record(node), self._bounds, partial(self._before, node))

    async def recall(
        self,
        memory: ConversationMemory,
        owner: str,
        histories: Sequence[History],
        behind: int,
        number: Callable[[], int],
    ) -> bool:
        """Add the missing answers of a conversation to a memory. Returns whether any were found.

        Args:
            memory: where they are added.
            owner: the principal whose conversation it is.
            histories: the same history under each key.
            behind: the place of the last answer that is remembered here; -1: none is.
            number: returns the number for a conversation that is new here.
        """
        places = [place for place, _ in reversed(histories[0].answers) if place > behind][:_LAST]
        digests = [dict(each.answers) for each in histories]
        aliases = [by_place[place].hex() for place in places for by_place in digests]
        if not aliases:
            return False
        before: Remembered | None = None
        for record in await self._shared.find_alias("memory", owner, aliases, self._bounds):
            mine = number() if before is None else before.number
            node = deserialize(record.value, owner, record.id, before, mine, self._process)
            if not any(by_place.get(node.place) == node.digest for by_place in digests):
                return False
            digest = digests[0][node.place]
            before = memory.same(digest, record.id) or memory.remember(node, digest)
        return before is not None

    def _record(self, node: Remembered) -> StoreRecord:
        before = None if node.before is None else node.before.answer_id
        return StoreRecord(node.answer_id, before, serialize(node, self._process), (node.digest.hex(),))

    def _before(self, node: Remembered) -> list[StoreRecord]:
        return [self._record(each) for each in node.chain()[:-1]]


def serialize(node: Remembered, process: bytes) -> bytes:
    """An answer as bytes. `process`: the name of this process, by which it recognises its own engines again."""
    shown = [node.shown.content, node.shown.reasoning, [[c.id, c.name, c.arguments] for c in node.shown.calls]]
    lived = [_lived(each) for each in node.lived]
    figures = [node.place, node.kept, node.held, node.original_ids]
    engine = [process, node.engine, node.engine_name]
    tools = [[each.name, each.digest, each.place] for each in node.tools.entries]
    parts = [node.digest, figures, shown, lived, _bytes(node.added), node.strangers, engine, tools]
    return packed(parts)


def deserialize(
    data: bytes, owner: str, answer_id: str, before: Remembered | None, number: int, process: bytes
) -> Remembered:
    """The answer in such bytes, with the digest that it was kept under. `number`: its conversation's number."""
    digest, figures, (content, reasoning, calls), lived, added, strangers, where, tools = unpacked(data)
    place, kept, held, original = figures
    engine, engine_name = where[1:] if where[0] == process else (NO_ENGINE, "")
    return Remembered(
        owner=owner,
        before=before,
        place=place,
        shown=Shown(content, reasoning, tuple(Call(*each) for each in calls)),
        lived=tuple(_read_lived(*each) for each in lived),
        kept=kept,
        added=_ids(added),
        held=held,
        engine=engine,
        number=number,
        engine_name=engine_name,
        answer_id=answer_id,
        original_ids=original,
        strangers=strangers,
        digest=digest,
        tools=DefinedTools(tuple(DefinedTool(*each) for each in tools)),
    )


def _lived(lived: Lived) -> list[Any]:
    turn = lived.turn
    told = None
    if turn is not None:
        calls = [[call.index, call.id, call.name, call.arguments] for call in turn.calls]
        told = [calls, turn.content, turn.reasoning, turn.ended_by, turn.broken, turn.form, turn.model_ids]
    spans = [[span.source, span.count, span.tool, span.server] for span in lived.spans]
    return [lived.message, _bytes(lived.ids), told, spans]


def _read_lived(message: dict[str, Any], ids: bytes, told: Sequence[Any] | None, spans: Sequence[Any]) -> Lived:
    turn = None
    if told is not None:
        calls, content, reasoning, ended_by, broken, form, model_ids = told
        closed = tuple(CallClosed(*each, ids=()) for each in calls)
        turn = LivedTurn(closed, content, reasoning, ended_by, broken, sys.intern(form), model_ids=tuple(model_ids))
    return Lived(message, _ids(ids), turn, tuple(Span(*each) for each in spans))


def _bytes(ids: "array[int]") -> bytes:
    if sys.byteorder == "big":
        ids = array("I", ids)
        ids.byteswap()
    return ids.tobytes()


def _ids(data: bytes) -> "array[int]":
    ids = array("I", data)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
