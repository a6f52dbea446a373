"""What a tool costs before it is called: the tokens of its definition, which models read with every request.

Turns definitions into token counts under a map, or into estimates where there is none. Counts are remembered as long as
the tool exists. It shows nothing and sends nothing.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.to_thread

from gateway.observe.backend_metrics import ServerMetrics
from gateway.proxy.naming import ToolEntry
from gateway.proxy.proxy import Proxy
from leaf_sdk.vocab import TokenMap

BYTES_A_TOKEN: Final = 4
"""Rough average for English and JSON under today's vocabularies."""
_LONGEST: Final = 65_536
"""Characters of the longest definition that is counted (40 ms); a longer one is estimated."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one definition costs."""

    tokens: int
    estimated: bool
    """Whether `tokens` is a quarter of the bytes, because no map is loaded or the definition is very long."""


class DefinitionCosts:
    """The costs of all current tools."""

    def __init__(self, token_map: Callable[[], TokenMap | None]) -> None:
        """`token_map` returns the map to count with; None while there is none."""
        self._token_map = token_map
        self._known: dict[tuple[str, str], Cost] = {}
        self._seen: dict[tuple[str, int], tuple[Mapping[str, Any], Cost]] = {}
        """By map and address, the definitions that were counted last: each request asks for all. One that is made for
        a request, under an alias or for one user, is looked up by its text."""
        self._changed = anyio.Event()
        self.sums: Mapping[str, int] = {}
        """Tokens of all definitions of each server's tools, as last counted."""

    def of(self, entry: ToolEntry) -> Cost:
        """What this tool costs; an estimate until it has been counted."""
        token_map = self._token_map()
        map_id = "" if token_map is None else token_map.map_id
        if (found := self._seen.get((map_id, id(entry.definition)))) is not None:
            return found[1]
        text = definition_text(entry)
        return self._known.get((map_id, text)) or _estimate(text)

    def count(self, entries: Iterable[ToolEntry]) -> dict[str, int]:
        """Count new tools, forget removed ones, and return the sum for each server. About 0.6 ms for each new tool."""
        token_map = self._token_map()
        map_id = "" if token_map is None else token_map.map_id
        known: dict[tuple[str, str], Cost] = {}
        seen: dict[tuple[str, int], tuple[Mapping[str, Any], Cost]] = {}
        sums: dict[str, int] = {}
        for entry in entries:
            text = definition_text(entry)
            key = map_id, text
            cost = self._known.get(key) or _count(text, token_map)
            known[key] = cost
            # Kept with its address, which would otherwise be another's one day.
            seen[map_id, id(entry.definition)] = entry.definition, cost
            sums[entry.server] = sums.get(entry.server, 0) + cost.tokens
        self._known, self._seen = known, seen
        self.sums = sums
        return sums

    def again(self) -> None:
        """Have `follow` count again, because the tools or the map changed."""
        self._changed.set()

    async def follow(self, proxy: Proxy, metrics: ServerMetrics, counted: Callable[[], Awaitable[None]]) -> None:
        """Count after every change, in a thread, set the metric and call `counted`; runs until cancelled."""
        proxy.on_tools_changed(self.again)
        while True:
            self._changed = anyio.Event()
            metrics.defined(await anyio.to_thread.run_sync(self.count, proxy.tools()))
            await counted()
            await self._changed.wait()


def definition_text(entry: ToolEntry) -> str:
    """A tool as chat templates write it for a model: in OpenAI's form, as JSON."""
    function: dict[str, Any] = {
        # An alias is about as long, and one definition is to be counted once.
        "name": entry.alias_of or entry.name,
        "description": entry.definition.get("description") or "",
        "parameters": entry.definition.get("inputSchema") or {},
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def _count(text: str, token_map: TokenMap | None) -> Cost:
    if token_map is None or len(text) > _LONGEST:
        return _estimate(text)
    return Cost(len(token_map.encode(text.encode("utf-8", "replace").decode("utf-8"))), estimated=False)


def _estimate(text: str) -> Cost:
    return Cost(-(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN), estimated=True)
