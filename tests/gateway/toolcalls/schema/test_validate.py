"""What is said of arguments that don't fit, and what a hostile schema can't do."""

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.schema.schema_check import flaw
from gateway.toolcalls.schema.spec import ToolSpec, validate_call
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import TIME, WEATHER


def tool(schema: Any) -> ToolSpec:
    return ToolSpec("f", "", schema)


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("spec", "arguments"),
    [
        (WEATHER, {"city": "Paris"}),
        (WEATHER, {"city": "Paris", "days": 3, "more": None}),
        (TIME, {}),
        (tool({}), {"a": 1}),
    ],
)
def test_arguments_that_fit_have_no_problems(spec: ToolSpec, arguments: dict[str, Any]) -> None:
    assert validate_call(spec, arguments) == []


def test_each_problem_names_its_place_and_what_was_expected() -> None:
    schema = objects(days={"type": "integer"}, at=objects(zone={"enum": ["CET"]}), list={"items": {"type": "null"}})
    schema["required"] = ["city"]
    assert sorted(validate_call(tool(schema), {"days": "x", "at": {"zone": "UTC"}, "list": [None, 1]})) == [
        "arguments.at.zone: 'UTC' is not one of ['CET']",
        "arguments.days: 'x' is not of type 'integer'",
        "arguments.list[1]: 1 is not of type 'null'",
        "arguments: 'city' is a required property",
    ]


def test_problems_are_few_and_short() -> None:
    schema = {"additionalProperties": {"type": "integer"}}
    found = validate_call(tool(schema), {f"{n}" * 500: "x" * 5000 for n in range(9)})
    assert len(found) == 5
    assert all(len(problem) == 322 and problem.count("...: ") == 1 for problem in found)


@pytest.mark.parametrize("odd", [5, None, True, ["x"], {"a": 1}])
def test_schema_that_names_its_draft_by_no_text_is_refused_by_name(odd: object) -> None:
    assert flaw({"$schema": odd}) == f"schema.$schema: {odd!r} is no value of `$schema`"


@pytest.mark.parametrize("odd", ["", "http://[", "\ud800", "x:" * 99])
def test_draft_that_is_no_address_counts_as_left_out(odd: str) -> None:
    schema = {"$schema": odd, **objects(days={"type": "integer"})}

    assert flaw(schema) is None
    assert validate_call(tool(schema), {"days": "x"}) == ["arguments.days: 'x' is not of type 'integer'"]


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", "(?<year>[0-9]{4})", "(", "[!-\uffff]" * 3])
def test_pattern_is_not_compiled_and_what_python_can_not_read_hides_no_problem(pattern: str) -> None:
    schema = objects(name={"type": "string", "pattern": pattern}, days={"type": "integer"})
    schema["patternProperties"] = {pattern: {}}

    assert validate_call(tool(schema), {"name": "x", "days": "x"}) == ["arguments.days: 'x' is not of type 'integer'"]
    assert flaw(schema) is None


def test_the_draft_that_a_schema_names_counts() -> None:
    schema = objects(n={"minimum": 3, "exclusiveMinimum": True}) | {
        "$schema": "http://json-schema.org/draft-04/schema#"
    }
    assert validate_call(tool(schema), {"n": 4}) == []
    assert len(validate_call(tool(schema), {"n": 3})) == 1


@pytest.mark.parametrize("number", [3, 4])
def test_schema_of_a_draft_older_than_6_is_refused_as_a_form(number: int) -> None:
    named = {"$schema": f"http://json-schema.org/draft-0{number}/schema#"}

    assert flaw(named) == "its `$schema` is older than draft 6"


@pytest.mark.parametrize(("megabytes", "found"), [(2, 1), (5, 0)])
def test_arguments_are_checked_up_to_a_size(megabytes: int, found: int) -> None:
    arguments = {"days": "x", "text": "x" * (megabytes << 20)}

    assert len(validate_call(tool(objects(days={"type": "integer"})), arguments)) == found


def test_references_inside_the_schema_are_followed() -> None:
    schema = objects(node={"$ref": "#/$defs/node"}) | {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}
    }
    assert validate_call(tool(schema), {"node": {"next": {"next": {}}}}) == []
    assert validate_call(tool(schema), {"node": {"next": {"next": 1}}}) == [
        "arguments.node.next.next: 1 is not of type 'object'"
    ]


def test_nothing_is_fetched_whatever_a_schema_refers_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        for schema in ({"$ref": url}, {"$id": url, "$ref": "other.json"}, {"$schema": url}, {"$dynamicRef": url}):
            assert validate_call(tool(schema), {"a": 1}) == []
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_regular_expressions_of_a_schema_are_not_run() -> None:
    forever = "(a+)+$"
    for schema in (
        objects(a={"pattern": forever}),
        {"propertyNames": {"pattern": forever}},
        {"patternProperties": {forever: {"type": "null"}}, "additionalProperties": False},
        {"patternProperties": {forever: True}, "unevaluatedProperties": False},
    ):
        assert validate_call(tool(schema), {"a": "a" * 60 + "!", "a" * 60 + "!": 1}) == []
    assert len(validate_call(tool({"additionalProperties": False}), {"a": 1})) == 1


def test_a_schema_that_doubles_its_work_at_each_level_ends() -> None:
    levels = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)}
    assert validate_call(tool({"$defs": {**levels, "d25": {}}, "$ref": "#/$defs/d0"}), {}) == []
    told = validate_call(tool({"$defs": {**levels, "d25": {"type": "null"}}, "$ref": "#/$defs/d0"}), {})
    assert told == ["arguments: {} is not of type 'null'"]


def test_items_that_other_schemas_evaluate_are_not_looked_for() -> None:
    levels: dict[str, Any] = {f"d{n}": dict.fromkeys(("$ref", "$dynamicRef"), f"#/$defs/d{n + 1}") for n in range(40)}
    doubled = {"unevaluatedItems": False, "$ref": "#/$defs/d0"}
    assert validate_call(tool({**objects(a=doubled), "$defs": {**levels, "d40": {}}}), {"a": [1]}) == []
    longer = objects(a={"contains": {}, "unevaluatedItems": False})
    assert validate_call(tool(longer), {"a": [1] * 1000}) == []


@each_of(
    ("reference", "definition"),
    [
        ("#a{}", {"$anchor": "a{}"}),
        ("#gone{}", {}),
        ("https://x.example/{}", {"$id": "https://x.example/{}"}),
        ("https://gone.example/{}", {}),
        ("#/$defs/d{}", {"$id": "https://x.example/{}"}),
    ],
)
@each_of(("count", "found"), [(5, 1), (400, 0)])
def test_references_that_are_searched_for_cost_what_the_search_does(
    reference: str, definition: dict[str, str], count: int, found: int
) -> None:
    refs = [{"$ref": reference.format(n)} for n in range(count)]
    named = {f"d{n}": {key: each.format(n) for key, each in definition.items()} for n in range(count)}
    schema = {"allOf": refs, "$defs": named, "required": ["b"]}

    assert len(validate_call(tool(schema), {})) == found


def test_references_that_name_a_place_cost_no_search() -> None:
    refs = [{"$ref": f"#/$defs/d{n}"} for n in range(400)]
    schema = {"$id": "https://x.example", "allOf": refs, "$defs": {f"d{n}": {} for n in range(400)}, "required": ["b"]}

    assert len(validate_call(tool(schema), {})) == 1


@each_of(
    "schema",
    [
        {"type": 7},
        {"type": "no such"},
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"properties": []},
        {"required": "city"},
        {"minimum": float("nan")},
        {"$schema": 3},
        {"x": object()},
        [],
        None,
        True,
    ],
)
def test_a_schema_that_says_nothing_sensible_allows_everything(schema: Any) -> None:
    assert validate_call(tool(schema), {"a": 1}) == []


def test_a_schema_deeper_than_can_be_read_allows_everything() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"not": schema}
    assert validate_call(tool(schema), {}) == []


def test_a_schema_nested_beyond_reason_allows_everything() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(40):
        schema = {"anyOf": [schema]}
    assert validate_call(tool(schema), "x") == []


@pytest.mark.parametrize("frames", [0, 300, 600])
def test_a_schema_that_names_itself_ends_the_check_and_not_the_process(frames: int) -> None:
    def deep(left: int) -> list[str]:
        return deep(left - 1) if left else validate_call(tool({"$ref": "#"}), {"a": 1})

    assert deep(frames) == []
    assert validate_call(tool({"properties": {"a": {"type": "string"}}}), {"a": 1}) != []


def test_a_list_that_is_deep_because_its_schema_names_itself_is_checked_down_to_the_bound() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}}

    assert validate_call(tool(node), {"next": {"next": {"n": "x"}}}) == [
        "arguments.next.next.n: 'x' is not of type 'integer'"
    ]
    value: dict[str, Any] = {"n": "x"}
    for _ in range(500):
        value = {"next": value}
    assert validate_call(tool(node), value) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(
    ["type", "properties", "items", "required", "enum", "$ref", "anyOf", "minimum", "multipleOf"]
)


@given(st.recursive(json_values, lambda inner: st.dictionaries(keywords, inner | st.lists(inner))), json_values)
def test_no_schema_and_no_arguments_at_all_raise(schema: Any, arguments: Any) -> None:
    assert all(isinstance(problem, str) for problem in validate_call(tool(schema), arguments))


def test_items_that_are_equal_are_named_where_the_schema_wants_none() -> None:
    schema = {"type": "object", "properties": {"v": {"type": "array", "uniqueItems": True}}}
    tool = ToolSpec("f", "", schema)
    assert validate_call(tool, {"v": [1, {"a": 1, "b": 2}, "1"]}) == []
    assert validate_call(tool, {"v": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}) == [
        "arguments.v: two of the items are equal"
    ]
    assert validate_call(tool, {"v": "aa"}) == ["arguments.v: 'aa' is not of type 'array'"]
