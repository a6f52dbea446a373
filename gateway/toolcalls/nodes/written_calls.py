"""Calls that were read whole before any of them is reported: they are calls only if they fit the request's tools.

Turns the text of a JSON object into the calls that it is, and calls that fit into events. Knows nothing of where they
stand in a message.
"""

import json
import re
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

from gateway.toolcalls.nodes.quoted import LONE_SURROGATE
from gateway.toolcalls.schema.kinds import mapping_of
from gateway.toolcalls.schema.validate import validate_call
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor

NAMES: Final = ("name", "tool_name", "tool", "function", "action")
ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
AROUND: Final = ("function", "function_call", "tool_call", "tool_calls")
"""Keys of an object around a call, or around a list of calls."""
BESIDE: Final = ("type", "id")
_KEYS = {*NAMES, *ARGUMENTS, *BESIDE}
_MAX_AROUND = 3
"""Most objects around a call: each is read again inside the next."""
_BLANK = re.compile(r"[ \t\r\n]*+")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as it was read. `arguments` is None where they are no object; `source` is their text."""

    name: str
    arguments: dict[str, Any] | None
    source: str
    repaired: str = ""
    """What was repaired in its text, if anything was and the client is told."""

    def fits(self, at: Cursor) -> bool:
        """Whether it calls a tool of the request, with arguments that fit the tool's schema."""
        tool = at.tools.get(self.name)
        return tool is not None and self.arguments is not None and not validate_call(tool, self.arguments)


def report_calls(at: Cursor, calls: list[WrittenCall]) -> bool:
    """Report the calls of the open region and close it; return whether it was markup."""
    for call in calls:
        at.begin_call()
        at.calls.named(call.name)
        at.start_call()
        at.calls.argue(json.dumps(call.arguments) if LONE_SURROGATE.search(call.source) else call.source)
        if call.repaired:
            at.calls.repair(call.repaired)
        at.calls.complete()
    return at.close_region()


def loaded(text: str) -> object:
    """Return the value of a JSON text. Raises ValueError for what JSON can't say again: NaN, numbers beyond a float."""
    value: object = json.loads(text)
    json.dumps(value, allow_nan=False)
    return value


def calls_in(text: str) -> list[WrittenCall]:
    """Return the calls that a whole JSON object is; none for any other object."""
    try:
        return _called(text, _MAX_AROUND)
    except (ValueError, RecursionError):
        return []


def _called(text: str, levels: int) -> list[WrittenCall]:
    """Return the calls of an object within at most so many others. Raises ValueError for arguments that are no JSON."""
    members = mapping_of(loaded(text))
    # Numbers may have more digits than a value of Python keeps, so the text itself is passed on.
    sources = _sources(text) if members else {}
    for key in AROUND:
        if isinstance(held := members.get(key), dict | list):
            inner = _sources(sources[key]).values() if isinstance(held, list) else [sources[key]]
            found = [_called(each, levels - 1) for each in inner] if levels else []
            return [*chain(*found)] if all(found) and {*members} <= {key, *BESIDE} else []
    names = [members[key] for key in NAMES if key in members]
    key = next((key for key in ARGUMENTS if key in members), "")
    if members.get(key) is None or len(names) != 1 or not isinstance(names[0], str) or not {*members} <= _KEYS:
        return []
    arguments, source = members[key], sources[key]
    if isinstance(arguments, str) and arguments.strip(WHITESPACE).startswith("{"):
        source = arguments.strip(WHITESPACE)
        arguments = loaded(source)
    return [WrittenCall(names[0], cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None, source)]


def _sources(text: str) -> dict[str, str]:
    """Return the text of each value of a whole JSON object, by its key, or of a list, by its number."""
    found: dict[str, str] = {}
    start = _behind_space(text, 0)
    is_object, at = text[start] == "{", _behind_space(text, start + 1)
    while text[at] not in "}]":
        key = str(len(found))
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _behind_space(text, text.index(":", at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        found[key] = text[at:end]
        at = _behind_space(text, end)
        at = _behind_space(text, at + 1) if text[at] == "," else at
    return found


def _behind_space(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
