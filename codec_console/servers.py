"""Servers: the state of each, how long its calls took, which tools it offers, and how many tokens these cost.

Turns the gateway's status report, its metrics and the last calls into a table of servers and a page for each. Names,
messages and reasons come from the servers: templates show them as text.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import anyio.to_thread
from starlette.responses import Response

from codec_console.histogram import picture_of
from codec_console.missing import PageNotFound
from codec_console.pins import changes_or_problem
from codec_console.visit import Page, PageGroup, Visit, unless_shown
from gateway.observe.logs import ShippedKind
from gateway.proxy.naming import ToolEntry

_TOOLS: Final = 100
"""Tools on one page."""
_CALLS: Final = 20
_NAME: Final = 1000
"""Maximum characters of a name that, once quoted, still fits into a URL."""


class ToolRow(NamedTuple):
    """One tool in the table of its server's tools."""

    entry: ToolEntry
    tokens: int
    estimated: bool
    counts: dict[ShippedKind, int]

    @property
    def has_page(self) -> bool:
        """Whether a URL can hold its name: a longer URL is refused before it is read."""
        return len(self.entry.name) <= _NAME


class Servers(PageGroup):
    """The pages of servers."""

    def pages(self) -> Sequence[Page]:
        """The pages and their paths."""
        return (Page("/console/servers", self._show_all), Page("/console/server", self._show_one))

    async def _show_all(self, visit: Visit) -> Response:
        costs, proxy = self._sources.costs, self._sources.proxy
        offered: dict[str, int] = {}
        for entry in proxy.tools():
            offered[entry.server] = offered.get(entry.server, 0) + 1
        changes, problem = await anyio.to_thread.run_sync(changes_or_problem, self._sources.config)
        told: dict[str, Any] = {
            "servers": self._sources.status.servers(),
            "offered": offered,
            "costs": costs.sums,
            "changed": len(changes),
            "problem": problem,
            "shim": self._sources.metrics.get_shim_metrics(),
        }

        async def make() -> Response:
            return self._render("servers.html", visit, **told)

        return await unless_shown(visit, (told,), make)

    async def _show_one(self, visit: Visit) -> Response:
        name, wanted = visit.query("name"), visit.query("q").strip().lower()
        server = next((each for each in self._sources.status.servers() if each["name"] == name), None)
        if server is None:
            raise PageNotFound(f"no server is called {name!r:.80}: /console/servers lists those that there are")
        entries = [each for each in self._sources.proxy.tools() if each.server == name]
        found = [each for each in entries if wanted in each.name.lower()]
        first = _TOOLS * visit.number("page")
        told: dict[str, Any] = {
            "server": server,
            "total": len(entries),
            "found": len(found),
            "first": first,
            "wanted": visit.query("q"),
            "cost": self._sources.costs.sums.get(name, 0),
            "picture": picture_of(self._sources.metrics.call_times(name)),
            "calls": self._sources.proxy.last_calls.of(name)[:_CALLS],
            "user_page": self._user_page(name),
        }

        async def make() -> Response:
            tools = [self._row(each) for each in found[first : first + _TOOLS]]
            return self._render("server.html", visit, section="/console/servers", tools=tools, step=_TOOLS, **told)

        # The rows of tools are not part of the tag: what changes in them changes `cost` or `calls` as well.
        return await unless_shown(visit, (told,), make)

    def _user_page(self, name: str) -> str:
        """Where each user signs in to the server for themselves; empty: they do not."""
        config = next((each for each in self._sources.proxy.config.upstreams if each.name == name), None)
        return config.auth.user_page(name) if config is not None and config.auth and config.auth.per_user else ""

    def _row(self, entry: ToolEntry) -> ToolRow:
        cost = self._sources.costs.of(entry)
        return ToolRow(entry, cost.tokens, cost.estimated, dict(self._sources.notices.counts(entry.name)))
