"""What one session lists: tools, prompts, resources and templates, raw, fetched once and kept while they are current.

A list is kept until the server says that it changed. If the server does not promise to say so, it is kept only for a
moment, so that clients see what they would see without a gateway. Concurrent requests for a list share one fetch. It
knows no public names and no other session.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, cast

import anyio

from gateway.errors import UpstreamUnavailable
from gateway.protocol.messages import METHOD_NOT_FOUND
from gateway.proxy.caller import NOBODY, NOBODY_MODERN, Caller
from gateway.proxy.results import exceeds
from gateway.proxy.transport.transport_interface import PeerError
from gateway.proxy.upstream.items.item_reader import KEYS, ItemKind, ItemReader
from gateway.proxy.upstream.session.session import ListKind, Session
from gateway.proxy.uris import fits

KINDS: Final[tuple[ItemKind, ...]] = ("tools", "prompts", "resources", "templates")
METHODS: Final[dict[ItemKind, str]] = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
FIELDS: Final[dict[ItemKind, str]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resourceTemplates",
}
Screen = Callable[[Sequence[dict[str, Any]]], tuple[dict[str, Any], ...]]
_PAGES: Final = 100
_MOST: Final = 5000
_PAST: Final = -1.0
_SHORT: Final = 1.0
"""Seconds that a list is kept if the server has not promised to report changes."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One complete list."""

    items: tuple[dict[str, Any], ...]
    """The definitions that clients can read, in the server's order, each as it came if nothing is wrong with it."""
    around: dict[str, Any]
    """The other fields of the first page's result (`_meta`, `ttlMs`, unknown ones), without the cursor, in the form of
    the session's era."""


EMPTY: Final = Listed((), {})


class Listing:
    """The lists of one session."""

    def __init__(
        self,
        session: Session,
        result_bytes: int,
        reader: ItemReader,
        screen: Screen = tuple,
        asker: Caller | None = None,
    ) -> None:
        """`result_bytes`: bytes of the largest list. `reader` reads all lists of the server. `screen` returns the tools
        of a list that may be shown. `asker`: on whose behalf the lists are requested; None: a caller that announces no
        capabilities.
        """
        self._reader = reader
        self._session = session
        self._asker = asker
        self._bytes = result_bytes
        self._screen = screen
        self._kept: dict[ItemKind, tuple[Listed, float]] = {}
        self._locks = {kind: anyio.Lock() for kind in KINDS}
        self._versions = dict.fromkeys(KINDS, 0)

    def asked_by(self, asker: Caller) -> "Listing":
        """Return the lists of the same session on behalf of another caller; none is known yet."""
        return Listing(self._session, self._bytes, self._reader, self._screen, asker)

    def known(self, kind: ItemKind) -> Listed | None:
        """The list as last seen, however old; None if it was never fetched."""
        kept = self._kept.get(kind)
        return None if kept is None else kept[0]

    def may_hold_tool(self, name: str) -> bool:
        """Whether this tool is in the list, or the list is known to be incomplete: it was never read to its end, or the
        server has said since that it changed."""
        if not isinstance(self._session.capabilities.get("tools"), dict):
            return False
        return self.is_open("tools") or self.holds("tools", name)

    def is_open(self, kind: ItemKind) -> bool:
        """Whether the list was never read to its end, or is known to have changed since."""
        return self._kept.get(kind, (EMPTY, 0.0))[1] == 0.0

    def holds(self, kind: ItemKind, name: str) -> bool:
        """Whether this name, URI or template is in the list as last seen."""
        return self.find(kind, name) is not None

    def find(self, kind: ItemKind, name: str) -> dict[str, Any] | None:
        """The definition under this name, URI or template in the list as last seen; None: there is none."""
        listed = self.known(kind)
        return None if listed is None else next((item for item in listed.items if item[KEYS[kind]] == name), None)

    def holds_uri(self, uri: str) -> bool:
        """Whether this resource, or a template that it fits, is in the lists as last seen."""
        if self.holds("resources", uri):
            return True
        templates = self.known("templates")
        return templates is not None and any(fits(each["uriTemplate"], uri) for each in templates.items)

    def forget(self, kind: ListKind) -> None:
        """Mark a list as changed, because the server said so."""
        for each in ("resources", "templates") if kind == "resources" else (kind,):
            self._versions[each] += 1
            if each in self._kept:
                self._kept[each] = (self._kept[each][0], 0.0)

    def doubt(self) -> None:
        """Have each list read again when it is next needed, because it may have changed without notice."""
        for kind in KINDS:
            self._versions[kind] += 1
        for kind, (listed, until) in self._kept.items():
            # Such a list does not count as known to be incomplete.
            self._kept[kind] = (listed, _PAST if until else until)

    def tells(self, kind: ItemKind) -> bool:
        """Whether the server promised to say when this list changes."""
        offered: object = self._session.capabilities.get("resources" if kind == "templates" else kind)
        return isinstance(offered, dict) and cast("dict[str, Any]", offered).get("listChanged") is True

    async def get(self, kind: ItemKind) -> Listed:
        """Return the current list; empty if the server does not offer this kind.

        Raises:
            UpstreamUnavailable: the list is over the bounds.
            PeerError, NoAnswer, LinkLost: see `Transport.request`.
        """
        if (at_hand := self.at_hand(kind)) is not None:
            return at_hand
        async with self._locks[kind]:
            if (at_hand := self.at_hand(kind)) is not None:
                return at_hand
            version = self._versions[kind]
            listed = await self._fetch(kind)
            # If a change was announced during the fetch, the pages may not contain it.
            until = (
                (float("inf") if self.tells(kind) else monotonic() + _SHORT) if self._versions[kind] == version else 0.0
            )
            self._kept[kind] = (listed, until)
            return listed

    def at_hand(self, kind: ItemKind) -> Listed | None:
        """The current list, if the server need not be asked for it; else None."""
        offered: object = self._session.capabilities.get("resources" if kind == "templates" else kind)
        if not isinstance(offered, dict):
            return EMPTY
        kept = self._kept.get(kind)
        return kept[0] if kept is not None and monotonic() < kept[1] else None

    async def _fetch(self, kind: ItemKind) -> Listed:
        items: list[object] = []
        around: dict[str, Any] = {}
        cursor: str | None = None
        seen = set[str]()
        last: list[object] | None = None
        caller = self._asker or (NOBODY_MODERN if self._session.modern else NOBODY)
        for _ in range(_PAGES):
            page = await self._page(kind, cursor, caller)
            found = self._reader.read_page(kind, FIELDS[kind], page)
            if last is None:
                around = _around(page, FIELDS[kind])
            # A server that knows no cursors answers each request with the same page.
            items += [] if found and found == last else found
            last = found
            if exceeds(items, self._bytes):
                raise self._unusable(f"describes its {kind} in more than {self._bytes} bytes (limits.result_bytes)")
            cursor = self._reader.read_cursor(kind, page.get("nextCursor"), seen)
            if cursor is None:
                read = self._reader.read(kind, items, modern=self._session.modern)
                return Listed(self._screen(read) if kind == "tools" else tuple(read), around)
            seen.add(cursor)
            if len(items) > _MOST:
                break
        raise self._unusable(f"lists too many {kind}: expected at most {_MOST}, in {_PAGES} pages")

    async def _page(self, kind: ItemKind, cursor: str | None, caller: Caller) -> dict[str, Any]:
        """One page of a list; an empty one if the server does not know the list that it promises."""
        try:
            return await self._session.request(METHODS[kind], {"cursor": cursor} if cursor else {}, caller)
        except PeerError as error:
            if cursor or error.error.get("code") != METHOD_NOT_FOUND:
                raise
        self._reader.warn_unknown(kind, FIELDS[kind], METHODS[kind])
        return {FIELDS[kind]: []}

    def _unusable(self, why: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"server {self._session.server!r} {why}", server=self._session.server)


def _around(page: Mapping[str, Any], field: str) -> dict[str, Any]:
    """What a page holds besides its items, without a `_meta` that is no object: clients would refuse the whole list."""
    kept = {key: value for key, value in page.items() if key not in (field, "nextCursor")}
    return kept if isinstance(kept.get("_meta", kept), dict) else {k: v for k, v in kept.items() if k != "_meta"}
