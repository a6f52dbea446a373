"""Which definitions a conversation has, which it lacks, and what they take."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.context.memory import ANSWER, BEGINNING, FOUND_TOOLS, NO_TOOLS, DefinedTools
from gateway.context.memory.defined_tools import DefinedTool, ToolDigests, found_in
from gateway.toolcalls.schema.spec import ToolSpec


def tool(name: str, description: str = "Do it.") -> ToolSpec:
    return ToolSpec(name, description, {"type": "object"})


A, B, C = (tool(name) for name in "abc")
NEWER = tool("a", "Do it well.")


def having(*defined: tuple[int, Sequence[ToolSpec]], owned: Sequence[str] = ()) -> DefinedTools:
    """The definitions of a conversation that gets these, one after another."""
    tools = NO_TOOLS
    for place, specs in defined:
        tools = tools.having(specs, place, ToolDigests(), owned)
    return tools


def digests(*tools: ToolSpec) -> dict[str, bytes]:
    return ToolDigests().all_of(tools)


def placed(tools: DefinedTools) -> list[tuple[str, int]]:
    return [(each.name, each.place) for each in tools.entries]


def test_missing_definitions_are_added_behind_those_that_are_there() -> None:
    tools = having((BEGINNING, [A, B]), (4, [A, B, C]), (6, [NEWER, C]))

    assert placed(tools) == [("a", BEGINNING), ("b", BEGINNING), ("c", 4), ("a", 6)]
    assert [each.spec for each in tools.entries] == [A, B, C, NEWER]
    assert tools.beginning == (A, B)
    assert tools.tools == (NEWER, B, C)
    assert tools.digests == (digests(A)["a"], digests(B)["b"])
    assert tools.newest == digests(NEWER, B, C)
    assert tools.having([B, C, NEWER], 8, ToolDigests()) is tools


def test_of_tools_with_one_name_the_last_one_is_defined() -> None:
    assert having((BEGINNING, [A, B, NEWER])).beginning == (NEWER, B)


@pytest.mark.parametrize(("place", "later"), [(BEGINNING, False), (ANSWER, False), (0, True), (4, True)])
def test_definition_behind_a_message_is_a_later_one(place: int, later: bool) -> None:
    assert having((BEGINNING, [A]), (place, [B])).later is later
    assert NO_TOOLS.later is False


def test_conversation_lacks_what_is_wanted_and_has_what_is_not() -> None:
    tools = having((BEGINNING, [A, B]), (4, [NEWER]))

    assert tools.lacks(digests(NEWER, B)) == (0, 0)
    assert tools.lacks(digests(A, C)) == (2, 1)
    assert tools.lacks({}) == (0, 2)
    assert NO_TOOLS.lacks(digests(A, B)) == (2, 0)


def text(spec: ToolSpec) -> bytes:
    return json.dumps([spec.name, spec.description, spec.parameters], ensure_ascii=False).encode()


def test_definitions_that_nobody_wants_any_more_are_stale() -> None:
    tools = having((BEGINNING, [A, B]), (4, [NEWER]))

    assert tools.stale(digests(NEWER, B)) == len(text(A))
    assert tools.stale(digests(A)) == len(text(B)) + len(text(NEWER))
    assert tools.stale(digests(B, C)) == len(text(A)) + len(text(NEWER))


def test_definitions_that_came_with_a_request_take_four_times_their_text() -> None:
    assert having((BEGINNING, [A, B])).size == 2 * 200
    assert having((BEGINNING, [A, B]), owned=["b"]).size == 2 * 200 + 4 * len(text(B))
    assert [each.owned for each in having((BEGINNING, [A, B]), owned=["b"]).entries] == [False, True]


def test_digest_is_of_all_that_a_definition_says_in_any_order_and_any_characters() -> None:
    known = ToolDigests()
    one = ToolSpec("é", "\ud800", {"type": "object", "required": []})
    other = ToolSpec("é", "\ud800", {"required": [], "type": "object"})

    assert known.of(one) == known.of(one) == known.of(other)
    assert known.of(ToolSpec("é", "", {})) == ToolDigests().of(ToolSpec("é", "", {}))
    assert known.of(ToolSpec("é", "", {}))[1] == len('["é", "", {}]'.encode())
    assert len({known.of(each)[0] for each in (A, B, NEWER, replace(A, parameters={}))}) == 4
    assert {len(digest) for digest in known.all_of([A, B]).values()} == {16}


def unwritten(tools: DefinedTools) -> DefinedTools:
    """As another replica wrote them."""
    return DefinedTools(tuple(DefinedTool(each.name, each.digest, each.place) for each in tools.entries))


def test_definitions_of_another_replica_are_completed_by_the_tools_of_a_request() -> None:
    tools = having((BEGINNING, [A, B]), (4, [NEWER]))
    back = unwritten(tools)
    assert (back.beginning, back.tools) == ((), ())

    assert back.completed([A, B, NEWER], ToolDigests()) == tools
    some = back.completed([B], ToolDigests())
    assert [each.spec for each in some.entries] == [None, B, None]
    assert [each.size for each in some.entries] == [0, len(text(B)), 0]
    assert some.completed([A, NEWER], ToolDigests()) == tools
    assert tools.completed([], ToolDigests()) is tools
    assert (some.beginning, some.tools) == ((B,), (B,))


def test_definitions_stand_behind_messages_once_their_text_is_known() -> None:
    entries = [DefinedTool(str(n), b"", place, text="x") for n, place in enumerate((BEGINNING, ANSWER, 0, 3, 3, 5))]
    tools = DefinedTools((*entries, DefinedTool("6", b"", 3)))

    assert {place: [each.name for each in found] for place, found in tools.behind(5).items()} == {
        0: ["2"],
        3: ["3", "4"],
    }
    assert [*tools.behind(6)] == [0, 3, 5]
    assert tools.behind(0) == {}


@pytest.mark.parametrize(("message", "found"), [({}, ()), ({FOUND_TOOLS: None}, ()), ({FOUND_TOOLS: ["a"]}, ["a"])])
def test_message_may_name_the_tools_that_it_found(message: dict[str, Any], found: Sequence[str]) -> None:
    assert found_in(message) == found
