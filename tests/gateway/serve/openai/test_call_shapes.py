"""Calls of free-form tools, and the old shape of calls: what streams, joined, is what comes whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.events import Finished
from gateway.context.history.client_messages import checked_messages
from gateway.serve.openai.chat import ChatRequest
from gateway.serve.openai.chat_reply import CallShapes, ChatReply
from gateway.toolcalls.stream.output_events import CallArguments, CallClosed, CallStarted, Diagnostic, Event

DONE = Finished("tool_calls", prompt_ids=9, cached_ids=0, completion_ids=9)
ASK = {"role": "user", "content": "hi"}


def call_events(index: int, name: str, arguments: str, cuts: list[int]) -> list[Event]:
    ends = [*sorted(cut % (len(arguments) + 1) for cut in cuts), len(arguments)]
    pieces = [arguments[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [
        CallStarted(index, f"c{index}", name),
        *(CallArguments(index, piece) for piece in pieces if piece),
        CallClosed(index, f"c{index}", name, arguments, ()),
    ]


def answer(events: list[Event], shapes: tuple[CallShapes, CallShapes]) -> tuple[list[Any], Any]:
    """The deltas of a stream, and the whole answer's choice."""
    streamed, whole = (ChatReply("m", 0, usage_chunk=False, shapes=each) for each in shapes)
    chunks = [chunk for event in (*events, DONE) for chunk in streamed.feed(event)]
    for event in (*events, DONE):
        whole.feed(event)
    return [chunk["choices"][0] for chunk in chunks], whole.completion()["choices"][0]


CALLS = st.lists(st.tuples(st.sampled_from(["patch", "look"]), st.text(), st.lists(st.integers(0), max_size=3)))


@given(CALLS)
def test_input_of_a_free_form_tool_is_its_text_streamed_and_whole(calls: list[tuple[str, str, list[int]]]) -> None:
    events: list[Event] = []
    for number, (name, text, cuts) in enumerate(calls):
        events += call_events(number, name, json.dumps({"input": text}), cuts)
    choices, whole = answer(events, (CallShapes({"patch"}), CallShapes({"patch"})))

    joined: dict[int, dict[str, Any]] = {}
    for part in (part for choice in choices for part in choice["delta"].get("tool_calls", [])):
        call = joined.setdefault(part["index"], {"id": part.get("id"), "type": part.get("type")})
        kind = call["type"]
        for key, piece in part[kind].items():
            call[kind] = {**call.get(kind, {}), key: call.get(kind, {}).get(key, "") + piece}
    assert whole["message"].get("tool_calls", []) == list(joined.values())
    shown = [call.get("custom", {}).get("input") for call in joined.values()]
    assert shown == [text if name == "patch" else None for name, text, _ in calls]


@given(st.text(), st.lists(st.integers(0), max_size=3))
def test_old_shape_has_one_call_and_its_own_reason(text: str, cuts: list[int]) -> None:
    arguments = json.dumps({"x": text})
    choices, whole = answer(call_events(0, "look", arguments, cuts), (CallShapes(old=True), CallShapes(old=True)))

    pieces = [choice["delta"]["function_call"] for choice in choices[:-1]]
    assert pieces[0] == {"name": "look", "arguments": ""}
    assert "".join(piece["arguments"] for piece in pieces) == arguments
    assert whole["message"] == {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "look", "arguments": arguments},
    }
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == "function_call"


def test_free_form_call_that_a_limit_cuts_has_no_input_streamed() -> None:
    shapes = CallShapes({"patch"})
    events: list[Event] = [
        CallStarted(0, "c", "patch"),
        CallArguments(0, '{"input": "a'),
        Diagnostic("truncated", "", 0),
    ]

    (only,) = (delta for event in events if (delta := shapes.delta(event)) is not None)
    assert only["tool_calls"][0]["custom"] == {"name": "patch", "input": ""}


def test_request_in_the_old_form_is_one_of_today() -> None:
    look = {"name": "look", "parameters": {"type": "object"}}
    old, messages = ChatRequest.checked(
        json.dumps(
            {
                "messages": [
                    ASK,
                    {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"a": 1}'}},
                    {"role": "function", "name": "look", "content": "sun"},
                ],
                "functions": [look],
                "function_call": {"name": "look"},
            }
        ).encode()
    )
    today, others = ChatRequest.checked(
        json.dumps(
            {
                "messages": [
                    ASK,
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"id": "function_call_1", "function": {"name": "look", "arguments": '{"a": 1}'}}
                        ],
                    },
                    {"role": "tool", "tool_call_id": "function_call_1", "name": "look", "content": "sun"},
                ],
                "tools": [{"type": "function", "function": look}],
                "tool_choice": {"type": "function", "function": {"name": "look"}},
            }
        ).encode()
    )
    assert messages == others
    assert old.read_tools.specs == today.read_tools.specs
    assert old.choice == today.choice


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"id": "a", "type": "custom", "custom": {"name": "patch", "input": 'a "b"'}}, '{"input": "a \\"b\\""}'),
        ({"id": "a", "name": "patch", "arguments": {"x": 1}}, '{"x": 1}'),
        ({"id": "a", "type": "function", "function": {"name": "patch"}}, "{}"),
        ({"type": "function", "function": {"name": "patch", "arguments": "{}"}}, "{}"),
    ],
)
def test_call_in_a_history_is_read_in_every_shape(call: Any, arguments: str) -> None:
    history = checked_messages([ASK, {"role": "assistant", "tool_calls": [call]}])

    assert history[1]["tool_calls"][0]["function"] == {"name": "patch", "arguments": arguments}


def test_result_in_the_old_form_without_a_call_is_a_result() -> None:
    assert checked_messages([ASK, {"role": "function", "name": "x", "content": "y"}])[1]["role"] == "tool"
    both = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "x"}}], "function_call": {"name": "x"}}
    assert len(checked_messages([ASK, both])[1]["tool_calls"]) == 1
