"""Calls written as plain JSON in formats that have markers: what is one, what stays content, and what is held."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.nodes.unmarked_calls import MAX_HELD
from gateway.toolcalls.parser import parse, parser_for, stream
from gateway.toolcalls.stream.output_events import Content
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS, Numbered
from tests.gateway.toolcalls.test_laws import ALL

CALL = '{"name": "get_weather", "arguments": {"city": "Seoul"}}'
TIME = '{"name": "get_time", "arguments": {}}'
BARE = ("json", "llama_3", "command_r_plus", "pythonic", "functionary_32", "lfm2")
"""Formats that read bare JSON in their own way, or that begin every text with a recipient."""
marked = each_of("name", [name for name in format_names() if name not in BARE])


@marked
@each_of(
    "written",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        f"```JSON\n[{CALL}]\n```",
        f"[{CALL}]",
        '{"name": "get_weather", "parameters": {"city": "Seoul"}}',
        '{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Seoul"}}}',
        '{"name": "get_weather", "arguments": "{\\"city\\": \\"Seoul\\"}"}',
        '{"arguments": {"city": "Seoul"}, "name": "get_weather"}',
        "{'name': 'get_weather', 'arguments': {'city': 'Seoul',}}",
        '{{"name": "get_weather", "arguments": {"city": "Seoul"}}}',
    ],
)
def test_an_object_that_names_a_tool_and_fits_it_is_a_call(name: str, written: str) -> None:
    answer = ALL[name].answer
    for before in ("", "Let me look. "):
        message = parse(name, f"{answer}{before}{written}", TOOLS)
        assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [
            ("get_weather", {"city": "Seoul"})
        ]
        assert (message.content or "").strip() == before.strip()
        assert message.diagnostics == ()


@each_of(
    "written",
    [
        '{"name": "get_time", "arguments": %s}',
        '{"arguments" : %s , "id": 1, "name": "get_time"}',
        '{"function": {"name": "get_time", "parameters": %s}, "type": "function"}',
        '```json\n[{"name": "get_time",\n "arguments":\n %s}]\n```',
    ],
)
def test_arguments_are_passed_on_as_the_model_wrote_them(written: str) -> None:
    for source in ('{"at": 123456789.123456789123}', '{"x": [1E400]}', '{"a":1.10, "b" : "\\u00e9"}', "{ }"):
        message = parse("hermes", written % source, TOOLS)
        if "E4" in source:
            # No reader of JSON has such a number.
            assert (message.tool_calls, message.content) == ((), written % source)
        else:
            assert [call.arguments for call in message.tool_calls] == [source]


def test_arguments_in_a_string_are_passed_on_as_it_spells_them() -> None:
    source = '{"at": 123456789.123456789123}'
    (call,) = parse("hermes", json.dumps({"name": "get_time", "arguments": f" {source} "}), TOOLS).tool_calls
    assert call.arguments == source


@marked
def test_several_objects_are_several_calls(name: str) -> None:
    for written in (
        f"{CALL}\n{TIME}",
        f"```json\n[{CALL}, {TIME}]\n```",
        f'{{"tool_calls": [{CALL}, {TIME}]}}',
        f"```json\n{CALL}\n```\n\n```json\n{TIME}\n```",
    ):
        message = parse(name, ALL[name].answer + written, TOOLS, new_id=Numbered())
        assert [call.name for call in message.tool_calls] == ["get_weather", "get_time"]
        assert message.content is None


def test_markers_of_calls_behind_an_object_are_no_text() -> None:
    message = parse("hermes", f"{CALL}</tool_call>\n</tool_call> ", TOOLS)
    assert [call.name for call in message.tool_calls] == ["get_weather"]
    assert (message.content, message.diagnostics) == (None, ())
    message = parse("hermes", f"{CALL}</tool_call> or so", TOOLS)
    assert (message.content, message.tool_calls) == (f"{CALL}</tool_call> or so", ())


@marked
@each_of(
    ("written", "told"),
    [
        (f"To see it, send `{CALL}` to the server.", True),
        (f"```json\n{CALL}\n```\nThis asks for the weather.", True),
        (f"[{CALL} and so on]", True),
        (f"[{CALL}", True),
        (f"```json\n{CALL}\n{TIME}\n```", True),
        ('{"name": "get_weather", "arguments": {"city": 3}}', True),
        ('{"name": "get_weather", "arguments": {}}', True),
        ('{"name": "get_weather"}', False),
        ('{"name": "get_weather", "arguments": null}', False),
        ('{"name": "get_weather", "arguments": [1]}', True),
        ('{"name": "no_such", "arguments": {"city": "Seoul"}}', False),
        ('{"name": "get_weather", "population": 3}', False),
        ('{"name": "Ada", "arguments": ["x"]}', False),
        ('{"city": "Seoul"}', False),
        ('```json\n{"dependencies": {"name": "get_weather"}}\n```', False),
        ("```python\nx = {}\n```", False),
        ("if (a) { return [{}]; }", False),
        ('{"name": "get_weather", "arguments": {"city": "Se', False),
        ("{", False),
        ("[{", False),
        ("```js", False),
    ],
)
def test_other_json_is_content_to_its_last_character(name: str, written: str, told: bool) -> None:
    for text in (written, f"So:\n\n{written}"):
        whole = ALL[name].answer + text
        message = parse(name, whole, TOOLS)
        # Where a newline frames an answer, it is content as it always was.
        assert (message.content or "").removeprefix("\n") == text
        assert message.tool_calls == ()
        assert {problem.kind for problem in message.diagnostics} == ({"lookalike"} if told else set())
        assert stream(name, whole, TOOLS) == message


def test_the_diagnostic_says_what_to_do() -> None:
    (problem,) = parse("hermes", f"{CALL} or so", TOOLS).diagnostics
    assert problem.message == (
        "the answer looks like a call of 'get_weather' in another format; if it is one, set `tool_format`"
    )


def test_without_tools_and_in_an_answer_of_a_form_nothing_is_held() -> None:
    assert parse("hermes", CALL, ()).content == CALL
    formed = parser_for(format_named("hermes"), PLAIN, TOOLS, formed=True)
    assert "".join(e.text for e in formed.feed(PLAIN.spell(CALL)) + formed.close() if isinstance(e, Content)) == CALL


@each_of(
    ("text", "held"),
    [
        ("{", "{"),
        ('{"na', '{"na'),
        ('{"city', ""),
        ('{"id": 7', '{"id": 7'),
        ('{"id": 7, "na', '{"id": 7, "na'),
        ('{"id": 7, "ti', ""),
        ('{"id": {', "{"),
        ('{"id": 7}', ""),
        ('{"type": "function", "id"', '{"type": "function", "id"'),
        ('{"type": "FeatureCollection", "fe', ""),
        ('{"type": ["a"', ""),
        ('{"name": "Ada"', ""),
        ('{"name": "get_time", "x', '{"name": "get_time", "x'),
        ("```py", "```py"),
        ("```python\nx", ""),
        ('```json\n{"q', ""),
        ('```json\n{"arg', '```json\n{"arg'),
        (f"{CALL}\n", f"{CALL}\n"),
        (f"{CALL}\nThis", ""),
    ],
)
def test_text_is_held_only_while_it_can_be_a_call(text: str, held: str) -> None:
    parser = parser_for(format_named("hermes"), PLAIN, TOOLS)
    told = "".join(e.text for e in parser.feed(PLAIN.spell("So: " + text)) if isinstance(e, Content))
    assert told == ("So: " + text).removesuffix(held)


def test_what_is_held_is_bounded() -> None:
    parser = parser_for(format_named("hermes"), PLAIN, TOOLS)
    ids = list(b'{"name": "get_time", "arguments": {"tz": "' + b"x" * (MAX_HELD + 100))
    told = [e for at in range(0, len(ids), 1000) for e in parser.feed(ids[at : at + 1000])]
    assert sum(len(e.text) for e in told if isinstance(e, Content)) > MAX_HELD


REPAIRED = '<tool_call>\n{"name": "get_time", "arguments": {"tz": "a\nb"}}\n</tool_call>'
OTHERS = [
    "```json\n",
    "```",
    "\n",
    "[",
    "]",
    ", ",
    "{",
    "}",
    "So. ",
    '{"name": "get_time"',
    '{"a": 1}',
    '{"id": 7',
    ', "type": "function", ',
]
parts = st.sampled_from([CALL, TIME, REPAIRED, "<tool_call>", "</tool_call>", *OTHERS])


@given(
    st.sampled_from([name for name in format_names() if name not in BARE]),
    st.lists(parts, max_size=7).map("".join),
    st.lists(st.integers(0, 1000), max_size=8),
)
def test_the_cuts_do_not_matter(name: str, text: str, cuts: list[int]) -> None:
    text = ALL[name].answer + text
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    whole = parse(name, text, TOOLS, new_id=Numbered())
    assert stream(name, pieces, TOOLS, new_id=Numbered()) == whole
    for call in whole.tool_calls[: len(whole.tool_calls) - any(p.index is not None for p in whole.diagnostics)]:
        json.loads(call.arguments)
