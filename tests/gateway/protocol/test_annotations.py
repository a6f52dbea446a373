"""Arguments in headers: our rules beside those of mcp, whose functions are the reference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from gateway.protocol.headers import annotations_of, check_param_headers, headers_for, invalid_annotation
from tests.cases import each_of

TOKENS = st.sampled_from(["A", "a", "B", "", "x y", "é", 7, None])
TYPES = st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"], None])
NAMES = st.sampled_from(["p", "q", "a.b", "x-mcp-header"])
DATA = st.just({"x-mcp-header": "D"})
LEAVES = st.fixed_dictionaries({}, optional={"x-mcp-header": TOKENS, "type": TYPES, "default": DATA})
KEYWORDS = ["properties", "items", "allOf", "$defs", "if", "enum", "const"]


def deeper(below):
    tables = st.dictionaries(NAMES, below, max_size=3)
    return st.dictionaries(
        st.sampled_from(KEYWORDS), st.one_of(below, tables, st.lists(below, max_size=2)), max_size=2
    ).flatmap(lambda more: LEAVES.map(lambda leaf: {**more, **leaf}))


TABLES = st.dictionaries(NAMES, st.recursive(LEAVES, deeper, max_leaves=6), max_size=4)
SCHEMAS = st.one_of(st.none(), st.just([]), st.dictionaries(st.just("properties"), TABLES))
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 50), st.just(10**20), st.sampled_from([42.0, 1.5]), st.text(max_size=4)
)
ARGUMENTS = st.recursive(VALUES, lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=6)
SAID = st.sampled_from(["", "42", "42.0", "42.1", "-0", "true", "4e1", "=?base64?!?=", "=?base64?NDI=?=", "1" * 5000])
HEADERS = st.dictionaries(st.sampled_from(["mcp-param-a", "mcp-param-b"]), st.one_of(SAID, VALUES.map(str)), max_size=2)


def schema_of(**properties):
    return {"type": "object", "properties": properties}


@given(SCHEMAS)
def test_annotation_is_invalid_where_mcp_finds_it_invalid(schema):
    assert (invalid_annotation(schema) is None) == (inbound.find_invalid_x_mcp_header(schema) is None)


@given(SCHEMAS, st.dictionaries(NAMES, ARGUMENTS, max_size=3))
def test_headers_are_those_that_mcp_would_send(schema, arguments):
    expected = {}
    if inbound.find_invalid_x_mcp_header(schema) is None:
        expected = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)

    assert headers_for(annotations_of(schema), arguments) == expected


@given(SCHEMAS, st.dictionaries(NAMES, ARGUMENTS, max_size=3), HEADERS)
def test_headers_are_judged_as_mcp_judges_them(schema, arguments, headers):
    verdict = inbound.validate_mcp_param_headers(schema, arguments, headers)
    error = check_param_headers(annotations_of(schema), arguments, headers)

    assert (error is None) == (verdict is None)


@given(SCHEMAS, st.dictionaries(NAMES, ARGUMENTS, max_size=3))
def test_call_with_the_headers_that_we_emit_is_in_order(schema, arguments):
    headers = {name.lower(): value for name, value in headers_for(annotations_of(schema), arguments).items()}

    assert check_param_headers(annotations_of(schema), arguments, headers) is None


@pytest.mark.parametrize("said", ["42", "42.0", "=?base64?NDI=?="])
def test_integer_is_compared_as_a_number(said):
    annotations = annotations_of(schema_of(n={"type": "integer", "x-mcp-header": "N"}))

    assert check_param_headers(annotations, {"n": 42}, {"mcp-param-n": said}) is None
    assert check_param_headers(annotations, {"n": 43}, {"mcp-param-n": said}) is not None


def test_text_of_digits_is_compared_as_a_text():
    annotations = annotations_of(schema_of(n={"type": "string", "x-mcp-header": "N"}))

    assert check_param_headers(annotations, {"n": "42"}, {"mcp-param-n": "42.0"}) is not None


def test_header_that_came_twice_is_a_mismatch_that_names_it():
    annotations = annotations_of(schema_of(n={"type": "string", "x-mcp-header": "Region"}))
    error = check_param_headers(annotations, {"n": "a"}, {"mcp-param-region": "a"}, ["mcp-param-region"])

    assert error == {"code": -32020, "message": "the Mcp-Param-Region header was sent more than once"}


def test_two_properties_whose_paths_read_alike_may_not_share_a_header():
    inner = {"type": "string", "x-mcp-header": "N"}
    schema = schema_of(**{"a.b": inner, "a": schema_of(b=inner)})

    assert invalid_annotation(schema) == "properties 'a.b' and 'a.b' have the same x-mcp-header"


MISPLACED = {"type": "string", "x-mcp-header": "N"}
ROOT_ONLY = "x-mcp-header is only allowed on properties that the root reaches through `properties` alone"


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("items", MISPLACED),
        ("not", MISPLACED),
        ("anyOf", [{}, MISPLACED]),
        ("$defs", {"a": {}, "b": MISPLACED}),
        ("if", {"properties": {"a": MISPLACED}}),
    ],
)
def test_annotation_below_another_keyword_than_properties_is_invalid(keyword, value):
    assert invalid_annotation({keyword: value}) == ROOT_ONLY
    assert invalid_annotation(schema_of(a={keyword: value})) == ROOT_ONLY
    assert annotations_of({keyword: value, "properties": {"a": MISPLACED}}) == ()


@each_of(
    ("keyword", "value"),
    [
        ("default", MISPLACED),
        ("default", {"a": MISPLACED}),
        ("enum", [MISPLACED]),
        ("examples", [{"a": MISPLACED}]),
        ("anyOf", MISPLACED),
        ("$defs", [MISPLACED]),
        ("properties", [MISPLACED]),
        ("items", [MISPLACED]),
    ],
)
def test_annotation_in_data_or_where_no_schema_stands_means_nothing(keyword, value):
    assert invalid_annotation({keyword: value}) is None
    assert annotations_of({keyword: value}) == ()


@pytest.mark.parametrize(
    ("annotated", "why"),
    [
        ({"x-mcp-header": "x y", "type": "string"}, "property 'a.b': x-mcp-header is not a valid header name"),
        ({"x-mcp-header": 7, "type": "string"}, "property 'a.b': x-mcp-header is not a valid header name"),
        (
            {"x-mcp-header": "N", "type": "number"},
            "property 'a.b': x-mcp-header needs one of the types string, integer, boolean",
        ),
    ],
)
def test_annotation_that_can_not_become_a_header_is_named(annotated, why):
    assert invalid_annotation(schema_of(a=schema_of(b=annotated))) == why


@each_of(
    ("arguments", "headers", "fault"),
    [
        ({}, {"mcp-param-n": "1"}, "was sent, but the argument 'a.n' was not"),
        ({"a": {"n": 1}}, {}, "is missing: it must repeat the argument 'a.n'"),
        ({"a": {"n": 1}}, {"mcp-param-n": "2"}, "does not match the argument 'a.n': send the same value in both"),
        ({"a": {"n": 1.5}}, {"mcp-param-n": "1"}, "does not match the argument 'a.n': send the same value in both"),
        ({"a": {"n": True}}, {"mcp-param-n": "1"}, "does not match the argument 'a.n': send the same value in both"),
        ({"a": {"n": [1]}}, {}, None),
        ({"a": [1]}, {}, None),
        ({"a": {"n": 1.0}}, {"mcp-param-n": "1"}, None),
    ],
)
def test_header_that_contradicts_its_argument_is_named_with_it(arguments, headers, fault):
    annotations = annotations_of(schema_of(a=schema_of(n={"type": "integer", "x-mcp-header": "N"})))
    expected = None if fault is None else {"code": -32020, "message": f"the Mcp-Param-N header {fault}"}

    assert check_param_headers(annotations, arguments, headers) == expected


@pytest.mark.parametrize(("value", "said"), [(True, "true"), (False, "false")])
def test_boolean_is_spelled_as_json_spells_it(value, said):
    annotations = annotations_of(schema_of(b={"type": "boolean", "x-mcp-header": "B"}))

    assert headers_for(annotations, {"b": value}) == {"Mcp-Param-B": said}
    assert check_param_headers(annotations, {"b": value}, {"mcp-param-b": said}) is None
    assert check_param_headers(annotations, {"b": value}, {"mcp-param-b": said.title()}) is not None


@pytest.mark.parametrize("said", ["=?base64?!?=", "=?base64?/w==?="])
def test_header_that_is_no_text_in_base64_says_so(said):
    annotations = annotations_of(schema_of(n={"type": "string", "x-mcp-header": "N"}))
    error = check_param_headers(annotations, {"n": "a"}, {"mcp-param-n": said})

    assert error == {"code": -32020, "message": "the Mcp-Param-N header is not canonical base64 of UTF-8"}
