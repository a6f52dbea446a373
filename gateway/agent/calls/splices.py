"""From a turn's calls to the model's next turn: what is certain is processed ahead, results are fitted and listed.

The template's ids up to the first result follow the turn whatever the tools say, so the engine processes them while the
tools work (`engine/slots/prefill.py`). A template may strip results, write them as JSON strings, or read them; then it
does not show a tool's own ids, and other ids are made. Appends nothing itself: `context/compose/conversation.py` does.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from gateway.agent.calls.runner import FinishedCall, RunningCalls
from gateway.agent.events import SplicedPart
from gateway.agent.results.id_slices import whole_characters
from gateway.agent.results.result_shortening import cut
from gateway.context.compose.conversation import Conversation
from gateway.engine.rendering.scaffold import Scaffold
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineUnavailable, GatewayError
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import Span
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.vocab import TokenMap

_BEGINNING = 8
"""Ids that are decoded to find the first character of a result, which tells whether it is JSON."""
_STEPS = 64
"""One in so many ids may stay free where the template writes other ids than those of a result."""
_Shorten = Callable[[FinishedCall, int, TokenMap], FinishedCall | None]


async def prefill(conversation: Conversation, calls: RunningCalls, room: int, metrics: Metrics) -> None:
    """Return when the calls are over, or everything that may be processed is; a piece is never left unfinished.

    `room`: ids that what follows the turn may take; where the template's own ids fill it, no result will be spliced.
    """
    ahead = conversation.ready.prefill
    # The engine may hold other ids than those of a turn with guessed ids.
    if ahead is None or conversation.guessed or (over := calls.closing()).is_set():
        return
    try:
        # A template that reads results may write different text around each of them.
        if await conversation.ready.template.reads_results():
            return
        # It would cost the way back to the question.
        if (await conversation.hints()).returns:
            return
        scaffold = await conversation.around_results()
    except GatewayError:
        # The caller meets the same error when it splices the results.
        return

    def told(ids: int, seconds: float) -> None:
        conversation.spliced.prefilled += ids
        conversation.spliced.prefilled_seconds += seconds
        metrics.ids_prefilled(ids)

    if scaffold.size < room and ahead.pays(len(scaffold.pieces[0])):
        # If the engine is lost meanwhile, the next generation moves to another one.
        with suppress(EngineUnavailable):
            await conversation.stay.wait(
                ahead.run(conversation.ids, scaffold.pieces[0], conversation.asked.principal.name, over, told)
            )
    # Only the time that finished results had to wait counts as time to the next token.
    conversation.spliced.seconds = time.perf_counter() - calls.ended if over.is_set() else 0.0


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
    shown = [_shown(scaffold, number, outcome, most[number], token_map) for number, outcome in enumerate(outcomes)]
    for before, after in zip(outcomes, shown, strict=True):
        if before.kept is not None and before.kept.beginning.definitions and after.kept is None:
            # Its definitions did not fit: the next large result has to define the tools.
            gone = before.kept.result
            conversation.results = tuple(result for result in conversation.results if result is not gone)
    return scaffold, shown


def _shown(scaffold: Scaffold, number: int, outcome: FinishedCall, most: int, token_map: TokenMap) -> FinishedCall:
    """The outcome as the template shows it."""

    def fitted_ids(outcome: FinishedCall) -> Sequence[int]:
        return scaffold.fitted(number, outcome.ids, token_map)

    ids = fitted_ids(outcome)
    if len(ids) <= most or ids == outcome.ids:
        return _with_ids(outcome, ids, most)
    # Where the template escapes it, less of it fits.
    for shorten in (_read_on, _cut):
        if (shorter := _longest(outcome, shorten, fitted_ids, most, token_map)) is not None:
            return shorter
    return _with_ids(outcome, whole_characters(ids[:most], token_map), most)


def _longest(
    outcome: FinishedCall,
    shorten: _Shorten,
    fitted_ids: Callable[[FinishedCall], Sequence[int]],
    most: int,
    token_map: TokenMap,
) -> FinishedCall | None:
    """The longest of the shorter outcomes that takes at most `most` ids in the template; None: none does."""
    found: FinishedCall | None = None
    low, high = 0, most
    while high - low > 1 + most // _STEPS:
        room = (low + high) // 2
        shorter = shorten(outcome, room, token_map)
        ids = () if shorter is None else fitted_ids(shorter)
        if len(ids) > most:
            high = room
            continue
        low, found = room, None if shorter is None else _with_ids(shorter, ids, most)
    return found


def _read_on(outcome: FinishedCall, most: int, token_map: TokenMap) -> FinishedCall | None:
    """At most `most` ids, which say how to read on; None: it has no such words, or they would take too much of that."""
    finished, selection, kept = outcome.finished, outcome.selection, outcome.kept
    if selection is not None and selection.fits(most, token_map):
        pieces = selection.pieces(most, token_map)
        text = token_map.decode(token_id for piece in pieces for token_id in piece.ids)
        return replace(outcome, pieces=pieces, finished=replace(finished, said=text))
    if kept is not None and finished.kept is not None and kept.beginning.fits(most, token_map):
        kept = kept.cut(most, token_map)
        finished = replace(finished, kept=replace(finished.kept, shown=kept.shown))
        return replace(outcome, pieces=kept.pieces, finished=finished, kept=kept)
    return None


def _cut(outcome: FinishedCall, most: int, token_map: TokenMap) -> FinishedCall:
    pieces = outcome.pieces if outcome.kept is None else outcome.kept.own
    pieces, _ = cut(pieces, most, token_map, shortened=True)
    # A definition that was cut counts as not read.
    return replace(outcome, pieces=pieces, finished=replace(outcome.finished, kept=None), kept=None, defined=())


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
