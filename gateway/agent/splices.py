"""What a splice put into the context, part by part, for whoever rebuilds that context elsewhere.

Joins the template's pieces and the results that stand between them, in their order, each with its source. Appends
nothing itself: `conversation.py` did. Above: `turn.py`.
"""

from collections.abc import Sequence

from gateway.agent.calls import CallOutcome
from gateway.agent.events import SplicedPart


def parts_of(scaffold: Sequence[tuple[int, ...]], outcomes: Sequence[CallOutcome]) -> tuple[SplicedPart, ...]:
    """Give the parts of one splice. `scaffold`: one piece more than there are outcomes."""
    parts = [SplicedPart(scaffold[0], "scaffold")]
    for outcome, after in zip(outcomes, scaffold[1:], strict=True):
        call_id = outcome.finished.call_id
        parts += [SplicedPart(piece.ids, piece.source, call_id) for piece in outcome.pieces]
        parts.append(SplicedPart(after, "scaffold"))
    return tuple(part for part in parts if part.ids)
