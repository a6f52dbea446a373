"""What a client may send to `/v1/messages`, read without a server: tools sorted, options read, and what is left out."""

import json
from typing import Any

import pytest

from gateway.errors import RequestInvalid
from gateway.serve.messages.message_request import MessagesRequest, SortedTools
from tests.cases import each_of

ASKS = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
PLAIN = {"name": "say", "input_schema": {"type": "object"}}


def request(**fields: Any) -> MessagesRequest:
    return MessagesRequest.checked(json.dumps({**ASKS, **fields}).encode())


def unused(**fields: Any) -> list[str]:
    return request(**fields).without_effect(())


def test_fields_of_tools_that_nothing_reads_are_named_by_their_place() -> None:
    toolset = {
        "type": "mcp_toolset",
        "mcp_server_name": "up",
        "default_config": {"enabled": True, "defer_loading": True},
        "configs": {"a": {"enabled": True, "color": 1}, "b": {}},
        "cache_control": {"type": "ephemeral"},
        "extra": 1,
    }
    search = {"type": "tool_search_tool_bm25_20251119", "name": "search", "limit": 5}
    tools = SortedTools([toolset, search, {**PLAIN, "shade": 1, "eager_input_streaming": True}, {"type": "bash_2025"}])

    assert tools.left_out == [
        "tools.extra",
        "tools.default_config.defer_loading",
        "tools.configs.color",
        "tools.limit",
        "tools.shade",
        "tools[3]: bash_2025",
    ]
    assert tools.servers == {"up": None}
    assert [each.name for each in tools.client] == ["say"]
    assert tools.eager == {"say"}
    assert tools.search is not None
    assert tools.search.spec.name == "tool_search_tool_bm25"


def test_names_of_what_is_left_out_are_bounded_and_given_once() -> None:
    many = SortedTools([{"type": f"kind_{number}"} for number in range(40)])
    same = SortedTools([{**PLAIN, "name": name, "shade": 1} for name in ("a", "b")])

    assert many.left_out == [f"tools[{number}]: kind_{number}" for number in range(32)]
    assert same.left_out == ["tools.shade"]
    assert same.eager == set()


def test_first_search_of_several_is_used() -> None:
    tools = SortedTools([{"type": f"tool_search_tool_{kind}_20251119", "name": "s"} for kind in ("regex", "bm25")])

    assert tools.deferral.search is tools.search
    assert tools.search is not None
    assert tools.search.spec.name == "tool_search_tool_regex"
    assert not SortedTools([{**PLAIN, "type": "custom"}]).left_out


@pytest.mark.parametrize(
    ("toolset", "servers"),
    [
        ({"default_config": {"enabled": False}}, frozenset()),
        ({"default_config": {"enabled": False}, "configs": {"a": {"enabled": True}, "b": {}}}, frozenset({"a"})),
        ({"configs": {"a": {"enabled": True}}}, None),
        ({}, None),
    ],
)
def test_toolset_narrows_a_server_to_the_tools_that_it_enables(
    toolset: dict[str, Any], servers: frozenset[str] | None
) -> None:
    tools = SortedTools([{"type": "mcp_toolset", "mcp_server_name": "up", **toolset}])

    assert tools.servers == {"up": servers}
    tools.check_servers({"up", "other"})
    with pytest.raises(RequestInvalid, match="'up' is not one of the gateway's servers"):
        tools.check_servers({"other"})


@pytest.mark.parametrize(
    ("toolset", "param"),
    [
        ({}, "tools[0].mcp_server_name"),
        ({"mcp_server_name": ""}, "tools[0].mcp_server_name"),
        ({"mcp_server_name": "up", "configs": {"a": {"enabled": False}}}, "tools[0].configs"),
    ],
)
def test_toolset_that_can_not_be_meant_is_refused_with_its_place(toolset: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        SortedTools([{"type": "mcp_toolset", **toolset}])

    assert refused.value.param == param


@pytest.mark.parametrize(
    ("thinking", "thinks", "options"),
    [
        (None, False, {}),
        (True, True, {"enable_thinking": True}),
        (False, False, {"enable_thinking": False}),
        ({"type": "enabled", "budget_tokens": 1024}, True, {"enable_thinking": True}),
        ({"type": "adaptive"}, True, {}),
        ({"type": "disabled"}, False, {"enable_thinking": False}),
    ],
)
def test_thinking_is_an_option_of_the_template_and_shown_unless_it_is_off(
    thinking: Any, thinks: bool, options: dict[str, Any]
) -> None:
    asked = request(thinking=thinking)

    assert asked.thinks is thinks
    assert {name: value for name, value in asked.template_options.items() if name == "enable_thinking"} == options
    budget = isinstance(thinking, dict) and "budget_tokens" in thinking
    assert ("thinking.budget_tokens" in asked.without_effect(())) is budget


@pytest.mark.parametrize(
    ("messages", "continues"),
    [
        ([{"role": "user", "content": "hi"}], False),
        ([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"}], True),
        ([{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}], False),
        ([{"role": "assistant", "content": "I"}], False),
        (
            [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "say", "input": {}}]},
            ],
            False,
        ),
    ],
)
def test_answer_continues_an_assistant_s_words_at_the_end(messages: list[Any], continues: bool) -> None:
    assert request(messages=messages).continues is continues


def test_continued_answer_has_no_form() -> None:
    begun = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"}]
    form = {"type": "json_schema", "schema": {"type": "object"}}
    with pytest.raises(RequestInvalid):
        request(messages=begun, output_config={"format": form})

    assert request(messages=begun).form is None
    assert request(output_config={"format": form}).form is not None
    assert request(output_format=form).form is not None


@each_of(
    ("fields", "marks"),
    [
        ({}, False),
        ({"cache_control": {"type": "ephemeral"}}, True),
        ({"tools": [{**PLAIN, "cache_control": {"type": "ephemeral"}}, {**PLAIN, "name": "b"}]}, True),
        ({"tools": [{**PLAIN, "cache_control": None}]}, False),
        ({"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {}}]}, True),
        ({"system": "a"}, False),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}
                ]
            },
            True,
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, False),
    ],
)
def test_anything_that_is_to_be_cached_marks_the_request(fields: dict[str, Any], marks: bool) -> None:
    assert request(**fields).marks_cache is marks


@pytest.mark.parametrize(
    ("choice", "parallel"),
    [
        ({"type": "auto"}, None),
        ({"type": "auto", "disable_parallel_tool_use": True}, False),
        ({"type": "auto", "disable_parallel_tool_use": False}, True),
        ({"type": "auto", "disable_parallel_tool_use": "yes"}, None),
    ],
)
def test_parallel_calls_are_as_the_choice_says(choice: Any, parallel: bool | None) -> None:
    options = request(tools=[PLAIN], tool_choice=choice, stop_sequences="END", temperature=0, top_k=-1).options()

    assert options.parallel is parallel
    assert (options.stops, options.max_tokens, options.show_calls) == (("END",), 5, False)
    assert options.sampling.temperature == 0


@each_of(
    ("fields", "accepted"),
    [
        ({"max_tokens": 1}, True),
        ({"max_tokens": 0}, False),
        ({"temperature": 0}, True),
        ({"temperature": -0.1}, False),
        ({"top_p": 0}, True),
        ({"top_p": 1}, True),
        ({"top_p": 1.1}, False),
        ({"top_k": 2**31 - 1}, True),
        ({"top_k": 2**31}, False),
        ({"top_k": -1}, True),
        ({"top_k": -2}, False),
        ({"stop_sequences": ["x"] * 64}, True),
        ({"stop_sequences": ["x"] * 65}, False),
        ({"stop_sequences": ["x" * 1000]}, True),
        ({"stop_sequences": ["x" * 1001]}, False),
    ],
)
def test_bounds_of_fields_are_the_last_values_that_are_taken(fields: dict[str, Any], accepted: bool) -> None:
    if accepted:
        assert request(**fields).options()
    else:
        with pytest.raises(RequestInvalid):
            request(**fields)


def test_summary_is_not_made_in_the_middle_of_an_answer() -> None:
    begun = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"}]
    management = {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 60_000}}]}

    assert request(context_management=management).compacts is not None
    assert request(context_management=management, messages=begun).compacts is None
    assert request(messages=begun).compacts is None


def test_fields_without_effect_are_named() -> None:
    assert unused() == []
    assert unused(output_config={"effort": "high"}) == ["output_config.effort"]
    assert unused(metadata={"user_id": "u"}) == ["metadata"]
