"""How often the tool that is meant is among the first of a ranking. Rankings in, counts out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bench.tool_search.definitions import Query
from gateway.proxy.naming import ToolEntry
from gateway.proxy.tool_search import rank

FIRST: Final = (1, 3, 5)
KINDS: Final = ("plain", "paraphrase")
Ranking = Callable[[str], Sequence[str]]
"""The tools that a query finds, best first, as `server/name`."""


def by_words(tools: Mapping[str, ToolEntry]) -> Ranking:
    """Return the ranking of the gateway's search."""
    known = {entry.name: each for each, entry in tools.items()}
    return lambda query: [known[entry.name] for entry in rank([*tools.values()], query)]


def hits(queries: Sequence[Query], ranking: Ranking) -> dict[str, Any]:
    """For each kind of query, return how many find their tool among the first, and the plain ones that do not."""
    places = {
        kind: [(query.tool, _place(ranking(getattr(query, kind)), query.tool)) for query in queries] for kind in KINDS
    }
    counts = {kind: {str(n): sum(place < n for _, place in found) for n in FIRST} for kind, found in places.items()}
    return {**counts, "plain_not_first": [tool for tool, place in places["plain"] if place]}


def _place(found: Sequence[str], tool: str) -> int:
    return found.index(tool) if tool in found else len(found) + max(FIRST)
