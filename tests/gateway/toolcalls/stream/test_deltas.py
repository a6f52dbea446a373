"""Deltas as OpenAI's clients append them."""

import pytest

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
    event_delta,
)
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS, Numbered, started


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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("command_r7b", '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_time"'),
        ("mistral_nemo", '[TOOL_CALLS][{"name": "get_time", "id": "0"'),
        ("mistral_nemo", '[TOOL_CALLS][{"id": "0", "name": "get_time"'),
    ],
)
def test_a_call_with_an_id_is_told_as_soon_as_both_are_known(name: str, text: str) -> None:
    parser = parser_for(format_named(name), PLAIN, TOOLS, new_id=Numbered())

    assert started(parser.feed(PLAIN.spell(text[:-12]))) == []
    assert started(parser.feed(PLAIN.spell(text[-12:]))) == [CallStarted(0, "0", "get_time")]
