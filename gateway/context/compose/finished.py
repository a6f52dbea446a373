"""What is kept of a finished answer: the trajectory's line, and the record of how it was made.

Turns a conversation whose answer has ended into both, each only where somebody asks for it. Pure.
"""

from array import array

from gateway.context.compose.conversation import Conversation
from gateway.context.compose.trail import plain_span
from gateway.context.memory import AnswerRecord, RequestFigures
from gateway.observe.trajectories import Answer, Span


def answer_of(conversation: Conversation, ended: str) -> Answer | None:
    """Return the trajectory's line for a finished answer; None where none is to be written."""
    trail, ready = conversation.trail, conversation.ready
    if trail is None or not trail.sampled:
        return None
    return Answer(
        answer_id=conversation.answer_id,
        before=trail.before,
        principal=conversation.principal.name,
        map_id=ready.token_map.map_id,
        model=ready.facts.model,
        ended=ended,
        kept=trail.kept,
        ids=array("I", conversation.ids[trail.kept :]),
        spans=trail.spans,
        sampled=trail.sampled,
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
