"""Messages of a client, made ready for the engine's template.

For templates without support for tools, it moves the tool definitions into a system preamble and writes earlier calls
as the text that the model would have written. It checks sizes, and what an answer may continue. It renders nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.context.memory import retold
from gateway.engine.interface import Message
from gateway.errors import ContextExceeded, RequestInvalid
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import call_text, system_preamble
from gateway.toolcalls.schema.spec import ToolSpec

_CHARACTERS_PER_ID: Final = 40
"""More characters a token than usual texts have: tables padded with blanks have 25, rules of `=` 39."""
_USUAL_CHARACTERS: Final = 4


def tool_definitions(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Tools in the shape that chat templates expect (OpenAI's)."""
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
        }
        for t in tools
    ]


def with_preamble(
    messages: Sequence[Message], fmt: Format, tools: Sequence[ToolSpec], *, calls_as_text: bool = True
) -> list[Message]:
    """The conversation for a template that shows no tools: definitions become text, and earlier calls if need be."""
    plain = [_call_as_text(message, fmt) for message in messages] if calls_as_text else list(messages)
    if not tools:
        return plain
    preamble = system_preamble(fmt, tools)
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{preamble}"}, *plain[1:]]
    return [{"role": "system", "content": preamble}, *plain]


def _call_as_text(message: Message, fmt: Format) -> Message:
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if not calls:
        return message
    texts = [call_text(fmt, c["function"]["name"], c["function"].get("arguments") or "{}") for c in calls]
    content = "\n".join(filter(None, [message["content"], *texts]))
    return {"role": message["role"], "content": content}


def check_size(messages: Sequence[Message], context: int) -> None:
    """Refuse messages that can't fit before they are tokenized. Raises `ContextExceeded`."""
    check_length(sum(_length(each) for message in messages for each in retold(message)), context, "messages")


def check_length(characters: int, context: int, param: str) -> None:
    """Refuse a text that can't fit, before it is tokenized: no usual text has so many characters a token.

    Raises `ContextExceeded`, with an estimate of its tokens.
    """
    if characters > context * _CHARACTERS_PER_ID:
        words = f"{param}: {characters} characters are too many; the engine's context holds {context} tokens"
        raise ContextExceeded(words, characters // _USUAL_CHARACTERS, context, param=param)


def _length(message: Message) -> int:
    length = len(str(message.get("content") or ""))
    for call in message.get("tool_calls") or ():
        length += len(str(call["function"].get("arguments") or ""))
    return length


def begun_text(messages: Sequence[Message]) -> str:
    """Return the text of the last message, which the model is to continue. Raises `RequestInvalid` where it can't."""
    last = messages[-1]
    if len(messages) < 2 or last["role"] != "assistant" or last.get("tool_calls") or not last["content"]:
        raise RequestInvalid(
            "continue_final_message: the last of several messages must be the assistant's, with text and without calls",
            param="continue_final_message",
        )
    return last["content"]


def without_volatile(messages: Sequence[Message], volatile: re.Pattern[str] | None) -> Sequence[Message]:
    """Cut what changes from session to session out of system messages; drop those that then hold nothing else."""
    if volatile is None:
        return messages
    kept: list[Message] = []
    for message in messages:
        content = volatile.sub("", message["content"]) if message["role"] == "system" else message["content"]
        if content == message["content"]:
            kept.append(message)
        elif content.strip():
            kept.append({**message, "content": content})
    return kept


def with_tool_names(messages: Sequence[Message], names: Mapping[str, str]) -> Sequence[Message]:
    """The messages with other names for some tools, in calls and in their results."""
    return [_with_names(message, names) for message in messages]


def _with_names(message: Message, names: Mapping[str, str]) -> Message:
    changed = dict(message)
    if calls := message.get("tool_calls"):
        changed["tool_calls"] = [{**call, "function": _named(call["function"], names)} for call in calls]
    return _named(changed, names) if message.get("role") == "tool" else changed


def _named(holder: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    name: object = holder.get("name")
    return {**holder, "name": names.get(name, name)} if isinstance(name, str) else dict(holder)
