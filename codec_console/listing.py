"""The conversations that are remembered, as rows of a list of figures, in pages.

Turns the last answers of conversations into rows, the latest first, and into the values to filter them by. A row is
made once, and kept as long as it is in the list. It knows no template, and no text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from codec_console.kept_row import KeptRow
from gateway.context.compose.recall import Recall
from gateway.context.memory import Remembered, RequestFigures
from gateway.escape import escape_text
from gateway.observe.prompt_losses import WORDS

MOST: Final = 200
"""Maximum number of rows of the list."""
PAGE: Final = 50
"""Rows on one page. While answers come, most of them are made anew for each request of an open page."""
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


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows that pass the filter, and the values that all rows can be filtered by."""

    rows: Sequence[KeptRow[Row]]
    """Those of one page."""
    first: int
    """How many rows precede them."""
    found: int
    """How many rows pass the filter."""
    all: int
    callers: Sequence[str]
    models: Sequence[str]
    reasons: Sequence[str]


class Listings:
    """Makes the list anew for each request, reusing rows that did not change."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, frozenset[str] | None], KeptRow[Row]] = {}
        """The rows of the last list, by everything that they were made of."""

    def make(
        self, recall: Recall, row_filter: RowFilter, page: int = 0, secrets: frozenset[str] | None = None
    ) -> Listing:
        """List the conversations that are remembered and pass the filter.

        `page`: which page of the list, from 0. `secrets`: what the HTML of rows shows masked; None: it shows no text.
        """
        last: dict[int, list[Remembered]] = {}
        for node in recall.conversations(MOST):
            last.setdefault(node.number, []).append(node)
        before, self._kept = self._kept, {}
        for nodes in last.values():
            key = nodes[0].answer_id, len(nodes), secrets
            self._kept[key] = before.get(key) or KeptRow(_row(nodes[0], len(nodes)))
        rows = [each.row for each in self._kept.values()]
        found = [each for each in self._kept.values() if row_filter.accepts(each.row)]
        first = PAGE * min(page, max(len(found) - 1, 0) // PAGE)
        return Listing(
            rows=found[first : first + PAGE],
            first=first,
            found=len(found),
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


def _row(node: Remembered, branches: int) -> Row:
    nodes = node.chain()
    losses = [each.figures for each in nodes if each.figures is not None and each.figures.recomputed]
    model = next((each.model for each in reversed(nodes) if each.model is not None), None)
    return Row(
        number=node.number,
        answer_id=node.answer_id,
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
