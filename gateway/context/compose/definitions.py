"""Where a prompt holds the definitions of tools, and from which server each comes.

Turns the ids of a text that holds definitions into spans: `tools` for each definition and for the words that teach
calls, another source for the rest. Templates write a definition as JSON; one that writes it in another form is not
recognised, and its ids keep the other source. Pure.
"""

import json
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from gateway.context.history.template_messages import tool_definitions
from gateway.observe.trajectories import Source, Span
from gateway.toolcalls.formats.registry import describe_tool
from gateway.toolcalls.schema.spec import ToolSpec
from leaf_sdk.vocab import TokenMap

_MOST_MISSES: Final = 8
"""Definitions that may be missing from a text before the rest is not looked for: each costs a walk through it."""
_PUNCTUATION: Final = frozenset(b" \t\r\n,;[]")
"""What stands between two definitions of a list."""
LEAST: Final = 16
"""Fewest tokens of a part that may hold a definition."""
_KEPT: Final = 32
"""Parts of prompts whose spans are kept."""


class _Place(NamedTuple):
    """A part of a text, in bytes."""

    start: int
    end: int
    tool: str | None = None


class DefinitionCache:
    """Spans of parts of prompts that were searched before: most conversations begin with the same definitions."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Sequence[Span]] = OrderedDict()

    def spans(
        self, ids: Sequence[int], around: Source, tools: Hashable, definitions: "Callable[[], Definitions]"
    ) -> Sequence[Span]:
        """Return `Definitions.spans`. `tools`: equal only for equal tools of equal servers under equal maps."""
        key = (tools, around, tuple(ids))
        if key not in self._known:
            self._known[key] = definitions().spans(ids, around)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


class Definitions:
    """The definitions of one conversation's tools."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        token_map: TokenMap,
        servers: Mapping[str, str | None],
        taught: str = "",
    ) -> None:
        """`servers`: by the names of tools; `taught`: the text that teaches the tools, if the gateway does that."""
        self._map = token_map
        self._servers = servers
        self._taught = taught.encode("utf-8", "replace")
        self._tools = list(zip(tools, tool_definitions(tools), strict=True))

    def spans(self, ids: Sequence[int], around: Source) -> list[Span]:
        """Return the spans of such ids. `around`: the source of ids that are not part of a definition."""
        pieces = [self._map.table.get(token_id) or b"" for token_id in ids]
        text = b"".join(pieces)
        ends = [0, *accumulate(map(len, pieces))]
        spans: list[Span] = []
        at = 0
        for place in self._places(text):
            # An id belongs to where its first byte is.
            start, end = bisect_left(ends, place.start, 0, len(ids)), bisect_left(ends, place.end, 0, len(ids))
            server = None if place.tool is None else self._servers.get(place.tool)
            found = [Span(around, start - at), Span("tools", end - max(start, at), place.tool, server)]
            spans += [span for span in found if span.count > 0]
            at = max(end, at)
        return [*spans, *([Span(around, len(ids) - at)] if at < len(ids) else [])]

    def _places(self, text: bytes) -> list[_Place]:
        """The definitions in a text in order, and all that belongs to them, without gaps inside what was taught."""
        found = sorted(self._found(text))
        start = text.find(self._taught) if self._taught else -1
        if start >= 0:
            return list(_filled(found, start, start + len(self._taught)))
        for number, (place, after) in enumerate(pairwise(found)):
            if _PUNCTUATION.issuperset(text[place.end : after.start]):
                found[number] = place._replace(end=after.start)
        return found

    def _found(self, text: bytes) -> Iterator[_Place]:
        """The definitions in a text. A template writes all of them in the form of the first one that is found."""
        forms, at, misses = _FORMS, 0, 0
        for tool, definition in self._tools:
            for form in forms:
                written = form(tool, definition)
                # They usually stand in order.
                start = text.find(written, at)
                if start < 0 and at:
                    start = text.find(written)
                if start >= 0:
                    forms, at = (form,), start + len(written)
                    yield _Place(start, at, tool.name)
                    break
            else:
                misses += 1
            if misses == _MOST_MISSES:
                return


_Form = Callable[[ToolSpec, dict[str, Any]], bytes]


def _json(value: object, indent: int | None) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=dict).encode("utf-8", "replace")


def _whole(indent: int | None) -> _Form:
    return lambda _, definition: _json(definition, indent)


def _function(indent: int | None) -> _Form:
    return lambda _, definition: _json(definition["function"], indent)


def _described(tool: ToolSpec, _: dict[str, Any]) -> bytes:
    return describe_tool(tool).encode("utf-8", "replace")


_INDENTS: Final = (None, 2, 4)
_FORMS: Final[Sequence[_Form]] = (*map(_whole, _INDENTS), *map(_function, _INDENTS), _described)
"""How a definition may be written, the longest forms first."""


def _filled(places: Sequence[_Place], start: int, end: int) -> Iterator[_Place]:
    """These places, and places without a tool between, before and after them."""
    at = start
    for place in places:
        if place.start > at:
            yield _Place(at, place.start)
        yield place
        at = place.end
    if at < end:
        yield _Place(at, end)
