"""Calls that a model writes as plain JSON where its format has markers: an object, or a list, bare, fenced or in a tag.

Such JSON is a call where it ends the message, names a tool of the request and brings arguments that fit the tool's
schema. Everything else stays content: JSON is often what the user asked for. Text is held only as long as it can still
be such a call.
"""

import re
from collections.abc import Generator

from gateway.toolcalls.nodes.combinators import pick
from gateway.toolcalls.nodes.quoted import LONE_SURROGATE
from gateway.toolcalls.nodes.readers import MAX_WORD, Lit, Steps, read_space, take_one
from gateway.toolcalls.nodes.reading import JsonReading
from gateway.toolcalls.nodes.regions import RegionTooLong
from gateway.toolcalls.nodes.spare import skip_spare
from gateway.toolcalls.nodes.written_calls import ARGUMENTS, AROUND, BESIDE, NAMES, WrittenCall, calls_in, report_calls
from gateway.toolcalls.stream.cursor import Cursor
from gateway.toolcalls.values.json_scanner import Scan

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
    return not named or (found["value"] or "")[1:-1] in at.tools
