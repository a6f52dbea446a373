"""JSON to checked fields: the checks that every part of a map needs.

An error names the field that is wrong, a refusal names what can't be reproduced exactly. Knows nothing of what a
tokenizer is.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, cast

from leaf_sdk.errors import MapUnsupported, NotAMap

MAX_ID = 2**32 - 1


def json_object(data: bytes, expected: str) -> dict[str, Any]:
    """Parse bytes that must be a JSON object. Raises `NotAMap`: they are not; the message says what was `expected`."""
    try:
        # Decoded strictly first: the parser itself would let surrogates in the bytes through.
        parsed: object = json.loads(data.decode("utf-8-sig" if data.startswith(BOM_UTF8) else "utf-8"))
    except (ValueError, RecursionError) as error:
        raise NotAMap(f"the bytes are not JSON ({error}), expected {expected}; is this the right file?") from error
    if not isinstance(parsed, dict):
        raise NotAMap(f"the JSON is a {type(parsed).__name__}, expected {expected} (an object)")
    return cast("dict[str, Any]", parsed)


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object as it is, or an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return a JSON list as it is, or an empty one for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """Return a required text."""
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise NotAMap(f"{key} is {value!r}, expected text that is not empty")
    return value


def ids_of(fields: Mapping[str, Any], key: str) -> dict[str, int]:
    """Return a table of tokens and ids; the key must be there."""
    value = fields[key]
    if not isinstance(value, dict):
        raise NotAMap(f"{key} is a {type(value).__name__}, expected {{token: id}}")
    table = cast("dict[str, Any]", value)
    # Checked all at once; only a table that fails is searched for the wrong entry.
    numbers = table.values()
    if table and (set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > MAX_ID or "" in table):
        _name_the_wrong_one(table, key)
    return table


def _name_the_wrong_one(table: Mapping[str, Any], key: str) -> None:
    for token, token_id in table.items():
        if type(token_id) is not int or not 0 <= token_id <= MAX_ID:
            raise NotAMap(f"{key}[{token!r}] is {token_id!r}, expected an id from 0 to {MAX_ID}")
        if not token:
            raise NotAMap(f"{key} holds an empty token with id {token_id}, expected every token to have text")


def refused(what: str, why: str) -> MapUnsupported:
    """Return the error for a real map that can't be reproduced exactly."""
    return MapUnsupported(f"{what} is refused: {why}", what=what)


def inexact(what: str, expected: str) -> MapUnsupported:
    """Return the error for a part of a tokenizer that can't be reproduced exactly."""
    return MapUnsupported(f"{what} can't be reproduced exactly, expected {expected}", what=what)
