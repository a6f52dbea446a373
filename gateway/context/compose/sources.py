"""Where the ids of a prompt come from.

Turns the parts of a rendering into spans: the template's own text, the messages by their roles, and turns and results
that keep their ids as they were lived. Where the source is not exact, a rule decides: names and arguments of calls that
a template writes count as its own, and so does a whole rendering in which it reads or rewrites contents. Definitions of
tools are found in it (`definitions.py`). Pure.
"""

from collections.abc import Callable, Sequence

from gateway.context.compose.definitions import LEAST
from gateway.context.compose.source_trail import span_without_tool, spans_of_text
from gateway.context.memory import Recalled, Turn
from gateway.engine.interface import Message
from gateway.engine.rendering.rendered import Part
from gateway.engine.rendering.template import Rendering
from gateway.observe.trajectories import Source, Span

DefinitionsIn = Callable[[Sequence[int], Source], Sequence[Span]]
"""Returns the spans of ids that may hold definitions of tools, given the source of the other ids."""
ServerOf = Callable[[str], str | None]
"""Returns the server of a tool, by its public name; None for a tool of the client's, or an unknown one."""


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
