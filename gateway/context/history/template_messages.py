"""Messages of a client, made ready for the engine's template.

Templates refuse much of what clients send, and with it the whole conversation. So arguments that are no JSON get an
object that keeps their text; a late system message moves to where the template shows it; calls have the ids that the
model wrote. For templates without support for tools, definitions become a system preamble, and earlier calls the text
that the model would have written. A text with which a client begins the model's turn becomes ids, without any control
token but those around a whole block of reasoning at its beginning. It checks sizes, and renders nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, dropwhile, takewhile
from typing import Any, Final, cast

from gateway.context.memory import RETOLD, Turn, retold
from gateway.context.memory.defined_tools import FOUND_TOOLS, found_in
from gateway.engine.interface import Message
from gateway.engine.rendering.template import ChatTemplate
from gateway.errors import ContextExceeded, RequestInvalid
from gateway.escape import cut_text
from gateway.protocol.messages import without_escapes, without_strings
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import call_text, system_preamble
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Content, Diagnostic, Event, Reasoning, new_call_ids
from leaf_sdk.vocab import TokenMap

STAND_IN: Final = "input"
"""The member of the object that holds the text."""
_DEEPEST: Final = 200
"""Most levels of nesting, about as many as a JSON body itself may have: later code is recursive."""
ARGUMENT_MARKS: Final = 300_000
"""Most `[`, `{`, `:` and `,` outside of texts in the arguments of all calls: a body's own values are counted before it
is read, but arguments are a text in it, and each value takes half a microsecond of the event loop."""
_NAMED: Final = 3
_SHOWN: Final = 64
_CHARACTERS_PER_ID: Final = 40
"""More characters a token than usual texts have: tables padded with blanks have 25, rules of `=` 39."""
_USUAL_CHARACTERS: Final = 4
_NEXT: Final = "."
"""Stands for what the model writes next."""


def with_readable_calls(messages: Sequence[Message]) -> tuple[Sequence[Message], tuple[Diagnostic, ...]]:
    """The messages with readable arguments, and a diagnostic where some were not; the same messages where all were.

    Arguments that are JSON but no object stay as they are, for the memory to recognise: the rendering wraps them
    (`engine/rendering/foreign_text.py`). Raises `RequestInvalid` where the arguments hold too many values to be read.
    """
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    texts = [str(call["function"].get("arguments") or "") for call in calls]
    # Each mark takes a character at least, so that most arguments need not be searched.
    if sum(map(len, texts)) > ARGUMENT_MARKS:
        _check_marks(texts)
    named: list[str] = []
    changed = [_message(message, named) for message in messages]
    if not named:
        return messages, ()
    names = ", ".join(cut_text(repr(name), _SHOWN) for name in dict.fromkeys(named[:_NAMED]))
    others = ", ..." if len(named) > _NAMED else ""
    words = (
        f"messages: the arguments of {len(named)} call(s) in the history ({names}{others}) are not JSON; "
        f'the model reads them as {{"{STAND_IN}": "<their text>"}}'
    )
    return changed, (Diagnostic("history", words),)


def _check_marks(texts: Sequence[str]) -> None:
    if sum(map(_marks, texts)) <= ARGUMENT_MARKS:
        return
    bare = [without_escapes(text.encode(errors="replace")) for text in texts]
    # Behind a mark there is one text at most, and one without any in each call.
    quotes = sum(each.count(b'"') for each in bare)
    if quotes > 2 * (ARGUMENT_MARKS + len(bare)) or sum(map(_marks_of, map(without_strings, bare))) > ARGUMENT_MARKS:
        raise RequestInvalid(
            f"messages: the arguments of all calls hold more than {ARGUMENT_MARKS} lists, objects, members and items: "
            "send fewer",
            param="messages",
        )


def _marks(text: str) -> int:
    return sum(map(text.count, "[{:,"))


def _marks_of(bare: bytes) -> int:
    return sum(map(bare.count, (b"[", b"{", b":", b",")))


def _message(message: Message, named: list[str]) -> Message:
    told: Sequence[Message] = message.get(RETOLD) or ()
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if not calls and not told:
        return message
    changed = dict(message)
    if calls:
        changed["tool_calls"] = [_call(call, named) for call in calls]
    if told:
        # They tell of the same calls again.
        changed[RETOLD] = [_message(each, []) for each in told]
    return changed


def _call(call: Mapping[str, Any], named: list[str]) -> Mapping[str, Any]:
    function: Mapping[str, Any] = call["function"]
    arguments = str(function.get("arguments") or "{}")
    # Python refuses to read integers of more than 4,300 digits; nobody needs their values here.
    with suppress(ValueError, RecursionError):
        if not _is_deep(json.loads(arguments, parse_constant=_no_number, parse_int=str)):
            return call
    named.append(str(function["name"]))
    return {**call, "function": {**function, "arguments": json.dumps({STAND_IN: arguments}, ensure_ascii=False)}}


def _no_number(name: str) -> None:
    raise ValueError(f"{name:.40} is not a JSON number")


def _is_deep(value: object) -> bool:
    """Whether it is nested so deeply that later recursive code could fail on it."""
    level: list[object] = [value]
    for _ in range(_DEEPEST + 1):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below += cast("dict[str, object]", each).values()
            elif isinstance(each, list):
                below += cast("list[object]", each)
        level = below
        if not level:
            return False
    return True


async def in_their_places(messages: Sequence[Message], template: ChatTemplate) -> Sequence[Message]:
    """The messages in a form in which the template shows each of them at its place."""
    if "system" not in dropwhile("system".__eq__, [each["role"] for each in messages]) or (
        await template.shows_late_system()
    ):
        return messages
    return merged(messages)


def merged(messages: Sequence[Message]) -> list[Message]:
    """The messages, each late system message merged into the one before it; after an answer it becomes the user's."""
    kept = list(takewhile(_is_system, messages))
    # What to append to the last message kept, joined only once.
    behind: list[Message] = []
    for message in messages[len(kept) :]:
        if _is_system(message) and kept[-1]["role"] != "assistant":
            behind.append(message)
            continue
        _end(kept, behind)
        kept.append({**message, "role": "user"} if _is_system(message) else message)
    _end(kept, behind)
    return kept


def _end(kept: list[Message], behind: list[Message]) -> None:
    if behind:
        joined = [kept[-1], *behind]
        kept[-1] = {**kept[-1], "content": "\n\n".join(filter(None, [each["content"] for each in joined]))}
        if found := [name for each in joined for name in found_in(each)]:
            kept[-1] = {**kept[-1], FOUND_TOOLS: found}
        behind.clear()


def _is_system(message: Message) -> bool:
    return message["role"] == "system"


class CallIds:
    """The ids of one turn that the model writes."""

    def __init__(self) -> None:
        self._new = new_call_ids()
        self._ours: dict[str, str] = {}
        """The gateway's own ids, by themselves and by the model's."""

    def make(self) -> str:
        """Make an id for a call to which the model gives none."""
        made = self._new()
        self._ours[made] = made
        return made

    def ours(self, call_id: str) -> str:
        """Return the gateway's own id for a call with this id, always the same one."""
        if call_id not in self._ours:
            self._ours[call_id] = self.make()
        return self._ours[call_id]


def with_model_ids(messages: Sequence[Message], turns: Sequence[Turn]) -> list[Message]:
    """The messages of a conversation with the ids of calls as the model wrote them, where `turns` remember these."""
    known: dict[str, str] = {}
    for turn in turns:
        if turn.lived is not None and turn.lived.turn is not None:
            ours = (call.id for call in turn.lived.turn.calls)
            known |= {own: model for own, model in zip(ours, turn.lived.turn.model_ids, strict=False) if own != model}
    return [_renamed(message, known) for message in messages] if known else [*messages]


def _renamed(message: Message, known: Mapping[str, str]) -> Message:
    changed = dict(message)
    if calls := message.get("tool_calls"):
        changed["tool_calls"] = [
            {**call, "id": known[call["id"]]} if call.get("id") in known else call for call in calls
        ]
    answered = message.get("tool_call_id")
    if isinstance(answered, str):
        changed["tool_call_id"] = known.get(answered, answered)
    return changed


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
    characters = 0
    for message in chain.from_iterable(map(retold, messages)):
        characters += len(str(message.get("content") or ""))
        for call in message.get("tool_calls") or ():
            characters += len(str(call["function"].get("arguments") or ""))
    check_length(characters, context, "messages")


def check_length(characters: int, context: int, param: str) -> None:
    """Refuse a text that can't fit, before it is tokenized: no usual text has so many characters a token.

    Raises `ContextExceeded`, with an estimate of its tokens.
    """
    if characters > context * _CHARACTERS_PER_ID:
        words = f"{param}: {characters} characters are too many; the engine's context holds {context} tokens"
        raise ContextExceeded(words, characters // _USUAL_CHARACTERS, context, param=param)


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


def begun_ids(text: str, tail: str, fmt: Format, token_map: TokenMap) -> list[int] | None:
    """The ids of the text; None where the model would continue it as reasoning. `tail`: the end of the prompt."""
    following = token_map.encode(_NEXT)
    for ids, rest in _readings(text, tail, fmt, token_map):
        events = _events([*ids, *following], tail, fmt, token_map)
        said = "".join(event.text for event in events if isinstance(event, Content))
        if said.strip() == f"{rest}{_NEXT}".strip():
            return ids
    plain = token_map.encode(text)
    reasons = any(isinstance(event, Reasoning) for event in _events(plain, tail, fmt, token_map))
    return None if reasons else plain


def _events(ids: Sequence[int], tail: str, fmt: Format, token_map: TokenMap) -> list[Event]:
    parser = parser_for(fmt, token_map, (), prompt_tail=tail)
    return [*parser.feed(ids), *parser.close()]


def _readings(text: str, tail: str, fmt: Format, token_map: TokenMap) -> Iterator[tuple[list[int], str]]:
    """The text with reasoning at its beginning, up to each of the markers that may end it, and the text behind it."""
    words = text.lstrip()
    opening = max((marker for marker in fmt.markers if words.startswith(marker)), key=len, default="")
    opened = token_map.encode(opening, specials=True)
    within = _events([*opened, *token_map.encode(_NEXT)], "" if opening else tail, fmt, token_map)
    if not any(isinstance(event, Reasoning) for event in within):
        return
    if opening:
        words = words.removeprefix(opening)
        if tail.rstrip().endswith(opening):
            opened, words = [], words.removeprefix("\n") if tail.endswith("\n") else words
    for marker in fmt.markers:
        before, found, after = words.partition(marker)
        if found:
            closing = token_map.encode(marker, specials=True)
            yield [*opened, *token_map.encode(before), *closing, *token_map.encode(after)], after
