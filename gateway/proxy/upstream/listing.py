"""What one session lists: tools, prompts, resources and templates, raw, fetched once and kept while it is true.

A list is kept until the server says that it changed. One that never promised to say so is kept for a moment only, so
that its clients see what a direct one would. Many askers of a list that is being fetched wait for the one fetch. It
knows no names of ours and no other session.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Literal, cast

import anyio

from gateway.errors import UpstreamUnavailable
from gateway.proxy.caller import NOBODY, NOBODY_MODERN, Caller
from gateway.proxy.results import exceeds
from gateway.proxy.upstream.session import ListKind, Session
from gateway.proxy.uris import fits

Kind = Literal["tools", "prompts", "resources", "templates"]
KINDS: Final[tuple[Kind, ...]] = ("tools", "prompts", "resources", "templates")
METHODS: Final[dict[Kind, str]] = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
FIELDS: Final[dict[Kind, str]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resourceTemplates",
}
_KEYS: Final[dict[Kind, str]] = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}
Screen = Callable[[Sequence[dict[str, Any]]], tuple[dict[str, Any], ...]]
_PAGES: Final = 100
_MOST: Final = 5000
_PAST: Final = -1.0
_SHORT: Final = 1.0
"""Seconds that the list of a server is kept which does not promise to tell of changes."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One list, complete."""

    items: tuple[dict[str, Any], ...]
    """Raw definitions, in the server's order. What has no name is left out."""
    around: dict[str, Any]
    """The other fields of the first page's result (`_meta`, `ttlMs`, what we don't know), without the cursor, in the
    era of the session."""


EMPTY: Final = Listed((), {})


class Listing:
    """The lists of one session."""

    def __init__(
        self, session: Session, result_bytes: int, screen: Screen = tuple, asker: Caller | None = None
    ) -> None:
        """`result_bytes`: largest list, in bytes. `screen` gives the tools of a list that may be shown. `asker`: in
        whose name the lists are asked for; unset: somebody who announces nothing.
        """
        self._session = session
        self._asker = asker
        self._bytes = result_bytes
        self._screen = screen
        self._kept: dict[Kind, tuple[Listed, float]] = {}
        self._locks = {kind: anyio.Lock() for kind in KINDS}
        self._turns = dict.fromkeys(KINDS, 0)

    def asked_by(self, asker: Caller) -> "Listing":
        """The lists of the same session, none known yet, in the name of another."""
        return Listing(self._session, self._bytes, self._screen, asker)

    def known(self, kind: Kind) -> Listed | None:
        """The list as last seen, however old; None if it was never asked for."""
        kept = self._kept.get(kind)
        return None if kept is None else kept[0]

    def may_hold_tool(self, name: str) -> bool:
        """Whether this tool stands in the list, or the list is known to be incomplete: it was never read to its end, or
        the server said since that it changed."""
        if not isinstance(self._session.capabilities.get("tools"), dict):
            return False
        return self.is_open("tools") or self.holds("tools", name)

    def is_open(self, kind: Kind) -> bool:
        """Whether the list was never read to its end, or is known to have changed since."""
        return self._kept.get(kind, (EMPTY, 0.0))[1] == 0.0

    def holds(self, kind: Kind, name: str) -> bool:
        """Whether this name, URI or template stands in the list as last seen."""
        listed = self.known(kind)
        return listed is not None and any(item[_KEYS[kind]] == name for item in listed.items)

    def holds_uri(self, uri: str) -> bool:
        """Whether this resource stands in the list as last seen, or a template that it fits."""
        if self.holds("resources", uri):
            return True
        templates = self.known("templates")
        return templates is not None and any(fits(each["uriTemplate"], uri) for each in templates.items)

    def forget(self, kind: ListKind) -> None:
        """The server says that it changed."""
        for each in ("resources", "templates") if kind == "resources" else (kind,):
            self._turns[each] += 1
            if each in self._kept:
                self._kept[each] = (self._kept[each][0], 0.0)

    def doubt(self) -> None:
        """What the server lists may have changed without a word: each list is read again when it is asked for."""
        for kind in KINDS:
            self._turns[kind] += 1
        for kind, (listed, until) in self._kept.items():
            # It is not known to be incomplete for that.
            self._kept[kind] = (listed, _PAST if until else until)

    def tells(self, kind: Kind) -> bool:
        """Whether the server promised to say when this list changes."""
        offered: object = self._session.capabilities.get("resources" if kind == "templates" else kind)
        return isinstance(offered, dict) and cast("dict[str, Any]", offered).get("listChanged") is True

    async def get(self, kind: Kind) -> Listed:
        """The list as it is now; empty where the server does not offer the kind.

        Raises:
            UpstreamUnavailable: it does not end within the bounds.
            PeerError, NoAnswer, LinkLost: as `Transport.request`.
        """
        if (at_hand := self.at_hand(kind)) is not None:
            return at_hand
        async with self._locks[kind]:
            if (at_hand := self.at_hand(kind)) is not None:
                return at_hand
            turn = self._turns[kind]
            listed = await self._fetch(kind)
            # A change that was announced while the pages came may not be in them.
            until = (float("inf") if self.tells(kind) else monotonic() + _SHORT) if self._turns[kind] == turn else 0.0
            self._kept[kind] = (listed, until)
            return listed

    def at_hand(self, kind: Kind) -> Listed | None:
        """The list as it is now, as far as the server need not be asked for it."""
        offered: object = self._session.capabilities.get("resources" if kind == "templates" else kind)
        if not isinstance(offered, dict):
            return EMPTY
        kept = self._kept.get(kind)
        return kept[0] if kept is not None and monotonic() < kept[1] else None

    async def _fetch(self, kind: Kind) -> Listed:
        items: list[dict[str, Any]] = []
        around: dict[str, Any] = {}
        cursor: object = None
        caller = self._asker or (NOBODY_MODERN if self._session.modern else NOBODY)
        for page_number in range(_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            page = await self._session.request(METHODS[kind], params, caller)
            if page_number == 0:
                around = {key: value for key, value in page.items() if key not in (FIELDS[kind], "nextCursor")}
            items += _objects(page.get(FIELDS[kind]), _KEYS[kind])
            if exceeds(items, self._bytes):
                raise self._unusable(f"describes its {kind} in more than {self._bytes} bytes (limits.result_bytes)")
            cursor = page.get("nextCursor")
            if cursor is None:
                return Listed(self._screen(items) if kind == "tools" else tuple(items), around)
            if len(items) > _MOST:
                break
        raise self._unusable(f"lists {kind} without end: expected at most {_MOST} in {_PAGES} pages")

    def _unusable(self, why: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"server {self._session.server!r} {why}", server=self._session.server)


def _objects(page: object, key: str) -> list[dict[str, Any]]:
    entries = cast("list[object]", page) if isinstance(page, list) else []
    objects = [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]
    return [entry for entry in objects if isinstance(entry.get(key), str)]
