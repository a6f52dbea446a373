"""Plain schemas for what references, `allOf` and alternatives say: the same values fit, held against the library."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.toolcalls.schema.merge import MAX_ALTERNATIVES, MAX_PARTS, Work, alternatives, parts_of, united

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 4, "", "a", "ab", "abc"),
    *([], [0], [1], ["a"], [0, 1], [1, "a"], ["a", 1], [1, 2, 3], [True, "ab", None], [[1]]),
    *({}, {"a": 1}, {"a": "ab"}, {"b": None}, {"a": 2, "b": 3}, {"a": "a", "b": "abc"}, {"c": 0}, {"a": {"a": 1}}),
]
COUNTS = st.integers(0, 3)


def object_of(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=optional)


def typed(kind: str | list[str], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=optional)


def bounds(of: str) -> dict[str, st.SearchStrategy[int]]:
    return {f"min{of}": COUNTS, f"max{of}": COUNTS}


NUMBER = dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), COUNTS)
LEAVES = st.one_of(
    *(st.just(each) for each in (True, {}, {"type": "null"}, {"type": ["string", "null"]})),
    typed("integer", **NUMBER),
    typed("number", **NUMBER),
    typed("string", **bounds("Length")),
    st.builds(lambda some: {"enum": some}, st.lists(st.sampled_from(VALUES), min_size=1, max_size=4)),
    st.builds(lambda one: {"const": one}, st.sampled_from(VALUES)),
)


def inside(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    names = st.lists(st.sampled_from("ab"), max_size=2, unique=True)
    lists = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        typed(
            "object", properties=members, required=names, additionalProperties=st.just(False), **bounds("Properties")
        ),
        typed("array", items=inner | st.just(False), **bounds("Items")),
        st.builds(lambda key, options: {key: options}, st.sampled_from(["anyOf", "allOf"]), lists),
    )


REFERENCE = st.just({"$ref": "#/$defs/d"})
EXACT = st.recursive(LEAVES | REFERENCE, inside, max_leaves=6)
"""Schemas of which nothing is left out."""
LOOSE = st.recursive(
    EXACT,
    lambda inner: st.one_of(
        inside(inner),
        typed("object", additionalProperties=inner, properties=st.dictionaries(st.sampled_from("ab"), inner)),
        typed("object", patternProperties=st.just({"^a": True}), additionalProperties=inner | st.just(False)),
        typed("array", items=inner | st.just(False), prefixItems=st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda options: {"oneOf": options}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def plain_of(root: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(each) for each in alternatives(parts_of(root, root), root, Work())]


def fitting(schemas: list[dict[str, Any]], root: dict[str, Any]) -> list[Any]:
    readers = [Draft202012Validator({**each, "$defs": root["$defs"]}) for each in schemas]
    return [value for value in VALUES if any(reader.is_valid(value) for reader in readers)]


@given(st.lists(EXACT, min_size=1, max_size=3), inside(LEAVES))
def test_what_fits_the_parts_fits_a_plain_schema_and_nothing_else_does(parts: list[Any], defined: Any) -> None:
    root = {"allOf": parts, "$defs": {"d": defined}}

    assert fitting(plain_of(root), root) == fitting([root], root)
    assert fitting(list(map(dict, united(plain_of(root)))), root) == fitting([root], root)


@given(st.lists(LOOSE, min_size=1, max_size=3), inside(LEAVES))
def test_plain_schemas_allow_all_that_fits_the_parts(parts: list[Any], defined: Any) -> None:
    root = {"allOf": parts, "$defs": {"d": defined}}

    assert [value for value in fitting([root], root) if value not in fitting(plain_of(root), root)] == []


@pytest.mark.parametrize("rest", [False, {"type": "null"}])
def test_items_after_the_places_of_one_schema_may_have_places_in_another(rest: Any) -> None:
    longer = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": rest}
    root = {"allOf": [{"type": "array", "prefixItems": [{}]}, longer], "$defs": {}}

    assert fitting(plain_of(root), root) == fitting([root], root)


def test_places_of_draft_7_are_those_of_today() -> None:
    pair = [{"type": "integer"}, {"type": "string"}]

    assert plain_of({"items": pair, "additionalItems": False}) == [
        {"prefixItems": pair, "items": False, "type": ["array"]}
    ]
    assert plain_of({"items": pair}) == [{"prefixItems": pair, "type": ["array"]}]


def test_members_named_by_patterns_are_any() -> None:
    named = {"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": False}
    (found,) = plain_of({"allOf": [named, {"properties": {"b": {}}}]})

    assert found["additionalProperties"] is True
    assert found["properties"].keys() == {"a", "b"}


@pytest.mark.parametrize(("count", "is_told"), [(MAX_ALTERNATIVES, True), (MAX_ALTERNATIVES + 1, False)])
def test_schema_with_more_alternatives_than_that_is_read_without_them(count: int, is_told: bool) -> None:
    root = {"type": "string", "anyOf": [{"const": f"{n}"} for n in range(count)]}

    assert len(plain_of(root)) == (count if is_told else 1)
    if not is_told:
        assert plain_of(root) == [{"type": ["string"]}]


def test_choices_that_multiply_are_read_without_their_alternatives() -> None:
    root = {"type": "string", "allOf": [{"anyOf": [{"minLength": n}, {"maxLength": n}]} for n in range(12)]}

    assert plain_of(root) == [{"type": ["string"]}]


def test_choices_that_contradict_each_other_end_after_so_many_steps() -> None:
    """Of 3 ** 12 pairs of alternatives none can hold: they count nowhere but in the steps."""
    either = {"anyOf": [{"const": 1}, {"const": 2}, {"const": 3}]}
    root = {"type": "integer", "allOf": [{**either, "title": f"{n}"} for n in range(12)] + [{"const": 4}]}

    assert plain_of(root) == [{"type": ["integer"], "enum": [4]}]


@pytest.mark.parametrize(("count", "is_read"), [(MAX_PARTS - 1, True), (MAX_PARTS, False)])
def test_so_many_schemas_are_considered_that_must_all_hold(count: int, is_read: bool) -> None:
    root = {"allOf": [*({"minimum": n} for n in range(count - 1)), {"maximum": 999}]}

    assert ("maximum" in plain_of(root)[0]) is is_read


def test_schema_that_leads_back_to_itself_is_considered_once() -> None:
    root = {"allOf": [{"$ref": "#"}, {"$ref": "#/$defs/d"}], "$defs": {"d": {"type": "null", "allOf": [{"$ref": "#"}]}}}

    assert plain_of(root) == [{"type": ["null"]}]


def test_work_that_is_spent_allows_everything() -> None:
    root = {"anyOf": [{"type": "null", "minimum": n} for n in range(5)]}
    work = Work(20)

    found = [alternatives(parts_of(root, root), root, work) for _ in range(3)]
    assert [len(each) for each in found] == [5, 1, 1]
    assert found[-1] == [{}]
    assert work.is_spent
    assert not Work().is_spent


def test_values_of_a_wide_schema_cost_work_wherever_it_is_joined() -> None:
    def left(schema: dict[str, Any]) -> bool:
        work = Work(50)
        alternatives((schema,), schema, work)
        return not work.is_spent

    names = [f"{n}" for n in range(50)]
    assert left({"enum": names[:40]})
    assert not left({"enum": names})
    assert not left({"properties": dict.fromkeys(names, True)})
    assert not left({"required": names})


def test_ranges_without_a_count_between_them_are_one() -> None:
    def lists(low: int, high: int | None = None) -> dict[str, Any]:
        return {"type": "array", **({"minItems": low} if low else {}), **({} if high is None else {"maxItems": high})}

    assert united([lists(0, 2), lists(3)]) == [{"type": "array"}]
    assert united([lists(0, 2), lists(4)]) == [lists(0, 2), lists(4)]
    assert united([lists(2, 3), lists(1, 2), lists(9, 7)]) == [lists(1, 3)]
    assert united([lists(5, 2), lists(9, 7)]) == [lists(5, 2), lists(9, 7)]
    assert united([{"type": "array", "title": "a"}, {"title": "a", **lists(1)}]) == [{"type": "array", "title": "a"}]
    assert united([{"type": "null"}, {"type": "null"}, lists(1)]) == [{"type": "null"}, lists(1)]
