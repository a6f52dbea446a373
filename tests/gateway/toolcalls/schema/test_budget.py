"""What a stranger's schema may cost: nobody reads one that is too large, and nobody compiles what is in it."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator, SchemaError

from gateway.errors import RequestInvalid
from gateway.proxy.upstream.items.item_flaws import schema_fault
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.schema import schema_check
from gateway.toolcalls.schema.keywords import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_VALUES,
    TAKES,
    characters_of,
    excess,
    is_larger,
    misfit,
)
from gateway.toolcalls.schema.spec import ToolSpec, validate_call

WIDE = "[!-\uffff]"
"""Takes Python's compiler 8 ms under `(?i)`."""


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


LARGE = {
    "values": {"enum": list(range(MAX_VALUES))},
    "values in a key": {"properties": {f"{n}": {} for n in range(MAX_VALUES)}},
    "text": {"description": "x" * MAX_CHARACTERS + "x"},
    "keys": {"properties": {f"{n}" * 100: {} for n in range(MAX_CHARACTERS // 200)}},
    "levels": nested(MAX_DEPTH + 1),
}


@pytest.mark.parametrize("name", LARGE)
def test_schema_over_the_budget_is_read_by_nobody(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(*_: object) -> None:
        raise AssertionError("a schema over the budget was read")

    monkeypatch.setattr(schema_check, "misfit", unread)
    schema = {"type": "object", "additionalProperties": LARGE[name]}

    assert excess(schema) is not None
    assert validate_call(ToolSpec("f", "", {"additionalProperties": LARGE[name] | {"type": "null"}}), {"a": 1}) == []
    assert schema_fault(schema) == ("", excess(schema))
    with pytest.raises(RequestInvalid, match=re.escape(excess(schema) or "")):
        AnswerForm.of_schema(schema, "response_format")


def test_schema_within_the_budget_is_not_too_large() -> None:
    assert excess({"enum": list(range(MAX_VALUES - 2))}) is None
    assert excess({"description": "x" * (MAX_CHARACTERS - len("description"))}) is None
    assert excess(nested(MAX_DEPTH - 1)) is None


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)


def _values(value: object) -> list[object]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(each for part in inside for each in _values(part))]


@given(JSON, st.integers(0, 20))
def test_sizes_are_those_of_all_values(value: object, most: int) -> None:
    every = _values(value)
    texts = [each for each in every if isinstance(each, str)] + [
        k for each in every if isinstance(each, dict) for k in each
    ]

    assert is_larger(value, most) == (len(every) > most)
    assert characters_of(value, 10**9) == len(every) + sum(map(len, texts))


def test_value_is_larger_than_its_values_less_one() -> None:
    value = {"a": [1, {"b": None}], "c": "text"}

    assert [is_larger(value, most) for most in (0, 1, 5, 6, 7)] == [True, True, True, False, False]
    assert not is_larger(7, 1)
    assert [is_larger(list(range(10_000)), most) for most in (10_000, 10_001)] == [True, False]


@pytest.mark.parametrize("pattern", [WIDE, f"(?i){WIDE}", "(a+)+$"])
def test_no_expression_of_a_schema_is_ever_compiled(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    compile_it = re._compiler.compile  # type: ignore[attr-defined]
    monkeypatch.setattr(re._compiler, "compile", lambda p, flags=0: compiled.append(p) or compile_it(p, flags))  # type: ignore[attr-defined]
    inner = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern, "format": "regex"}}}
    schema = {**inner, "patternProperties": {pattern: {}}, "propertyNames": {"pattern": pattern}}

    assert validate_call(ToolSpec("f", "", schema), {"a": "a" * 50, "b": 1}) == []
    schema_fault(schema)
    for each in (inner, schema):
        with pytest.raises(RequestInvalid):
            AnswerForm.of_schema({**each, "not": {}}, "response_format")
    assert pattern not in compiled


WORDS = sorted(TAKES.keys() - {"$schema", "$id", "$ref", "$dynamicRef", "$anchor", "$dynamicAnchor"})
VALUES = st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-2, 3) | st.sampled_from(["a", "string", "null"])
SCHEMAS = st.recursive(
    st.booleans() | st.just({}),
    lambda inner: st.dictionaries(
        st.sampled_from(WORDS),
        VALUES | inner | st.lists(inner | VALUES, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner | VALUES),
        max_size=4,
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(WORDS), SCHEMAS | VALUES | st.lists(SCHEMAS | VALUES, max_size=2), max_size=3))
def test_what_fits_the_metaschema_fits_here_and_the_other_way_round(schema: dict[str, Any]) -> None:
    def fits(kind: Any) -> bool:
        try:
            kind.check_schema(schema, format_checker=None)
        except SchemaError as error:
            # Lists in which a name occurs twice say nothing wrong.
            return "non-unique" in error.message
        return True

    if misfit(schema) is None:
        assert fits(Draft202012Validator) or fits(Draft7Validator)
    elif fits(Draft202012Validator):
        assert (misfit(schema) or ("", "", ""))[1] in ("nullable", "additionalItems", "definitions", "dependencies")


PIECES = [
    "a",
    "é",
    "-",
    "[",
    "]",
    "^",
    "(",
    ")",
    "(?:",
    "(?=",
    "(?<=",
    "|",
    "*",
    "+",
    "?",
    "{2,1}",
    "{1,2}",
    "{3}",
    "z-a",
]
ESCAPES = [r"\d", r"\W", r"\n", r"\-", r"\]", r"\u0041", r"\x7a", r"\\", "[a-z]", r"[\d-z]", "[z-a]", r"[\x41-\u005a]"]


@given(st.lists(st.sampled_from(PIECES + ESCAPES), max_size=6).map("".join))
def test_pattern_that_is_passed_on_is_one_that_python_reads(pattern: str) -> None:
    if schema_fault({"type": "string", "pattern": pattern}) is None:
        re.compile(pattern)


@pytest.mark.parametrize("pattern", [r"^[a-z-]+\d{2,}(?:x|y)$", "[A-Za-z0-9_.-]{1,64}", r"^(?!-)[\w-]+$", WIDE])
def test_usual_pattern_is_passed_on(pattern: str) -> None:
    assert schema_fault({"type": "string", "pattern": pattern}) is None
