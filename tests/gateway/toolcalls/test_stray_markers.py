"""Markers that a model repeats without end: they cost no more than other text, and none of the text is lost.

Each marker is repeated whole and in one of four other spellings; in all of them in `make fuzz`.
"""

import sys
from collections.abc import Iterator

import pytest

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import join_events, parse, read_events
from gateway.toolcalls.stream.cursor import MAX_STRAY
from gateway.toolcalls.stream.output_events import Content, Reasoning
from tests.cases import IN_FULL, each_of
from tests.gateway.toolcalls.fakes import TOOLS, TinyVocabulary, closed, diagnostics, run, texts
from tests.gateway.toolcalls.test_laws import ALL

CALL = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
SHARES = 1 if IN_FULL else 4
MANY = 1024
"""More markers and objects than are looked at in a row."""
LEAST = 1 << 14
PART = 1 << 11


def steps(fmt: Format, piece: str) -> int:
    """How many functions are called to read the last part of a text in which a piece is repeated."""
    text, taken = piece * max(MANY + PART // len(piece), LEAST // len(piece)), 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal taken
        taken += event == "call"

    def pieces() -> Iterator[str]:
        yield text[:-PART]
        sys.setprofile(count)
        yield from (text[at : at + 64] for at in range(len(text) - PART, len(text), 64))

    try:
        for _ in read_events(fmt, pieces(), TOOLS):
            pass
    finally:
        sys.setprofile(None)
    return taken


@pytest.mark.in_full
@each_of("name", ALL)
def test_a_repeated_marker_costs_what_text_costs(name: str) -> None:
    fmt = format_named(name)
    markers = dict.fromkeys((*fmt.markers, *ALL[name].markup))
    text = steps(fmt, "x")
    for number, marker in enumerate(markers, list(ALL).index(name)):
        odd = (marker[:-1], marker[1:], f"{marker}x\n", f"{marker}{{")
        for piece in (marker, *odd[number % SHARES :: SHARES]):
            # The first time, patterns are compiled. The ids of a text take a call each to read, not counted here.
            assert not piece or any(steps(fmt, piece) <= 3 * text + PART for _ in range(2)), piece


@each_of("name", ALL)
def test_text_behind_many_markers_is_not_lost(name: str) -> None:
    fmt = format_named(name)
    for marker in fmt.markers:
        events = list(read_events(fmt, [f"{ALL[name].answer}So. {marker * 2000} The end."], TOOLS))
        told = "".join(event.text for event in events if isinstance(event, Content | Reasoning))
        assert told.endswith(" The end."), marker
        assert len(diagnostics(events)) <= MAX_STRAY + 1


def test_calls_behind_some_stray_markers_are_read_and_the_count_begins_anew() -> None:
    some = "<tool_call> x " * (MAX_STRAY - 1)
    message = parse("hermes", (some + CALL) * 3, TOOLS)
    assert [call.name for call in message.tool_calls] == ["get_time"] * 3
    assert (message.content or "").count("<tool_call>") == 3 * (MAX_STRAY - 1)


@pytest.mark.parametrize("stray", ["<tool_call> x ", "<tool_call></tool_call>", "</tool_call><tool_call>["])
def test_behind_too_many_stray_markers_all_is_content_and_a_diagnostic_says_so(stray: str) -> None:
    message = parse("hermes", stray * (MAX_STRAY + 50) + CALL, TOOLS)
    assert message.tool_calls == ()
    assert (message.content or "").endswith(CALL)
    assert message.diagnostics[-1].kind == "malformed"
    assert message.diagnostics[-1].message == (
        f"{MAX_STRAY} markers in a row bring no call; what follows is passed on as content"
    )


def test_markers_that_are_tokens_are_counted_too() -> None:
    vocabulary = TinyVocabulary(("<tool_call>", "</tool_call>"))
    ids = vocabulary.spell("<tool_call>x" * 2000 + CALL, specials=True)
    events = run(ids, [], vocabulary=vocabulary)
    assert len(diagnostics(events)) == MAX_STRAY + 1
    assert not closed(events)
    assert texts(events) == "<tool_call>x" * 2000 + CALL


def test_reasoning_that_repeats_a_marker_still_ends() -> None:
    thought = "<tool_call> or " * 2000
    message = parse("hermes", f"<think>\n{thought}\n</think>\n\nThe answer.", TOOLS)
    assert (message.reasoning_content, message.content) == (thought, "The answer.")
    events = list(read_events(format_named("hermes"), [f"<think>\n{thought}\n</think>So"], TOOLS))
    assert join_events(events).content == "So"
    assert {type(event) for event in events} >= {Content, Reasoning}
