"""`tool_choice` as clients of every API write it: the same choice wherever it is sent."""

from typing import Any

import pytest

from gateway.agent import ToolChoice
from gateway.errors import RequestInvalid
from gateway.serve.generation.tools_and_formats import read_choice
from tests.cases import each_of

ALLOWED = {
    "mode": "auto",
    "tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "name": "b"}],
}


@each_of(
    ("given", "meant"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ("any", ToolChoice("required")),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "required"}, ToolChoice("required")),
        ({"type": "function", "function": {"name": "a"}}, ToolChoice.named("a")),
        ({"function": {"name": "a"}}, ToolChoice.named("a")),
        ({"type": "function", "name": "a"}, ToolChoice.named("a")),
        ({"name": "a"}, ToolChoice.named("a")),
        ({"type": "tool", "name": "a"}, ToolChoice.named("a")),
        ({"type": "custom", "name": "a"}, ToolChoice.named("a")),
        ({"type": "custom", "custom": {"name": "a"}}, ToolChoice.named("a")),
        ({"type": "allowed_tools", **ALLOWED}, ToolChoice("auto", ("a", "b"))),
        ({"type": "allowed_tools", "allowed_tools": ALLOWED}, ToolChoice("auto", ("a", "b"))),
    ],
)
def test_choice_means_the_same_in_every_shape(given: Any, meant: ToolChoice) -> None:
    assert read_choice(given) == meant


@pytest.mark.parametrize("given", [5, [], {}, "perhaps", {"type": "web_search"}, {"type": "tool"}, {"name": 5}])
def test_what_is_no_choice_is_refused(given: Any) -> None:
    with pytest.raises(RequestInvalid, match="tool_choice: expected one of auto, none, required, any") as refused:
        read_choice(given)

    assert refused.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"mode": "none"}, "tool_choice.mode"),
        ({"mode": None}, "tool_choice.mode"),
        ({"tools": []}, "tool_choice.tools"),
        ({"tools": {"name": "a"}}, "tool_choice.tools"),
        ({"tools": [{"name": f"t{n}"} for n in range(1025)]}, "tool_choice.tools"),
        ({"tools": [{"name": "a"}, {"type": "web_search"}]}, "tool_choice.tools[1]"),
        ({"tools": ["a"]}, "tool_choice.tools[0]"),
    ],
)
def test_list_of_allowed_tools_is_refused_by_the_place_of_what_is_wrong(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        read_choice({"type": "allowed_tools", **ALLOWED, **fields})

    assert refused.value.param == param
    assert str(refused.value).startswith(f"{param}: expected ")


def test_allowed_tools_may_be_required_and_each_is_named_once() -> None:
    tools = [{"name": name} for name in ("b", "a", "b")]

    assert read_choice({"type": "allowed_tools", "mode": "required", "tools": tools}) == ToolChoice(
        "required", ("b", "a")
    )
    many = [{"name": f"t{n}"} for n in range(1024)]
    allowed = read_choice({"type": "allowed_tools", "mode": "auto", "tools": many})
    assert allowed == ToolChoice("auto", tuple(f"t{n}" for n in range(1024)))
