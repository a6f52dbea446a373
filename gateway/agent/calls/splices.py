"""Fits results to the place where they are spliced, and lists what a splice puts into the context, part by part.

A template may strip results, write them as JSON strings, or read them; then it does not show a tool's own ids, and
other ids are made. Appends nothing itself: `context/compose/context.py` does.
"""

from collections.abc import Sequence
from dataclasses import replace

from gateway.agent.calls.runner import FinishedCall
from gateway.agent.events import SplicedPart
from gateway.context.compose.conversation import Conversation
from gateway.engine.rendering.scaffold import Scaffold
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.observe.trajectories import Span
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.vocab import TokenMap

_BEGINNING = 8
"""Ids that are decoded to find the first character of a result, which tells whether it is JSON."""


async def fitted(
    conversation: Conversation, scaffold: Scaffold, outcomes: Sequence[FinishedCall], most: Sequence[int]
) -> tuple[Scaffold, list[FinishedCall]]:
    """Return the scaffold and the results as the template shows them, at most `most` ids of each."""
    token_map = conversation.ready.token_map
    # Asked first, and only once for each engine: where the template reads no results, none is decoded here.
    if await conversation.stay.ask(_reads_results) and any(_is_json(outcome, token_map) for outcome in outcomes):
        shape, end = conversation.context.last_turn(conversation.ready)
        texts = [token_map.decode(outcome.ids) for outcome in outcomes]
        whole = await conversation.stay.ask(lambda ready: ready.template.scaffold_with(shape, end, texts))
        # The scaffold contains the results.
        pieces = (*whole.pieces, *((),) * len(outcomes))
        return Scaffold(pieces, ()), [_with_ids(outcome, (), 0) for outcome in outcomes]
    return scaffold, [
        _shown(scaffold, number, outcome, most[number], token_map) for number, outcome in enumerate(outcomes)
    ]


def _shown(scaffold: Scaffold, number: int, outcome: FinishedCall, most: int, token_map: TokenMap) -> FinishedCall:
    """The outcome as the template shows it."""
    ids = scaffold.fitted(number, outcome.ids, token_map)
    kept, room = outcome.kept, most
    # Where the template escapes it, less of it fits; what says how to read on stands at the end.
    while kept is not None and len(ids) > most and ids != outcome.ids and room > most // 2:
        room -= len(ids) - most
        kept = kept.cut(room, token_map)
        figures = replace(outcome.finished.kept, shown=kept.shown) if outcome.finished.kept else None
        finished = replace(outcome.finished, kept=figures)
        outcome = replace(outcome, pieces=kept.pieces, finished=finished, kept=kept)
        ids = scaffold.fitted(number, outcome.ids, token_map)
    return _with_ids(outcome, ids, most)


async def _reads_results(ready: ReadyEngine) -> bool:
    return await ready.template.reads_results()


def _is_json(outcome: FinishedCall, token_map: TokenMap) -> bool:
    return token_map.decode(outcome.ids[:_BEGINNING]).lstrip()[:1] in ("{", "[")


def parts_of(scaffold: Scaffold, outcomes: Sequence[FinishedCall]) -> tuple[SplicedPart, ...]:
    """Return the parts of one splice, in order."""
    parts = [SplicedPart(scaffold.pieces[0], "scaffold")]
    for outcome, after in zip(outcomes, scaffold.pieces[1:], strict=True):
        call_id = outcome.finished.call_id
        parts += [SplicedPart(piece.ids, piece.source, call_id) for piece in outcome.pieces]
        parts.append(SplicedPart(after, "scaffold"))
    return tuple(part for part in parts if part.ids)


def _with_ids(outcome: FinishedCall, ids: Sequence[int], most: int) -> FinishedCall:
    """The outcome with these ids; if they are not its own, they count as the gateway's."""
    if ids == outcome.ids:
        return outcome
    made = tuple(ids[:most])
    source = "gateway" if outcome.finished.source == "gateway" else "shim"
    finished = replace(outcome.finished, source=source, leaf_ids=0, shim_ids=len(made))
    return replace(outcome, pieces=(IdPiece(made, "shim"),), finished=finished)


def spans_of_result(outcome: FinishedCall) -> tuple[Span, ...]:
    """Return the sources of the ids of a call's result."""
    finished = outcome.finished
    if finished.is_error:
        return (Span("error", len(outcome.ids), finished.name, outcome.server),)
    return tuple(Span(piece.source, len(piece.ids), finished.name, outcome.server) for piece in outcome.pieces)
