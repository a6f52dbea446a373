"""What a server says that it offers, in the form that clients read.

Turns the `capabilities` of a server's answer into objects: `[]` and `true` are read as `{}`, as PHP and hand-written
servers mean them, and what is no capability is dropped. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

LISTED: Final[tuple[Literal["tools", "prompts", "resources"], ...]] = ("tools", "prompts", "resources")
_OBJECTS: Final = (*LISTED, "logging", "completions", "tasks", "experimental", "extensions")
_TABLES: Final = ("experimental", "extensions")
_FLAGS: Final = ("listChanged", "subscribe")


def read_capabilities(told: object) -> dict[str, Any]:
    """The capabilities of a server, each an object; fields that nobody knows stay as they are."""
    found = cast("dict[str, object]", told) if isinstance(told, dict) else {}
    read: dict[str, Any] = {}
    for name, value in found.items():
        offered = _offered(name, value)
        if offered is not None or name not in _OBJECTS:
            read[name] = value if offered is None else offered
    return read


def declares_lists(capabilities: Mapping[str, Any]) -> bool:
    """Whether there is anything that clients could list."""
    return any(kind in capabilities for kind in LISTED)


def _offered(name: str, value: object) -> dict[str, Any] | None:
    if name not in _OBJECTS:
        return None
    if value is True or value == []:
        return {}
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    if name in _TABLES:
        return {key: {} if each is True or each == [] else each for key, each in fields.items() if _is_table(each)}
    return {key: each for key, each in fields.items() if key not in _FLAGS or isinstance(each, bool)}


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or value is True or value == []
