"""JSON Schema to GBNF: what each keyword lets a model write."""

import functools
import json
import random
from typing import Any

import jsonschema
import pytest
import referencing.exceptions
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.schemas import schema_rules
from gateway.toolcalls.parser import parse
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

HERMES = format_named("hermes")


def grammar(schema: dict[str, Any], name: str = "f") -> Gbnf:
    return Gbnf(call_grammar(HERMES, [ToolSpec(name, "", schema)], choice="required"))


def call(arguments: str, name: str = "f") -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n</tool_call>'


def value_grammar(schema: Any) -> Gbnf:
    return grammar({"type": "object", "properties": {"v": schema}, "required": ["v"]})


def takes(schema: Any, value: str) -> bool:
    return value_grammar(schema).takes(call(f'{{"v": {value}}}'))


ANY = ['"x"', "1", "-1.5e3", "true", "null", "[]", "{}", '{"a": [1, {"b": null}]}']
CASES: list[tuple[Any, list[str], list[str]]] = [
    ({"type": "string"},
     ['""', '"é\\n\\u00e9"', '"' + "x" * 5_000 + '"'],
     ["1", '"\n"', '"\\ud800"']),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"\\u00e9bc"'], ['"a"', '"abcd"']),
    ({"type": "string", "maxLength": 0}, ['""'], ['"a"']),
    ({"type": "string", "minLength": 600}, ['"' + "x" * 600 + '"'], ['"' + "x" * 599 + '"']),
    ({"type": "string", "minLength": -1, "maxLength": True, "pattern": "^(?=a)"}, ['"b"'], ["b"]),
    ({"type": "string", "maxLength": 5_000}, ['"' + "x" * 5_000 + '"'], ["x"]),
    ({"type": "string", "minLength": 5_000}, ['"' + "x" * 5_000 + '"'], ['""']),
    ({"type": "integer"}, ["0", "-12", "123"], ["1.0", "01", "1e3", '"1"']),
    ({"type": "integer", "minimum": 0}, ["0", "7"], ["-1"]),
    ({"type": "integer", "exclusiveMinimum": 0}, ["1", "10"], ["0", "-1"]),
    ({"type": "integer", "minimum": -1, "maximum": 2}, ["-1", "0", "2"], ["-2", "3"]),
    ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3.0}, ["1", "2"], ["0", "3"]),
    ({"type": "integer", "minimum": 3, "maximum": 1}, ["5"], ["x"]),
    ({"type": "integer", "minimum": 0.5, "exclusiveMinimum": True}, ["1"], ["0", "-1"]),
    ({"type": "integer", "minimum": -17, "maximum": 2345},
     ["-17", "-9", "-1", "0", "7", "99", "999", "2000", "2345"], ["-18", "-20", "2346", "3000", "10000", "-0", "01"]),
    ({"type": "integer", "maximum": -5}, ["-5", "-12345"], ["-4", "0", "5"]),
    ({"type": "integer", "minimum": 1988, "exclusiveMaximum": 2026.5}, ["1988", "1999", "2026"], ["1987", "2027"]),
    ({"type": "integer", "minimum": 10**30}, ["5"], ["x"]),
    ({"type": "integer"}, ["1234567890123456789", "-9223372036854775808", "9" * 20], ["9" * 21]),
    ({"type": "integer", "minimum": 7}, ["7", "9" * 20], ["6", "9" * 21]),
    ({"type": "integer", "minimum": 10**19 + 5}, ["9" * 20], ["9" * 19, "9" * 21]),
    ({"type": "integer", "minimum": 0, "maximum": 2**256}, ["0", str(2**256)], ["-1", "9" * 101]),
    ({"type": "number"}, ["0." + "1" * 20, "9" * 20 + ".5"], ["0." + "1" * 21, "9" * 21]),
    ({"type": "number"}, ["0", "-1.50", "2e-7", "1E+3", "1" * 20], ["1.", ".5", "NaN", "1e"]),
    ({"type": "number", "minimum": 0}, ["0", "0.5"], ["-1"]),
    ({"type": ["number", "integer"]}, ["0.5"], ['"a"']),
    ({"type": "boolean"}, ["true", "false"], ["True", "0"]),
    ({"type": "null"}, ["null"], ["0"]),
    ({"type": ["string", "null"]}, ['"a"', "null"], ["1"]),
    ({"type": []}, ANY, ["x"]),
    ({"type": "nonsense"}, ANY, ["x"]),
    ({"type": "str"}, ['"a"'], ["1"]),
    ({"type": [["string"], "null"]}, ["null"], ["1", '"a"']),
    ({}, ANY, ["x"]),
    (True, ANY, ["x"]),
    (None, ANY, ["x"]),
    ({"const": {"a": [1, "é"]}}, ['{"a": [1, "é"]}'], ['{"a":[1,"é"]}', "1"]),
    ({"const": "\ud800"}, ['"\\ud800"'], ['""']),
    ({"const": None}, ["null"], ["0"]),
    ({"enum": ["a\\b\"c", 1, None, "tab\t\x7f\x00\u2028\U000e0001"]},
     ['"a\\\\b\\"c"', "1", "null", '"tab\\t\x7f\\u0000\u2028\U000e0001"'],
     ['"a"']),
    ({"enum": []}, ANY, ["x"]),
    ({"enum": "ab"}, ANY, ["x"]),
    ({"anyOf": [{"type": "integer"}, {"const": "x"}]}, ["1", '"x"'], ['"y"']),
    ({"oneOf": [{"type": "boolean"}, {"type": "null"}]}, ["true", "null"], ["1"]),
    ({"allOf": [{"type": "boolean"}]}, ["true"], ["1"]),
    ({"allOf": [{"type": "boolean"}, {"const": True}]}, ["true"], ["false", '"x"']),
    ({"allOf": [{"type": "number"}, {"type": "integer", "minimum": 3}], "maximum": 5}, ["3", "5"], ["2", "6", "3.5"]),
    ({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"a": {"minimum": 3}, "b": {"const": 1}}}]},
     ['{"a": 3}', '{"a": 4, "b": 1}'], ['{"a": 2}', '{"b": 1}']),
    ({"allOf": [{"additionalProperties": False, "properties": {"a": {"const": 1}}},
                {"properties": {"b": {"const": 1}}}]}, ["{}", '{"a": 1}'], ['{"b": 1}']),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, ANY, ["x"]),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, ["2"], ["1", "3"]),
    ({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]},
                {"anyOf": [{"type": "string"}, {"type": "null"}]}]},
     ['"a"'], ["1", "null"]),
    ({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
      "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a": 1}', '{"b": 2}', '{"a": 1, "b": 2}'], ["{}"]),
    ({"anyOf": [False, {"type": "null"}]}, ["null"], ["1"]),
    ({"anyOf": [{"type": "array", "prefixItems": [False]}, {"type": "null"}]}, ["null"], ["[]"]),
    ({"anyOf": [{"type": "array", "items": False, "minItems": 1}, {"type": "null"}]}, ["null"], ["[]"]),
    ({"anyOf": [{"const": n} for n in range(70)]}, ANY, ["x"]),
    ({"anyOf": []}, ANY, ["x"]),
    ({"not": {}}, ANY, ["x"]),
    ({"type": "array", "items": {"type": "boolean"}},
     ["[]", "[true]", "[true, false]"],
     ["[1]", "[true,true]", "[true, ]"]),
    ({"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
     ["[null]", "[null, null]"],
     ["[]", "[null, null, null]"]),
    ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ({"type": "array", "items": {"const": 1}}, ["[" + ", ".join("1" * 3_000) + "]"], ["[1, 2]"]),
    ({"type": "array", "items": {"const": 1}, "maxItems": 2_000}, ["[" + ", ".join("1" * 2_000) + "]"], ["[1, 2]"]),
    ({"type": "array", "items": {"type": "string", "minLength": 1}}, ['["a", "bc"]'], ['["a", ""]']),
    ({"type": "array", "items": False}, ["[]"], ["[1]"]),
    ({"type": "array", "items": False, "minItems": 1}, ANY, ["x"]),
    ({"type": "array"}, ["[]", '[1, "a", [null]]'], ["{}"]),
    ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}]}, ["[1, 2]"], ["[1]", "[2, 1]", "[1, 2, 3]"]),
    ({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "maxItems": 3},
     ["[1]", "[1, 2, 2]"], ["[2]", "[1, 2, 2, 2]"]),
    ({"type": "array", "items": [{"const": 1}], "additionalItems": {"const": 2}, "minItems": 2}, ["[1, 2]"], ["[1]"]),
    ({"type": "array", "prefixItems": [{"const": 1}], "minItems": 2}, ["[1, null]"], ["[1]"]),
    ({"type": "object"}, ["{}", '{"a": 1, "b": [2]}'], ["[]", '{"a" : 1}']),
    ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a": 1}']),
    ({"type": "object", "additionalProperties": {"type": "null"}},
     ["{}", '{"a": null, "b": null}'],
     ['{"a": 1}', '{"": null}']),
    ({"type": "object", "additionalProperties": True}, ["{}", '{"a": 1}'], ["1"]),
    ({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False}, ["{}", '{"xa": 1}'], ["1"]),
    ({"type": "object", "minProperties": 2, "maxProperties": 3},
     ['{"a": 1, "b": 1}'], ["{}", '{"a": 1}', '{"a": 1, "b": 1, "c": 1, "d": 1}']),
    ({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "minProperties": 2},
     ['{"a": 1, "b": 2}', '{"a": 1, "c": 3}', '{"b": 2, "c": 3}', '{"a": 1, "b": 2, "c": 3}'],
     ["{}", '{"b": 2}', '{"c": 3}']),
    ({"properties": {"a": {"const": 1}, "b": {"const": 2}}, "minProperties": 9}, ['{"a": 1, "b": 2}'], ['{"a": 1}']),
    ({"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"], "minProperties": 1},
     ['{"b": 2}'], ["{}"]),
    ({"properties": {"a": {"const": 1}}, "additionalProperties": {"const": 0}, "minProperties": 3},
     ['{"a": 1, "x": 0, "y": 0}', '{"x": 0, "y": 0, "z": 0}'], ['{"a": 1, "x": 0}', '{"x": 0, "y": 0}']),
    ({"properties": {"a": {"const": 1}}, "additionalProperties": {"const": 0}, "maxProperties": 0},
     ["{}"], ['{"x": 0}', '{"a": 1}']),
    ({"properties": {f"k{n}": {"const": 1} for n in range(300)}, "minProperties": 9}, ["{}", '{"x": 1}'], ["1"]),
    ({"properties": {f"k{n}": {"const": 1} for n in range(60)}, "minProperties": 9}, ['{"k9": 1}'], ["{}"]),
    ({"properties": {"a": {"const": 1}}}, ["{}", '{"a": 1}'], ['{"b": 1}', '{"a": 2}', '{"a": 1, "a": 1}']),
    ({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}},
     ["{}", '{"b": 2}', '{"a": 1, "c": 3}', '{"a": 1, "b": 2, "c": 3}'],
     ['{"b": 2, "a": 1}', '{, "b": 2}', '{"a": 1, }']),
    ({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["c", "b"]},
     ['{"b": 2, "c": 3}', '{"b": 2, "c": 3, "a": 1}'],
     ['{"c": 3, "b": 2}', '{"a": 1, "b": 2, "c": 3}', '{"b": 2}', "{}"]),
    ({"type": "object", "required": ["z", 1]}, ['{"z": true}', '{"z": 1, "y": 2}'], ["{}", '{"z": 1, "z": 2}']),
    ({"properties": {"ab": {"const": 1}, "a": {"const": 2}}, "additionalProperties": {"const": 0}},
     ['{"x": 0}', '{"ab": 1, "a": 2, "abc": 0, "b": 0}', '{"a": 2}', '{"ac": 0}'],
     ['{"a": 0}', '{"ab": 0}', '{"x": 1}', '{"\\u0061": 0}']),
    ({"properties": {'q"x': {"const": 1}}, "additionalProperties": {"const": 0}},
     ['{"q\\"x": 1, "q": 0}'],
     ['{"q\\"x": 0}']),
    ({"properties": [], "required": "a"}, ["{}"], ['{"a": 1}']),
    ({"properties": {"a": 1}, "anyOf": [{"required": ["a"]}]}, ['{"a": []}'], ["1", "{}"]),
    ({"type": "object", "properties": {"a": False, "b": {"const": 1}}}, ["{}", '{"b": 1}'], ['{"a": 1}']),
    ({"type": "object", "required": ["z"], "additionalProperties": False}, ['{"z": 1}'], ["{}"]),
    ({"$ref": "#/nowhere"}, ANY, ["x"]),
    ({"$ref": "https://example.com/schema"}, ANY, ["x"]),
    ({"$ref": 5, "type": "null"}, ["null"], ["1"]),
]  # fmt: skip


@each_of(("schema", "good", "bad"), CASES)
def test_a_keyword_lets_write_what_it_means(schema: Any, good: list[str], bad: list[str]) -> None:
    written = value_grammar(schema)
    assert [value for value in good if not written.takes(call(f'{{"v": {value}}}'))] == []
    assert [value for value in bad if written.takes(call(f'{{"v": {value}}}'))] == []


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/a~1b~0/Node"}},
    "required": ["root"],
    "$defs": {
        "a/b~": {
            "Node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/a~1b~0/Node"}, {"type": "null"}]}},
                "required": ["next"],
            }
        }
    },
}


def test_a_schema_that_names_itself_goes_as_deep_as_it_likes() -> None:
    def nested(levels: int) -> str:
        return call('{"root": ' + '{"next": ' * levels + "null" + "}" * (levels + 1))

    written = grammar(TREE)
    assert [levels for levels in (1, 6, 7, 20) if not written.takes(nested(levels))] == []
    assert not written.takes(call('{"root": {"next": 1}}'))


ENDLESS = [
    ({"properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}, None),
    ({"type": "array", "items": {"$ref": "#/$defs/N"}, "minItems": 1}, None),
    ({"type": "array", "prefixItems": [{"$ref": "#/$defs/N"}]}, None),
    ({"$ref": "#/$defs/N"}, None),
    ({"properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"], "type": ["object", "null"]}, '{"n": null}'),
    ({"anyOf": [{"items": {"$ref": "#/$defs/N"}, "type": "array", "minItems": 1}, {"const": 0}]}, "[[0], 0]"),
    ({"type": "object", "additionalProperties": {"$ref": "#/$defs/N"}}, '{"n": {"n": {}}}'),
]


@pytest.mark.parametrize(("node", "value"), ENDLESS, ids=[json.dumps(node)[:60] for node, _ in ENDLESS])
def test_a_schema_whose_values_never_end_means_any_and_an_alternative_that_ends_is_written(
    node: dict[str, Any], value: str | None
) -> None:
    schema = {"type": "object", "properties": {"v": {"$ref": "#/$defs/N"}}, "required": ["v"], "$defs": {"N": node}}
    written = grammar(schema)
    assert written.takes(call('{"x": 1}')) == (value is None and node != {"$ref": "#/$defs/N"})
    assert written.takes(call(f'{{"v": {value or 1}}}'))
    assert value is None or not written.takes(call('{"v": "x"}'))
    json.loads(parse("hermes", written.sample(random.Random(1)), ()).tool_calls[0].arguments)


@pytest.mark.parametrize(
    "definitions",
    [
        {"A": {"$ref": "#/$defs/A"}},
        {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        {
            "A": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]},
            "B": {"oneOf": [{"$ref": "#/$defs/A"}, {"const": 1}]},
        },
    ],
)
def test_a_schema_that_is_only_itself_is_written_without_left_recursion(definitions: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"v": {"$ref": "#/$defs/A"}}, "required": ["v"], "$defs": definitions}
    assert grammar(schema).takes(call('{"v": null}'))
    assert not grammar(schema).takes(call('{"v": }'))


def test_a_count_of_members_is_one_repetition_however_large_it_is() -> None:
    """A list of all counts up to it would hold the loop for seconds, from 44 bytes of a schema."""

    class Counting(Grammar):
        repeated = 0

        def repeat(self, item: str, separator: str, least: int, most: int | None) -> str:
            self.repeated += 1
            return super().repeat(item, separator, least, most)

    def repeated(schema: dict[str, Any]) -> int:
        g = Counting((), parallel=False, schemas=schema_rules)
        schema_rules(g, schema, "x")
        return g.repeated

    for schema in ({"type": "object"}, {"additionalProperties": {"type": "null"}, "required": ["a"]}):
        assert repeated({**schema, "minProperties": 2}) == repeated({**schema, "minProperties": 100_000})
    assert not takes({"type": "object", "minProperties": 300}, json.dumps({f"k{n}": n for n in range(299)}))
    assert takes({"type": "object", "minProperties": 300}, json.dumps({f"k{n}": n for n in range(300)}))


def test_a_hostile_schema_costs_a_bounded_grammar() -> None:
    doubling = {f"A{n}": {"anyOf": [{"$ref": f"#/$defs/A{n + 1}"}] * 10} for n in range(40)}
    text = call_grammar(
        HERMES,
        [ToolSpec("f", "", {"properties": {"v": {"$ref": "#/$defs/A0"}}, "$defs": doubling})],
        choice="required",
    )
    assert len(text) < 200_000
    nested: dict[str, Any] = {}
    for _ in range(400):
        nested = {"type": "array", "items": nested}
    assert takes(nested, "[[[]]]")


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({}, ["{}", '{"a": 1}'], ["1", "[]"]),
        ({"type": "object", "properties": {}}, ["{}"], ['{"a": 1}']),
        ({"$ref": "#/$defs/X", "$defs": {"X": {"properties": {"a": {"const": 1}}, "required": ["a"]}}},
         ['{"a": 1}'], ["{}"]),
        ({"$ref": "#/$defs/X"}, ["{}", '{"a": 1}'], ["1"]),
        ({"anyOf": [{"required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]},
         ['{"b": 1}', '{"a": 1}'], ["1", "{}"]),
        ({"type": "string"}, ["{}"], ['"a"']),
    ],
)  # fmt: skip
def test_arguments_are_an_object_whatever_the_schema_says(
    schema: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    written = grammar(schema)
    assert [value for value in good if not written.takes(call(value))] == []
    assert [value for value in bad if written.takes(call(value))] == []


@pytest.mark.parametrize("name", ['a"b\\c', "größe.日本", "tab\tnl\n", "\x00", "]^-[", "\U000e0001"])
def test_a_name_is_spelled_as_json_spells_it(name: str) -> None:
    text = call("{}", name)
    assert grammar({"properties": {}}, name).takes(text)
    assert parse("hermes", text, ()).tool_calls[0].name == name


def is_faithful(schema: Any, good: list[str]) -> bool:
    """Whether the grammar says all that the schema does: then what it takes must be valid."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        for value in good:
            validator.validate(json.loads(value))
    except (jsonschema.SchemaError, jsonschema.ValidationError, referencing.exceptions.Unresolvable):
        return False
    return isinstance(schema, dict) and "patternProperties" not in schema and schema.get("minLength") != 5_000


@functools.cache
def faithful() -> list[Any]:
    """The schemas of the cases whose grammars say all of them. Found when a test asks: every worker imports this."""
    return [schema for schema, good, _ in CASES if is_faithful(schema, good)]


def test_most_keywords_are_said_in_full() -> None:
    assert len(faithful()) >= 35


@given(st.integers(0, 10_000))
def test_what_a_grammar_writes_is_parsed_and_fits_its_schema(seed: int) -> None:
    chance = random.Random(seed)
    schema = chance.choice(faithful())
    message = parse("hermes", value_grammar(schema).sample(chance), ())
    assert message.diagnostics == ()
    assert message.content is None
    (made,) = message.tool_calls
    jsonschema.Draft202012Validator(schema).validate(json.loads(made.arguments)["v"])


def test_a_choice_of_a_tool_takes_no_other() -> None:
    tools = [ToolSpec(name, "", {"properties": {}}) for name in ("f", "g")]
    only = Gbnf(call_grammar(HERMES, tools, choice="g"))
    assert only.takes(call("{}", "g"))
    assert not only.takes(call("{}", "f"))
    either = Gbnf(call_grammar(HERMES, tools, choice="required"))
    assert either.takes(call("{}", "f"))
    assert not either.takes(call("{}", "f") + "\n" + call("{}", "g"))


def test_parallel_calls_have_a_bound() -> None:
    tools = [ToolSpec("f", "", {"properties": {}})]
    many = Gbnf(call_grammar(HERMES, tools, choice="required", parallel=True))
    assert many.takes("\n".join([call("{}")] * 16))
    assert not many.takes("\n".join([call("{}")] * 17))
    assert not many.takes("")


@pytest.mark.parametrize("tools", [[], [ToolSpec("f", "", {})]])
def test_a_choice_that_names_no_tool_is_refused_with_what_is_offered(tools: list[ToolSpec]) -> None:
    with pytest.raises(RequestInvalid, match=r"'g'.*offered: ('f'|none)") as caught:
        call_grammar(HERMES, tools, choice="g")
    assert caught.value.param == "tool_choice"
