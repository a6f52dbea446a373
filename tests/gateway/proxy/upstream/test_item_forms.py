"""Items as servers list them become items that the official SDKs read; what is fine stays as it is."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import parse_server_result

from gateway.proxy.upstream.items.item_flaws import Flaw
from gateway.proxy.upstream.items.item_reader import KEYS, ItemKind, read_item
from tests.cases import each_of

TOOL: dict[str, Any] = {
    "name": "b",
    "title": "B",
    "description": "does b",
    "inputSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"v": {"anyOf": [{"type": "string"}, {"type": "int"}], "default": None}},
        "required": ["v"],
        "additionalProperties": False,
    },
    "outputSchema": {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A"},
            "b": {"type": ["string", "null"], "pattern": r"^[a-z-]+\d{2,}(?:x|y)$"},
        },
        "required": ["a"],
        "$defs": {"A": {"enum": ["x", 1]}},
    },
    "icons": [{"src": "data:,x", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}],
    "annotations": {"title": "B", "readOnlyHint": True, "x-vendor": None},
    "execution": {"taskSupport": "optional"},
    "_meta": {"ui": {"resourceUri": "ui://b"}, "none": None},
    "x-vendor": None,
}
PROMPT: dict[str, Any] = {
    "name": "p",
    "description": "",
    "arguments": [{"name": "a", "description": "an a", "required": False}, {"name": "b"}],
}
RESOURCE: dict[str, Any] = {
    "uri": "x:1",
    "name": "r",
    "mimeType": "text/plain",
    "size": 3,
    "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58.123Z"},
}
TEMPLATE: dict[str, Any] = {"uriTemplate": "x:{id}", "name": "t", "description": "", "annotations": {"priority": 1}}
FINE: dict[ItemKind, dict[str, Any]] = {"tools": TOOL, "prompts": PROMPT, "resources": RESOURCE, "templates": TEMPLATE}
LISTS: dict[ItemKind, tuple[str, str]] = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}
ABSENT = object()


def read(kind: ItemKind, item: object, *, modern: bool = False) -> tuple[Any, list[Flaw]]:
    flaws: list[Flaw] = []
    return read_item(kind, item, flaws, modern=modern), flaws


def changed(kind: ItemKind, path: str, value: object) -> dict[str, Any]:
    item = copy.deepcopy(FINE[kind])
    *outer, last = path.split(".")
    place: Any = item
    for step in outer:
        place = place[int(step) if step.isdecimal() else step]
    if value is ABSENT:
        del place[last]
    else:
        place[int(last) if last.isdecimal() else last] = value
    return item


@each_of("kind", FINE)
@each_of("modern", [False, True])
def test_item_that_is_fine_is_passed_on_as_it_came(kind: ItemKind, modern: bool) -> None:
    item = copy.deepcopy(FINE[kind])
    result, flaws = read(kind, item, modern=modern)

    assert result is item
    assert item == FINE[kind]
    assert flaws == []


EMPTY_SCHEMA = {"type": "object"}
MENDED = [
    ("tools", "inputSchema", ABSENT, EMPTY_SCHEMA),
    ("tools", "inputSchema", None, EMPTY_SCHEMA),
    ("tools", "inputSchema", [], EMPTY_SCHEMA),
    ("tools", "inputSchema", True, EMPTY_SCHEMA),
    ("tools", "inputSchema", {}, EMPTY_SCHEMA),
    ("tools", "inputSchema", {"anyOf": [{"type": "object"}]}, {"anyOf": [{"type": "object"}], "type": "object"}),
    ("tools", "inputSchema", {"$ref": "#/$defs/X"}, {"$ref": "#/$defs/X", "type": "object"}),
    ("tools", "inputSchema.type", ["object", "null"], "object"),
    ("tools", "inputSchema.type", "OBJECT", "object"),
    ("tools", "inputSchema.type", None, "object"),
    ("tools", "inputSchema.properties", [], {}),
    ("tools", "inputSchema.properties", None, ABSENT),
    ("tools", "inputSchema.properties.v", True, {}),
    ("tools", "inputSchema.properties.v", None, {}),
    ("tools", "inputSchema.properties.v", [], {}),
    ("tools", "inputSchema.properties.v", False, {"not": {}}),
    ("tools", "inputSchema.required", None, ABSENT),
    ("tools", "inputSchema.required", {}, ABSENT),
    ("tools", "inputSchema.required", "v", ["v"]),
    ("tools", "inputSchema.required", ["v", None], ["v"]),
    ("tools", "inputSchema.$schema", None, ABSENT),
    *[
        ("tools", field, None, ABSENT)
        for field in ("description", "title", "annotations", "icons", "_meta", "execution")
    ],
    *[("tools", field, [], ABSENT) for field in ("description", "annotations", "_meta", "execution", "outputSchema")],
    ("tools", "outputSchema", None, ABSENT),
    ("tools", "outputSchema", {}, ABSENT),
    ("tools", "outputSchema", "object", ABSENT),
    ("tools", "outputSchema", {"type": "array"}, ABSENT),
    ("tools", "outputSchema", {"anyOf": [{}]}, {"anyOf": [{}], "type": "object"}),
    ("tools", "annotations.readOnlyHint", None, ABSENT),
    ("tools", "annotations.readOnlyHint", "true", ABSENT),
    ("tools", "annotations.title", None, ABSENT),
    ("tools", "execution.taskSupport", "maybe", ABSENT),
    ("tools", "icons", [{}], ABSENT),
    ("tools", "icons", [{"src": None}, {"src": "a"}], [{"src": "a"}]),
    ("tools", "icons.0.sizes", "48x48", ["48x48"]),
    ("tools", "icons.0.theme", "sepia", ABSENT),
    ("prompts", "arguments", None, ABSENT),
    ("prompts", "arguments", {}, ABSENT),
    ("prompts", "description", None, ABSENT),
    ("prompts", "arguments.0.description", None, ABSENT),
    ("prompts", "arguments.0.required", "true", ABSENT),
    ("resources", "name", ABSENT, "x:1"),
    ("resources", "name", None, "x:1"),
    ("resources", "mimeType", None, ABSENT),
    ("resources", "size", "3", ABSENT),
    ("resources", "size", 3.5, ABSENT),
    ("resources", "size", True, ABSENT),
    ("resources", "size", -1, ABSENT),
    ("resources", "size", 2**32, ABSENT),
    ("resources", "size", 3e300, ABSENT),
    ("resources", "annotations.audience", "user", ABSENT),
    ("resources", "annotations.audience", ["bot"], ABSENT),
    ("resources", "annotations.priority", 5, ABSENT),
    ("resources", "annotations.lastModified", "2025-01-12", ABSENT),
    ("resources", "annotations.lastModified", "2025-02-30T15:00:58Z", ABSENT),
    ("resources", "annotations.lastModified", "2025-01-12T15:00Z", ABSENT),
    ("templates", "name", None, "x:{id}"),
    ("templates", "description", 3, ABSENT),
]


@each_of(("kind", "path", "value", "expected"), MENDED)
def test_field_that_clients_can_not_read_is_mended_or_dropped_and_told(
    kind: ItemKind, path: str, value: object, expected: object
) -> None:
    item = changed(kind, path, value)
    before = copy.deepcopy(item)
    result, flaws = read(kind, item)

    assert result == changed(kind, path, expected)
    assert item == before, "what the server sent is not changed"
    assert flaws[0].field.startswith(path.split(".0")[0])
    assert not any(flaw.left_out for flaw in flaws)


@pytest.mark.parametrize("size", [3.0, 1e3, 0.0, 4e9])
def test_size_that_is_a_whole_number_is_written_as_one(size: float) -> None:
    result, flaws = read("resources", changed("resources", "size", size))

    assert repr(result["size"]) == repr(int(size))
    assert [flaw.field for flaw in flaws] == ["size"]


def test_resource_without_a_name_is_called_by_its_title() -> None:
    assert read("resources", {"uri": "x:1", "title": "One"})[0] == {"uri": "x:1", "title": "One", "name": "One"}


LEFT_OUT = [
    ("tools", "name", ABSENT),
    ("tools", "name", 7),
    ("tools", "inputSchema", "object"),
    ("tools", "inputSchema", [{}]),
    ("tools", "inputSchema", False),
    ("tools", "inputSchema.type", "string"),
    ("tools", "inputSchema.type", []),
    ("tools", "inputSchema.properties", "v"),
    ("tools", "inputSchema.properties", [{"name": "v"}]),
    ("tools", "inputSchema.properties.v", "string"),
    ("prompts", "name", None),
    ("prompts", "arguments", {"a": {}}),
    ("prompts", "arguments.0.name", None),
    ("prompts", "arguments.0", None),
    ("resources", "uri", None),
    ("resources", "uri", "no scheme"),
    ("templates", "uriTemplate", ABSENT),
]


@each_of(("kind", "path", "value"), LEFT_OUT)
def test_item_that_can_not_be_mended_is_left_out_and_the_field_told(kind: ItemKind, path: str, value: object) -> None:
    result, flaws = read(kind, changed(kind, path, value))

    assert result is None
    assert flaws[0].left_out
    assert flaws[0].field.replace("[", ".").startswith(path.removesuffix(".name"))
    assert flaws[0].reason.startswith("expected ")


@pytest.mark.parametrize("item", [None, [], "b", 7])
def test_what_is_no_object_is_left_out(item: object) -> None:
    assert read("tools", item) == (None, [Flaw("", f"expected an object, got {_json(item)}", left_out=True)])


def _json(item: object) -> str:
    return {"None": "null", "b": "'b'"}.get(str(item), str(item))


@each_of(
    "inside",
    [
        {"$ref": "#/$defs/gone"},
        {"$ref": "https://example.org/x.json"},
        {"type": "any"},
        {"type": None},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": "(?i)a"},
        {"type": "string", "pattern": "a*+"},
        {"type": "string", "pattern": r"\A"},
        {"type": "string", "pattern": "(?=a)*"},
        {"enum": []},
        {"type": "number", "minimum": None},
        {"type": "array", "items": None},
        {"anyOf": None},
        {"nullable": True},
        {"id": "x"},
        {"required": None},
        {"additionalProperties": None},
    ],
)
def test_output_schema_that_clients_can_not_compile_is_dropped(inside: object) -> None:
    item = changed("tools", "outputSchema", {"type": "object", "properties": {"x": {"properties": {"y": inside}}}})
    result, flaws = read("tools", item)

    assert result == changed("tools", "outputSchema", ABSENT)
    assert [flaw.reason.endswith("so clients can't compile it; outputSchema is dropped") for flaw in flaws] == [True]


def test_output_schema_of_any_type_is_legal_in_the_modern_era_only() -> None:
    item = changed("tools", "outputSchema", {"type": "array", "items": {"type": "string"}})

    assert read("tools", item, modern=True) == (item, [])
    assert read("tools", item)[0] == changed("tools", "outputSchema", ABSENT)


def test_what_is_told_of_one_item_is_bounded() -> None:
    icons = [{"src": n} for n in range(1000)]
    item = {**TOOL, "icons": icons, "inputSchema": {"type": "object", "properties": dict.fromkeys("abcdefghijkl", 3)}}
    result, flaws = read("tools", item)

    assert result is None
    assert len(flaws) == 8
    assert flaws[0].left_out


def test_hostile_pattern_costs_no_time() -> None:
    for hostile in ("(?:" * 300 + "X\\", "[a" * 400, "(" * 900, "a{9999}" * 140):
        read("tools", changed("tools", "outputSchema", {"type": "object", "properties": {"x": {"pattern": hostile}}}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _paths(value: object, at: str = "") -> list[str]:
    found = [at] if at else []
    for key, each in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    ):
        if "." not in str(key):  # pyright: ignore[reportUnknownArgumentType]
            found += _paths(each, f"{at}.{key}" if at else str(key))  # pyright: ignore[reportUnknownArgumentType]
    return found


@given(data=st.data(), kind=st.sampled_from(sorted(FINE)), count=st.integers(1, 4))
def test_whatever_a_server_puts_into_fields_the_python_sdk_reads_what_is_left(
    data: st.DataObject, kind: ItemKind, count: int
) -> None:
    item = FINE[kind]
    for _ in range(count):
        path = data.draw(st.sampled_from(_paths(item)))
        value = data.draw(JSON)
        item = copy.deepcopy(item)
        *outer, last = path.split(".")
        place: Any = item
        for step in outer:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[int(last) if isinstance(place, list) else last] = value
    result, flaws = read(kind, item)

    if result is None:
        assert flaws[0].left_out
        return
    assert (result is item) == (not flaws)
    assert isinstance(result[KEYS[kind]], str)
    method, field = LISTS[kind]
    parse_server_result(method, "2025-11-25", {field: [result]})
    assert read(kind, result) == (result, [])
