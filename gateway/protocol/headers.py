"""The HTTP headers of 2026-07-28, which repeat parts of the body so that a router need not read it.

Turns a request into the headers that must go with it, and headers with a body into the error to send where the two
disagree (Streamable HTTP, "Request Metadata"). Header names must be in lower case, and values without surrounding
blanks: the HTTP server sees to that. Pure; it knows no server and no tool. The rule for a tool's own parameters is
below.
"""

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from gateway.protocol.eras import CAPABILITIES_KEY, MODERN_VERSIONS, VERSION_KEY, excess_of_capabilities, meta_of
from gateway.protocol.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
ROUTING_HEADERS: Final = (VERSION_HEADER, METHOD_HEADER, NAME_HEADER)
"""Each of these may come only once: of two copies, two readers could take different ones."""
NAMED_BY: Final[Mapping[str, str]] = MappingProxyType(
    {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
)
"""The param that `Mcp-Name` repeats, by method."""
ERROR_STATUS: Final[Mapping[int, int]] = MappingProxyType(
    {
        PARSE_ERROR: 400,
        INVALID_REQUEST: 400,
        INVALID_PARAMS: 400,
        HEADER_MISMATCH: 400,
        MISSING_CAPABILITY: 400,
        UNSUPPORTED_VERSION: 400,
        METHOD_NOT_FOUND: 404,
    }
)
"""HTTP status of an answer, by its error code; every other code is sent with 200."""

_PLAIN: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=")


def encode_value(value: str) -> str:
    """A text as the value of a header: as it is, or in base64 if a header can't carry it ("Value Encoding"). Raises
    `UnicodeEncodeError`: the text holds half a surrogate pair, which no JSON that we read does."""
    if _PLAIN.fullmatch(value) and not _SENTINEL.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_value(value: str) -> str | None:
    """The text that the value of a header stands for; None if it is base64, but not canonical base64 of UTF-8."""
    if not value.startswith("=?") or (match := _SENTINEL.fullmatch(value)) is None:
        return value
    try:
        data = base64.b64decode(match[1], validate=True)
        text = data.decode()
    except ValueError:
        return None
    # Two spellings of one value would let a router and the server read different things.
    return text if base64.b64encode(data).decode() == match[1] else None


def routing_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request besides that of the version: `Mcp-Method`, and `Mcp-Name` if the method has one."""
    headers = {METHOD_HEADER: method}
    key = NAMED_BY.get(method)
    if key is not None and isinstance(name := params.get(key), str):
        headers[NAME_HEADER] = encode_value(name)
    return headers


def mismatch(message: str) -> dict[str, Any]:
    """The error for headers that the body contradicts."""
    return {"code": HEADER_MISMATCH, "message": message}


def unsupported(requested: str) -> dict[str, Any]:
    """The error for a version that we don't speak. It lists the same versions as `server/discover`, newest first.

    Handshake-era versions are not among them: only `initialize` can ask for one, no other request.
    """
    data = {"supported": [*reversed(MODERN_VERSIONS)], "requested": requested}
    return {"code": UNSUPPORTED_VERSION, "message": "Unsupported protocol version", "data": data}


def check_envelope(
    method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """The error for the envelope of a modern request; None: the envelope is valid.

    Missing keys are checked first, then the headers, then the version: a client whose headers and body disagree is told
    that, and not that its version is unknown.

    Args:
        headers: None if the request did not come over HTTP.
    """
    fields = meta_of(params)
    if VERSION_KEY not in fields or CAPABILITIES_KEY not in fields:
        missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in fields]
        return _invalid(f"params._meta lacks {' and '.join(map(repr, missing))}: every request must have both")
    version: object = fields[VERSION_KEY]
    if headers is not None and (error := _check_routing(method, params, version, headers)) is not None:
        return error
    if not isinstance(version, str):
        return _invalid(f"{VERSION_KEY!r} must be a string")
    if version not in MODERN_VERSIONS:
        return unsupported(version)
    capabilities: object = fields[CAPABILITIES_KEY]
    if not isinstance(capabilities, dict):
        return _invalid(f"{CAPABILITIES_KEY!r} must be an object")
    if not capabilities or (why := excess_of_capabilities(cast("dict[str, Any]", capabilities))) is None:
        return None
    return _invalid(f"{CAPABILITIES_KEY!r}: {why}: announce less")


def _check_routing(
    method: str, params: Mapping[str, Any], version: object, headers: Mapping[str, str]
) -> dict[str, Any] | None:
    given = headers.get(VERSION_HEADER)
    if given is None or given != version:
        return mismatch(
            f"the {VERSION_HEADER} header does not match {VERSION_KEY!r} of the body: send the same in both"
        )
    if headers.get(METHOD_HEADER) != method:
        return mismatch(f"the {METHOD_HEADER} header does not match the body's method: send the same in both")
    key = NAMED_BY.get(method)
    if key is None or (name := params.get(key)) is None:
        return None
    if (header := headers.get(NAME_HEADER)) is None or decode_value(header) != name:
        return mismatch(f"the {NAME_HEADER} header does not match params.{key} of the body: send the same in both")
    return None


def _invalid(message: str) -> dict[str, Any]:
    return {"code": INVALID_PARAMS, "message": message}


# Streamable HTTP of 2026-07-28, "Custom Headers from Tool Parameters": arguments are repeated in `Mcp-Param-*` headers
# where the tool's input schema says so (`x-mcp-header`).

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
    """The error for the first header that contradicts its argument; None: all agree. `headers`: by lower-case names.
    `repeated`: lower-case names of headers that came more than once."""
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
