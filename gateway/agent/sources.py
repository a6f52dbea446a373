"""Where the ids of a prompt come from, and the trajectory's line for an answer.

Turns the parts of a rendering into spans: the template's own text, the messages by their roles, and turns and results
that keep their ids as they were lived. Where the source is not exact, a rule decides: names and arguments of calls that
a template writes count as its own, and so does a whole rendering in which it reads or rewrites contents. Definitions of
tools are found in it (`definitions.py`). Pure.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence

from gateway.agent.calls import FinishedCall
from gateway.agent.conversation import Conversation
from gateway.agent.definitions import LEAST
from gateway.agent.memory import Recalled, Turn
from gateway.agent.trail import plain_span, spans_of_text
from gateway.engine.interface import Message
from gateway.engine.rendered import Part
from gateway.engine.template import Prompt
from gateway.observe.trajectories import Answer, Source, Span

DefinitionsIn = Callable[[Sequence[int], Source], Sequence[Span]]
"""Returns the spans of ids that may hold definitions of tools, given the source of the other ids."""


def spans_of_rendering(
    prompt: Prompt, turns: Sequence[Turn], moved: int, definitions: DefinitionsIn | None
) -> list[Span]:
    """Return the sources of a rendering's ids.

    `moved`: number of messages that were put before the turns. `definitions`: finds those of tools, if there are any.
    """
    names = _tool_names([turn.message for turn in turns])
    spans: list[Span] = []
    start = 0
    for part in prompt.parts:
        if part.ids:
            found = _spans_of_part(part, prompt, turns, moved, names)
            if definitions is not None and part.ids >= LEAST and found[0].source in ("template", "system"):
                found = definitions(prompt.ids[start : start + part.ids], found[0].source)
            spans += found
            start += part.ids
    return spans


def _spans_of_part(
    part: Part, prompt: Prompt, turns: Sequence[Turn], moved: int, names: Mapping[str, str]
) -> Sequence[Span]:
    if part.message is None:
        return (plain_span("template", part.ids),)
    number, shown = prompt.form[part.message]
    if number is None or number < moved:
        # A message that was put before the client's messages, or made of several of them.
        return (spans_of_text(shown["role"], part.ids, names.get(str(shown.get("tool_call_id")))),)
    return _spans_of_turn(turns[number - moved], part.ids, names, held=part.held)


def spans_of_new(recalled: Recalled, contents: Sequence[Sequence[int]]) -> list[Sequence[Span]]:
    """Return the sources of a continued conversation's new messages. `contents`: their ids."""
    names = _tool_names([turn.message for turn in recalled.lived[-1:]])
    return [
        _spans_of_turn(turn, len(ids), names, held=turn.lived is not None and ids is turn.lived.ids)
        for turn, ids in zip(recalled.new, contents, strict=True)
    ]


def spans_of_result(outcome: FinishedCall, server: str | None) -> tuple[Span, ...]:
    """Return the sources of the ids of a call's result."""
    finished = outcome.finished
    if finished.is_error:
        return (Span("error", len(outcome.ids), finished.name, server),)
    return tuple(Span(piece.source, len(piece.ids), finished.name, server) for piece in outcome.pieces)


def answer_of(conversation: Conversation, ended: str) -> Answer | None:
    """Return the trajectory's line for a finished answer; None where none is to be written."""
    trail, ready = conversation.trail, conversation.ready
    if trail is None or not trail.sampled:
        return None
    return Answer(
        answer_id=conversation.answer_id,
        before=trail.before,
        principal=conversation.principal.name,
        map_id=ready.token_map.map_id,
        model=ready.facts.model,
        ended=ended,
        kept=trail.kept,
        ids=array("I", conversation.ids[trail.kept :]),
        spans=trail.spans,
        sampled=trail.sampled,
    )


def _tool_names(messages: Sequence[Message]) -> dict[str, str]:
    """The names of the called tools by the ids of the calls."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return {str(call.get("id")): str(call["function"]["name"]) for call in calls}


def _spans_of_turn(turn: Turn, count: int, names: Mapping[str, str], *, held: bool) -> Sequence[Span]:
    """The sources of one turn's ids. `held`: whether the ids are those that it was lived with."""
    lived, role = turn.lived, str(turn.message["role"])
    if lived is not None and held:
        return lived.spans or (Span("model", count),)
    name = turn.message.get("name") or names.get(str(turn.message.get("tool_call_id")))
    return (spans_of_text(role, count, name if isinstance(name, str) else None),)
