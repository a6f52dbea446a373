"""Tool arguments that are repeated in HTTP headers because the tool's input schema says so (`x-mcp-header`).

Turns a schema into its annotations, annotations and arguments into `Mcp-Param-*` headers, and headers and arguments
into the error to send to a client where the two disagree (Streamable HTTP of 2026-07-28, "Custom Headers from Tool
Parameters"). Pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.protocol.headers import decode_value, encode_value, mismatch

ANNOTATION: Final = "x-mcp-header"
PARAM_PREFIX: Final = "Mcp-Param-"

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL: Final = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_TYPES: Final = ("string", "integer", "boolean")
# The keywords of JSON Schema 2020-12 that hold schemas: one, a list of them, or a table of them. Keywords that hold
# data (`default`, `enum`, `const`, `examples`) are not searched: there, the annotation's name means nothing.
_ONE: Final = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_TABLE: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})


@dataclass(frozen=True, slots=True)
class Annotation:
    """One argument that has a header."""

    path: tuple[str, ...]
    """Keys from the arguments to the value."""
    header: str
    """The header's name: `Mcp-Param-` and the annotation's token."""
    whole: bool
    """Whether the argument is an integer, so that `42.0` means `42`."""

    def value_in(self, arguments: Mapping[str, Any]) -> object:
        """The argument's value; None where it is absent."""
        node: object = arguments
        for key in self.path:
            if not isinstance(node, Mapping):
                return None
            node = cast("Mapping[str, object]", node).get(key)
        return node


def invalid_annotation(schema: object) -> str | None:
    """Why a tool with this schema must not be offered over HTTP; None: its annotations are valid."""
    seen: dict[str, str] = {}
    for path, node in _schemas(schema):
        if ANNOTATION not in node:
            continue
        if not path:
            return f"{ANNOTATION} is only allowed on properties that the root reaches through `properties` alone"
        where = ".".join(path)
        token: object = node[ANNOTATION]
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return f"property {where!r}: {ANNOTATION} is not a valid header name"
        if node.get("type") not in _TYPES:
            return f"property {where!r}: {ANNOTATION} needs one of the types {', '.join(_TYPES)}"
        if token.lower() in seen:
            return f"properties {seen[token.lower()]!r} and {where!r} have the same {ANNOTATION}"
        seen[token.lower()] = where
    return None


def annotations_of(schema: object) -> tuple[Annotation, ...]:
    """The annotations of a schema; none if one of them is invalid, since clients don't offer such a tool at all."""
    if invalid_annotation(schema) is not None:
        return ()
    return tuple(
        Annotation(path, PARAM_PREFIX + cast("str", node[ANNOTATION]), node.get("type") == "integer")
        for path, node in _schemas(schema)
        if path and ANNOTATION in node
    )


def headers_for(annotations: Iterable[Annotation], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that go with a call, in the spelling of the annotations."""
    headers: dict[str, str] = {}
    for annotation in annotations:
        text = _render(annotation.value_in(arguments))
        if text is not None:
            headers[annotation.header] = encode_value(text)
    return headers


def check_param_headers(
    annotations: Collection[Annotation],
    arguments: Mapping[str, Any],
    headers: Mapping[str, str],
    repeated: Collection[str] = (),
) -> dict[str, Any] | None:
    """The error for the first header that contradicts its argument; None: all agree.

    Args:
        headers: by lower-case names.
        repeated: lower-case names of headers that came more than once.
    """
    for annotation in annotations:
        key = annotation.header.lower()
        if (fault := _fault(annotation, arguments, headers.get(key), repeated=key in repeated)) is not None:
            return mismatch(f"the {annotation.header} header {fault}")
    return None


def _fault(annotation: Annotation, arguments: Mapping[str, Any], header: str | None, *, repeated: bool) -> str | None:
    if repeated and header is not None:
        return "was sent more than once"
    argument = ".".join(annotation.path)
    value = annotation.value_in(arguments)
    text = _render(value)
    if text is None:
        # A router may have acted on a value that the tool never gets.
        return f"was sent, but the argument {argument!r} was not" if header is not None else None
    if header is None:
        return f"is missing: it must repeat the argument {argument!r}"
    said = decode_value(header)
    if said is None:
        return "is not canonical base64 of UTF-8"
    same = said == text or (annotation.whole and _same_number(value, said))
    return None if same else f"does not match the argument {argument!r}: send the same value in both"


def _render(value: object) -> str | None:
    """A scalar as a client writes it; None for values without a header: null, objects, lists, over-long integers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return str(value)
    except ValueError:
        return None


def _same_number(value: object, said: str) -> bool:
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
        return False
    match = _DECIMAL.fullmatch(said)
    try:
        return match is not None and int(match[1]) == int(value)
    except ValueError:
        return False


def _schemas(root: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within a schema, and the path of `properties` that leads to it; None: another keyword is on the way.

    References are not followed and there is no recursion, so that the walk ends whatever a server sends.
    """
    waiting: list[tuple[tuple[str, ...] | None, object]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        schema = cast("dict[str, Any]", node)
        yield path, schema
        for keyword, value in schema.items():
            waiting += _below(path, keyword, value)


def _below(path: tuple[str, ...] | None, keyword: str, value: object) -> list[tuple[tuple[str, ...] | None, object]]:
    if keyword == "properties" and isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return [(None if path is None else (*path, name), below) for name, below in table.items()]
    if keyword in _ONE:
        return [(None, value)]
    if keyword in _LIST and isinstance(value, list):
        return [(None, below) for below in cast("list[object]", value)]
    if keyword in _TABLE and isinstance(value, dict):
        return [(None, below) for below in cast("dict[str, object]", value).values()]
    return []
