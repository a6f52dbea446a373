"""What is wrong with an item of a server's list, and the fields of an object, each read by its own rule.

Turns a JSON object and a reader for each of its known fields into the same object, or a copy without what can't be
read. A reader returns the value itself if it is fine, another one, or `GONE`; it notes why. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_core import to_json

from gateway.observe.escape import escape_text

_VALUE: Final = 60
_FIELD: Final = 120
_MOST: Final = 100
"""Flaws of one item that are noted, at most: a list may hold a million odd values."""
GONE: Final = object()
"""What a reader returns for a field that is dropped."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with one field of one item, and what became of it."""

    field: str
    """The field, after the fields that it is inside of, with dots between them; empty: the item itself."""
    reason: str
    left_out: bool = False
    """Whether the whole item is left out."""


Reader = Callable[[object, str, list[Flaw]], object]


def dropped(value: object, at: str, expected: str, flaws: list[Flaw]) -> object:
    """Note that a field is dropped, and return `GONE`."""
    if len(flaws) < _MOST:
        flaws.append(Flaw(at, f"expected {expected}, got {shown(value)}; the field is dropped"))
    return GONE


def mended(value: object, at: str, expected: str, flaws: list[Flaw], instead: object) -> Any:
    """Note that a field is read as something else, and return that."""
    if len(flaws) < _MOST:
        flaws.append(Flaw(at, f"expected {expected}, got {shown(value)}; it is read as {shown(instead)}"))
    return instead


def unusable(value: object, at: str, expected: str, flaws: list[Flaw]) -> object:
    """Note that the item is left out for this field, and return the value."""
    if len(flaws) < _MOST or not flaws[-1].left_out:
        flaws.append(Flaw(at, f"expected {expected}, got {shown(value)}", left_out=True))
    return value


def shown(value: object) -> str:
    """A JSON value in a few characters."""
    if value is GONE:
        return "nothing"
    if isinstance(value, str):
        return escape_text(repr(value[: 2 * _VALUE]), _VALUE)
    if isinstance(value, list | dict) and len(cast("list[object]", value)) > _VALUE:
        return "a long list" if isinstance(value, list) else "a large object"
    return escape_text(to_json(value, inf_nan_mode="constants").decode("utf-8", "replace"), _VALUE)


def inside(at: str, name: str) -> str:
    """Where a field of an object is."""
    return escape_text(f"{at}.{name}" if at else name, _FIELD)


def object_in(value: object) -> dict[str, Any] | None:
    """The value if it is an object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def list_in(value: object) -> list[object] | None:
    """The value if it is a list."""
    return cast("list[object]", value) if isinstance(value, list) else None


def read_fields(found: dict[str, Any], readers: Mapping[str, Reader], at: str, flaws: list[Flaw]) -> dict[str, Any]:
    """The object with each known field as its reader returns it; the same object if nothing is to be changed."""
    result = found
    for name, read in readers.items():
        if name not in found:
            continue
        value = read(found[name], inside(at, name), flaws)
        if value is found[name]:
            continue
        if result is found:
            result = dict(found)
        if value is GONE:
            del result[name]
        else:
            result[name] = value
    return result


def read_items(found: list[object], read: Reader, at: str, flaws: list[Flaw]) -> list[object]:
    """The list with each item as its reader returns it; the same list if nothing is to be changed."""
    result = [read(each, f"{at}[{number}]", flaws) for number, each in enumerate(found)]
    if all(new is old for new, old in zip(result, found, strict=True)):
        return found
    return [each for each in result if each is not GONE]


def text(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read an optional string."""
    return value if isinstance(value, str) else dropped(value, at, "a string", flaws)


def flag(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read an optional boolean."""
    return value if isinstance(value, bool) else dropped(value, at, "true or false", flaws)


def required_text(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read a string without which the item is of no use."""
    return value if isinstance(value, str) else unusable(value, at, "a string", flaws)


def fields(readers: Mapping[str, Reader]) -> Reader:
    """A reader of an optional object with these fields."""

    def read(value: object, at: str, flaws: list[Flaw]) -> object:
        found = object_in(value)
        return dropped(value, at, "an object", flaws) if found is None else read_fields(found, readers, at, flaws)

    return read
