"""Conversations: the list of those that are remembered, and one of them with all its ids.

Turns what the memory holds into pages, and into the JSON that the viewer (`static/conversation.js`) asks for in ranges.
Nothing is kept for it but the conversation that was looked at last and the rows of the last list. It decides nothing
about who may look.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, RedirectResponse, Response

from gateway.agent.memory import Remembered
from gateway.config.show import secrets_of
from gateway.serve.console.hidden import hidden_ids
from gateway.serve.console.listing import Asked, Listings
from gateway.serve.console.seen import SeenConversation, see
from gateway.serve.console.shown import RANGE, Spelled, shown_conversation, shown_differences, shown_ids
from gateway.serve.console.sources import Sources
from gateway.serve.console.turns import TurnTable
from gateway.serve.console.visit import Page, Visit, unless_shown

T = TypeVar("T")
ROOT: Final = "/console/conversations"
_RANGE: Final = 1024
"""Ids that the viewer asks for at once: one that is read takes no time that a person would notice."""


@dataclass(frozen=True, slots=True)
class _Looked:
    seen: SeenConversation
    spelled: Spelled


class Conversations:
    """The pages."""

    def __init__(self, sources: Sources, render: Callable[..., Response]) -> None:
        self._sources = sources
        self._render = render
        self._listings = Listings()
        self._looked: _Looked | None = None
        self._reading = anyio.CapacityLimiter(1)

    def pages(self) -> Sequence[Page]:
        """Their paths."""
        one = f"{ROOT}/{{number}}"
        return (
            Page(ROOT, self._list),
            Page(one, self._show),
            Page(f"{one}/seen.json", self._seen),
            Page(f"{one}/ids.json", self._ids),
            Page(f"{one}/differences.json", self._differences),
        )

    def forget(self) -> None:
        """Keep nothing of what was looked at."""
        self._looked, self._listings = None, Listings()

    async def _list(self, visit: Visit) -> Response:
        asked = Asked(visit.query("caller"), visit.query("model"), visit.query("why"))
        recall, gone = self._sources.agent.recall, visit.query("gone")[:20]

        async def make() -> Response:
            told, partly = self._listings.make(recall, asked), bool(gone and recall.branches(_whole(gone, -1)))
            return self._render("conversations.html", visit, asked=asked, told=told, gone=gone, partly=partly)

        return await unless_shown(visit, (recall.changes, asked, gone, self._sources.texts), make)

    async def _show(self, visit: Visit) -> Response:
        node = self._find(visit)
        if node is None:
            number = _number_of(visit)
            return RedirectResponse(f"{ROOT}?gone={number}" if number >= 0 else ROOT, 303)
        answers = [each.answer_id for each in self._sources.agent.recall.branches(node.number)]

        async def make() -> Response:
            looked = await self._look(node)
            secrets = secrets_of(self._sources.config)
            table = await self._read(partial(TurnTable, looked.seen, looked.spelled, secrets))
            return self._render(
                "conversation.html", visit, seen=looked.seen, table=table, branches=answers, range=_RANGE
            )

        return await unless_shown(visit, (node.answer_id, answers, self._sources.texts), make)

    async def _seen(self, visit: Visit) -> Response:
        return await self._tell(visit, shown_conversation)

    async def _ids(self, visit: Visit) -> Response:
        return await self._tell(visit, shown_ids, _number(visit, "from", 0), _number(visit, "count", RANGE))

    async def _differences(self, visit: Visit) -> Response:
        return await self._tell(visit, shown_differences, _number(visit, "from", 0))

    async def _tell(self, visit: Visit, show: Callable[..., dict[str, Any]], *asked: int) -> Response:
        node = self._find(visit)
        if node is None:
            return JSONResponse({"error": "this conversation is no longer remembered: others took its place"}, 404)
        looked = await self._look(node)
        return JSONResponse(await self._read(partial(show, looked.seen, looked.spelled, *asked)))

    async def _look(self, node: Remembered) -> _Looked:
        """The conversation up to this answer."""
        texts, looked = self._sources.texts, self._looked
        offered = () if texts else self._sources.proxy.tools()
        tools = frozenset(name for each in offered for name in (each.name, each.tool))
        shown = None if looked is None else (looked.seen.answer_id, looked.spelled.texts, looked.spelled.tools)
        if looked is None or shown != (node.answer_id, texts, tools):
            token_map = self._sources.engines.maps.accepted.get(node.map_id or "")
            secrets = secrets_of(self._sources.config)

            def read() -> _Looked:
                seen = see(node)
                hidden = frozenset[int]() if token_map is None else hidden_ids(seen.ids, token_map, secrets)
                return _Looked(seen, Spelled(token_map, hidden, texts, tools))

            looked = self._looked = await self._read(read)
        return looked

    def _find(self, visit: Visit) -> Remembered | None:
        """The answer that is asked for: `answer`, the last one that came `after` another, or the last of all.

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
        """In a thread, one at a time: calls wait on this loop."""
        return await anyio.to_thread.run_sync(work, limiter=self._reading)


def _number_of(visit: Visit) -> int:
    """Of the conversation that the address names; -1: it names none."""
    return _whole(visit.request.path_params["number"], -1)


def _number(visit: Visit, name: str, default: int) -> int:
    return _whole(visit.query(name), default)


def _whole(given: str, default: int) -> int:
    """The number that stands there, where one of a sensible length does."""
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 10 else default
