"""What is kept of a finished answer: the trajectory's line, and the record of how it was made.

Turns a conversation whose answer has ended into both, each only where somebody asks for it. Pure.
"""

from array import array

from gateway.context.compose.conversation import Conversation
from gateway.context.compose.source_trail import span_without_tool
from gateway.context.memory import AnswerRecord, RequestFigures
from gateway.observe.trajectories import Span, TrajectoryAnswer


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
