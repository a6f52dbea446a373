"""Why: what the last requests had to recompute, what their clients changed, and how to avoid it.

Turns what the agent recorded about requests into a table of figures. Text of a conversation is shown only where the
settings allow the console to show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.responses import Response

from codec_console.context_changes import words_of
from codec_console.render import PreparedText
from codec_console.visit import Page, PageGroup, Visit, unless_shown
from gateway.config.show import secrets_of
from gateway.context.compose.recall import Comparison
from gateway.context.memory import RequestFigures
from gateway.engine.interface import shared_prefix
from gateway.escape import escape_text, mask_text
from gateway.observe.prompt_losses import WORDS, advice_on_loss

_WORDS: Final = 200


@dataclass(frozen=True, slots=True)
class Change:
    """What a client changed: the common beginning of both texts, and how each continues."""

    message: int
    at: int
    same: PreparedText
    was: PreparedText
    now: PreparedText


@dataclass(frozen=True, slots=True)
class Row:
    """One request that continued a conversation."""

    when: datetime
    caller: str
    conversation: int | None
    """None where it is not remembered."""
    answer_id: str
    figures: RequestFigures
    words: str | None
    """What happened, and `advice` on it; None where nothing was recomputed."""
    advice: str | None
    change: Change | None
    """None where nothing was changed, or where text may not be shown."""

    @property
    def context_changes(self) -> list[str]:
        """What was deferred, loaded, cleared and compacted."""
        return [*map(words_of, self.figures.changes)]

    @property
    def cached_percent(self) -> str:
        """Percentage of the prompt tokens that were cached: 100 only for all of them, 0 only for none."""
        cached, prompt = self.figures.cached, self.figures.prompt
        if cached in (0, prompt):
            return "100" if cached else "0"
        share = 100 * cached / prompt
        return "<1" if share < 1 else ">99" if share > 99 else str(round(share))


class Why(PageGroup):
    """The page of losses."""

    def pages(self) -> Sequence[Page]:
        """The page and its path."""
        return (Page("/console/why", self._show),)

    async def _show(self, visit: Visit) -> Response:
        last = self._sources.agent.recall.last()

        async def make() -> Response:
            rows = [row_of_request(each, self._change(each) if visit.texts else None) for each in last]
            lost: dict[str, int] = {}
            for row in rows:
                if (loss := row.figures.loss) is not None:
                    lost[loss] = lost.get(loss, 0) + row.figures.recomputed
            return self._render("why.html", visit, rows=rows, lost=sorted(lost.items(), key=lambda pair: -pair[1]))

        # A new request is always listed first, with its own time: the first row changes whenever the list does.
        return await unless_shown(visit, (last[:1],), make)

    def _change(self, compared: Comparison) -> Change | None:
        miss = compared.figures.recall_miss
        if miss is None or miss.message is None or miss.at is None:
            return None
        secrets = secrets_of(self._sources.config)
        was, now = mask_text(miss.was, secrets), mask_text(miss.now, secrets)
        same = shared_prefix(was, now)
        words = (was[:same], was[same:], now[same:])
        return Change(miss.message, miss.at, *(PreparedText(escape_text(each, _WORDS)) for each in words))


def row_of_request(compared: Comparison, change: Change | None) -> Row:
    """The row of one request. `change`: what its client changed, where that may be shown."""
    figures, words, advice = compared.figures, None, None
    if (loss := figures.loss) is not None:
        miss = figures.recall_miss
        place = (None, None) if miss is None else (miss.message, miss.at)
        words, advice = WORDS[loss], advice_on_loss(loss, *place)
    request = (compared.when, compared.principal, compared.conversation, compared.answer_id)
    return Row(*request, figures, words, advice, change)
