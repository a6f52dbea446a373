"""Where each tool of a request is defined in its prompt, and the words that define it behind a message."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.context.compose.conversation import Asked
from gateway.context.compose.prompt import definition_texts, with_texts
from gateway.context.history.template_messages import tool_definitions
from gateway.context.memory import BEGINNING, FOUND_TOOLS, NO_TOOLS, RETOLD, DefinedTools
from gateway.context.memory.defined_tools import (
    DefinedTool,
    ToolDigests,
    are_replaced,
    completed,
    defining,
    names_found,
    with_definitions,
)
from gateway.engine.rendering.template_forms import ToolFault
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.context.compose.written_turns import HERMES, Renderer, make_ready

WORDS = "You can call these tools now:"


def spec(name: str, description: str = "") -> ToolSpec:
    return ToolSpec(name, description, {"type": "object"})


def entry(name: str, description: str = "") -> ToolEntry:
    return ToolEntry(name, "up", name, {"description": description, "inputSchema": {"type": "object"}})


def asked(*tools: str | ToolSpec, deferred: Mapping[str, str] = {}, **more: Any) -> Asked:
    """A request with these tools, and deferred ones by their names and descriptions."""
    return Asked(
        HERMES,
        tuple(spec(tool) if isinstance(tool, str) else tool for tool in tools),
        {name: entry(name, words) for name, words in deferred.items()},
        **more,
    )


def places(defined: DefinedTools) -> list[tuple[str, int]]:
    return [(each.name, each.place) for each in defined.entries]


def user(text: str = "hi", *found: str) -> dict[str, Any]:
    return {"role": "user", "content": text, **({FOUND_TOOLS: found} if found else {})}


def result(call: str = "c", *found: str) -> dict[str, Any]:
    return {**user("sun", *found), "role": "tool", "tool_call_id": call}


def answer(*names: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": name}} for name in names]}


DEFERRED = {"a": "", "b": "", "c": ""}


def test_first_prompt_defines_the_tools_of_the_request_at_its_beginning() -> None:
    assert places(completed(NO_TOOLS, [user()], 0, asked("x", "y"))) == [("x", BEGINNING), ("y", BEGINNING)]
    assert completed(NO_TOOLS, [user()], 0, asked()).entries == ()


def test_first_prompt_defines_found_tools_behind_what_found_them_and_called_ones_at_its_beginning() -> None:
    messages = [user(), answer("c", "x", "a", "c"), result("c", "b", "unknown", "b"), user("hi", "b")]

    found = completed(NO_TOOLS, messages, 0, asked("x", deferred=DEFERRED))
    assert places(found) == [("x", BEGINNING), ("b", 2), ("c", BEGINNING), ("a", BEGINNING)]


def test_tools_that_were_found_and_called_are_defined_once() -> None:
    messages = [user("hi", "a"), answer("a"), user("hi", "a")]

    assert places(completed(NO_TOOLS, messages, 0, asked(deferred=DEFERRED))) == [("a", 0)]


def test_what_messages_find_and_call_is_nothing_where_no_tool_is_deferred() -> None:
    assert places(completed(NO_TOOLS, [user("hi", "x"), answer("x", "y")], 0, asked("x"))) == [("x", BEGINNING)]


def test_definitions_are_marked_that_came_with_the_request() -> None:
    found = completed(NO_TOOLS, [user("hi", "a")], 0, asked("x", "y", deferred=DEFERRED, client_tools=frozenset("xa")))

    assert [(each.name, each.owned) for each in found.entries] == [("x", True), ("y", False), ("a", True)]


@each_of(
    ("new", "place"),
    [
        ([user()], 2),
        ([answer(), user(), user()], 3),
        ([result("c1"), result("c2"), user()], 3),
        ([user(), result("c1")], 2),
        ([result("ran"), user(), result("c1")], 3),
        ([result("ran"), result("c1"), answer(), result("c2"), user()], 5),
        ([answer()], None),
        ([result("ran")], None),
        ([], None),
    ],
)
def test_new_tool_is_defined_behind_the_first_results_or_else_the_first_message_that_is_new(
    new: list[dict[str, Any]], place: int | None
) -> None:
    before = completed(NO_TOOLS, [user()], 0, asked("x"))

    found = completed(before, [user(), answer(), *new], 2, asked("x", "y"), {"ran"})
    assert places(found) == [("x", BEGINNING), *([] if place is None else [("y", place)])]


def test_found_tool_is_defined_behind_what_found_it_even_among_known_tools() -> None:
    before = completed(NO_TOOLS, [user()], 0, asked("x", deferred=DEFERRED))
    messages = [user("hi", "a"), answer("b"), result("c", "c"), user("hi", "a"), user()]

    found = completed(before, messages, 2, asked("x", "y", deferred=DEFERRED))
    # What is found before the second message was known is not new; nor is what only earlier calls name.
    assert places(found) == [("x", BEGINNING), ("c", 2), ("a", 3), ("y", 2)]


def test_tool_that_has_changed_is_defined_anew() -> None:
    before = completed(NO_TOOLS, [user("hi", "a")], 0, asked("x", deferred=DEFERRED))
    messages = [user("hi", "a"), answer(), user()]

    found = completed(before, messages, 2, asked(spec("x", "New."), deferred={**DEFERRED, "a": "New."}))
    assert places(found)[2:] == [("x", 2), ("a", 2)]
    assert completed(before, messages, 2, asked("x", deferred=DEFERRED)) is before


def test_definitions_of_another_replica_are_filled_in() -> None:
    digests = ToolDigests()
    entries = tuple(DefinedTool(name, digests.of(spec(name))[0], BEGINNING) for name in ("x", "a", "gone"))

    found = completed(DefinedTools(entries), [user()], 1, asked("x", deferred=DEFERRED))
    assert [each.spec for each in found.entries] == [spec("x"), spec("a"), None]


def test_message_that_stands_for_several_found_what_all_of_them_found() -> None:
    told = {**user("hi", "a"), RETOLD: [user(), result("c", "b", "c")]}

    assert names_found(told) == ["a", "b", "c"]
    assert names_found(user()) == []


# Texts.


def later(name: str, place: int, text: str = "", tool: ToolSpec | None = None) -> DefinedTool:
    return DefinedTool(name, b"", place, tool, text=text)


def listed(*names: str) -> str:
    return defining(f"<{name}>" for name in names)


def test_text_that_defines_tools_says_that_they_can_be_called_now() -> None:
    assert defining(["a", "b"]) == f"{WORDS}\na\nb"


def test_tools_are_defined_behind_messages_and_before_what_the_user_says() -> None:
    messages = [user("one"), result(), {"role": "assistant", "content": None}]
    defined = DefinedTools(
        (
            *(later("a", 0, "<a>"), later("b", 1, "<b>"), later("c", 1, "<c>"), later("d", 2, "<d>")),
            *(later("e", 1), later("f", BEGINNING, "<f>"), later("g", 3, "<g>")),
        )
    )

    assert [message["content"] for message in with_definitions(messages, defined)] == [
        f"{listed('a')}\n\none",
        f"sun\n\n{listed('b', 'c')}",
        listed("d"),
    ]
    assert messages[0] == user("one")


def test_messages_behind_which_no_tool_is_defined_are_the_same() -> None:
    messages = [user("one"), user("two")]

    assert with_definitions(messages, DefinedTools((later("a", BEGINNING),))) is messages
    assert with_definitions(messages, NO_TOOLS) is messages
    assert with_definitions(messages, DefinedTools((later("a", 1, "<a>"),)))[0] is messages[0]


def test_of_a_message_that_stands_for_several_the_one_that_found_a_tool_gets_it_or_the_last() -> None:
    told = [answer("x"), result("c1", "a"), answer("x"), result("c2", "b", "c"), {"role": "assistant", "content": "ok"}]
    defined = DefinedTools(tuple(later(name, 0, f"<{name}>") for name in "dabc"))

    (message,) = with_definitions([{**user("hi"), RETOLD: told}], defined)

    assert message["content"] == "hi"
    assert [each["content"] for each in message[RETOLD]] == [
        *("", f"sun\n\n{listed('a')}", "", f"sun\n\n{listed('b', 'c')}", f"ok\n\n{listed('d')}")
    ]
    assert told[1]["content"] == "sun"


@pytest.mark.anyio
async def test_only_definitions_behind_messages_get_a_text_and_each_once() -> None:
    entries = (
        *(later("a", 0, tool=spec("a")), later("b", 1, "<b>", spec("b")), later("c", 2)),
        *(later("d", BEGINNING, tool=spec("d")), later("e", 3, tool=spec("e"))),
    )

    found = await with_texts(DefinedTools(entries), make_ready(preamble=True))
    texts = [each.text for each in found.entries]
    assert [bool(text) for text in texts] == [True, True, False, False, True]
    assert texts[1] == "<b>"
    assert [json.loads(texts[n])["name"] for n in (0, 4)] == ["a", "e"]
    assert [(each.name, each.place, each.spec) for each in found.entries] == [
        (each.name, each.place, each.spec) for each in entries
    ]

    known = DefinedTools(entries[1:4])
    assert await with_texts(known, make_ready()) is known


@pytest.mark.anyio
async def test_definition_is_written_as_the_template_writes_it() -> None:
    renderer = Renderer()

    assert await definition_texts([spec("a")], make_ready(renderer)) == [json.dumps(tool_definitions([spec("a")])[0])]
    assert all(tools for _, tools in renderer.asked)


@pytest.mark.anyio
async def test_definition_that_the_template_can_not_show_has_another_form() -> None:
    ready = make_ready()
    ready.forms.note(spec("a"), spec("a", "Plain."), ToolFault("up", "a", "no"))
    ready.forms.note(spec("b"), None, ToolFault("up", "b", "no"))

    texts = await definition_texts([spec("a"), spec("b"), spec("c")], ready)
    assert [json.loads(text)["function"]["description"] for text in texts] == ["Plain.", "", ""]
    assert [json.loads(text)["function"]["name"] for text in texts] == ["a", "b", "c"]


@pytest.mark.anyio
async def test_engine_is_asked_for_64_definitions_of_a_request_and_the_rest_is_json() -> None:
    renderer = Renderer()
    texts = await definition_texts([spec(f"tool{n}") for n in range(66)], make_ready(renderer))

    assert [json.loads(text)["function"]["name"] for text in texts] == [f"tool{n}" for n in range(66)]
    shown = {tool["function"]["name"] for _, tools in renderer.asked for tool in tools}
    assert {f"tool{n}" for n in range(66)} - shown == {"tool64", "tool65"}


@pytest.mark.anyio
async def test_where_the_gateway_teaches_tools_the_engine_is_not_asked() -> None:
    renderer = Renderer()
    (text,) = await definition_texts([spec("a", "<x>")], make_ready(renderer, preamble=True))

    assert json.loads(text) == {"name": "a", "description": "<x>", "parameters": {"type": "object"}}
    assert "<x>" not in text
    assert renderer.asked == []


# Prompts that are rendered anew.


def of_size(size: int, *tools: str | ToolSpec, place: int = BEGINNING) -> DefinedTools:
    """Definitions of these tools, each with so many bytes."""
    digests = ToolDigests()
    specs = [spec(tool) if isinstance(tool, str) else tool for tool in tools]
    return DefinedTools(tuple(DefinedTool(each.name, digests.of(each)[0], place, each, size) for each in specs))


def test_prompt_without_tools_is_rendered_anew_once_there_are_some() -> None:
    assert are_replaced(NO_TOOLS, asked("x"), 4096)
    assert not are_replaced(NO_TOOLS, asked(), 4096)
    assert not are_replaced(NO_TOOLS, asked(deferred=DEFERRED), 4096)


@pytest.mark.parametrize(("size", "replaced"), [(500, False), (501, True)])
def test_prompt_is_rendered_anew_if_more_than_an_eighth_of_the_context_defines_tools_that_are_gone(
    size: int, replaced: bool
) -> None:
    context = 1000

    for request in (asked("x"), asked(deferred={"x": ""}), asked(spec("gone", "Changed."))):
        assert are_replaced(of_size(size, "gone"), request, context) is replaced
        assert are_replaced(of_size(size, "gone"), request, 2000) is False


def test_tools_that_are_still_there_do_not_count() -> None:
    context = 1000

    assert not are_replaced(of_size(9999, "x", "y"), asked("x", "y"), context)
    assert are_replaced(of_size(9999, "x", "y"), asked("x"), context)
    assert not are_replaced(of_size(9999, "a"), asked("x", deferred=DEFERRED), context)
    assert are_replaced(of_size(9999, "a"), asked("x", deferred={"b": ""}), context)
    assert not are_replaced(of_size(9999, "r"), asked("x", result_tools=(spec("r"),)), context)
    assert are_replaced(of_size(9999, "r"), asked("x", result_tools=(spec("r", "Changed."),)), context)
    assert are_replaced(of_size(9999, "r"), asked("x", result_tools=(spec("s"),)), context)


def test_request_without_tools_changes_nothing() -> None:
    assert not are_replaced(of_size(9999, "gone"), asked(), 1000)


def test_client_may_complete_calls_of_the_tools_of_the_request_and_of_its_own_deferred_ones() -> None:
    request = asked("x", deferred={"a": "A.", "b": ""}, client_tools=frozenset("ax"))

    assert request.schemas == {"x": {"type": "object"}, "a": {"type": "object"}}
    assert list(asked("x", deferred=DEFERRED).schemas) == ["x"]
