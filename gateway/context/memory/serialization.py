"""Answers of a conversation as records for other replicas, and back.

Turns what is remembered of one answer into bytes, with the digest of its history, and such bytes into the same answer
after the one that it continues from. The engine's number has a meaning only in the process that wrote it, and the
conversation's number is not written. Changing the layout of the bytes requires a new format of sealed values
(`gateway/shared/store_records.py`).
"""

import sys
from array import array
from collections.abc import Sequence
from typing import Any

from gateway.context.memory.defined_tools import DefinedTool, DefinedTools
from gateway.context.memory.history import Call, Shown
from gateway.context.memory.lived import Lived, LivedTurn
from gateway.context.memory.remembered import NO_ENGINE, Remembered
from gateway.observe.trajectories import Span
from gateway.shared.packing import packed, unpacked
from gateway.toolcalls.stream.output_events import CallClosed


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
