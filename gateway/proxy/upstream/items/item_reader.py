"""Reads everything that one server lists, so that one malformed item costs only itself.

Turns the items of a list as they came into those that clients can read, and what is wrong with the others into a log
line for each item and field, once, and into entries for `status` and `doctor`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic_core import Url

from gateway.config.gateway_config import UpstreamConfig
from gateway.escape import cut_text, escape_text
from gateway.observe.logs import get_logger
from gateway.protocol.headers import invalid_annotation
from gateway.proxy.upstream.items.item_flaws import (
    GONE,
    FieldReader,
    Flaw,
    dropped,
    fields,
    flag,
    list_in,
    mended,
    object_in,
    read_fields,
    read_input_schema,
    read_items,
    read_output_schema,
    required_text,
    shown,
    text,
    unusable,
)

# Each warning about what one server lists is logged once, some by name for each listing, the rest as a number, since a
# server could list thousands of new ones every second.

Subject = TypeVar("Subject")
_LINES: Final = 20
"""Subjects that are logged by name for one listing."""
_REMEMBERED: Final = 10_000
"""Subjects remembered as logged, at most."""


class ListWarnings(Generic[Subject]):
    """What was logged about one server's lists."""

    def __init__(self, server: str, event: str, event_for_rest: str) -> None:
        """`event`: the log event for each subject. `event_for_rest`: the one for those that are only counted."""
        self._log = get_logger("gateway.proxy").bind(server=server)
        self._event = event
        self._event_for_rest = event_for_rest
        self._logged: set[Subject] = set()

    def warn(self, subjects: Sequence[Subject], fields: Callable[[Subject], Mapping[str, object]]) -> int:
        """Log those that were not logged before, with their `fields`. Return how many these are."""
        new = [each for each in subjects if each not in self._logged]
        if len(self._logged) + len(new) > _REMEMBERED:
            self._logged.clear()
        self._logged.update(new)
        for each in new[:_LINES]:
            self._log.warning(self._event, **fields(each))
        if len(new) > _LINES:
            self._log.warning(self._event_for_rest, count=len(new) - _LINES)
        return len(new)


# The official SDKs refuse a whole list for one field that they can't read. An optional field that can't be read is
# dropped, an empty list becomes an empty object where PHP means one, and an item that can't be mended is left out.
# Sources: the schemas of MCP 2025-11-25 and 2026-07-28, the types of the TypeScript SDK 1.32 and of the SDKs for
# Python, Rust, C# and Go.

ItemKind = Literal["tools", "prompts", "resources", "templates"]
KEYS: Final[Mapping[ItemKind, str]] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "templates": "uriTemplate",
}
"""The field that names an item."""
_FLAWS: Final = 8
"""Flaws of one item that are told, at most."""
_ROLES: Final = ("user", "assistant")
_SIZES: Final = 2**32
"""From here on, the Rust SDK reads no size."""
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)


def read_item(kind: ItemKind, item: object, flaws: list[Flaw], *, modern: bool) -> dict[str, Any] | None:
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


def _one_of(*words: str) -> FieldReader:
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
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _SIZES or value % 1:
        return dropped(value, at, "a number of bytes below 2^32", flaws)
    # Other languages read no `3.0` as an integer.
    return value if isinstance(value, int) else mended(value, at, "an integer", flaws, int(value))


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


_WORDS: Final[Mapping[str, FieldReader]] = {"title": text, "description": text, "icons": _icons, "_meta": fields({})}
_ICON: Final[Mapping[str, FieldReader]] = {"mimeType": text, "sizes": _text_list, "theme": _one_of("light", "dark")}
_ARGUMENT: Final[Mapping[str, FieldReader]] = {"title": text, "description": text, "required": flag}
_HINTS: Final[Mapping[str, FieldReader]] = {
    "title": text,
    **dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), flag),
}
_DATA: Final[Mapping[str, FieldReader]] = {
    **_WORDS,
    "name": required_text,
    "mimeType": text,
    "annotations": fields({"audience": _audience, "priority": _priority, "lastModified": _moment}),
}
_TOOL: Final[Mapping[str, FieldReader]] = {
    **_WORDS,
    "name": required_text,
    "inputSchema": read_input_schema,
    "annotations": fields(_HINTS),
    "execution": fields({"taskSupport": _one_of("required", "optional", "forbidden")}),
}
_MODERN_TOOL: Final[Mapping[str, FieldReader]] = {**_TOOL, "outputSchema": read_output_schema(any_type=True)}
_READERS: Final[Mapping[ItemKind, Mapping[str, FieldReader]]] = {
    "tools": {**_TOOL, "outputSchema": read_output_schema(any_type=False)},
    "prompts": {**_WORDS, "name": required_text, "arguments": _arguments},
    "resources": {**_DATA, "uri": _uri, "size": _size},
    "templates": {**_DATA, "uriTemplate": required_text},
}
_REQUIRED: Final[Mapping[ItemKind, tuple[str, ...]]] = {
    "tools": ("name", "inputSchema"),
    "prompts": ("name",),
    "resources": ("uri", "name"),
    "templates": ("uriTemplate", "name"),
}


_NAME: Final = 128
_REASON: Final = 300
_FOUND: Final = 1000
"""Malformed items that are kept, at most: each session may list others."""
_NONE: Final[Mapping[tuple[ItemKind, str], tuple[Flaw, ...]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MalformedField:
    """One field of one item that clients could not read as it came."""

    kind: ItemKind
    item: str
    """The item's name or URI; its place in the list if it has none."""
    field: str
    reason: str
    left_out: bool
    """Whether the item is left out of the list."""


class ItemReader:
    """Reads the lists of one server, and keeps what is wrong with them."""

    def __init__(self, server: str) -> None:
        self._found = _NONE
        self._warnings = ListWarnings[MalformedField](
            server, "a listed field is malformed", "more listed fields are malformed"
        )

    @property
    def malformed(self) -> tuple[MalformedField, ...]:
        """What is wrong with the items listed last."""
        return tuple(_told(kind, label, flaw) for (kind, label), flaws in self._found.items() for flaw in flaws)

    def why_left_out(self, kind: ItemKind) -> dict[str, str]:
        """The items that are left out of a list, and why."""
        return {
            label: f"{flaw.field or 'the item'}: {flaw.reason}"
            for (of, label), flaws in self._found.items()
            for flaw in flaws[:1]
            if of == kind and flaw.left_out
        }

    def read(self, kind: ItemKind, items: Sequence[object], *, modern: bool) -> list[dict[str, Any]]:
        """Return the items that clients can read, each as it came if nothing is wrong with it."""
        read: list[dict[str, Any]] = []
        found: dict[tuple[ItemKind, str], tuple[Flaw, ...]] = {}
        listed: set[tuple[ItemKind, str]] = set()
        for number, item in enumerate(items, start=1):
            flaws: list[Flaw] = []
            result = read_item(kind, item, flaws, modern=modern)
            key = kind, _label(kind, item, number)
            listed.add(key)
            if flaws:
                found[key] = tuple(flaws)
            if result is not None:
                read.append(result)
        if self._found:
            listed |= {(kind, _place(number)) for number in range(1, len(items) + 1)}
        # Each session has its own list, which may be shorter: an item stays malformed until it is seen to be fine.
        before = {key: flaws for key, flaws in self._found.items() if key not in listed}
        if found or len(before) != len(self._found):
            self._found = dict([*found.items(), *before.items()][:_FOUND])
        self._warnings.warn([_told(*key, flaw) for key, flaws in found.items() for flaw in flaws], _shown)
        return read

    def read_page(self, kind: ItemKind, field: str, page: Mapping[str, Any]) -> list[object]:
        """Return the items in one page of a list; none if the page holds no list."""
        value: object = page.get(field, GONE)
        if (items := list_in(value)) is not None:
            return items
        reason = f"expected a list, got {shown(value)}; it is read as an empty one"
        self._warn_of_list(kind, field, reason)
        return []

    def warn_unknown(self, kind: ItemKind, field: str, method: str) -> None:
        """Note that the server promises this list and does not know the method that asks for it."""
        reason = f"it promises this list, and refuses {method} as an unknown method; it is read as an empty one"
        self._warn_of_list(kind, field, reason)

    def read_cursor(self, kind: ItemKind, cursor: object, seen: Collection[str]) -> str | None:
        """Return the cursor of the next page; None if this page is the last. `seen`: the cursors before it."""
        is_known = isinstance(cursor, str) and cursor in seen
        if isinstance(cursor, str) and cursor and not is_known:
            return cursor
        if cursor is not None:
            why = f"{shown(cursor)} came before" if is_known else f"expected a cursor, got {shown(cursor)}"
            self._warn_of_list(kind, "nextCursor", f"{why}; the list is taken to end here")
        return None

    def _warn_of_list(self, kind: ItemKind, field: str, reason: str) -> None:
        self._warnings.warn([MalformedField(kind, "the list", field, reason, left_out=False)], _shown)


def _label(kind: ItemKind, item: object, number: int) -> str:
    name: object = (object_in(item) or {}).get(KEYS[kind])
    return cut_text(name, _NAME) if isinstance(name, str) else _place(number)


def _place(number: int) -> str:
    return f"number {number} in the list"


def _told(kind: ItemKind, label: str, flaw: Flaw) -> MalformedField:
    return MalformedField(kind, label, flaw.field, flaw.reason, flaw.left_out)


def _shown(subject: MalformedField) -> Mapping[str, object]:
    return {
        "list": subject.kind,
        "item": escape_text(subject.item, _NAME),
        "field": subject.field,
        "reason": escape_text(subject.reason, _REASON),
        "left_out": subject.left_out,
    }


# A client over Streamable HTTP leaves out a tool whose `x-mcp-header` annotations are invalid, and keeps the others
# (2026-07-28, "Custom Headers from Tool Parameters"). This depends on the transport and not on the era of a session, so
# that a server's tools are the same for all clients.

_NO_FAULTS: Final[Mapping[str, str]] = MappingProxyType({})


class ToolHeaders:
    """Checks the header annotations of one server's tools."""

    def __init__(self, config: UpstreamConfig) -> None:
        self.invalid = _NO_FAULTS
        """The tools that are not offered, by the server's own names, and why."""
        self._applies = config.transport == "http"
        self._warnings = ListWarnings[str](
            config.name,
            "a tool is not offered: the headers that it asks for are not valid",
            "more tools are not offered: their headers are not valid",
        )

    def screen(self, definitions: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return the definitions that may be shown."""
        if not self._applies:
            return definitions
        found = {item["name"]: why for item in definitions if (why := invalid_annotation(item.get("inputSchema")))}
        # Each session has its own list, which may be shorter: a tool stays invalid until it is seen valid.
        listed = {item["name"] for item in definitions}
        self.invalid = {**{name: why for name, why in self.invalid.items() if name not in listed}, **found}
        if not found:
            return definitions
        self._warnings.warn(list(found), self._shown)
        return [item for item in definitions if item["name"] not in found]

    def _shown(self, name: str) -> Mapping[str, str]:
        return {"tool": escape_text(name, _NAME), "reason": escape_text(self.invalid[name], _REASON)}
