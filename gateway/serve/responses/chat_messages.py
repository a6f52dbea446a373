"""Messages in the shape of chats among a request's items: their calls and results become items of their own.

Clients that speak both APIs keep one history and send it to either, so an assistant's message may hold `tool_calls`,
and a result may be a message of the role `tool`. What is no such message stays as it is. Source: OpenAI's API
reference, "Create chat completion", `messages`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from gateway.context.history.client_messages import checked_call, in_todays_form


def as_items(given: Sequence[object]) -> Iterator[tuple[str, object]]:
    """Yield the items of an input, each with its place in it. Raises `RequestInvalid` for a call without a name."""
    for number, each in enumerate(in_todays_form(given)):
        where = f"input[{number}]"
        message: Mapping[str, Any] = cast("Mapping[str, Any]", each) if isinstance(each, Mapping) else {}
        of_chat = message.get("type", "message") == "message"
        if of_chat and message.get("role") == "tool":
            yield where, {"type": "function_call_output", **_call_id(message), "output": message.get("content")}
        elif of_chat and message.get("role") == "assistant" and message.get("tool_calls"):
            yield from ((where, item) for item in _of_answer(message, where))
        else:
            yield where, each


def _call_id(message: Mapping[str, Any]) -> dict[str, Any]:
    given: object = message.get("tool_call_id")
    return {"call_id": str(given) if isinstance(given, int) else given}


def _of_answer(message: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    if isinstance(thought := message.get("reasoning_content"), str):
        yield {"type": "reasoning", "content": [{"type": "reasoning_text", "text": thought}]}
    if message.get("content"):
        yield {"type": "message", "role": "assistant", "content": message["content"]}
    calls: object = message["tool_calls"]
    for call in cast("list[object]", calls) if isinstance(calls, list) else [calls]:
        checked = checked_call(call, f"{where}.tool_calls")
        yield {"type": "function_call", "call_id": checked.get("id"), **checked["function"]}
