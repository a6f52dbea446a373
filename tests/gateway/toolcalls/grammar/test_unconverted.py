"""Schemas that llama.cpp's own converter rejects: calls under them are held to whatever can be held, and read back."""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.parser import parse
from gateway.toolcalls.schema.spec import ToolSpec, validate_call
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf
from tests.gateway.toolcalls.unconverted_schemas import CLASSES

CASES = [(kind, name) for kind, schemas in CLASSES.items() for name in schemas]


@each_of(("kind", "name"), CASES)
def test_a_required_call_is_written_and_read_as_one(kind: str, name: str) -> None:
    tool = ToolSpec("f", "", CLASSES[kind][name])
    grammar = call_grammar(format_named("hermes"), [tool], choice="required")
    text = Gbnf(grammar).sample(random.Random(name))

    (call,) = parse("hermes", text, [tool]).tool_calls

    assert call.name == "f"
    assert isinstance(json.loads(call.arguments), dict)
    # Nothing is raised, whatever the schema is.
    validate_call(tool, json.loads(call.arguments))


@each_of("name", format_names())
def test_a_grammar_is_written_for_all_of_them_in_every_format(name: str) -> None:
    for kind, schemas in CLASSES.items():
        tools = [ToolSpec(f"f{number}", "", schema) for number, schema in enumerate(schemas.values())]
        text = Gbnf(call_grammar(format_named(name), tools, choice="required")).sample(random.Random(kind))
        assert len(parse(name, text, tools).tool_calls) == 1, (kind, text)


@each_of(("kind", "name"), CASES)
def test_an_answer_is_held_or_refused(kind: str, name: str) -> None:
    try:
        form = AnswerForm.of_schema(CLASSES[kind][name], "response_format")
    except RequestInvalid:
        return
    json.loads(Gbnf(form.grammar).sample(random.Random(name)))


PARTS = [part["properties"]["x"] for schemas in CLASSES.values() for part in schemas.values()]
KEYS = ("items", "additionalProperties", "not", "$defs", "x")


@st.composite
def mixed(draw: st.DrawFn) -> dict[str, Any]:
    """Parameters of several such parts, inside each other."""
    names = draw(st.lists(st.sampled_from(("a", "File", "x y", "$ref")), min_size=1, max_size=3, unique=True))
    found: dict[str, Any] = {}
    for name in names:
        part = draw(st.sampled_from(PARTS))
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=2)):
            part = {key: part}
        found[name] = draw(
            st.sampled_from((part, {"anyOf": [part, {"type": "null"}]}, {"type": "array", "items": part}))
        )
    return {"type": "object", "properties": found, "required": draw(st.sampled_from(([], names)))}


@given(mixed(), st.randoms(use_true_random=False))
def test_any_mixture_of_them_gives_a_call(schema: dict[str, Any], chance: random.Random) -> None:
    tool = ToolSpec("f", "", schema)
    text = Gbnf(call_grammar(format_named("hermes"), [tool], choice="required")).sample(chance)

    assert [call.name for call in parse("hermes", text, [tool]).tool_calls] == ["f"]
