"""Calls that a model writes as plain JSON where its format has markers: a bare or fenced object, or a list of them.

Such JSON is a call where it ends the message, names a tool of the request and brings arguments that fit the tool's
schema. Everything else stays content: JSON is often what the user asked for. Text is held only as long as it can still
be such a call.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from gateway.toolcalls.nodes.combinators import pick
from gateway.toolcalls.nodes.quoted import LONE_SURROGATE
from gateway.toolcalls.nodes.readers import Lit, Steps, read_space, take_one
from gateway.toolcalls.nodes.reading import JsonReading
from gateway.toolcalls.nodes.regions import RegionTooLong
from gateway.toolcalls.schema.validate import validate_call
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.values.json_scanner import Scan

OPENERS = ("```", "[{", "{")
"""What such text begins with."""

MAX_HELD = 1 << 16
"""Most characters of JSON that are held; a longer object is content."""

_FENCE = "```"
_LANGUAGE = re.compile(r"[A-Za-z_]{0,12}+")
_NAMES, _ARGUMENTS = ("name", "tool_name"), ("arguments", "parameters")
_KEYS = {*_NAMES, *_ARGUMENTS, "function", "type", "id"}
_MAX_BEGINNING = 512
_SPACE = r"[ \t\r\n]*+"
_BLANK = re.compile(_SPACE)
_DECODER = json.JSONDecoder()
_BEGINNING = re.compile(
    rf"""\{{{_SPACE}(?:\{{{_SPACE})?["']?(?P<key>\w++)["']?{_SPACE}:{_SPACE}(?P<value>["'][^"']*+["'])?"""
)
_BEGUN = re.compile(
    rf"""\{{{_SPACE}(?:\{{{_SPACE})?(?:["']?(?P<key>\w*+)(?:["']?{_SPACE}(?::{_SPACE}(?:["'][^"']*+)?)?)?)?\Z"""
)


@dataclass(frozen=True, slots=True)
class _Written:
    """A call as it was read. `arguments` is None where they are no object; `source` is their text."""

    name: str
    arguments: dict[str, Any] | None
    source: str


def read_lookalike(lead: str, at: Cursor, markers: tuple[str, ...]) -> Steps:
    """Read calls that begin here, behind a `lead`; without any, what was read is content. `markers` may follow them."""
    at.open_region(lead, markers)
    at.begin_call()
    found: list[_Written] = []
    try:
        ends = yield from _read(at, tuple(map(Lit, markers)), found)
    except RegionTooLong:
        ends = at.lookalikes = False
    if found and ends and all(_fits(at, call) for call in found):
        for call in found:
            at.begin_call()
            at.calls.named(call.name)
            at.start_call()
            # Numbers may have more digits than a value of Python keeps, so the text itself is passed on.
            at.calls.argue(json.dumps(call.arguments) if LONE_SURROGATE.search(call.source) else call.source)
            at.calls.complete()
        return at.close_region()
    at.withdraw_region()
    if named := next((call.name for call in found if call.name in at.tools), ""):
        message = f"the answer looks like a call of {named!r} in another format; if it is one, set `tool_format`"
        at.calls.abandon("lookalike", message)
    return False


def _read(at: Cursor, markers: tuple[Lit, ...], found: list[_Written]) -> Steps:
    """Read all calls; return whether the message may end after them."""
    while True:
        if not (yield from _read_block(at, found)):
            return False
        yield from read_space(at)
        while marker := (yield from pick(at, markers)):
            yield from marker.run(at)
            yield from read_space(at)
        if not at.unread:
            return True
        if (yield from pick(at, tuple(map(Lit, OPENERS)))) is None:
            return False


def _read_block(at: Cursor, found: list[_Written]) -> Steps:
    """Read an object, or a list of them, and the fence around it."""
    fenced = (yield from pick(at, (Lit(_FENCE),))) is not None
    if fenced:
        at.take(at.position + len(_FENCE))
        while (language := _LANGUAGE.match(at.buffer, at.position)) and language.end() == len(at.buffer):
            if at.ended:
                return False
            yield
        at.take(language.end() if language else at.position)
        yield from read_space(at)
    listed = bool(take_one(at, "["))
    while True:
        yield from read_space(at)
        if not (yield from _read_object(at, found)):
            return False
        yield from read_space(at)
        if not (listed and take_one(at, ",")):
            break
    if listed and not take_one(at, "]"):
        return False
    if fenced:
        yield from read_space(at)
        return not at.unread or (yield from Lit(_FENCE).run(at))
    return True


def _read_object(at: Cursor, found: list[_Written]) -> Steps:
    if not (yield from _begins_call(at)):
        # So that what follows is looked at anew.
        take_one(at, "{")
        return False
    reading, held = JsonReading(at), ""
    while True:
        held += reading.read()
        if len(held) > MAX_HELD:
            at.lookalikes = False
            return False
        if reading.state is not Scan.MORE or at.ended:
            break
        yield
    calls = list(_calls_in(held)) if reading.state is Scan.WHOLE and not LONE_SURROGATE.search(held) else []
    found += calls
    return bool(calls)


def _begins_call(at: Cursor) -> Steps:
    """Whether the object that begins here has a call's first key, and where that is the name, a tool's name."""
    while True:
        window = at.buffer[at.position : at.position + _MAX_BEGINNING]
        at.scanned += len(window)
        begun = _BEGUN.match(window)
        if begun is None or at.ended or len(window) == _MAX_BEGINNING:
            break
        if begun["key"] and not any(key.startswith(begun["key"]) for key in _KEYS):
            return False
        yield
    found = _BEGINNING.match(window)
    if found is None or found["key"] not in _KEYS:
        return False
    return found["key"] not in _NAMES or (found["value"] or "")[1:-1] in at.tools


def _loaded(text: str) -> object:
    """Raises ValueError for what JSON can't say again: NaN, and numbers beyond a float."""
    value: object = json.loads(text)
    json.dumps(value, allow_nan=False)
    return value


def _calls_in(text: str) -> Iterator[_Written]:
    """Yield the call that a whole JSON object is; nothing for any other object."""
    try:
        value = cast("dict[str, Any]", _loaded(text))
    except (ValueError, RecursionError):
        return
    inner = value.get("function", value)
    if not isinstance(inner, dict) or not ({*value} | {*inner}) <= _KEYS:
        return
    members = cast("dict[str, Any]", inner)
    names = [members[key] for key in _NAMES if key in members]
    key = next((key for key in _ARGUMENTS if key in members), "")
    arguments: Any = members.get(key)
    if arguments is None or len(names) != 1 or not isinstance(names[0], str):
        return
    if isinstance(arguments, str):
        source = arguments.strip(WHITESPACE)
        try:
            arguments = _loaded(source) if source.startswith("{") else None
        except (ValueError, RecursionError):
            return
    else:
        source = _sources(_sources(text)["function"] if inner is not value else text)[key]
    yield _Written(names[0], cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None, source)


def _sources(text: str) -> dict[str, str]:
    """Return the text of each member's value of a whole JSON object, by the members' keys."""
    found: dict[str, str] = {}
    at = _behind_space(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _behind_space(text, text.index(":", at) + 1)
        _, at = _DECODER.raw_decode(text, start)
        found[key] = text[start:at]
        at = _behind_space(text, at)
        at = _behind_space(text, at + 1) if text[at] == "," else at
    return found


def _behind_space(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _fits(at: Cursor, call: _Written) -> bool:
    tool = at.tools.get(call.name)
    return tool is not None and call.arguments is not None and not validate_call(tool, call.arguments)
