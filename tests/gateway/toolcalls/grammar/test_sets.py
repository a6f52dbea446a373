"""What each format's grammar lets a model write, drawn without a model: a call that parses and fits its schema."""

import json
import random
from typing import Any

import jsonschema
import pytest

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import parse
from gateway.toolcalls.schema.json_types import ALL, kinds_of
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import IN_FULL, each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf
from tests.gateway.toolcalls.tool_sets import ANYTHING, MAP, TOOL_SETS

SEEDS = 12 if IN_FULL else 5
"""Texts of each grammar."""

SETS = {**TOOL_SETS, "anything": ANYTHING, "map": MAP}


def drawn(name: str, tools: tuple[ToolSpec, ...], count: int) -> list[str]:
    texts = Gbnf(call_grammar(format_named(name), tools, choice="required"))
    return [texts.sample(random.Random(seed)) for seed in range(count)]


@pytest.mark.in_full
@each_of("tool_set", SETS)
@each_of("name", format_names())
def test_every_text_of_the_grammar_is_one_call_that_fits_its_schema(name: str, tool_set: str) -> None:
    tools = SETS[tool_set]
    schemas = {tool.name: dict[str, Any](tool.parameters) for tool in tools}
    for text in drawn(name, tools, SEEDS):
        message = parse(name, text, tools)
        assert message.diagnostics == (), text
        assert not (message.content or "").strip(), text
        (call,) = message.tool_calls
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])


def takes(name: str, schema: Any, text: str) -> bool:
    """Whether the grammar of a tool `f` with the one argument `v` takes a call whose value is spelled so."""
    shapes = {
        "gemma4": "<|tool_call>call:f{v:%s}<tool_call|>",
        "minimax_m3": '~<tool_call>\n~<invoke name="f">~<v>%s~</v>~</invoke>\n~</tool_call>',
        "minicpm5": '<function name="f"><param name="v">%s</param></function>',
        "glm47": "<tool_call>f<arg_key>v</arg_key><arg_value>%s</arg_value></tool_call>",
        "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=v>\n%s\n</parameter>\n</function>\n</tool_call>",
        "mimo": "<tool_call><function=f><parameter=v>%s</parameter></function></tool_call>",
        "olmo_3": "<function_calls>f(v=%s)</function_calls>",
    }
    endless = {"type": "array", "items": {"$ref": "#/$defs/Lists"}, "minItems": 1}
    definitions = {
        "Lists": endless,
        "Unit": {"enum": ["m", "ft"]},
        "Deep": {"anyOf": [{"$ref": "#/$defs/Deep"}, {"type": "null"}]},
    }
    parameters = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": definitions}
    grammar = call_grammar(format_named(name), [ToolSpec("f", "", parameters)], choice="required")
    # The tilde stands for MiniMax M3's mark.
    return Gbnf(grammar).takes((shapes[name] % text).replace("~", "]<]minimax[>["))


UNIT = {"$ref": "#/$defs/Unit"}
DEEP = {"$ref": "#/$defs/Deep"}
MIXED = {"enum": ["a", 1, None, {"k": [True]}]}
EITHER = {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "boolean"}]}
PAIR = {"prefixItems": [{"type": "integer"}, {"const": "x"}]}
LISTED = {"items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}
TREE = {"type": "object", "properties": {"n": {"type": "null"}, "d": DEEP}, "required": ["n"]}


@each_of(
    ("name", "schema", "good", "bad"),
    [
        ("qwen3_coder", UNIT, ["m", "ft"], ["km", '"m"']),
        ("qwen3_coder", MIXED, ["a", "1", "null", '{"k": [true]}'], ["b", "2"]),
        ("qwen3_coder", EITHER, ["abc", "true", ""], ["abcd", "falsey"]),
        ("qwen3_coder", {"type": "string", "maxLength": 0}, [""], ["a"]),
        ("qwen3_coder", {"type": "string", "minLength": 1, "maxLength": 2}, ["a", "\na"], ["", "abc"]),
        ("mimo", {"type": "string", "minLength": 1, "maxLength": 2}, ["a", "b\n"], ["", "\na", "abc"]),
        ("mimo", {"type": "string", "maxLength": 2}, ["", "ab"], ["\n", "abc"]),
        ("mimo", {"type": "string", "minLength": 3}, ["abc", "a<b\nc", "<p></p>"], ["\nabc", "ab", "a</parameter>b"]),
        ("mimo", {"type": "string", "minLength": 1}, ["a"], ["", "\n"]),
        ("glm47", {"type": "string", "minLength": 2}, ["ab", "a<b>", "a << b<", "ab<</a"], ["", "a", "<</arg_value>"]),
        ("glm47", {"type": ["string", "integer"], "maxLength": 2}, ["ab", "123"], ["abc"]),
        ("glm47", {"anyOf": [EITHER, {"type": "null"}]}, ["abc", "null", "true"], ["abcdef"]),
        ("glm47", PAIR, ['[1, "x"]'], ["[1]", '["x", 1]', "1"]),
        ("glm47", LISTED, ["[true]", "[true, false]"], ["[]", "[1]", "true"]),
        ("gemma4", UNIT, ['<|"|>m<|"|>'], ["m", '<|"|>km<|"|>']),
        ("gemma4", MIXED, ['<|"|>a<|"|>', "1", "null", '{"k": [true]}'], ["a", "2"]),
        ("gemma4", EITHER, ['<|"|>abc<|"|>', "true"], ['<|"|>abcd<|"|>', "abc"]),
        ("gemma4", {"description": "Anything."}, ["1", "{a:1,b:[true]}"], ["a"]),
        ("gemma4", {}, ['<|"|>a<|"|>', "1.5", "true"], ["a"]),
        ("gemma4", PAIR, ['[1,<|"|>x<|"|>]'], ["[1]", "1"]),
        ("gemma4", LISTED, ["[true]", "[true,false]"], ["[]", "[1]"]),
        ("gemma4", {"anyOf": [{"$ref": "#/$defs/Lists"}, {"type": "null"}]}, ["null"], ["[]", "[[]]"]),
        ("gemma4", {"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
        ("gemma4", TREE, ["{n:null}", "{n:null,d:null}"], ["{}", "{d:null}"]),
        ("gemma4", DEEP, ["null"], ["1"]),
        ("gemma4", {"type": "object"}, ["{}"], ["null"]),
        ("minimax_m3", UNIT, ["m", "ft"], ["km", '"m"']),
        ("minimax_m3", {"enum": [1, [2]]}, ["1", "[2]"], ["2"]),
        ("minimax_m3", {"type": "string", "minLength": 1}, ["a", "a<b", "[[a]]", "]a]"], ["", "a~</v>b"]),
        ("minimax_m3", LISTED, ["~<item>true~</item>"], ["", "true", "~<item>1~</item>"]),
        ("minimax_m3", PAIR, ['[1, "x"]'], ["~<item>1~</item>"]),
        ("minimax_m3", {"type": "array", "items": {"type": "null"}, "maxItems": 0}, ["[]"], ["~<item>null~</item>"]),
        ("minimax_m3", {"anyOf": [{"$ref": "#/$defs/Lists"}, {"type": "null"}]}, ["null"], ["[]", "~<item>~</item>"]),
        ("minimax_m3", {"items": {"type": "null"}}, ["", "~<item>null~</item>"], ["~<item>1~</item>"]),
        ("minimax_m3", TREE, ["~<n>null~</n>", "~<n>null~</n>~<d>null~</d>"], ["", "{}", "~<d>null~</d>"]),
        ("minimax_m3", {"type": "object"}, ["{}", '{"a": 1}'], ["", "~<a>1~</a>"]),
        ("minicpm5", {"type": "string"}, ["", "a b", "<![CDATA[a<b\nc[d]]]>"], ["a<b", "<![CDATA[a"]),
        ("minicpm5", {"type": "integer"}, ["1"], ["<![CDATA[1]]>", "a"]),
        ("olmo_3", {"type": "boolean"}, ["True", "False"], ["true"]),
        ("olmo_3", {"type": "null"}, ["None"], ["null"]),
        ("olmo_3", {"type": "boolean", "const": True}, ["true"], ["false", "False"]),
    ],
)
def test_a_value_without_quotes_follows_its_schema(name: str, schema: Any, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not takes(name, schema, text)] == []
    assert [text for text in bad if takes(name, schema, text)] == []


@pytest.mark.parametrize("name", ["gemma4", "glm47"])
@pytest.mark.parametrize("branches", [1, 12])
def test_a_schema_without_an_end_gives_a_grammar_that_has_one(name: str, branches: int) -> None:
    node = {
        "type": "object",
        "properties": {f"k{n}": {"$ref": "#/$defs/Node"} for n in range(branches)},
        "required": ["k0"],
    }
    endless = {"type": "object", "properties": {"v": {"$ref": "#/$defs/Node"}}, "required": ["v"]}
    grammar = call_grammar(
        format_named(name), [ToolSpec("f", "", {**endless, "$defs": {"Node": node}})], choice="required"
    )
    assert len(grammar) < 100_000
    assert parse(name, Gbnf(grammar).sample(random.Random(1)), ()).tool_calls[0].name == "f"


@pytest.mark.parametrize(("name", "opener"), [("gemma4", '"v:"'), ("minimax_m3", '"v"')])
def test_nesting_beyond_reason_is_any_value(name: str, opener: str) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"v": schema}, "required": ["v"]}
    grammar = call_grammar(format_named(name), [ToolSpec("f", "", schema)], choice="required")
    assert 20 < grammar.count(opener) < 140


def test_references_that_branch_and_come_back_are_followed_once() -> None:
    # Twenty branches, each of which names the schema again: without a memory, 20 to the 8th steps.
    root = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 20, "type": ["string", "null"]}}}
    assert kinds_of({"$ref": "#/$defs/A"}, root) == {"string", "null"}
    assert kinds_of({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/None"}]}, root) == ALL


def test_an_argument_that_python_could_not_name_is_read_all_the_same() -> None:
    message = parse("olmo_3", "<function_calls>f(dry-run=True, größe=1, a.b=[2])</function_calls>", ())
    assert message.diagnostics == ()
    assert json.loads(message.tool_calls[0].arguments) == {"dry-run": True, "größe": 1, "a.b": [2]}
