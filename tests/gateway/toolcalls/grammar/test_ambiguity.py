"""Grammars in which an engine would have to follow very many ways at once are never written."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.grammar.exact import has_too_many_ways
from gateway.toolcalls.grammar.gbnf import MAX_PLAIN, Grammar, one_of
from gateway.toolcalls.grammar.patterns import JsonText, pattern_rules
from gateway.toolcalls.grammar.schemas import schema_rules, value_rules
from gateway.toolcalls.schema.merge import united
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf
from tests.gateway.toolcalls.nasty_schemas import nasty, nested


def grammar_of(schema: Any) -> Gbnf:
    g = Grammar((), parallel=False, schemas=schema_rules)
    return Gbnf(g.text(value_rules(g, schema, schema, "x")))


def is_refused(schema: dict[str, Any]) -> bool:
    try:
        AnswerForm.of_schema(schema, "response_format")
    except RequestInvalid:
        return True
    return False


def test_alternatives_that_differ_in_counts_only_are_one_and_mean_the_same() -> None:
    schema = nested(18, [{"minItems": least} for least in range(3)])

    assert not has_too_many_ways(schema)
    assert not is_refused(schema)
    grammar = grammar_of({"anyOf": [{"type": "array", "items": {"type": "null"}, "minItems": n} for n in (1, 3)]})
    assert [grammar.takes(text) for text in ("[]", "[null]", "[null, null]")] == [False, True, True]


@pytest.mark.parametrize("odd", ["3", None, [3]])
def test_counts_that_are_no_numbers_are_not_joined(odd: object) -> None:
    plain = [{"type": "array", "minItems": odd}, {"type": "array", "minItems": 2}]

    assert united(plain) == plain


RANGES = st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(0, 8)), min_size=1, max_size=4)


@given(RANGES)
def test_union_of_counts_allows_what_one_of_them_allows(ranges: list[tuple[int, int | None]]) -> None:
    plain = [
        {"type": ["array"], "minItems": low, **({} if high is None else {"maxItems": high})} for low, high in ranges
    ]
    found = united(plain)

    def allowed(schemas: Any, count: int) -> bool:
        return any(each.get("minItems", 0) <= count <= each.get("maxItems", 99) for each in schemas)

    assert len(found) <= len(plain)
    assert [allowed(found, count) for count in range(20)] == [allowed(plain, count) for count in range(20)]


@pytest.mark.parametrize(
    "differ",
    [
        [{"items": {"type": "null"}}, {"prefixItems": [{"type": "null"}]}, {"maxItems": 3}],
        [{"minItems": 5}, {"maxItems": 3}],
    ],
)
def test_nested_alternatives_that_begin_alike_are_too_much(differ: list[dict[str, Any]]) -> None:
    schema = nested(12, differ)

    assert has_too_many_ways(schema)
    assert is_refused(schema)
    assert not has_too_many_ways(nested(3, differ))


def tagged(kind: str, inner: Any) -> dict[str, Any]:
    properties = {"kind": {"const": kind}, "of": inner}
    return {"type": "object", "properties": properties, "required": ["kind", "of"], "additionalProperties": False}


def test_alternatives_that_a_first_member_tells_apart_may_be_nested() -> None:
    inner: Any = {"type": "null"}
    for _ in range(7):
        inner = {"anyOf": [tagged("a", inner), tagged("b", {"type": "string"}), tagged("c", {"type": "null"})]}

    assert not is_refused(inner)
    assert not has_too_many_ways(inner)


def test_schema_that_refers_to_itself_in_two_ways_that_begin_alike_is_too_much() -> None:
    tree = {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "prefixItems": [{"$ref": "#"}]}]}

    assert has_too_many_ways(tree)
    assert not has_too_many_ways({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]})


@each_of(
    "pattern",
    [
        r"^(a|aa){1,900}$",
        r"^(a{1,30}){1,30}$",
        r"^[a-z]{0,500}[a-m]{0,500}$",
        r"^.{0,100}x$",
        r"^[a-z]{1,300}",
        r"[a-z]{300}$",
        r"^(x.{0,100}|y)x$",
        r"^(a{0,90})?(a{0,90})?$",
        r"^[^a]{0,100}[^b]$",
        r"^a{0,90}(?:b)?a$",
    ],
)
def test_pattern_with_very_many_ways_is_not_written(pattern: str) -> None:
    assert pattern_rules(Grammar((), parallel=False, schemas=schema_rules), pattern, JsonText()) is None


@each_of(
    "pattern",
    [
        r"^[A-Za-z0-9_-]{1,64}$",
        r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        r"^(\d{1,3}\.){3}\d{1,3}$",
        r"^[a-z0-9]+(?:-[a-z0-9]+)*$",
        r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
        r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$",
        r"^([a-z]{1,63}\.){1,10}[a-z]{2,63}$",
        r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$",
        r"\.(png|jpe?g|gif)$",
        r"^[^,]{0,100},[^;]$",
        r"^a{0,90}(?:b)?c$",
        r"^a{0,90}(?:b){2}a$",
    ],
)
def test_usual_pattern_is_written(pattern: str) -> None:
    assert pattern_rules(Grammar((), parallel=False, schemas=schema_rules), pattern, JsonText()) is not None


@given(st.sets(st.text('ab"\\', max_size=7), min_size=MAX_PLAIN + 1, max_size=60), st.text('ab"\\', max_size=7))
def test_tree_of_texts_takes_each_of_them_and_no_other(texts: set[str], other: str) -> None:
    g = Grammar((), parallel=False, schemas=schema_rules)
    grammar = Gbnf(g.text(f'"<" {one_of(g, texts)} ">"'))

    assert all(grammar.takes(f"<{text}>") for text in texts)
    assert grammar.takes(f"<{other}>") == (other in texts)


def test_patterns_of_one_grammar_are_read_up_to_a_bound() -> None:
    g = Grammar((), parallel=False, schemas=schema_rules)
    written = [pattern_rules(g, f"^{n:0>400}$", JsonText()) is not None for n in range(200)]

    assert written[0]
    assert not written[-1]


@each_of("seed", range(25))
def test_nasty_schema_is_held_merged_loosened_or_refused(seed: int) -> None:
    schema = nasty(random.Random(seed))

    if not has_too_many_ways(schema):
        assert grammar_of(schema).rules
    is_refused(schema)


def contradicting(values: int, options: int) -> dict[str, Any]:
    """No option counts as one: each joins two lists that have nothing in common."""
    lists = [{"enum": [sign * each for each in range(1, values + 1)]} for sign in (1, -1)]
    return {
        "type": "object",
        "properties": {"v": {"allOf": [*lists, {"anyOf": [{"title": str(n)} for n in range(options)]}]}},
    }


def test_large_parts_that_are_joined_again_and_again_are_too_much() -> None:
    assert not has_too_many_ways(contradicting(300, 3))
    assert has_too_many_ways(contradicting(300, 60))
    assert is_refused(contradicting(300, 300))


def test_members_beside_so_many_alternatives_that_they_are_not_all_looked_at_are_too_much() -> None:
    def schema(options: int) -> dict[str, Any]:
        members = {f"m{n}": {"type": "string", "description": "x" * 400} for n in range(200)}
        kinds = [{"properties": {"kind": {"const": n}}, "required": ["kind"]} for n in range(options)]
        return {"type": "object", "properties": {"kind": {}, **members}, "required": [*members], "anyOf": kinds}

    assert not has_too_many_ways(schema(45))
    assert has_too_many_ways(schema(60))


def test_many_small_places_of_one_large_part_are_too_much_and_the_last_take_anything() -> None:
    large = {"allOf": [{"enum": list(range(900))}, {"enum": list(range(899, 1799))}]}
    places = {f"p{n}": {"allOf": [{"$ref": "#/$defs/large"}], "title": str(n)} for n in range(200)}
    schema = {"type": "object", "properties": places, "required": [*places], "$defs": {"large": large}}

    assert has_too_many_ways(schema)
    g = Grammar((), parallel=False, schemas=schema_rules)
    grammar = Gbnf(g.text(schema_rules(g, schema, "x")))

    def written(**odd: object) -> str:
        return json.dumps({**dict.fromkeys(places, 899), **odd})

    assert [grammar.takes(written(**odd)) for odd in ({}, {"p0": 1}, {"p199": None})] == [True, False, True]


def test_closed_objects_that_hold_together_allow_what_all_of_them_name() -> None:
    closed = [
        {"properties": {"a": {"const": 1}, name: {"const": 2}}, "additionalProperties": False} for name in ("b", "c")
    ]
    grammar = grammar_of({"type": "object", "allOf": closed})

    assert [grammar.takes(text) for text in ('{"a": 1}', "{}", '{"b": 2}', '{"c": 2}')] == [True, True, False, False]
