"""Flawed calls in every format: a call where the flaw leaves one reading, otherwise its whole text as content."""

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import machine_for, parse, parser_for, stream
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, CallEvents, Content, Event, Reasoning
from gateway.toolcalls.stream.spelling import Spelling
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import Numbered, TinyVocabulary
from tests.gateway.toolcalls.families import Family, Written
from tests.gateway.toolcalls.families_json import JSON_FAMILIES
from tests.gateway.toolcalls.families_tagged import TAGGED_FAMILIES

FILE = ToolSpec(
    "write_file",
    "",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {}},
        "required": ["path", "content"],
    },
)
TOOLS = (FILE,)
ALL = {family.format: family for family in (*JSON_FAMILIES, *TAGGED_FAMILIES)}
WRITES_JSON = [family for family in ALL.values() if family.verbatim]
"""The families whose arguments are the model's own JSON text."""

REPAIRED: list[tuple[str, dict[str, Any]]] = [
    ('{"path": "a", "content": "l1\nl2\tx"}', {"path": "a", "content": "l1\nl2\tx"}),
    (r'{"path": "C:\dir", "content": "\d+"}', {"path": r"C:\dir", "content": r"\d+"}),
    (r'{"path": "a", "content": "it\'s"}', {"path": "a", "content": "it's"}),
    ('{"path": "a", "content": "x",}', {"path": "a", "content": "x"}),
    ('{"path": "a", "content": "x", "mode": None}', {"path": "a", "content": "x", "mode": None}),
    ('{"path": "a", "content": "x", "mode": NaN}', {"path": "a", "content": "x", "mode": None}),
    ('{"path": 02134, "content": 007, "mode": 007}', {"path": "02134", "content": "007", "mode": 7}),
    ('{path: "a", content: "x"}', {"path": "a", "content": "x"}),
    ("{'path': 'a', 'content': 'it's'}", {"path": "a", "content": "it's"}),
    ('{"path": "a", "content": "say "hi", then go"}', {"path": "a", "content": 'say "hi", then go'}),
    ('{"content": "d = {"k": "v", "z": 1}", "path": "a"}', {"path": "a", "content": 'd = {"k": "v", "z": 1}'}),
    ('{"path": "a", "mode": {"b": [1, 2}}', {"path": "a", "mode": {"b": [1, 2]}}),
    ('{{"path": "a", "content": "x"}}', {"path": "a", "content": "x"}),
]
UNREADABLE = ['{"path": nope}', '{"path": 1 + 2, "content": "x"}', '{"path" "a"}']
json_formats = each_of("family", WRITES_JSON)


def without_markup(family: Family, text: str) -> str:
    """A text without whitespace and without what only frames it."""
    for mark in sorted({family.answer, *family.markup, *format_named(family.format).markers}, key=len, reverse=True):
        text = text.replace(mark, "")
    return "".join(text.split())


def call_of(family: Family, given: str) -> str:
    return family.write([Written("write_file", given, "abcdefghi")])


@json_formats
def test_arguments_without_a_flaw_are_the_models_own_text(family: Family) -> None:
    given = '{"mode": {"a" : 1}}'

    assert [call.arguments for call in parse(family.format, call_of(family, given), TOOLS).tool_calls] == [given]


@json_formats
@each_of(("given", "meant"), REPAIRED)
def test_a_flaw_with_one_reading_is_a_whole_call(family: Family, given: str, meant: dict[str, Any]) -> None:
    text = call_of(family, given)
    message = parse(family.format, text, TOOLS, new_id=Numbered())
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [("write_file", meant)]
    assert [(problem.kind, problem.index) for problem in message.diagnostics] == [("repaired", 0)]
    assert not (message.content or "").strip()
    for size in (1, 3):
        cut = [text[at : at + size] for at in range(0, len(text), size)]
        assert stream(family.format, cut, TOOLS, new_id=Numbered()) == message


@json_formats
@each_of("given", UNREADABLE)
def test_a_call_without_a_reading_is_content_from_its_first_character(family: Family, given: str) -> None:
    text = call_of(family, given)
    before = "" if family.begins else "So. "
    message = parse(family.format, f"{family.answer}{before}{text}", TOOLS)
    assert without_markup(family, message.content or "") == without_markup(family, before + text)
    assert [problem.kind for problem in message.diagnostics][:1] == ["malformed"]


def test_missing_braces_at_the_end_are_closed_where_the_model_ended_it_itself() -> None:
    parser = parser_for(format_named("mistral"), TinyVocabulary(), TOOLS)
    events = parser.feed(list(b'[TOOL_CALLS]write_file[ARGS]{"path": "a", "mode": [1')) + parser.close(whole=True)
    assert [e.arguments for e in events if isinstance(e, CallClosed)] == ['{"path": "a", "mode": [1]}']


def test_an_unreadable_call_at_the_end_is_content_where_the_model_ended_it_itself() -> None:
    text = '[TOOL_CALLS]write_file[ARGS]{"path": "say "a'
    for whole, told in ((True, text), (False, "")):
        parser = parser_for(format_named("mistral"), TinyVocabulary(), TOOLS)
        events = parser.feed(list(text.encode())) + parser.close(whole=whole)
        assert "".join(e.text for e in events if isinstance(e, Content)) == told
        assert not any(isinstance(e, CallClosed) for e in events)


@each_of(
    "text",
    [
        '<tool_call>\n{{"name": "write_file", "arguments": {"path": "a"}}}\n</tool_call>',
        '<tool_call>\n{{"name": "write_file", "arguments": {{"path": "a"}}}}\n</tool_call>',
        "<tool_call>\n{'name': 'write_file', 'arguments': {'path': 'a'}}\n</tool_call>",
        '<tool_call>\n{name: "write_file", arguments: {path: "a"}}\n</tool_call>',
        '<tool_call>\n{"name": "write_file", "arguments": {"path": "a"},}\n</tool_call>',
        '<tool_call>\n{"name": "write_file", "arguments": {"path": "a"\n</tool_call>',
        '<tool_call>\n{"name": "write_file", "arguments": {"path": "a"}}}\n</tool_call>',
        '<tool_call>\n{"name": "write_file", "arguments": {"path": "a"}}]}\n</tool_call>',
        '<tool_call>\n[{"name": "write_file", "arguments": {"path": "a"}}}]\n</tool_call>',
        '<tool_call>\n[{"name": "write_file", "arguments": {"path": "a"}}\n</tool_call>',
        '<tool_call>\n{"name": "write_file", "arguments": "{\\"path\\": \\"a\\",}"}\n</tool_call>',
    ],
)
def test_the_object_around_the_arguments_may_be_flawed_too(text: str) -> None:
    message = parse("hermes", text, TOOLS)
    assert [json.loads(call.arguments) for call in message.tool_calls] == [{"path": "a"}]
    assert message.content is None


def parts_of(name: str, text: str, cuts: list[int]) -> tuple[list[Event], list[tuple[int, int]]]:
    """The events of a text, and where the source of each call that was closed begins and ends."""
    begin = 0
    sources: list[tuple[int, int]] = []

    def take(end: int) -> tuple[int, ...]:
        nonlocal begin
        sources.append((begin, end))
        begin = end
        return ()

    def forget(offset: int) -> None:
        nonlocal begin
        begin = max(begin, offset)

    calls = CallEvents(Numbered(), take)
    machine, _ = machine_for(format_named(name), calls, Spelling({}), TOOLS, prompt_tail="", forget=forget)
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    events: list[Event] = []
    for a, b in itertools.pairwise(places):
        machine.feed(text[a:b])
        events += calls.drain()
    machine.close("", whole=True)
    return events + calls.drain(), sources


@st.composite
def flawed_messages(draw: st.DrawFn) -> tuple[Family, str]:
    """Prose and calls, whole, flawed and broken off in any place."""
    family = draw(st.sampled_from(WRITES_JSON))
    givens = [*UNREADABLE, *(given for given, _ in REPAIRED), '{"path": "a", "content": "b"}', '{"content": "say "x']
    calls = st.sampled_from(givens).map(lambda given: call_of(family, given))
    # A header of gpt-oss that is cut off is markup.
    least = call_of(family, "{").index("{") if family.format == "harmony" else 1
    cut = st.tuples(calls, st.integers(least, 80)).map(lambda both: both[0][: both[1]])
    parts = draw(st.lists(calls | cut | st.sampled_from(["So. ", "and} ", '"x", ', "é\n"]), min_size=1, max_size=4))
    return family, family.answer + "".join(parts)


@given(flawed_messages(), st.lists(st.integers(0, 10_000), max_size=8))
def test_content_and_reasoning_and_the_calls_source_are_all_that_the_model_wrote(
    written: tuple[Family, str], cuts: list[int]
) -> None:
    family, text = written
    events, sources = parts_of(family.format, text, cuts)
    left = iter(sources)
    told, at = "", 0
    for event in events:
        if isinstance(event, Content | Reasoning):
            told += event.text
        elif isinstance(event, CallClosed):
            json.loads(event.arguments)
            begin, end = next(left)
            assert without_markup(family, told) == without_markup(family, text[at:begin])
            told, at = "", end
    assert without_markup(family, told) == without_markup(family, text[at:])
    assert next(left, None) is None


@given(flawed_messages(), st.lists(st.integers(0, 10_000), max_size=8))
def test_flawed_messages_in_any_pieces_tell_the_same(written: tuple[Family, str], cuts: list[int]) -> None:
    family, text = written
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    whole = parse(family.format, text, TOOLS, new_id=Numbered())
    assert stream(family.format, pieces, TOOLS, new_id=Numbered()) == whole
