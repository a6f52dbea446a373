"""Calls that a model writes as plain JSON where its format has markers: an object, or a list, bare, fenced or in a tag.

Such JSON is a call where it ends the message, names a tool of the request and brings arguments that fit the tool's
schema. Everything else stays content: JSON is often what the user asked for. Text is held only as long as it can still
be such a call.
"""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from gateway.toolcalls.nodes.combinators import pick
from gateway.toolcalls.nodes.quoted import LONE_SURROGATE
from gateway.toolcalls.nodes.readers import MAX_WORD, Lit, Steps, read_space, take_one
from gateway.toolcalls.nodes.reading import JsonReading
from gateway.toolcalls.nodes.regions import RegionTooLong
from gateway.toolcalls.nodes.spare import skip_spare
from gateway.toolcalls.schema.kinds import mapping_of
from gateway.toolcalls.schema.merge import listed
from gateway.toolcalls.schema.validate import validate_call
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.values.json_scanner import Scan

_TAGS = ("tool_call", "tools", "tool", "function_call")
OPENERS = ("```", "~~~", "`{", "[{", "{", *(f"<{tag}>" for tag in _TAGS))
"""What such text begins with."""

MAX_HELD = 1 << 16
"""Most characters of JSON that are held; a longer object is content."""

_NAMES = ("name", "tool_name", "tool", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
_AROUND = ("function", "function_call", "tool_call", "tool_calls")
"""Keys of an object around a call, or around a list of calls."""
_BESIDE = ("type", "id")
_KEYS = {*_NAMES, *_ARGUMENTS, *_BESIDE}
_FIRST = {*_NAMES, *_ARGUMENTS[:2], *_AROUND, *_BESIDE}
"""The keys with which an object is taken for a call before it is whole."""
_MAX_BEGINNING = 512
_SPACE = r"[ \t\r\n]*+"
_OPENING = re.compile(
    rf"(?:(?P<fence>`{{1,8}}|~{{3,8}})[ \t]?[\w-]{{0,16}}+)?{_SPACE}(?:<(?P<tag>{'|'.join(_TAGS)})>{_SPACE})?"
)
_BEGINNING = re.compile(
    rf"""\{{{_SPACE}(?:\{{{_SPACE})?["']?(?P<key>\w++)["']?{_SPACE}:{_SPACE}(?P<value>["'][^"']*+["'])?"""
)
_BEGUN = re.compile(
    rf"""\{{{_SPACE}(?:\{{{_SPACE})?(?:["']?(?P<key>\w*+)(?:["']?{_SPACE}(?::{_SPACE}(?:["'][^"']*+)?)?)?)?\Z"""
)


@dataclass(frozen=True, slots=True)
class _Written:
    """A call as it was read. `arguments` is None where they are no object."""

    name: str
    arguments: dict[str, Any] | None


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
            told = json.dumps(call.arguments, ensure_ascii=False)
            at.calls.argue(json.dumps(call.arguments) if LONE_SURROGATE.search(told) else told)
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
        if take_one(at, ","):
            yield from read_space(at)
        if not at.unread:
            return True
        if (yield from pick(at, tuple(map(Lit, OPENERS)))) is None:
            return False


def _read_block(at: Cursor, found: list[_Written]) -> Steps:
    """Read an object, or a list of them, and the fence or the tag around it."""
    closers = yield from _read_opening(at)
    in_list = bool(take_one(at, "["))
    while True:
        yield from read_space(at)
        if not (yield from _read_object(at, closers, found)):
            return False
        yield from read_space(at)
        yield from skip_spare(at, (*closers, "{", ",", "]"), braces=True)
        if not (in_list and take_one(at, ",")):
            break
    if in_list and not take_one(at, "]"):
        return False
    for closer in closers:
        yield from read_space(at)
        if at.unread and not (yield from Lit(closer).run(at)):
            return False
    return True


def _read_opening(at: Cursor) -> Generator[None, None, tuple[str, ...]]:
    """Read a fence, a tag or both, and return what closes them."""
    while True:
        window = at.buffer[at.position : at.position + MAX_WORD]
        at.scanned += len(window)
        opening = _OPENING.match(window)
        end = opening.end() if opening else 0
        rest = window[end:]
        if at.ended or len(window) == MAX_WORD or not any(f"<{tag}>".startswith(rest) for tag in _TAGS):
            break
        yield
    at.take(at.position + end)
    fence, tag = opening.group("fence", "tag") if opening else (None, None)
    return tuple(filter(None, (tag and f"</{tag}>", fence)))


def _read_object(at: Cursor, closers: tuple[str, ...], found: list[_Written]) -> Steps:
    if not (yield from _begins_call(at)):
        # So that what follows is looked at anew.
        take_one(at, "{")
        return False
    reading, held = JsonReading(at, closers), ""
    while True:
        held += reading.read()
        if len(held) > MAX_HELD:
            at.lookalikes = False
            return False
        if reading.state is not Scan.MORE or at.ended:
            break
        yield
    calls = _calls_in(held) if reading.state is Scan.WHOLE and not LONE_SURROGATE.search(held) else []
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
        if begun["key"] and not any(key.startswith(begun["key"]) for key in _FIRST):
            return False
        yield
    found = _BEGINNING.match(window)
    if found is None or found["key"] not in _FIRST:
        return False
    named = found["key"] in _NAMES and (found["value"] or found["key"] not in _AROUND)
    return not named or (found["value"] or "")[1:-1] in at.tools


def _loaded(text: str) -> object:
    """Raises ValueError for what JSON can't say again: NaN, and numbers beyond a float."""
    value: object = json.loads(text)
    json.dumps(value, allow_nan=False)
    return value


def _calls_in(text: str) -> list[_Written]:
    """Return the calls that a whole JSON object is; none for any other object."""
    try:
        return _called(_loaded(text))
    except (ValueError, RecursionError):
        return []


def _called(value: object) -> list[_Written]:
    """Raises ValueError for arguments that are no JSON."""
    members = mapping_of(value)
    for key in _AROUND:
        if isinstance(members.get(key), dict | list):
            inner = list(map(_called, listed(members[key]) or [members[key]]))
            return [*chain(*inner)] if all(inner) and {*members} <= {key, *_BESIDE} else []
    names = [members[key] for key in _NAMES if key in members]
    arguments: Any = next((members[key] for key in _ARGUMENTS if key in members), None)
    if arguments is None or len(names) != 1 or not isinstance(names[0], str) or not {*members} <= _KEYS:
        return []
    if isinstance(arguments, str) and arguments.strip(WHITESPACE).startswith("{"):
        arguments = _loaded(arguments)
    return [_Written(names[0], cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None)]


def _fits(at: Cursor, call: _Written) -> bool:
    tool = at.tools.get(call.name)
    return tool is not None and call.arguments is not None and not validate_call(tool, call.arguments)
