"""What requests of all APIs may ask for alike comes to the same in the agent's terms."""

import json
from typing import Any

import pytest

from gateway.agent import NO_TOOL
from gateway.errors import RequestInvalid
from gateway.serve.generation.tools_and_formats import scope_of
from gateway.serve.messages.message_request import MessagesRequest
from gateway.serve.openai.chat import ChatRequest
from gateway.serve.responses.response_request import ResponsesRequest

Json = dict[str, Any]
ASK: list[Json] = [{"role": "user", "content": "hi"}]
BEGUN: list[Json] = [*ASK, {"role": "assistant", "content": "Well,"}]
TOOL: Json = {"name": "look", "input_schema": {"type": "object"}}
SWITCHES = ("enable_thinking", "thinking", "reasoning")


def messages(**fields: Any) -> MessagesRequest:
    return MessagesRequest.checked(json.dumps({"messages": ASK, "max_tokens": 9, **fields}).encode())


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.checked(json.dumps({"messages": ASK, **fields}).encode())[0]


def responses(**fields: Any) -> ResponsesRequest:
    return ResponsesRequest.checked(json.dumps({"input": "hi", **fields}).encode())


@pytest.mark.parametrize("kind", ["enabled", "disabled"])
def test_thinking_that_is_switched_reaches_the_template_by_each_name_that_it_may_have(kind: str) -> None:
    assert messages(thinking={"type": kind}).template_options == dict.fromkeys(SWITCHES, kind == "enabled")


@pytest.mark.parametrize("fields", [{}, {"thinking": {"type": "adaptive"}}, {"thinking": {"type": "between_tools"}}])
def test_whether_a_model_thinks_is_its_own_matter_where_nothing_was_said(fields: Json) -> None:
    assert messages(**fields).template_options == {}


@pytest.mark.parametrize("effort", ["none", "low"])
def test_effort_is_one_thing_in_each_api_and_none_is_off(effort: str) -> None:
    told = [
        chat(reasoning_effort=effort).template_options,
        responses(reasoning={"effort": effort}).template_options,
        messages(output_config={"effort": effort}).template_options,
    ]
    off = dict.fromkeys(SWITCHES, False) if effort == "none" else {}

    assert told == [{"reasoning_effort": effort, **off}] * 3


@pytest.mark.parametrize(
    ("effort", "used", "named"),
    [
        *(("low", (), 1), ("low", ("enable_thinking",), 1), ("low", ("reasoning_effort",), 0)),
        *(("none", (), 1), ("none", ("enable_thinking",), 0), ("none", ("reasoning_effort",), 0)),
    ],
)
def test_effort_that_the_template_makes_nothing_of_is_named(effort: str, used: tuple[str, ...], named: int) -> None:
    assert len(chat(reasoning_effort=effort).without_effect(used)) == named
    assert len(responses(reasoning={"effort": effort}).without_effect(used)) == named
    assert len(messages(output_config={"effort": effort}).without_effect(used)) == named


def test_own_options_of_the_template_stand_before_the_effort() -> None:
    told = chat(reasoning_effort="none", chat_template_kwargs={"thinking": True}).template_options

    assert (told["thinking"], told["enable_thinking"]) == (True, False)


@pytest.mark.parametrize("gateway_tools", ["all", "none"])
def test_tools_of_the_gateway_are_seen_unless_they_are_not_wanted(gateway_tools: Any) -> None:
    assert chat(gateway_tools=gateway_tools).gateway_scope() == scope_of(gateway_tools, None)
    assert messages(gateway_tools=gateway_tools).gateway_scope() == scope_of(gateway_tools, None)
    assert (scope_of(gateway_tools, {"up": None}) == NO_TOOL) == (gateway_tools == "none")


@pytest.mark.parametrize("held", ["form", "choice"])
def test_answer_that_goes_on_is_held_by_no_grammar(held: str) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    of_chat = {"response_format": {"type": "json_object"}} if held == "form" else {"tool_choice": "required"}
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    of_messages = {"output_config": {"format": schema}} if held == "form" else {"tool_choice": {"type": "any"}}

    with pytest.raises(RequestInvalid, match="can't continue a text") as chats:
        chat(messages=BEGUN, tools=tools, continue_final_message=True, **of_chat)
    with pytest.raises(RequestInvalid, match="can't continue a text") as others:
        messages(messages=BEGUN, tools=[TOOL], **of_messages)
    assert (chats.value.param, others.value.param) == ("continue_final_message", "messages")
