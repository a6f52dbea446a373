"""Events to deltas in OpenAI's shape, one by one.

A call's first delta has its index, id, type and whole name; those after it have its index and a piece of its arguments.
Nothing is repeated: clients append what they get. Knows no chunks and no HTTP. Source: OpenAI's API reference, "The
chat completion chunk object".
"""

from typing import Any

from gateway.toolcalls.stream.events import CallArguments, CallStarted, Content, Event, Reasoning


def event_delta(event: Event) -> dict[str, Any] | None:
    """Return an event's delta; None for those that have no place in a stream of deltas (a call's end, a diagnostic)."""
    match event:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStarted(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, fragment):
            return {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}
        case _:
            return None
