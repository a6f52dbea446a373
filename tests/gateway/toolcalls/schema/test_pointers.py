"""References as RFC 6901 and JSON Schema say: what they name, and what names nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from gateway.toolcalls.schema.json_types import ALL, STRING, kinds_of
from gateway.toolcalls.schema.keywords import dead_references, escaped, resolve
from gateway.toolcalls.schema.spec import ToolSpec, validate_call
from tests.cases import each_of

ROOT: dict[str, Any] = {
    "$id": "https://example.com/schemas/tool.json",
    "type": "object",
    "properties": {
        "x": {"anyOf": [{"type": "integer"}, {"type": "string"}], "oneOf": [{"const": 1}]},
        "pair": {"prefixItems": [{"type": "null"}], "allOf": [{"type": "array"}]},
        "a/b": {"const": "slash"},
        "m~n": {"const": "tilde"},
        "with space": {"const": "space"},
        "ü": {"const": "umlaut"},
        "50%": {"const": "percent"},
        "": {"const": "nameless"},
        "0": {"const": "zero"},
        "yes": True,
    },
    "$defs": {
        "Named": {"$anchor": "here", "type": "string"},
        "Old": {"$id": "#old", "type": "boolean"},
        "Own": {"$id": "own.json", "$defs": {"In": {"type": "number"}}},
    },
    "examples": [{"$anchor": "shown", "$ref": "#/nowhere"}],
}


@each_of(
    ("reference", "expected"),
    [
        ("#", ROOT),
        ("", ROOT),
        ("#/properties/x/anyOf/1", {"type": "string"}),
        ("#/properties/x/anyOf/0", {"type": "integer"}),
        ("#/properties/x/oneOf/0", {"const": 1}),
        ("#/properties/pair/prefixItems/0", {"type": "null"}),
        ("#/properties/pair/allOf/0", {"type": "array"}),
        ("#/properties/a~1b", {"const": "slash"}),
        ("#/properties/m~0n", {"const": "tilde"}),
        ("#/properties/with%20space", {"const": "space"}),
        ("#/properties/with space", {"const": "space"}),
        ("#/properties/%C3%BC", {"const": "umlaut"}),
        ("#/properties/50%25", {"const": "percent"}),
        ("#/properties/50%", {"const": "percent"}),
        ("#/properties/", {"const": "nameless"}),
        ("#/properties/0", {"const": "zero"}),
        ("#/properties/yes", True),
        ("#here", {"$anchor": "here", "type": "string"}),
        ("#old", {"$id": "#old", "type": "boolean"}),
        ("tool.json#/properties/x/anyOf/1", {"type": "string"}),
        ("https://example.com/schemas/tool.json#here", {"$anchor": "here", "type": "string"}),
        ("own.json#/$defs/In", {"type": "number"}),
        ("https://example.com/schemas/own.json#/$defs/In", {"type": "number"}),
    ],
)
def test_reference_names_a_part(reference, expected):
    root = {**ROOT, "$defs": {**ROOT["$defs"]}}
    if reference.endswith("own.json#/$defs/In") and reference.startswith("https"):
        root["$defs"]["Own"] = {**root["$defs"]["Own"], "$id": "https://example.com/schemas/own.json"}
    assert resolve(reference, root) == (root if expected is ROOT else expected)


@each_of(
    "reference",
    [
        *("#foo", "#shown", "#/nowhere", "#/properties/x/anyOf/2", "#/properties/x/anyOf/01", "#/properties/x/anyOf/-"),
        *("#/properties/x/anyOf/+1", "#/properties/x/anyOf/²", f"#/properties/x/anyOf/{'9' * 5000}"),
        *("#/properties/x/anyOf/0/type/0", "https://example.com/other.json", "other.json#/properties/x", "x"),
        *("#/properties/%ff", "#properties/x", "file:///etc/passwd", "http://[", "#/examples/0/$ref/0"),
    ],
)
def test_reference_names_nothing_and_allows_any_value(reference):
    assert resolve(reference, ROOT) is None
    assert kinds_of({"$ref": reference}, ROOT) == ALL


def test_anchor_that_is_not_there_is_not_the_root():
    """A text argument `007` became the number 7 where the root's type was taken."""
    assert kinds_of({"$ref": "#foo"}, {"type": "object"}) == ALL
    assert kinds_of({"$ref": "#here"}, ROOT) == STRING


NAMES = st.text(max_size=4) | st.sampled_from(["a/b", "m~n", "~1", "~01", "%25", "0", "1"])


@given(st.recursive(st.none() | st.just(True), lambda inner: st.dictionaries(NAMES, inner, max_size=3)), st.data())
def test_every_pointer_finds_its_part(schema, data):
    root: dict[str, Any] = {"root": schema}
    path, part = ["root"], schema
    while isinstance(part, dict) and part:
        name = data.draw(st.sampled_from(sorted(part)))
        path.append(name)
        part = part[name]
    pointer = "#/" + "/".join(escaped(name).replace("%", "%25") for name in path)

    assert resolve(pointer, root) == part


@given(st.text(alphabet="#/~%01a$xé", max_size=12))
def test_agrees_with_the_library_wherever_that_finds_a_schema(reference):
    schema: dict[str, Any] = {
        **{name: {"a": [{"x": True}, {"é": {}}], "~": {"0": True}} for name in ("a", "x", "0", "")},
        "$defs": {"b": {"$anchor": "a"}, "c": {"$anchor": "x"}},
    }
    try:
        resource = Resource(contents=schema, specification=DRAFT202012)
        found = Registry().resolver_with_root(resource).lookup(reference).contents
    except (Unresolvable, ValueError, TypeError, KeyError):
        return
    if isinstance(found, dict | bool):
        assert resolve(reference, schema) == found


def test_references_are_looked_for_in_10_000_parts():
    dead = [f"#/{number}" for number in range(10_500)]

    assert dead_references({"allOf": [{"$ref": each} for each in dead]}) == dead[: 10_000 - 1]


def test_references_that_lead_nowhere_are_listed_once_without_those_in_data():
    schema = {
        "properties": {
            "a": {"$ref": "#/$defs/No"},
            "b": {"items": [{"$ref": "#/$defs/No"}, {"$ref": "#/$defs/Yes"}]},
            "c": {"$ref": "https://example.com/x.json"},
            "d": {"$ref": "#/$defs/True"},
        },
        "$defs": {"Yes": {}, "True": True},
        "default": {"$ref": "#/none"},
    }
    assert dead_references(schema) == ["#/$defs/No", "https://example.com/x.json"] or dead_references(schema) == [
        "https://example.com/x.json",
        "#/$defs/No",
    ]


def test_other_arguments_are_checked_beside_a_reference_that_leads_nowhere():
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}, "n": {"type": "integer"}}}
    tool = ToolSpec("t", "", parameters)

    assert validate_call(tool, {"a": ["anything"], "n": 1}) == []
    assert len(validate_call(tool, {"a": 1, "n": "x"})) == 1


def test_many_names_are_found_by_one_search() -> None:
    class Read(dict[str, Any]):
        times = 0

        def items(self) -> Any:
            self.times += 1
            return super().items()

    root = Read({"$defs": {f"d{n}": {"$anchor": f"a{n}", "$id": f"https://x.example/{n}"} for n in range(9)}})
    found = [resolve(reference, root) for n in range(9) for reference in (f"#a{n}", f"https://x.example/{n}", "#gone")]

    assert found == [each for part in root["$defs"].values() for each in (part, part, None)]
    assert root.times == 1
    # An equal schema is another one: a part of it is its own.
    assert resolve("#a0", {"$defs": {"d": {"$anchor": "a0"}}}) == {"$anchor": "a0"}
