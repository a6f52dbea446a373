"""The conversations that are remembered, as rows of a list: figures, and the last question where text may be shown.

Turns the last answers of conversations into rows, the latest first, and into the values to filter them by. A row and
its HTML are made once, and kept as long as the row is in the list. It knows no template.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from gateway.agent.memory import Remembered, RequestFigures
from gateway.agent.recall import Recall
from gateway.observe.escape import escape_text
from gateway.serve.admin.losses import WORDS

if TYPE_CHECKING:
    from markupsafe import Markup

MOST: Final = 200
"""Maximum number of rows of the list."""
ANY_LOSS: Final = "any"
_NAME: Final = 120


@dataclass(frozen=True, slots=True)
class RowFilter:
    """What the rows are filtered by. Empty: not filtered by this field."""

    caller: str = ""
    model: str = ""
    why: str = ""
    """A reason for recomputed tokens, or `any`."""

    def accepts(self, row: "Row") -> bool:
        """Whether a row passes the filter."""
        reason = self.why in ("", row.reason) or (self.why == ANY_LOSS and row.recomputed)
        return bool(reason) and self.caller in ("", row.caller) and self.model in ("", row.model)


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation, by its latest answer. None: not known."""

    number: int
    answer_id: str
    text: str | None
    """The last user message, ready to be shown; None where text may not be shown or is no longer kept."""
    caller: str
    model: str | None
    when: datetime | None
    answers: int
    turns: int
    ids: int
    branches: int
    figures: RequestFigures | None
    """Those of its latest request."""
    recomputed: int
    """Prompt tokens that its requests recomputed, as far as that is known."""
    reason: str | None
    """The reason for the latest of those; None where nothing was recomputed."""

    @property
    def reason_words(self) -> str | None:
        """The reason as a sentence."""
        return None if self.reason is None else WORDS[self.reason]


class KeptRow:
    """A row, and its HTML once it has been shown."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._html: Markup | None = None

    def html(self, make: "Callable[[Row], Markup]") -> "Markup":
        """The HTML of the row. `make`: renders a row, once."""
        self._html = make(self.row) if self._html is None else self._html
        return self._html


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows that pass the filter, and the values that all rows can be filtered by."""

    rows: Sequence[KeptRow]
    all: int
    callers: Sequence[str]
    models: Sequence[str]
    reasons: Sequence[str]


class Listings:
    """Makes the list anew for each request, reusing rows that did not change."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, bool], KeptRow] = {}
        """The rows of the last list, by everything that they were made of."""

    def make(
        self, recall: Recall, row_filter: RowFilter, text_of: "Callable[[int], str | None] | None" = None
    ) -> Listing:
        """List the conversations that are remembered and pass the filter.

        `text_of`: the last user message of a conversation, ready to be shown; None where text may not be shown.
        """
        last: dict[int, list[Remembered]] = {}
        for node in recall.conversations(MOST):
            last.setdefault(node.number, []).append(node)
        before, self._kept = self._kept, {}
        for nodes in last.values():
            key = nodes[0].answer_id, len(nodes), text_of is not None
            if (kept := before.get(key)) is None:
                text = None if text_of is None else text_of(nodes[0].number)
                kept = KeptRow(_row(nodes[0], len(nodes), text))
            self._kept[key] = kept
        rows = [each.row for each in self._kept.values()]
        return Listing(
            rows=[each for each in self._kept.values() if row_filter.accepts(each.row)],
            all=len(rows),
            callers=_names(row.caller for row in rows),
            models=_names(row.model for row in rows),
            reasons=_names(row.reason for row in rows),
        )


def date_of(made: float | None) -> datetime | None:
    """Convert a time of the monotonic clock into a date and time (UTC)."""
    return None if made is None else datetime.now(UTC) - timedelta(seconds=monotonic() - made)


def _names(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


def _row(node: Remembered, branches: int, text: str | None) -> Row:
    nodes = node.chain()
    losses = [each.figures for each in nodes if each.figures is not None and each.figures.recomputed]
    model = next((each.model for each in reversed(nodes) if each.model is not None), None)
    return Row(
        number=node.number,
        answer_id=node.answer_id,
        text=text,
        # Escaped as the page shows them, since the filter sends back what the page shows.
        caller=escape_text(node.owner, _NAME),
        model=None if model is None else escape_text(model, _NAME),
        when=date_of(node.made),
        answers=len(nodes),
        turns=sum(lived.turn is not None for each in nodes for lived in each.lived),
        ids=node.kept + len(node.added),
        branches=branches,
        figures=node.figures,
        recomputed=sum(each.recomputed for each in losses),
        reason=losses[-1].loss if losses else None,
    )
