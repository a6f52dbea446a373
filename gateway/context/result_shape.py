"""What a large result is, in a line: JSON with its keys, a table with its columns, or lines. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

MOST_PARSED: Final = 1024 * 1024
"""Characters of JSON that are parsed: even in a thread, the parser lets nothing else run."""
_MOST_KEYS: Final = 12
_MOST_CHARACTERS: Final = 40
_LONGEST: Final = 400
"""Characters of the whole: the line stands beside the result, whose room it takes."""
_SEEN_ROWS: Final = 4
"""Rows after the header that must have as many columns."""
_LONGEST_ROW: Final = 65_536
"""Characters: to split a longer one would stop all other work for a moment."""
_SEPARATORS: Final = ("\t", "|", ";", ",")
_KINDS: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def shape_of(text: str) -> str:
    """Return what a text is."""
    shape = _json_shape(text) or _table_shape(text) or f"text of {_lines(text)}"
    return shape if len(shape) <= _LONGEST else shape[:_LONGEST] + "..."


def _json_shape(text: str) -> str:
    if len(text) > MOST_PARSED or text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return f"JSON, {_described(value)}"
    members = cast("dict[str, Any]", value)
    return f"JSON, an object with {_listed([f'{_name(key)} ({_described(each)})' for key, each in members.items()])}"


def _described(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {_keys(cast('dict[str, Any]', value))}"
    if not isinstance(value, list):
        return _KINDS[type(value)]
    items = cast("list[Any]", value)
    first = f", the first one {_item(items[0])}" if items else ""
    return f"an array of {_counted(len(items), 'item')}{first}"


def _item(value: object) -> str:
    if isinstance(value, list):
        return f"an array of {_counted(len(cast('list[Any]', value)), 'item')}"
    return f"an object with {_keys(cast('dict[str, Any]', value))}" if isinstance(value, dict) else _described(value)


def _keys(value: dict[str, Any]) -> str:
    return "no keys" if not value else f"the keys {_listed(map(_name, value))}"


def _table_shape(text: str) -> str:
    lines = text.split("\n", _SEEN_ROWS + 1)[: _SEEN_ROWS + 1]
    if len(lines) <= _SEEN_ROWS or max(map(len, lines)) > _LONGEST_ROW:
        return ""
    for separator in _SEPARATORS:
        rows = [line.strip().strip("|").split(separator) for line in lines]
        if len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            columns = _listed(_name(column.strip().strip('"')) for column in rows[0])
            return f"table of {_lines(text)} with the columns {columns}"
    return ""


def _lines(text: str) -> str:
    return _counted(text.count("\n") + (not text.endswith("\n")), "line")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _listed(names: Iterable[str] | Sequence[str]) -> str:
    known = list(names)
    more = len(known) - _MOST_KEYS
    return ", ".join(known[:_MOST_KEYS]) + (f" and {more:,} more" if more > 0 else "")


def _name(text: str) -> str:
    """A name from outside, on one line and of bounded length."""
    # JSON can spell a lone surrogate, which can't be encoded.
    shown = " ".join(text.encode("utf-8", "replace").decode().split())
    return shown if len(shown) <= _MOST_CHARACTERS else shown[:_MOST_CHARACTERS] + "..."
