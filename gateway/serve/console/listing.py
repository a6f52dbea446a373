"""The conversations that are remembered, as rows of a list: figures alone, without any word of them.

Turns the last answers of conversations into rows, the latest first, and into what they can be chosen by. A row is made
once, and its HTML with it, for as long as it stands in the list. It knows no template.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from gateway.agent.memory import Remembered
from gateway.agent.recall import Comparison, Recall
from gateway.observe.escape import escape_text

if TYPE_CHECKING:
    from markupsafe import Markup

MOST: Final = 200
"""Rows of the list."""
ANY_LOSS: Final = "any"
_NAME: Final = 120


@dataclass(frozen=True, slots=True)
class Asked:
    """What the rows are chosen by; empty: by nothing."""

    caller: str = ""
    model: str = ""
    why: str = ""
    """A reason, or `any`."""

    def takes(self, row: "Row") -> bool:
        """Whether a row is one of those."""
        reason = self.why in ("", row.reason) or (self.why == ANY_LOSS and row.lost)
        return bool(reason) and self.caller in ("", row.caller) and self.model in ("", row.model)


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation, by its latest answer. None: not known."""

    number: int
    answer_id: str
    caller: str
    model: str | None
    when: datetime | None
    answers: int
    turns: int
    ids: int
    branches: int
    held: int | None
    """Ids that its latest request could have found again."""
    reused: int | None
    lost: int
    """Of all its requests that are told of."""
    reason: str | None
    """Why, of the latest that lost some."""

    @property
    def share(self) -> int | None:
        """Percent of the held ids that were found again."""
        if self.held is None or self.reused is None:
            return None
        return 100 if not self.held else round(100 * min(self.reused, self.held) / self.held)


class KeptRow:
    """A row, and its HTML once it was shown."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._html: Markup | None = None

    def html(self, make: "Callable[[Row], Markup]") -> "Markup":
        """How it is shown; `make`: the template's part for a row."""
        self._html = make(self.row) if self._html is None else self._html
        return self._html


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows, and what all of them could be chosen by."""

    rows: Sequence[KeptRow]
    all: int
    callers: Sequence[str]
    models: Sequence[str]
    reasons: Sequence[str]


class Listings:
    """Makes the list, as often as somebody asks for it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], KeptRow] = {}
        """The rows of the last list, by all that they were made of."""

    def make(self, recall: Recall, asked: Asked) -> Listing:
        """Give the conversations that are remembered."""
        told: dict[int | None, Comparison] = {}
        for each in recall.last():
            told.setdefault(each.conversation, each)
        last: dict[int, list[Remembered]] = {}
        for node in recall.conversations(MOST):
            last.setdefault(node.number, []).append(node)
        before, self._kept = self._kept, {}
        for nodes in last.values():
            made_of = nodes[0], len(nodes), told.get(nodes[0].number)
            key = (nodes[0].answer_id, nodes[0].record is None, *made_of[1:])
            self._kept[key] = before.get(key) or KeptRow(_row(*made_of))
        rows = [each.row for each in self._kept.values()]
        return Listing(
            rows=[each for each in self._kept.values() if asked.takes(each.row)],
            all=len(rows),
            callers=_names(row.caller for row in rows),
            models=_names(row.model for row in rows),
            reasons=_names(row.reason for row in rows),
        )


def wall_clock(made: float | None) -> datetime | None:
    """When that was, by the wall's clock; `made`: by the clock that never goes back."""
    return None if made is None else datetime.now(UTC) - timedelta(seconds=monotonic() - made)


def _names(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


def _row(node: Remembered, branches: int, noted: Comparison | None) -> Row:
    nodes = node.chain()
    found = [each.record.found for each in nodes if each.record is not None and each.record.found is not None]
    losses = [(each.lost, each.reason) for each in found if each.lost]
    latest = (found[-1].held, found[-1].reused) if found else (None, None)
    if not found and noted is not None:
        latest = noted.told.held, noted.told.reused
        losses = [(noted.told.lost, noted.told.reason)] if noted.told.lost else []
    model = next((each.model for each in reversed(nodes) if each.model is not None), None)
    return Row(
        number=node.number,
        answer_id=node.answer_id,
        # As they are shown: what is chosen comes back as it was.
        caller=escape_text(node.owner, _NAME),
        model=None if model is None else escape_text(model, _NAME),
        when=wall_clock(node.made),
        answers=len(nodes),
        turns=sum(lived.turn is not None for each in nodes for lived in each.lived),
        ids=node.kept + len(node.added),
        branches=branches,
        held=latest[0],
        reused=latest[1],
        lost=sum(lost for lost, _ in losses),
        reason=losses[-1][1] if losses else None,
    )
