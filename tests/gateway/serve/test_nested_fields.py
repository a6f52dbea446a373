"""Fields inside tools, blocks and items, as the official clients' types have them: read, refused, or named as ignored.

The types are those of the packages `anthropic` and `openai`: a field that a new release adds is tested by itself.
"""

import json
import types
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, Required, get_args, get_origin, get_type_hints

from anthropic.types.beta import BetaContentBlockParam, BetaToolUnionParam
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.responses import ResponseInputItemParam, ToolParam

from gateway.context.history.client_messages import LeftOut
from gateway.errors import RequestInvalid
from gateway.serve.messages.message_request import MessagesRequest
from gateway.serve.openai.chat import ChatRequest
from gateway.serve.responses.items import clean_item
from gateway.serve.responses.response_tools import read_tools
from tests.cases import each_of

READ = {
    # How much of the prompt was cached is told to whoever marks anything, whatever is marked.
    "cache_control",
    # Names of what is sent back.
    *("id", "status", "type", "role", "name", "call_id", "tool_use_id", "namespace", "server_name"),
}
"""Fields that are read wherever they stand."""
READ_IN = {
    "messages": {
        *("description", "custom.defer_loading", "eager_input_streaming", "configs", "default_config", "enabled"),
        *(
            "content",
            "is_error",
            "signature",
            "error_message",
            "compaction.encrypted_content",
            "compaction.tool_changes",
        ),
    },
    "chat": {"function", "custom", "description", "parameters", "format"},
    "chat messages": {"content", "tool_calls", "function_call"},
    "responses": {
        *("function.defer_loading", "custom.defer_loading", "description", "parameters", "format", "execution"),
        *("allowed_tools", "require_approval", "tools", "read_only", "tool_names", "always", "never"),
    },
    "items": {"content", "encrypted_content", "error", "execution", "output", "reason", "approval_request_id"},
}
"""Fields that are read in one API; after the type of what they stand in, only there."""

QUESTION = {"role": "user", "content": "Hi"}
DEEPEST = 4
"""Objects in objects whose fields are looked at."""


class Case(NamedTuple):
    """One optional field of one type."""

    kinds: tuple[str, ...]
    """The types of the objects that it stands in."""
    field: str
    value: Any
    """An object that has it."""


def types_in(hint: Any) -> Iterator[Any]:
    """The TypedDicts of a union."""
    if hasattr(hint, "__required_keys__"):
        yield hint
    elif get_origin(hint) is not Literal:
        for each in get_args(hint):
            yield from types_in(each)


def required(hint: Any) -> set[str]:
    """The fields that an object of a TypedDict must have."""
    # Annotations of these packages are texts, so that `__required_keys__` can't tell.
    return {name for name, each in get_type_hints(hint, include_extras=True).items() if get_origin(each) is Required}


def sample(hint: Any) -> Any:
    """A value of a type that is neither empty nor false."""
    if hasattr(hint, "__required_keys__"):
        fields = get_type_hints(hint)
        # One without a field would ask for nothing.
        wanted = {*required(hint), *({"type"} & fields.keys())} or fields.keys()
        return {name: sample(fields[name]) for name in sorted(wanted)}
    origin, inside = get_origin(hint), [each for each in get_args(hint) if each is not types.NoneType]
    if origin is Literal:
        return get_args(hint)[0]
    if hint in (str, bool, int, float):
        return {str: "x", bool: True, int: 1, float: 1.0}[hint]
    if origin is dict or hint is dict:
        return {"a": sample(inside[1])} if inside else {"a": 1}
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence | Iterator):
        return [sample(inside[0])]
    if inside and origin is not None and "Iterable" in str(origin):
        return [sample(inside[0])]
    return sample(inside[0]) if inside else {"a": 1}


def inside(hint: Any, read: Container[str], kinds: tuple[str, ...]) -> Iterator[Case]:
    """The same of the objects in a field."""
    origin, parts = get_origin(hint), [each for each in get_args(hint) if each is not types.NoneType]
    if hasattr(hint, "__required_keys__"):
        yield from fields_of(hint, read, kinds)
    elif origin is Literal or hint is str:
        return
    elif origin is dict:
        yield from (case._replace(value={"a": case.value}) for case in inside(parts[1], read, kinds))
    elif isinstance(origin, type) and issubclass(origin, Iterable):
        yield from (case._replace(value=[case.value]) for case in inside(parts[0], read, kinds))
    else:
        for part in parts:
            yield from inside(part, read, kinds)


def fields_of(hint: Any, read: Container[str], kinds: tuple[str, ...] = ()) -> Iterator[Case]:
    """Each optional field of a type, and of the objects in those of its fields that are read."""
    fields, least = get_type_hints(hint), sample(hint)
    kinds = (*kinds, str(least.get("type") or least.get("role") or ""))
    for name, each in sorted(fields.items()):
        if name not in required(hint) and name != "type":
            yield Case(kinds, name, {**least, name: sample(each)})
        if name in read and len(kinds) < DEEPEST:
            for case in inside(each, read, kinds):
                yield case._replace(value={**least, name: case.value})


def cases(api: str, union: Any) -> list[Case]:
    """The fields of all types of a union, each once."""
    found = [case for each in types_in(union) for case in fields_of(each, READ_IN[api])]
    return [*{json.dumps(case): case for case in found}.values()]


def ids(case: Any) -> str:
    return ".".join((*case.kinds, case.field)) if isinstance(case, Case) else str(case)


def holds(case: Case, api: str, ignored: Sequence[str]) -> None:
    """The field is read, or it is named, or all of what it stands in."""
    ends = (f".{case.field}", *(f"{mark}{kind}" for kind in case.kinds if kind for mark in " ."))
    named = any(name.endswith(ends) for name in ignored)
    known = READ | READ_IN[api]
    assert case.field in known or f"{case.kinds[-1]}.{case.field}" in known or named, ignored


def messages_ignore(**fields: Any) -> Sequence[str]:
    body = {"model": "any", "max_tokens": 5, "messages": [QUESTION], **fields}
    return MessagesRequest.checked(json.dumps(body).encode()).without_effect(())


@each_of("case", cases("messages", BetaToolUnionParam))
def test_field_of_a_tool_of_messages(case: Case) -> None:
    holds(case, "messages", messages_ignore(tools=[case.value]))


@each_of("case", cases("messages", BetaContentBlockParam))
@each_of("role", ["user", "assistant"])
def test_field_of_a_block_of_messages(case: Case, role: str) -> None:
    with suppress(RequestInvalid):
        ignored = messages_ignore(messages=[QUESTION, {"role": role, "content": [case.value]}, QUESTION])
        holds(case, "messages", ignored)


@each_of("case", cases("chat", ChatCompletionToolUnionParam))
def test_field_of_a_tool_of_chats(case: Case) -> None:
    body = json.dumps({"model": "any", "messages": [QUESTION], "tools": [case.value]}).encode()
    holds(case, "chat", ChatRequest.checked(body)[0].without_effect(()))


@each_of("case", cases("chat messages", ChatCompletionMessageParam))
def test_field_of_a_message_of_chats(case: Case) -> None:
    with suppress(RequestInvalid):
        body = json.dumps({"model": "any", "messages": [QUESTION, case.value, QUESTION]}).encode()
        holds(case, "chat messages", ChatRequest.checked(body)[0].without_effect(()))


@each_of("case", cases("responses", ToolParam))
def test_field_of_a_tool_of_responses(case: Case) -> None:
    with suppress(RequestInvalid):
        holds(case, "responses", read_tools([case.value], [], lambda: frozenset({"x"})).ignored)


@each_of("case", cases("items", ResponseInputItemParam))
def test_field_of_an_item_of_responses(case: Case) -> None:
    left_out = LeftOut("input.")
    with suppress(RequestInvalid):
        clean_item(case.value, "input[0]", left_out)
        holds(case, "items", left_out.names)
