"""Output that was made to break the readers: nothing fails, and a call that is reported whole has JSON arguments."""

import json

import pytest

from gateway.toolcalls.parser import parse
from gateway.toolcalls.schema.keywords import dead_references
from gateway.toolcalls.schema.merge import typed

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
GOOD = '<tool_call>\n{"name": "f", "arguments": {"good": 1}}\n</tool_call>'


def hermes(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize("arguments", [r'{"\d\", "b": 1}', r'{"\d\"}', '{{}, "b": 1}', '{{} "b": 1}', '{"a": 1,'])
def test_mended_call_is_json_or_no_call(arguments: str) -> None:
    message = parse("hermes", hermes(arguments), TOOLS)

    kinds = {each.kind for each in message.diagnostics}
    if "malformed" in kinds:
        assert hermes(arguments) in (message.content or "")
    elif "truncated" not in kinds:
        (call,) = message.tool_calls
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"f","arguments":{"a":1e999}}',
        '{"name":"f","arguments":"{\\"a\\": NaN}"}',
        '{"name":"f","arguments":{"s":"\\ud800"}}',
        '{"name":"f","arguments":"{\\"a\\":' + "[" * 5000 + '"}',
    ],
)
def test_bare_object_is_a_call_only_if_its_arguments_can_be_sent_as_json(text: str) -> None:
    message = parse("hermes", text, TOOLS)

    for call in message.tool_calls:
        call.arguments.encode()
        json.loads(call.arguments, parse_constant=pytest.fail)
    assert message.tool_calls or message.content == text


@pytest.mark.parametrize(
    ("before", "times"),
    [
        ('{"name":"f","arguments":"{\\"a\\":' + "[" * 5000 + '"}\n', 1),
        ('{"name": "f", "arguments": {"x": "' + "y" * 60_000 + '"}}\n', 20),
    ],
)
def test_call_behind_a_huge_object_is_still_read(before: str, times: int) -> None:
    message = parse("hermes", before * times + "So:\n" + GOOD, TOOLS)

    assert [json.loads(call.arguments) for call in message.tool_calls][-1] == {"good": 1}


def test_plain_form_of_a_schema_that_refers_to_itself_is_small() -> None:
    circles = {"type": "object", "properties": {name: {"$ref": "#"} for name in "abcd"}}

    assert len(json.dumps(typed(circles))) < 1_000_000


def test_references_are_looked_up_in_an_index() -> None:
    """One walk for each reference took minutes here."""
    schema = {"properties": {f"p{n}": {"$ref": f"#x{n}"} for n in range(4000)}, "x": [[]] * 100_000}

    assert len(dead_references(schema)) == 4000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm45", "A call is between `<tool_call>` and `</tool_call>`."),
        ("glm47", "A call is between `<tool_call>` and `</tool_call>`."),
        ("functionary_32", '```json\n{"city": "Oslo"}\n```'),
        ("functionary_32", 'The config:\n{"version": 1}'),
    ],
)
def test_prose_where_a_name_would_stand_is_no_call(name: str, text: str) -> None:
    message = parse(name, text, TOOLS)

    assert message.content == text
    assert message.tool_calls == ()
