"""A model that ends its message behind a call's last value, and leaves out closing marks, has made the call."""

import json

import pytest

from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import AssistantMessage, join_events, parser_for
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS
from tests.gateway.toolcalls.families import Written
from tests.gateway.toolcalls.test_laws import ALL


def ended(name: str, text: str, *, whole: bool = True) -> AssistantMessage:
    parser = parser_for(format_named(name), PLAIN, TOOLS)
    return join_events(parser.feed(PLAIN.spell(text)) + parser.close(whole=whole))


def shortened(name: str) -> list[str]:
    """A call of the format without its last closing mark, without its last two, ..."""
    text = ALL[name].write([Written("get_weather", '{"city": "Oslo"}', "abcdefghi")]).rstrip()
    marks = (*sorted(format_named(name).markers, key=len, reverse=True), "]", ")", "}")
    found: list[str] = []
    while mark := next((mark for mark in marks if mark and text.endswith(mark)), ""):
        text = text.removesuffix(mark).rstrip()
        if text.endswith("Oslo"):
            break
        found.append(text)
    return found


@each_of("name", format_names())
def test_a_call_without_its_last_closing_marks_is_whole(name: str) -> None:
    for text in shortened(name):
        message = ended(name, text)
        assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [
            ("get_weather", {"city": "Oslo"})
        ]
        assert message.content is None, text
        assert {problem.kind for problem in message.diagnostics} <= {"repaired"}


@pytest.mark.parametrize("name", ["deepseek_v4", "minimax_m2", "olmo_3", "pythonic", "qwen3_coder"])
def test_the_client_is_told_what_is_missing_and_a_cut_is_still_a_cut(name: str) -> None:
    text = shortened(name)[0]
    (problem,) = ended(name, text).diagnostics
    assert (problem.kind, "is missing" in problem.message) == ("repaired", True)
    assert [problem.kind for problem in ended(name, text, whole=False).diagnostics] == ["truncated"]


@pytest.mark.parametrize("name", ["deepseek_v4", "function_gemma", "gemma4", "mimo", "qwen3_coder", "seed_oss"])
def test_a_call_without_its_closing_marker_is_whole_where_the_next_one_begins(name: str) -> None:
    text = shortened(name)[0]
    following = ALL[name].write([Written("get_time", "{}", "abcdefghj")]).lstrip()
    message = ended(name, f"{text}\n{following}")
    assert [call.name for call in message.tool_calls] == ["get_weather", "get_time"]
    assert message.content is None
    (problem,) = message.diagnostics
    assert (problem.kind, problem.index) == ("repaired", 0)
    assert problem.message.endswith(f"its closing marker is missing at character {len(text) + 1}")


@pytest.mark.parametrize("name", ["deepseek_v4", "minimax_m2", "qwen3_coder"])
def test_text_behind_an_unclosed_call_is_no_end(name: str) -> None:
    message = ended(name, f"{shortened(name)[0]} and so on")
    assert [problem.kind for problem in message.diagnostics] == ["malformed"]
