"""The figures of a request, from its generations and what was cached before it, and the records of how it was made.

The only place that computes them: `codec`, the console, `codec-gateway why` and `/status` show what is computed here.
Records of generations and calls are kept only while somebody is watching. Pure.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Final, Literal

from gateway.agent.calls.runner import FinishedCall
from gateway.agent.events import GenerationFinished
from gateway.context.compose.conversation import Conversation
from gateway.context.memory import CallRecord, ContextChange, GenerationRecord, Miss, Remembered, RequestFigures
from gateway.context.memory.remembered import NO_ENGINE
from gateway.observe.prompt_losses import LossReason
from gateway.proxy.costs import BYTES_A_TOKEN

_CHECKPOINT: Final = 8


@dataclass(frozen=True, slots=True)
class Reuse:
    """What the engine had cached of a conversation before a request, and why the request did not reuse all of it."""

    held: int = 0
    reason: LossReason | None = None
    recall_miss: Miss | None = None


def reuse_of(conversation: Conversation, cached: int, in_slot: int) -> Reuse:
    """Compare a first prompt with what was cached before it.

    Call it before the conversation can move to another engine.

    Args:
        cached: tokens of the prompt that came from the cache.
        in_slot: tokens at the prompt's beginning that the slot is known to have held.
    """
    before, miss = conversation.continuation.before, conversation.continuation.miss
    if before is None:
        return Reuse() if miss is None else Reuse(miss.held, miss.reason, miss)
    if conversation.continuation.kept < before.held:
        return Reuse(before.held, "reasoning_dropped" if _has_reasoning(before) else "template_rewrote")
    # Where tokens are reused in blocks, the last block of what was cached may be incomplete. A cache that goes back to
    # checkpoints has one a few tokens before the end.
    can = conversation.ready.facts.can
    if cached + (can.reuse_block if can.rewind == "anywhere" else _CHECKPOINT) > before.held:
        return Reuse(before.held)
    if before.engine == NO_ENGINE:
        return Reuse(before.held, "replica_moved")
    if before.engine == conversation.ready.number:
        # Of the last token of an answer it is not known whether the engine processed it.
        return Reuse(before.held, "engine_rewound" if in_slot >= before.held - 1 else "slot_taken")
    moved: LossReason = "engine_restarted" if before.engine_name == conversation.ready.name else "engine_moved"
    return Reuse(before.held, moved)


def changes_of(conversation: Conversation) -> tuple[ContextChange, ...]:
    """Return what was deferred, loaded, cleared and compacted for an answer. Tokens of definitions are estimated."""
    asked, defined, before = conversation.asked, conversation.defined, conversation.continuation.before
    if not asked.deferred:
        return conversation.changes
    changes: list[ContextChange] = []
    if before is None:
        left = [each.spec for name, each in asked.deferred.items() if name not in defined.newest]
        changes.append(_definitions("deferred", [asked.digests.of(tool)[1] for tool in left]))
    known = 0 if before is None else len(before.tools.entries)
    loaded = [each.size for each in defined.entries[known:] if each.name in asked.deferred]
    changes.append(_definitions("loaded", loaded))
    return (*(each for each in changes if each.count), *conversation.changes)


def _definitions(kind: Literal["deferred", "loaded"], sizes: Sequence[int]) -> ContextChange:
    return ContextChange(kind, sum(sizes) // BYTES_A_TOKEN, len(sizes))


def figures_of(
    generations: Sequence[GenerationFinished], reuse: Reuse, changes: tuple[ContextChange, ...] = ()
) -> RequestFigures | None:
    """Return the figures of a request; None where the engine reported none. `reuse`: of the first generation."""
    first = generations[0] if generations else None
    if first is None or first.timings is None:
        return None
    timings = [each.timings for each in generations if each.timings is not None]
    reused = min(first.timings.cache_n, reuse.held)
    # A prompt that is shorter than what was cached processes fewer tokens than it does not reuse.
    recomputed = min(reuse.held - reused, first.prompt - first.timings.cache_n) if reuse.reason is not None else 0
    # The first token of a generation comes with the prompt.
    steps = sum(max(each.generated_n - 1, 0) for each in timings)
    seconds = sum(each.generate_seconds for each in timings)
    return RequestFigures(
        prompt=sum(each.prompt for each in generations),
        cached=sum(each.cache_n for each in timings),
        held=reuse.held,
        reused=reused,
        recomputed=recomputed,
        reason=reuse.reason,
        recall_miss=reuse.recall_miss,
        tokens_per_second=steps / seconds if steps and seconds > 0 else None,
        changes=changes,
    )


def _has_reasoning(last: Remembered) -> bool:
    turns = (lived.turn for node in last.chain() for lived in node.lived)
    return any(turn is not None and turn.reasoning for turn in turns)


def reused_share(generation: GenerationFinished) -> float | None:
    """Return the share of the previous turn's ids that the engine found in its KV cache; None for a first turn.

    At most 1, although a slot file may have restored more: an earlier conversation with the same text.
    """
    if not generation.held or generation.timings is None:
        return None
    return min(generation.timings.cache_n, generation.held) / generation.held


def note_generation(conversation: Conversation, stats: GenerationFinished) -> None:
    """Keep the figures of a finished generation."""
    observer = conversation.observer
    if observer is None or not observer.watched:
        return
    timings, sampled = stats.timings, observer.sampled[-1]
    logprobs = (nan if each is None else each for each in sampled.logprobs[: sampled.count])
    observer.generations.append(
        GenerationRecord(
            start=sampled.start,
            count=sampled.count,
            reasoning=stats.reasoning,
            held=stats.held,
            cached=None if timings is None else timings.cache_n,
            prefilled=stats.prefilled,
            prefilled_seconds=stats.prefilled_seconds,
            first=stats.ttft,
            prompt_seconds=None if timings is None else timings.prompt_seconds,
            generate_seconds=None if timings is None else timings.generate_seconds,
            guessed=stats.guessed,
            logprobs=array("f", logprobs),
        )
    )


def note_call(conversation: Conversation, outcome: FinishedCall) -> None:
    """Keep the figures of a finished call."""
    observer = conversation.observer
    if observer is None or not observer.watched:
        return
    told = outcome.finished
    observer.calls.append(
        CallRecord(told.call_id, told.name, outcome.server, told.seconds, told.leaf_ids, told.shim_ids, told.is_error)
    )
