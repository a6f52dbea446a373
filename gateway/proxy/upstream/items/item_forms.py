"""The items that a server lists (tools, prompts, resources, templates), in the form that strict clients read.

Turns one item as it came into one that the official SDKs accept, and notes what was changed: they refuse a whole list
for one field that they can't read. An optional field that can't be read is dropped, an empty list becomes an empty
object where PHP means one, and an item that can't be mended is left out. An item that is fine is returned as it is.
Sources: the schemas of MCP 2025-11-25 and 2026-07-28, the types of the TypeScript SDK 1.32 and the Python SDK.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, Final, Literal

from pydantic_core import Url

from gateway.proxy.upstream.items.item_flaws import (
    GONE,
    Flaw,
    Reader,
    dropped,
    fields,
    flag,
    list_in,
    mended,
    object_in,
    read_fields,
    read_items,
    required_text,
    text,
    unusable,
)
from gateway.proxy.upstream.items.schema_forms import read_input_schema, read_output_schema

Kind = Literal["tools", "prompts", "resources", "templates"]
KEYS: Final[Mapping[Kind, str]] = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}
"""The field that names an item."""
_FLAWS: Final = 8
"""Flaws of one item that are told, at most."""
_ROLES: Final = ("user", "assistant")
_EXACT: Final = 2**53
"""From here on, integers are not exact in JavaScript."""
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)


def read_item(kind: Kind, item: object, flaws: list[Flaw], *, modern: bool) -> dict[str, Any] | None:
    """Return the item in a form that clients accept; None if it is left out. Add what is wrong with it to `flaws`.

    `modern`: it was listed in the modern era, whose output schemas may describe any JSON value.
    """
    if (found := object_in(item)) is None:
        unusable(item, "", "an object", flaws)
        return None
    missing = {name: GONE for name in _REQUIRED[kind] if name not in found}
    complete = {**found, **missing} if missing else found
    if kind in ("resources", "templates") and not isinstance(complete["name"], str):
        complete = {**complete, "name": _name_for(complete, KEYS[kind], flaws)}
    result = read_fields(complete, _MODERN_TOOL if modern and kind == "tools" else _READERS[kind], "", flaws)
    left_out = any(flaw.left_out for flaw in flaws)
    # What is wrong first with an item that is left out is why it is.
    flaws.sort(key=lambda flaw: not flaw.left_out)
    del flaws[_FLAWS:]
    return None if left_out else result


def _name_for(item: dict[str, Any], key: str, flaws: list[Flaw]) -> object:
    """The name of a resource that has none."""
    instead = next((item[each] for each in ("title", key) if isinstance(item.get(each), str)), None)
    return item["name"] if instead is None else mended(item["name"], "name", "a string", flaws, instead)


def _uri(value: object, at: str, flaws: list[Flaw]) -> object:
    if isinstance(value, str):
        try:
            Url(value)
        except ValueError:
            pass
        else:
            return value
    return unusable(value, at, "a URI with a scheme", flaws)


def _text_list(value: object, at: str, flaws: list[Flaw]) -> object:
    if isinstance(value, str):
        return mended(value, at, "a list of strings", flaws, [value])
    texts = list_in(value)
    if texts is None or not all(isinstance(each, str) for each in texts):
        return dropped(value, at, "a list of strings", flaws)
    return texts


def _one_of(*words: str) -> Reader:
    def read(value: object, at: str, flaws: list[Flaw]) -> object:
        return value if value in words else dropped(value, at, f"one of {', '.join(words)}", flaws)

    return read


def _audience(value: object, at: str, flaws: list[Flaw]) -> object:
    roles = list_in(value)
    if roles is None or not all(each in _ROLES for each in roles):
        return dropped(value, at, f"a list of {' and '.join(_ROLES)}", flaws)
    return roles


def _priority(value: object, at: str, flaws: list[Flaw]) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return value
    return dropped(value, at, "a number from 0 to 1", flaws)


def _moment(value: object, at: str, flaws: list[Flaw]) -> object:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    try:
        if found is not None and date.fromisoformat(found[1]):
            return value
    except ValueError:
        pass
    return dropped(value, at, "a time as in 2026-01-31T09:00:00Z", flaws)


def _size(value: object, at: str, flaws: list[Flaw]) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool) or not -_EXACT < value < _EXACT:
        return dropped(value, at, "a number of bytes", flaws)
    if value == int(value):
        return value
    return dropped(value, at, "a number of bytes", flaws)


def _icons(value: object, at: str, flaws: list[Flaw]) -> object:
    icons = list_in(value)
    if icons is None:
        return dropped(value, at, "a list of icons", flaws)
    read = read_items(icons, _icon, at, flaws)
    return read if read or not icons else GONE


def _icon(value: object, at: str, flaws: list[Flaw]) -> object:
    icon = object_in(value)
    if icon is None or not isinstance(icon.get("src"), str):
        return dropped(value, at, "an icon with a src", flaws)
    return read_fields(icon, _ICON, at, flaws)


def _arguments(value: object, at: str, flaws: list[Flaw]) -> object:
    """The arguments of a prompt."""
    if value is None or value == {}:
        return dropped(value, at, "a list of arguments", flaws)
    arguments = list_in(value)
    if arguments is None:
        return unusable(value, at, "a list of arguments", flaws)
    return read_items(arguments, _argument, at, flaws)


def _argument(value: object, at: str, flaws: list[Flaw]) -> object:
    argument = object_in(value)
    if argument is None or not isinstance(argument.get("name"), str):
        return unusable(value, at, "an argument with a name", flaws)
    return read_fields(argument, _ARGUMENT, at, flaws)


_WORDS: Final[Mapping[str, Reader]] = {"title": text, "description": text, "icons": _icons, "_meta": fields({})}
_ICON: Final[Mapping[str, Reader]] = {"mimeType": text, "sizes": _text_list, "theme": _one_of("light", "dark")}
_ARGUMENT: Final[Mapping[str, Reader]] = {"title": text, "description": text, "required": flag}
_HINTS: Final[Mapping[str, Reader]] = {
    "title": text,
    **dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), flag),
}
_DATA: Final[Mapping[str, Reader]] = {
    **_WORDS,
    "name": required_text,
    "mimeType": text,
    "annotations": fields({"audience": _audience, "priority": _priority, "lastModified": _moment}),
}
_TOOL: Final[Mapping[str, Reader]] = {
    **_WORDS,
    "name": required_text,
    "inputSchema": read_input_schema,
    "annotations": fields(_HINTS),
    "execution": fields({"taskSupport": _one_of("required", "optional", "forbidden")}),
}
_MODERN_TOOL: Final[Mapping[str, Reader]] = {**_TOOL, "outputSchema": read_output_schema(any_type=True)}
_READERS: Final[Mapping[Kind, Mapping[str, Reader]]] = {
    "tools": {**_TOOL, "outputSchema": read_output_schema(any_type=False)},
    "prompts": {**_WORDS, "name": required_text, "arguments": _arguments},
    "resources": {**_DATA, "uri": _uri, "size": _size},
    "templates": {**_DATA, "uriTemplate": required_text},
}
_REQUIRED: Final[Mapping[Kind, tuple[str, ...]]] = {
    "tools": ("name", "inputSchema"),
    "prompts": ("name",),
    "resources": ("uri", "name"),
    "templates": ("uriTemplate", "name"),
}
