"""Answers of a form: every text that the grammar takes fits the schema, or the schema was refused with the reason."""

import json
import random

import jsonschema
import pytest

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.formats.structured_output import AnswerForm, answer_grammar
from gateway.toolcalls.parser import AssistantMessage, join_events, machine_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallEvents, Policy
from gateway.toolcalls.stream.spelling import Spelling
from tests.cases import IN_FULL, each_of
from tests.gateway.toolcalls.answer_schemas import HELD, UNHELD, members
from tests.gateway.toolcalls.fakes import TOOLS
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

SEEDS = 40 if IN_FULL else 12
"""Texts of each grammar."""
TRAPS = [
    "<tool_call>",
    "</think>",
    "<function=now><parameter=zone>CET</parameter></function>",
    '[{"name": "now", "arguments": {}}]',
    "<|channel|>final<|message|>",
    "[now()]",
]
TRAP = AnswerForm.of_schema(
    members("name", "x", name={"const": "now"}, x={"enum": TRAPS}, arguments={"type": "object"}), "schema"
)


def answers(schema: object, name: str = "hermes", tail: str = "</think>\n") -> Gbnf:
    form = AnswerForm.of_schema(schema, "schema")
    return Gbnf(answer_grammar(format_named(name), form, (), parallel=False, prompt_tail=tail))


def read(name: str, text: str, tools: tuple[ToolSpec, ...] = (), *, tail: str = "", size: int = 1) -> AssistantMessage:
    policy = None if tools else Policy(unknown_tool="content")
    calls = CallEvents(lambda: "call", lambda end: (), policy)
    machine, _ = machine_for(
        format_named(name), calls, Spelling({}), tools, prompt_tail=tail, forget=lambda offset: None, formed=True
    )
    for start in range(0, len(text), size):
        machine.feed(text[start : start + size])
    machine.close("")
    return join_events(calls.drain())


@pytest.mark.in_full
@each_of("schema", HELD.values())
@each_of("name", ["hermes", "qwen3_coder"])
def test_all_that_the_grammar_takes_fits_the_schema(name, schema):
    grammar = answers(schema, name)

    for seed in range(SEEDS):
        value = json.loads(grammar.sample(random.Random(seed)))
        jsonschema.validate(value, schema)


@each_of(("schema", "reason"), UNHELD.values())
def test_schema_that_no_grammar_says_exactly_is_refused_with_the_reason(schema, reason):
    with pytest.raises(RequestInvalid) as refused:
        AnswerForm.of_schema(schema, "response_format")

    assert reason in refused.value.message
    assert refused.value.param == "response_format"


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        *(("null", {"null"}), ("boolean", {"true"}), ("string", {'"x"'}), ("array", {"[1]"}), ("object", {'{"a": 1}'})),
        *(("integer", {"1", "2.0"}), ("number", {"1", "2.0", "1.5"})),
    ],
)
def test_of_listed_values_the_grammar_takes_those_of_the_type(kind, texts):
    listed = [None, True, "x", [1], {"a": 1}, 1, 2.0, 1.5]
    grammar = Gbnf(AnswerForm.of_schema({"type": kind, "enum": listed}, "schema").grammar)

    assert {text for text in map(json.dumps, listed) if grammar.takes(text)} == texts


def test_answer_without_quotes_is_one_of_the_texts_or_fits_the_pattern():
    texts = Gbnf(AnswerForm.of_schema({"enum": ["a b", "c"]}, "schema", bare=True).grammar)
    pattern = Gbnf(AnswerForm.of_schema({"type": "string", "pattern": r'^"?\d+$'}, "schema", bare=True).grammar)

    assert [texts.takes(text) for text in ("a b", "c", '"c"', "b")] == [True, True, False, False]
    assert [pattern.takes(text) for text in ("12", '"1', '"12"', "")] == [True, True, False, False]
    with pytest.raises(RequestInvalid, match="the pattern is too complex"):
        AnswerForm.of_schema({"type": "string", "pattern": "inside"}, "schema", bare=True)


@pytest.mark.in_full
@each_of("name", format_names())
def test_answer_is_read_as_it_is_written_behind_its_reasoning_whatever_it_says(name):
    grammar = Gbnf(answer_grammar(format_named(name), TRAP, (), parallel=False, prompt_tail="assistant\n"))

    for seed in range(SEEDS):
        text = grammar.sample(random.Random(seed))
        message = read(name, text, tail="assistant\n", size=(1, 7, len(text))[seed % 3])
        assert text.endswith(message.content)
        assert TRAP.schema is not None
        jsonschema.validate(json.loads(message.content), TRAP.schema)
        assert message.tool_calls == ()


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "harmony", "gemma4", "glm45"])
def test_where_tools_may_be_called_a_text_is_an_answer_or_calls(name):
    form = AnswerForm.of_schema(members("x", x={"enum": TRAPS}), "schema")
    grammar = Gbnf(answer_grammar(format_named(name), form, TOOLS, parallel=True, prompt_tail="assistant\n"))
    told = set()

    for seed in range(40):
        message = read(name, grammar.sample(random.Random(seed)), tuple(TOOLS), tail="assistant\n")
        assert (message.content is None) == bool(message.tool_calls)
        if message.content is not None:
            assert json.loads(message.content)["x"] in TRAPS
        told.add(message.content is None)
    assert told == {True, False}


@pytest.mark.parametrize("name", ["hermes", "harmony"])
def test_any_object_is_the_form_without_a_schema(name):
    grammar = Gbnf(answer_grammar(format_named(name), AnswerForm(), (), parallel=False, prompt_tail=""))

    for seed in range(20):
        content = read(name, grammar.sample(random.Random(seed))).content
        assert isinstance(json.loads(content or ""), dict)


def test_model_that_has_begun_to_think_ends_that_before_its_answer():
    grammar = answers({"type": "integer"}, tail="assistant\n<think>\n")

    assert grammar.takes("Let me see.\n</think>\n\n7")
    assert not grammar.takes("7")
    assert read("hermes", "Let me see.\n</think>\n\n7", tail="<think>\n").content == "7"


def test_model_whose_template_knows_no_reasoning_does_not_begin_to_think():
    form = AnswerForm.of_schema({"type": "integer"}, "schema")

    def takes(text: str, template: str) -> bool:
        grammar = answer_grammar(
            format_named("hermes"), form, (), parallel=False, prompt_tail="assistant\n", template=template
        )
        return Gbnf(grammar).takes(text)

    assert not takes("<think>a</think>\n7", "{{ messages }}")
    assert takes("<think>a</think>\n7", "{{ '<think>' }}")
    assert takes("7", "{{ messages }}")
    assert takes("7", "{{ '<think>' }}")


def test_answer_that_a_limit_cuts_off_is_told_as_far_as_it_came():
    assert read("hermes", '{"a": "<tool_call>{').content == '{"a": "<tool_call>{'
