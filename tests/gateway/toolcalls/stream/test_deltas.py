"""Deltas as OpenAI's clients append them."""

from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
    event_delta,
)


def test_text_has_a_delta_of_its_channel() -> None:
    assert event_delta(Content("a")) == {"content": "a"}
    assert event_delta(Reasoning("a")) == {"reasoning_content": "a"}


def test_a_call_is_named_once_and_its_arguments_follow_without_a_name() -> None:
    function = {"name": "f", "arguments": ""}
    first = {"tool_calls": [{"index": 1, "id": "c", "type": "function", "function": function}]}
    assert event_delta(CallStarted(1, "c", "f")) == first
    assert event_delta(CallArguments(1, "{}")) == {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}


def test_what_clients_do_not_append_has_no_delta() -> None:
    assert event_delta(CallClosed(0, "c", "f", "{}", ())) is None
    assert event_delta(Diagnostic("malformed", "m")) is None
