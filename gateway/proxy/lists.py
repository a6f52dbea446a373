"""The lists of all servers that a client sees, as one.

Asks every server at the same time, leaves out those that don't answer, and gives names and filters to what is left. A
merged list is kept as long as every server still says the same.
"""

from collections.abc import Sequence
from typing import Any, Final

import anyio

from gateway.errors import UpstreamError
from gateway.observe.logs import get_logger
from gateway.proxy.caller import Caller, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.naming import Naming
from gateway.proxy.offers import list_result
from gateway.proxy.upstream.listing import Kind, Listed
from gateway.proxy.upstream.members import Member
from gateway.proxy.upstream.upstream import Upstream

_KEPT: Final = 64
Answer = tuple[Upstream, Listed, Member]
_Key = tuple[Kind, Principal, Naming, int]


class Lists:
    """Makes merged lists."""

    def __init__(self, catalog: Catalog) -> None:
        """Nothing is kept yet."""
        self._catalog = catalog
        self._log = get_logger("gateway.proxy")
        self._kept: dict[_Key, tuple[tuple[Listed, ...], list[dict[str, Any]]]] = {}

    async def merged(self, kind: Kind, upstreams: Sequence[Upstream], caller: Caller) -> dict[str, Any]:
        """The result of a list request, in the caller's era."""
        answers = await self._ask_all(kind, upstreams, caller)
        items = self._items(kind, answers, caller.principal)
        lists = [(listed, member.session.modern) for _, listed, member in answers]
        info = answers[0][2].session.info if len(answers) == 1 else {}
        return list_result(kind, items, lists if len(upstreams) == 1 else (), info, modern=caller.modern)

    async def _ask_all(self, kind: Kind, upstreams: Sequence[Upstream], caller: Caller) -> list[Answer]:
        found: dict[str, Answer] = {}

        async def ask(upstream: Upstream) -> None:
            try:
                listed, member = await upstream.lists.get(kind, caller)
            except UpstreamError as error:
                self._log.debug("left out of a list", server=upstream.config.name, kind=kind, cause=error.message)
            else:
                found[upstream.config.name] = upstream, listed, member

        if len(upstreams) == 1:
            await ask(upstreams[0])
        else:
            async with anyio.create_task_group() as tasks:
                for upstream in upstreams:
                    tasks.start_soon(ask, upstream)
        return [found[each.config.name] for each in upstreams if each.config.name in found]

    def _items(self, kind: Kind, answers: Sequence[Answer], principal: Principal) -> list[dict[str, Any]]:
        lists = tuple(listed for _, listed, _ in answers)
        # Whose a URI is may change with what another server lists.
        key = (kind, principal, self._catalog.naming, self._catalog.uris.version)
        kept = self._kept.get(key)
        if kept is not None and len(kept[0]) == len(lists) and all(a is b for a, b in zip(kept[0], lists, strict=True)):
            return kept[1]
        items: dict[str, dict[str, Any]] = {}
        for upstream, listed, _ in answers:
            for name, item in self._named(kind, upstream, listed, principal):
                items.setdefault(name, item)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = (lists, list(items.values()))
        return self._kept[key][1]

    def _named(
        self, kind: Kind, upstream: Upstream, listed: Listed, principal: Principal
    ) -> list[tuple[str, dict[str, Any]]]:
        server = upstream.config.name
        if kind == "tools":
            entries = self._catalog.naming.entries(server, listed.items)
            return [(entry.name, entry.definition) for entry in entries if principal.may_call(server, entry.name)]
        if kind == "prompts":
            named = [(self._catalog.naming.prompt(server, item["name"]), item) for item in listed.items]
            return [(name, {**item, "name": name}) for name, item in named if name is not None]
        key = "uri" if kind == "resources" else "uriTemplate"
        shown = [(item[key], item) for item in listed.items if self._catalog.naming.shows(server, item[key])]
        owner = self._catalog.uris.owner if kind == "resources" else self._catalog.uris.lister
        # What only this client's own session listed is nobody's yet.
        return [pair for pair in shown if owner(pair[0], principal) in (server, None)]
