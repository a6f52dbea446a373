"""JSON that an answer only shows, in every place and form, beside tools of the same names: content, never a call."""

import itertools
import json
import random

import pytest

from gateway.toolcalls.formats.registry import format_named, format_names, taught_format
from gateway.toolcalls.parser import join_events, parse, parser_for, read_events, stream
from gateway.toolcalls.stream.output_events import Content
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS
from tests.gateway.toolcalls.test_laws import ALL

FITS = {"name": "get_weather", "arguments": {"city": "Seoul"}}
FITTING = [
    FITS,
    {"name": "get_weather", "parameters": {"city": "Seoul", "days": 2}},
    {"name": "get_time", "arguments": {}},
    {"type": "function", "function": FITS},
    {"arguments": {"tz": "KST"}, "name": "get_time"},
    [FITS, {"name": "get_time", "parameters": {"tz": "KST"}}],
]
"""Whole calls of the request's tools: where something follows, they are examples."""
UNFIT = [
    {"name": "get_weather", "arguments": {"city": 3}},
    {"name": "get_weather", "arguments": {"town": "Seoul"}},
    {"name": "get_weather", "parameters": {}},
    {"name": "get_time", "arguments": [1]},
    {"name": "get_time", "parameters": "KST"},
    {"name": "get_time", "arguments": {}, "version": "1.0.0"},
    {"name": "get_weather", "description": "Weather of a city.", "parameters": {"type": "object", "properties": {}}},
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},
    {"name": "no_such", "arguments": {"city": "Seoul"}},
    {"name": "my-app", "version": "1.0.0", "dependencies": {"name": "get_time"}},
    {"name": "Ada", "parameters": {"age": 36}},
    {"tools": [{"name": "get_time", "parameters": {}}]},
    {"config": FITS},
    {"mcp": {"examples": [FITS, FITS]}, "version": 1},
    {"steps": {"first": {"call": FITS}}},
    [{"step": 1, "call": FITS}],
    {"name": "get_time", "arguments": {}, "then": FITS},
    [FITS, {"name": "no_such", "arguments": {}}],
    [{"name": "Alice", "age": 30}, {"name": "Bob"}],
    [1, {"name": "get_time", "arguments": {}}],
]
"""No calls of the request's tools, wherever they stand behind text."""
PLACES = [
    "{}",
    "`{}`",
    "```json\n{}\n```",
    "```\n{}\n```",
    "~~~JSON\n{}\n~~~",
    "1. {}",
    "> {}",
    "    {}",
    "| {} |",
    "<pre>{}</pre>",
    "<tools>\n{}\n</tools>",
    "```python\nresponse = call({})\n```",
    "```js\nconst call = {};\n```",
    "curl -d '{}' localhost",
]
BEFORE = ["The model answers with ", "For example:\n\n", "So erwartet es der Server: ", "물론이죠:\n"]
BEHIND = ["\n\nThis asks for the weather.", " or the like.", "\n```\nAnd so on."]
SHOWN = [
    f"{before}{place.format(json.dumps(shown, indent=indent))}{behind}"
    for shown, place in itertools.product([*FITTING, *UNFIT], PLACES)
    for before, behind, indent in [
        (random.Random(f"{shown}{place}").choice(BEFORE), random.Random(f"{place}{shown}").choice(BEHIND), None),
        (random.Random(f"{shown}{place}2").choice(BEFORE), random.Random(f"{place}{shown}2").choice(BEHIND), 2),
    ]
]
ENDING = [
    f"{before}{place.format(json.dumps(shown))}"
    for shown, place, before in itertools.product(UNFIT, PLACES, BEFORE[:2])
]
UNMARKED = ["json", "llama_3", "granite_3", "mistral", "mistral_nemo", "mistral_small"]
"""Formats whose models also write their calls without a marker."""


def is_shown(name: str, text: str) -> None:
    whole = ALL[name].answer + text
    message = parse(name, whole, TOOLS)
    assert message.tool_calls == (), whole
    # Where a newline frames an answer, it is content as it always was.
    assert (message.content or "").removeprefix("\n") == text
    assert {problem.kind for problem in message.diagnostics} <= {"lookalike"}
    size = random.Random(text).randint(1, 9)
    assert stream(name, [whole[at : at + size] for at in range(0, len(whole), size)], TOOLS) == message


def test_there_are_hundreds_of_variations() -> None:
    assert len(SHOWN) > 500
    assert len(ENDING) > 400


@pytest.mark.parametrize("name", UNMARKED)
def test_json_amid_prose_is_content_to_its_last_character(name: str) -> None:
    # Each text in two of the formats.
    for text in (*SHOWN, *ENDING)[UNMARKED.index(name) % 3 :: 3]:
        is_shown(name, text)


@each_of("name", [name for name in format_names() if name not in UNMARKED])
def test_json_amid_prose_is_content_in_every_format(name: str) -> None:
    for text in random.Random(name).sample([*SHOWN, *ENDING], 40):
        # Tags that are a format's own are markers.
        if not any(mark in text for mark in format_named(name).markers):
            is_shown(name, text)


def test_json_amid_prose_is_content_in_the_form_that_a_template_teaches() -> None:
    for shape in ('{"name": "f", "parameters": {}}', '[{"name": "f", "arguments": {}}]'):
        fmt = taught_format(shape)
        assert fmt is not None
        for text in (*SHOWN[::7], *ENDING[::7]):
            message = join_events(read_events(fmt, [text], TOOLS))
            assert (message.tool_calls, message.content) == ((), text)


CALL = '{"name": "get_weather", "parameters": {"city": "Seoul"}}'
TIME = '{"name": "get_time", "arguments": {}}'
SEOUL, NOW = ("get_weather", {"city": "Seoul"}), ("get_time", {})


@pytest.mark.parametrize("name", UNMARKED)
@each_of("before", ["Let me look. ", "Let me look.\n\n", "물론이죠:\n"])
@each_of(
    ("written", "calls"),
    [
        (CALL, [SEOUL]),
        (f"{CALL}; {TIME}", [SEOUL, NOW]),
        (f"{CALL};{TIME};", [SEOUL, NOW]),
        (f"{CALL}\n{TIME}", [SEOUL, NOW]),
        (f"{CALL}, {TIME}\n", [SEOUL, NOW]),
        (f"[{CALL}, {TIME}]", [SEOUL, NOW]),
        (f"```json\n{CALL}\n```", [SEOUL]),
        (f"```\n[{CALL}, {TIME}]\n```", [SEOUL, NOW]),
        (f"```json\n{CALL}\n```\n\n```json\n{TIME}\n```", [SEOUL, NOW]),
    ],
)
def test_calls_that_end_an_answer_and_fit_their_tools_are_calls(
    name: str, before: str, written: str, calls: list[object]
) -> None:
    for text in (f"{before}{written}", f"{before}{written}\n"):
        message = parse(name, ALL[name].answer + text, TOOLS)
        assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == calls
        assert (message.content or "").strip() == before.strip()
        assert message.diagnostics == ()


@pytest.mark.parametrize("name", ["json", "llama_3"])
def test_calls_that_begin_an_answer_are_calls_whatever_they_name_and_what_follows_is_content(name: str) -> None:
    unknown = '{"name": "no_such", "parameters": {"city": 3}}'
    message = parse(name, f"{unknown}\n{TIME} So I asked `{CALL}` too.", TOOLS)
    assert [call.name for call in message.tool_calls] == ["no_such", "get_time"]
    assert message.content == f"So I asked `{CALL}` too."


@pytest.mark.parametrize("name", UNMARKED)
def test_without_tools_no_json_amid_prose_is_a_call(name: str) -> None:
    text = f"{ALL[name].answer}So: {CALL}"
    assert (parse(name, text, ()).tool_calls, parse(name, text, ()).content) == ((), f"So: {CALL}")


@pytest.mark.parametrize("name", UNMARKED)
@each_of(
    ("text", "held"),
    [
        ('{"city": "Se', ""),
        ('{"name": "no_such", "arguments": {"city": "Se', ""),
        ('{"name": "get_time", "arguments": {"tz": "K', '{"name": "get_time", "arguments": {"tz": "K'),
        (f"```json\n{CALL}\n```\n", f"```json\n{CALL}\n```\n"),
        (f"```json\n{CALL}\n```\nThis", ""),
        (f"{CALL}; ", f"{CALL}; "),
        (f"{CALL}; and", ""),
    ],
)
def test_text_is_held_only_while_it_can_end_an_answer_as_a_call(name: str, text: str, held: str) -> None:
    parser = parser_for(format_named(name), PLAIN, TOOLS)
    written = f"So: {text}"
    events = parser.feed(PLAIN.spell(ALL[name].answer + written))
    assert "".join(event.text for event in events if isinstance(event, Content)) == written.removesuffix(held)
