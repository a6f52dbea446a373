"""Conversations: the list of those that are remembered, and the page of one with all its ids.

Turns what the memory holds into pages, and into the JSON that the viewer (`static/conversation.js`) fetches in ranges.
It keeps only the conversation that was viewed last, and the rows of the last list and of the last table of turns. It
does not decide who may see them.
"""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, RedirectResponse, Response

from codec_console.hidden import hidden_ids
from codec_console.listing import PAGE, Listings, RowFilter
from codec_console.render import PreparedText
from codec_console.transcript import Transcript, transcript_of
from codec_console.transcript_json import RANGE, ViewOptions, differences_json, ids_json, transcript_json
from codec_console.turns import TurnTable
from codec_console.visit import Page, PageGroup, Visit, unless_shown, whole_number
from gateway.config.show import secrets_of
from gateway.context.memory import Remembered
from gateway.escape import escape_text, mask_text
from gateway.serve.admin.extra_pages import GatewayParts

_BEGINNING: Final = 1024
"""Characters of a message that are looked at for the line that shows it, besides as many as a secret has."""
_IN_WORDS: Final = string.ascii_letters + string.digits + string.punctuation
"""What tokens and the passwords of URLs are made of."""
_QUESTION: Final = 160
"""Characters shown of a conversation's last user message."""
T = TypeVar("T")
ROOT: Final = "/console/conversations"
_RANGE: Final = 1024
"""Ids that the viewer requests at once: reading that many takes no noticeable time."""


@dataclass(frozen=True, slots=True)
class _Viewed:
    transcript: Transcript
    view: ViewOptions
    secrets: frozenset[str]

    def shows(self, answer_id: str, texts: bool, tools: frozenset[str], secrets: frozenset[str]) -> bool:
        """Whether it is of this answer, and hides just what is to be hidden."""
        found = (self.transcript.answer_id, self.view.texts, self.view.tools, self.secrets)
        return found == (answer_id, texts, tools, secrets)


class Conversations(PageGroup):
    """The pages of conversations."""

    def __init__(self, sources: GatewayParts, render: Callable[..., Response]) -> None:
        super().__init__(sources, render)
        self._listings = Listings()
        self._viewed: _Viewed | None = None
        self._last_table: TurnTable | None = None
        self._reading = anyio.CapacityLimiter(1)

    def pages(self) -> Sequence[Page]:
        """The pages and their paths."""
        one = f"{ROOT}/{{number}}"
        return (
            Page(ROOT, self._list),
            Page(one, self._show),
            Page(f"{one}/transcript.json", self._transcript),
            Page(f"{one}/ids.json", self._ids),
            Page(f"{one}/differences.json", self._differences),
        )

    def forget(self) -> None:
        """Forget what was viewed last."""
        self._viewed, self._last_table, self._listings = None, None, Listings()

    async def _list(self, visit: Visit) -> Response:
        row_filter = RowFilter(visit.query("caller"), visit.query("model"), visit.query("why"))
        recall, gone, page = self._sources.agent.recall, visit.query("gone")[:20], visit.number("page")
        total = self._sources.metrics.get_prompt_tokens()

        async def make() -> Response:
            secrets = secrets_of(self._sources.config) if visit.texts else None
            told = self._listings.make(recall, row_filter, page, secrets)
            text_of = self._last_question if visit.texts else _no_text
            partly = bool(gone and recall.branches(whole_number(gone, -1)))
            shown = {"row_filter": row_filter, "told": told, "text_of": text_of, "step": PAGE, "total": total}
            return self._render("conversations.html", visit, gone=gone, partly=partly, **shown)

        return await unless_shown(
            visit, (recall.changes, total, row_filter, page, gone, sorted(secrets_of(self._sources.config))), make
        )

    def _last_question(self, number: int) -> PreparedText | None:
        """The last user message of a conversation on one line, without secrets; None where it is no longer kept."""
        text = self._sources.agent.recall.last_user_text(number) or ""
        line = " ".join(masked_beginning(text, secrets_of(self._sources.config)).split())
        shown = line if len(line) <= _QUESTION else f"{line[:_QUESTION]}…"
        return PreparedText(escape_text(shown, 2 * _QUESTION)) if shown else None

    async def _show(self, visit: Visit) -> Response:
        node = self._find(visit)
        if node is None:
            number = _number_of(visit)
            return RedirectResponse(f"{ROOT}?gone={number}" if number >= 0 else ROOT, 303)
        answers = [each.answer_id for each in self._sources.agent.recall.branches(node.number)]

        async def make() -> Response:
            viewed = await self._view(node, visit.texts)
            table = await self._read(partial(self._table, viewed))
            question = self._last_question(node.number) if visit.texts and node.answer_id == answers[0] else None
            shown = {"transcript": viewed.transcript, "table": table, "branches": answers, "question": question}
            return self._render("conversation.html", visit, range=_RANGE, **shown)

        return await unless_shown(visit, (node.answer_id, answers, sorted(secrets_of(self._sources.config))), make)

    def _table(self, viewed: _Viewed) -> TurnTable:
        """Its turns; rows of the last table that did not change are taken over."""
        known, secrets = {} if self._last_table is None else self._last_table.kept, secrets_of(self._sources.config)
        table = self._last_table = TurnTable(viewed.transcript, viewed.view, secrets, known)
        return table

    async def _transcript(self, visit: Visit) -> Response:
        return await self._tell(visit, transcript_json)

    async def _ids(self, visit: Visit) -> Response:
        return await self._tell(visit, ids_json, visit.number("from"), visit.number("count", RANGE))

    async def _differences(self, visit: Visit) -> Response:
        return await self._tell(visit, differences_json, visit.number("from"))

    async def _tell(self, visit: Visit, show: Callable[..., dict[str, Any]], *asked: int) -> Response:
        node = self._find(visit)
        if node is None:
            return JSONResponse(
                {"error": "this conversation is no longer remembered: newer ones have replaced it"}, 404
            )
        viewed = await self._view(node, visit.texts)
        return JSONResponse(await self._read(partial(show, viewed.transcript, viewed.view, *asked)))

    async def _view(self, node: Remembered, texts: bool) -> _Viewed:
        """The conversation up to this answer, read unless it was viewed last."""
        viewed = self._viewed
        offered = () if texts else self._sources.proxy.model_tools()
        tools = frozenset(name for each in offered for name in (each.name, each.tool))
        # A reload may add a secret, which is hidden from then on.
        secrets = secrets_of(self._sources.config)
        if viewed is None or not viewed.shows(node.answer_id, texts, tools, secrets):
            token_map = self._sources.engines.maps.accepted.get(node.map_id or "")

            def read() -> _Viewed:
                transcript = transcript_of(node)
                hidden = frozenset[int]() if token_map is None else hidden_ids(transcript.ids, token_map, secrets)
                return _Viewed(transcript, ViewOptions(token_map, hidden, texts, tools), secrets)

            viewed = self._viewed = await self._read(read)
        return viewed

    def _find(self, visit: Visit) -> Remembered | None:
        """The answer that the query names: `answer`, the last one `after` another, or else the conversation's last one.

        None: it is not remembered.
        """
        last = self._sources.agent.recall.branches(_number_of(visit))
        if after := visit.query("after"):
            return next((each for each in last if any(node.answer_id == after for node in each.chain())), None)
        if not (asked := visit.query("answer")) and last:
            return last[0]
        nodes = (node for each in last for node in each.chain())
        return next((node for node in nodes if node.answer_id == asked), None)

    async def _read(self, work: Callable[[], T]) -> T:
        """Do the work in a thread, one at a time, so that it does not block the event loop."""
        return await anyio.to_thread.run_sync(work, limiter=self._reading)


def _no_text(_number: int) -> None:
    """Stands for `_last_question` where text may not be shown."""


def _number_of(visit: Visit) -> int:
    """The number of the conversation that the URL names; -1 where it names none."""
    return whole_number(visit.request.path_params["number"], -1)


def masked_beginning(text: str, secrets: frozenset[str]) -> str:
    """The beginning of a text, without secrets: a message may be long, and every row of the list shows a line of one.

    What is cut off may hold the end of a secret, so the last word goes too, and as many characters as a secret has.
    """
    longest = max(map(len, secrets), default=0)
    text, bound = text.lstrip(), _BEGINNING + longest
    if len(text) <= bound:
        return mask_text(text, secrets)
    # Not at blanks only: Chinese and Japanese have none between words.
    begun = mask_text(text[:bound], secrets).rstrip(_IN_WORDS)
    scheme = begun.rfind("://")
    if scheme >= 0 and not any(map(str.isspace, begun[scheme:])):
        begun = begun[:scheme]
    return begun[: max(len(begun) - longest, 0)]
