"""Results made ready for the place where they are spliced, and what a splice put into the context, part by part.

A template may strip results, write them as JSON strings, or read them; then a tool's own ids are not what it shows, and
others are made. Appends nothing itself: `conversation.py` does.
"""

from collections.abc import Sequence
from dataclasses import replace

from gateway.agent.calls import FinishedCall
from gateway.agent.conversation import Conversation
from gateway.agent.events import SplicedPart
from gateway.engine.readiness import ReadyEngine
from gateway.engine.scaffold import Scaffold
from gateway.proxy import IdPiece
from leaf_sdk.vocab import TokenMap

_BEGINNING = 8
"""Ids in which the first sign of a result that is JSON stands."""


async def fitted(
    conversation: Conversation, scaffold: Scaffold, outcomes: Sequence[FinishedCall], most: int
) -> tuple[Scaffold, list[FinishedCall]]:
    """Give results as the template shows them, at most `most` ids each, and what stands around them."""
    token_map = conversation.ready.token_map
    # Asked first, and once in an engine's life: where it is not so, no result is read here.
    if await conversation.asked(_reads_results) and any(_is_json(outcome, token_map) for outcome in outcomes):
        shape, end = conversation.last_turn()
        texts = [token_map.decode(outcome.ids) for outcome in outcomes]
        whole = await conversation.asked(lambda ready: ready.template.scaffold_with(shape, end, texts))
        # The results are inside.
        pieces = (*whole.pieces, *((),) * len(outcomes))
        return Scaffold(pieces, ()), [_with_ids(outcome, (), most) for outcome in outcomes]
    return scaffold, [
        _with_ids(outcome, scaffold.fitted(number, outcome.ids, token_map), most)
        for number, outcome in enumerate(outcomes)
    ]


async def _reads_results(ready: ReadyEngine) -> bool:
    return await ready.template.reads_results()


def _is_json(outcome: FinishedCall, token_map: TokenMap) -> bool:
    return token_map.decode(outcome.ids[:_BEGINNING]).lstrip()[:1] in ("{", "[")


def parts_of(scaffold: Scaffold, outcomes: Sequence[FinishedCall]) -> tuple[SplicedPart, ...]:
    """Give the parts of one splice, in order."""
    parts = [SplicedPart(scaffold.pieces[0], "scaffold")]
    for outcome, after in zip(outcomes, scaffold.pieces[1:], strict=True):
        call_id = outcome.finished.call_id
        parts += [SplicedPart(piece.ids, piece.source, call_id) for piece in outcome.pieces]
        parts.append(SplicedPart(after, "scaffold"))
    return tuple(part for part in parts if part.ids)


def _with_ids(outcome: FinishedCall, ids: Sequence[int], most: int) -> FinishedCall:
    """The outcome with other ids than its own, which then are the gateway's."""
    if ids == outcome.ids:
        return outcome
    made = tuple(ids[:most])
    source = "gateway" if outcome.finished.source == "gateway" else "shim"
    finished = replace(outcome.finished, source=source, leaf_ids=0, shim_ids=len(made))
    return replace(outcome, pieces=(IdPiece(made, "shim"),), finished=finished)
