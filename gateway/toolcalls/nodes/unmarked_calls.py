"""Calls that a model writes as plain JSON where its format has markers: an object, or a list, bare, fenced or in a tag.

Such JSON is a call where it ends the message, names a tool of the request and brings arguments that fit the tool's
schema; or where it names what may be a tool that the model has not been shown. Everything else stays content: JSON is
often what the user asked for. Text is held only as long as it can still be such a call.
"""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

from gateway.toolcalls.nodes.combinators import pick, skip_spare
from gateway.toolcalls.nodes.json_nodes import LONE_SURROGATE, JsonReading
from gateway.toolcalls.nodes.readers import MAX_WORD, Lit, Steps, read_space, take_one
from gateway.toolcalls.nodes.regions import RegionTooLong
from gateway.toolcalls.schema.json_types import mapping_of
from gateway.toolcalls.schema.spec import validate_call
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.values.json_scanner import Scan

# Calls that were read whole before any of them is reported: they are calls only if they fit the request's tools.
#
# Turns the text of a JSON object into the calls that it is, and calls that fit into events. Knows nothing of where they
# stand in a message.

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
        """Whether it calls a tool of the request, with arguments that fit the tool's schema, or a hidden tool."""
        tool = at.tools.get(self.name)
        if self.arguments is None:
            return False
        return _is_hidden(self.name, at) if tool is None else not validate_call(tool, self.arguments)


def _is_hidden(name: str, at: Cursor) -> bool:
    hidden = at.calls.policy.hidden_tool
    return hidden is not None and hidden(name)


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


_TAGS = ("tool_call", "tools", "tool", "function_call")
OPENERS = ("```", "~~~", "`{", "[{", "{", *(f"<{tag}>" for tag in _TAGS))
"""What such text begins with."""

MAX_TRIED = 1000
"""Most places of a message that are looked at; JSON with more of them is an answer, and each costs as much as 100
characters of text."""
MAX_HELD = 1 << 16
"""Most characters of JSON that are held; a longer object is content."""

_FIRST = {*NAMES, *ARGUMENTS[:2], *AROUND, *BESIDE}
"""The keys with which an object is taken for a call before it is whole."""
_MAX_BEGINNING = 512
_SPACE = r"[ \t\r\n]*+"
_OPENING = re.compile(
    rf"(?:(?P<fence>`{{1,8}}|~{{3,8}})[ \t]?[\w-]{{0,16}}+)?{_SPACE}(?:<(?P<tag>{'|'.join(_TAGS)})>{_SPACE})?"
)
_BRACES = re.compile(rf"\{{{_SPACE}(?:\{{{_SPACE})?")
_SIMPLE = r"""(?:"[^"]*+"|'[^']*+'|[\w.+-]++)"""
_MEMBER_BESIDE = re.compile(rf"""["']?(?:{"|".join(BESIDE)})["']?{_SPACE}:{_SPACE}{_SIMPLE}{_SPACE}(?:,{_SPACE}|\Z)""")
_BEGINNING = re.compile(rf"""["']?(?P<key>\w++)["']?{_SPACE}:{_SPACE}(?P<value>["'][^"']*+["'])?""")
_BEGUN = re.compile(rf"""(?:["']?(?P<key>\w*+)(?:["']?{_SPACE}(?::{_SPACE}(?:["'][^"']*+)?)?)?)?\Z""")


def read_lookalike(lead: str, at: Cursor, markers: tuple[str, ...]) -> Steps:
    """Read calls that begin here, behind a `lead`; without any, what was read is content. `markers` may follow them."""
    at.open_region(lead, markers)
    at.begin_call()
    found: list[WrittenCall] = []
    try:
        ends = yield from _read(at, tuple(map(Lit, markers)), found)
    except RegionTooLong:
        ends, at.lookalikes = False, 0
    if found and ends and all(call.fits(at) for call in found):
        return report_calls(at, found)
    at.withdraw_region()
    at.lookalikes = max(0, at.lookalikes - 1)
    if named := next((call.name for call in found if call.name in at.tools), ""):
        message = f"the answer looks like a call of {named!r} in another format; if it is one, set `tool_format`"
        at.calls.abandon("lookalike", message)
    return False


def _read(at: Cursor, markers: tuple[Lit, ...], found: list[WrittenCall]) -> Steps:
    """Read all calls; return whether the message may end after them."""
    while True:
        if not (yield from _read_block(at, found)):
            return False
        yield from read_space(at)
        while marker := (yield from pick(at, markers)):
            yield from marker.run(at)
            yield from read_space(at)
        if take_one(at, ",;"):
            yield from read_space(at)
        if not at.unread:
            return True
        if (yield from pick(at, tuple(map(Lit, OPENERS)))) is None:
            return False


def _read_block(at: Cursor, found: list[WrittenCall]) -> Steps:
    """Read an object, or a list of them, and the fence or the tag around it."""
    closers = yield from _read_opening(at)
    in_list = bool(take_one(at, "["))
    while True:
        yield from read_space(at)
        if not (yield from _read_object(at, closers, found)):
            return False
        yield from read_space(at)
        if not at.in_other_json:
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


def _read_object(at: Cursor, closers: tuple[str, ...], found: list[WrittenCall]) -> Steps:
    if not (yield from _begins_call(at)):
        # So that what follows is looked at anew.
        at.in_other_json = bool(take_one(at, "{")) or at.in_other_json
        return False
    reading, held = JsonReading(at, closers), ""
    while True:
        held += reading.read()
        if len(held) > MAX_HELD:
            at.lookalikes = 0
            return False
        if reading.state is not Scan.MORE or at.ended:
            break
        yield
    calls = calls_in(held) if reading.state is Scan.WHOLE and not LONE_SURROGATE.search(held) else []
    found += calls
    return bool(calls)


def _begins_call(at: Cursor) -> Steps:
    """Whether the object that begins here has a call's first key, and where that is the name, a tool's name.

    What stands beside a call may come before it.
    """
    while True:
        window = at.buffer[at.position : at.position + _MAX_BEGINNING]
        at.scanned += len(window)
        braces = _BRACES.match(window)
        start = braces.end() if braces else 0
        while beside := _MEMBER_BESIDE.match(window, start):
            start = beside.end()
        begun = _BEGUN.match(window, start)
        if begun is None or at.ended or len(window) == _MAX_BEGINNING:
            break
        if begun["key"] and not any(key.startswith(begun["key"]) for key in _FIRST):
            return False
        yield
    found = _BEGINNING.match(window, start)
    if found is None or found["key"] not in _FIRST or found["key"] in BESIDE:
        return False
    named = found["key"] in NAMES and (found["value"] or found["key"] not in AROUND)
    name = (found["value"] or "")[1:-1]
    return not named or name in at.tools or _is_hidden(name, at)
