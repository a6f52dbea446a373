"""Where the ids of a context came from, recorded while it grows, and only where somebody asks for it.

Turns the parts of a rendering into spans: the template's own text, the messages by their roles, and turns and results
that keep their ids as they were lived. Where the source is not exact, a rule decides: names and arguments of calls that
a template writes count as its own, and so does a whole rendering in which it reads or rewrites contents. Definitions of
tools, and the words that teach calls, are found in it as JSON; another form is not recognised. Pure.
"""

import json
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from gateway.context.history.template_messages import tool_definitions
from gateway.context.memory import Recalled, Turn
from gateway.engine.interface import Message
from gateway.engine.rendering.prompt_ids import Part
from gateway.engine.rendering.template import Rendering
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
_Form = Callable[[ToolSpec, dict[str, Any]], bytes]
_INDENTS: Final = (None, 2, 4)
DefinitionsIn = Callable[[Sequence[int], Source], Sequence[Span]]
"""Returns the spans of ids that may hold definitions of tools, given the source of the other ids."""
ServerOf = Callable[[str], str | None]
"""Returns the server of a tool, by its public name; None for a tool of the client's, or an unknown one."""


@dataclass(slots=True)
class SourceTrail:
    """The sources of a context's ids after the first `kept`; those belong to the answer before."""

    kept: int = 0
    spans: list[Span] = field(default_factory=list[Span])

    def add(self, spans: Iterable[Span]) -> None:
        """Note the sources of ids that are appended."""
        for span in spans:
            last = self.spans[-1] if self.spans else None
            if last is not None and last.is_like(span):
                self.spans[-1] = last.of(last.count + span.count)
            elif span.count:
                self.spans.append(span)

    def keep(self, same: int) -> None:
        """Leave the first `same` ids to the answer before, which has the same ones.

        Ids between these and `kept` are the text of a turn that was cut, tokenized here.
        """
        cut, left = self.kept - same, same - self.kept
        spans, self.spans, self.kept = self.spans, [], same
        if cut > 0:
            self.add([Span("assistant", cut)])
        for span in spans:
            skipped = min(max(left, 0), span.count)
            left -= skipped
            self.add([span.of(span.count - skipped)])


@lru_cache(1024)
def span_without_tool(source: Source, count: int) -> Span:
    """Ids of a source that is no tool. Kept, since the same few lengths come again and again."""
    return Span(source, count)


def spans_of_text(role: str, count: int, name: str | None = None, server: str | None = None) -> Span:
    """The source of ids that were made from a message's text. `name`: the tool whose result it is; `server`: its
    server."""
    match role:
        case "user" | "assistant":
            return span_without_tool(role, count)
        case "tool":
            return Span("shim", count, name, server)
        case _:
            return span_without_tool("system", count)


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
            start, end = bisect_left(ends, place.start), bisect_left(ends, place.end)
            server = None if place.tool is None else self._servers.get(place.tool)
            found = [Span(around, start - at), Span("tools", end - max(start, at), place.tool, server)]
            spans += [span for span in found if span.count > 0]
            at = max(end, at)
        return [*spans, *([Span(around, len(ids) - at)] if at < len(ids) else [])]

    def _places(self, text: bytes) -> list[_Place]:
        """The definitions in a text in order, and all that belongs to them, without gaps inside what was taught."""
        found = sorted(self._found(text))
        if self._taught and (start := text.find(self._taught)) >= 0:
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


def _json(value: object, indent: int | None) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=dict).encode("utf-8", "replace")


def _whole(indent: int | None) -> _Form:
    return lambda _, definition: _json(definition, indent)


def _function(indent: int | None) -> _Form:
    return lambda _, definition: _json(definition["function"], indent)


def _described(tool: ToolSpec, _: dict[str, Any]) -> bytes:
    return describe_tool(tool).encode("utf-8", "replace")


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


def spans_of_rendering(
    rendering: Rendering, turns: Sequence[Turn], moved: int, server_of: ServerOf, definitions: DefinitionsIn | None
) -> list[Span]:
    """Return the sources of a rendering's ids.

    `moved`: number of messages that were put before the turns. `definitions`: finds those of tools, if there are any.
    """
    tools = _Tools([turn.message for turn in turns], server_of)
    spans: list[Span] = []
    start = 0
    for part in rendering.parts:
        if part.ids:
            found = _spans_of_part(part, rendering, turns, moved, tools)
            if definitions is not None and part.ids >= LEAST and found[0].source in ("template", "system"):
                found = definitions(rendering.ids[start : start + part.ids], found[0].source)
            spans += found
            start += part.ids
    return spans


def _spans_of_part(
    part: Part, rendering: Rendering, turns: Sequence[Turn], moved: int, tools: "_Tools"
) -> Sequence[Span]:
    if part.message is None:
        return (span_without_tool("template", part.ids),)
    number, shown = rendering.form[part.message]
    if number is None or number < moved:
        # A message that was put before the client's messages, or made of several of them.
        return (tools.span_of(shown, part.ids),)
    return _spans_of_turn(turns[number - moved], part.ids, tools, held=part.held)


def spans_of_new(recalled: Recalled, contents: Sequence[Sequence[int]], server_of: ServerOf) -> list[Sequence[Span]]:
    """Return the sources of a continued conversation's new messages. `contents`: their ids."""
    tools = _Tools([turn.message for turn in recalled.lived[-1:]], server_of)
    return [
        _spans_of_turn(turn, len(ids), tools, held=turn.lived is not None and ids is turn.lived.ids)
        for turn, ids in zip(recalled.new, contents, strict=True)
    ]


class _Tools:
    """The tools that a history calls."""

    def __init__(self, messages: Sequence[Message], server_of: ServerOf) -> None:
        self._server_of = server_of
        calls = (call for message in messages for call in message.get("tool_calls") or ())
        self._names = {str(call.get("id")): str(call["function"]["name"]) for call in calls}

    def span_of(self, message: Message, count: int) -> Span:
        """The source of ids that were made from a message's text."""
        name = message.get("name") or self._names.get(str(message.get("tool_call_id")))
        if message["role"] != "tool" or not isinstance(name, str):
            return spans_of_text(str(message["role"]), count)
        # A client that names a server with a tool that there is no longer has a slash in between (`responses`).
        server, slash, _ = name.partition("/")
        return spans_of_text("tool", count, name, self._server_of(name) or (server if slash else None))


def _spans_of_turn(turn: Turn, count: int, tools: _Tools, *, held: bool) -> Sequence[Span]:
    """The sources of one turn's ids. `held`: whether the ids are those that it was lived with."""
    lived = turn.lived
    if lived is not None and held and (lived.spans or lived.turn is not None):
        return lived.spans or (Span("model", count),)
    return (tools.span_of(turn.message, count),)
