"""How an answer was made, recorded while it is made, for whoever looks at it afterwards.

Turns what the agent reports of generations and calls into the record that the memory keeps with the answer.
Nothing is recorded unless somebody is watching. Pure.
"""

from array import array
from math import nan

from gateway.agent.calls import FinishedCall
from gateway.agent.conversation import Conversation
from gateway.agent.events import GenerationFinished
from gateway.agent.memory import AnswerRecord, CallRecord, GenerationRecord, RequestFigures
from gateway.agent.trail import plain_span
from gateway.observe.trajectories import Span


def note_generation(conversation: Conversation, stats: GenerationFinished) -> None:
    """Keep the figures of a finished generation."""
    if (notes := conversation.notes) is None or conversation.trail is None:
        return
    timings = stats.timings
    sampled = conversation.trail.sampled[-1]
    logprobs = (nan if each is None else each for each in sampled.logprobs[: sampled.count])
    notes.generations.append(
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
    if conversation.notes is None:
        return
    told = outcome.finished
    conversation.notes.calls.append(
        CallRecord(told.call_id, told.name, outcome.server, told.seconds, told.leaf_ids, told.shim_ids, told.is_error)
    )


def record_of(conversation: Conversation, ended: str, figures: RequestFigures | None) -> AnswerRecord | None:
    """Return the record of a finished answer, as it is remembered; None where nobody was watching."""
    notes, trail, last = conversation.notes, conversation.trail, conversation.lived.last
    if notes is None or trail is None or last is None:
        return None
    # Its last turn may be remembered cut, as its client saw it.
    before = _cut(trail.spans, conversation.lived.start - trail.kept)
    spans = (*before, *(last.spans or (plain_span("model", len(last.ids)),)))
    miss = None if figures is None else figures.recall_miss
    return AnswerRecord(ended, trail.kept, spans, tuple(notes.generations), tuple(notes.calls), miss)


def _cut(spans: list[Span], count: int) -> list[Span]:
    """The spans of the first `count` ids."""
    cut: list[Span] = []
    for span in spans:
        if count <= span.count:
            return [*cut, span.of(count)] if count > 0 else cut
        cut.append(span)
        count -= span.count
    return cut
