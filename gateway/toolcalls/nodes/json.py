"""Nodes that read JSON inside a call: its arguments, and the object around them.

The parser accepts the object's keys in any order and ignores unknown ones, as models write them; the grammar writes
them in the declared order, spelled as `json.dumps` does.
"""

import json
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.quoted import LONE_SURROGATE, read_word
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Node, Steps, read_space, take_one
from gateway.toolcalls.nodes.reading import JsonReading, surroundings
from gateway.toolcalls.nodes.spare import lacks_closer
from gateway.toolcalls.schema.merge import listed
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling
from gateway.toolcalls.values.json_scanner import Scan
from gateway.toolcalls.values.mended import mended

_BARE_KEY = re.compile(r"[A-Za-z_$][\w$-]*+[ \t\r\n]*+")
_QUOTED = re.compile(r"""(?P<quote>["'])[ \t\r\n]*+\{[ \t\r\n]*+(?P=quote)[^ \t\r\n,:}\]]""")
_MAYBE_QUOTED = re.compile(r"""(?P<quote>["'])(?:[ \t\r\n]*+(?:\{(?:[ \t\r\n]*+(?:(?P=quote))?)?)?)?\Z""")
_VALUE_STARTS = ('"', "{", "[", "-", *"0123456789", "true", "false", "null")


@dataclass(frozen=True, slots=True)
class Json(Node):
    """One JSON value; with `argues` it is emitted as the call's arguments, verbatim as it arrives, else it is ignored.

    With `starts`, a call whose name is known is reported where its arguments begin.
    """

    argues: bool = True
    starts: bool = False

    def first(self, spelling: Spelling) -> First:
        """Return what a JSON value begins with."""
        return _VALUE_STARTS

    def run(self, at: Cursor) -> Steps:
        """Read to the value's end; where the stream ends inside it, what was held back is emitted too."""
        calls = at.calls
        if self.starts and calls.has_name and not calls.started:
            at.start_call()
        if self.argues:
            while at.position == len(at.buffer) and not at.ended:
                yield
            if at.buffer.startswith(('"', "'", "n", "N"), at.position):
                return (yield from _read_odd(at))
        return (yield from read_json(at, JsonReading(at), calls.argue if self.argues else ignore))

    def grammar(self, g: Grammar) -> str:
        """Write the arguments of the current tool, by its schema."""
        return g.arguments()


def ignore(told: str) -> None:
    """Tell nobody."""


def _lacks_required(at: Cursor) -> bool:
    """Whether an argument that the tool requires is missing: then it may be in a string that ended too late."""
    tool, arguments = at.tools.get(at.calls.name), json.loads(at.calls.arguments or "null")
    required = listed(tool.parameters.get("required")) if tool else ()
    return isinstance(arguments, dict) and any(isinstance(key, str) and key not in arguments for key in required)


def _read_odd(at: Cursor) -> Steps:
    """Read arguments that are not an object, held until they are whole: models write `null`, or encode JSON twice."""
    while _MAYBE_QUOTED.match(at.buffer, at.position) and not at.ended and at.unread < MAX_WORD:
        yield
    if _QUOTED.match(at.buffer, at.position):
        return (yield from _read_quoted(at))
    reading = JsonReading(at)
    held = [reading.read()]
    while reading.state is Scan.MORE:
        if at.ended:
            return False
        yield
        held.append(reading.read())
    if reading.state is Scan.WRONG:
        return False
    meant = _meant("".join(held), at)
    if reading.mends and not meant.startswith("{"):
        return False
    at.calls.argue(meant)
    return True


def _read_quoted(at: Cursor) -> Steps:
    """Read an object that stands between quotation marks as if in a string, but without a string's escapes."""
    at.calls.repair(f"its object is in quotation marks at character {at.offset}")
    quote = take_one(at, "\"'")
    return (yield from read_json(at, JsonReading(at, (quote,)), at.calls.argue)) and take_one(at, quote) == quote


def read_json(at: Cursor, reading: JsonReading, tell: Callable[[str], None]) -> Steps:
    """Read a value to its end; where the stream ends inside it, what was held back is told too."""
    while True:
        tell(reading.read())
        if reading.state is not Scan.MORE or at.ended:
            return reading.state is Scan.WHOLE and not (reading.guesses and _lacks_required(at))
        yield


def _meant(written: str, at: Cursor) -> str:
    """Return the object that a value stands for: `{}` for null or an empty text, or the object that a text spells."""
    text = str(json.loads(written) or "").strip(WHITESPACE)
    if text in ("", "null"):
        return "{}"
    spelled = mended(text, surroundings(at)) if text.startswith("{") else None
    return spelled if spelled and LONE_SURROGATE.search(spelled) is None else written


class JsonObject(Json):
    """A JSON object and no other value: for places where text that is not a call may continue with another value."""

    __slots__ = ()

    def first(self, spelling: Spelling) -> First:
        """Return the opening brace."""
        return ("{",)

    def run(self, at: Cursor) -> Steps:
        """Read the object; read nothing of another value, or of a brace without a key or another brace after it."""
        while (rest := at.buffer[at.position : at.position + MAX_WORD]).startswith("{"):
            inside = rest[1:].lstrip(WHITESPACE)
            bare = _BARE_KEY.match(inside)
            if (inside and not (bare and bare.end() == len(inside))) or at.ended or len(rest) == MAX_WORD:
                begins = not inside or inside[0] in "\"'}{" or (bare is not None and inside[bare.end()] == ":")
                return begins and (yield from Json.run(self, at))
            yield
        return False


@dataclass(frozen=True, slots=True)
class KeyedCall(Node):
    """An object with one key, the tool's name, whose value is the arguments."""

    def first(self, spelling: Spelling) -> First:
        """Return the opening brace."""
        return ("{",)

    def run(self, at: Cursor) -> Steps:
        """Read the name, report the call, read the arguments."""
        if not (yield from read_char(at, "{")):
            return False
        yield from read_space(at)
        name = yield from read_word(at)
        if not name or not (yield from read_char(at, ":")):
            return False
        at.calls.named(name)
        at.start_call()
        yield from read_space(at)
        if not (yield from Json().run(at)):
            return False
        return bool((yield from read_char(at, "}"))) or (yield from lacks_closer(at, "]"))

    def grammar(self, g: Grammar) -> str:
        """Write the object, spelled as `json.dumps` spells it."""
        name = json.dumps(g.current.name, ensure_ascii=False)
        return f"{g.literal(f'{{{name}: ')} {g.arguments()} {g.literal('}')}"


@dataclass(frozen=True, slots=True)
class QuotedId(Node):
    """The model's own id for the call, a JSON string (a value of another type is ignored).

    `shape` is what the grammar lets the model write between the quotation marks.
    """

    shape: str = "[a-zA-Z0-9]{9}"

    def first(self, spelling: Spelling) -> First:
        """Return what a JSON value begins with."""
        return _VALUE_STARTS

    def run(self, at: Cursor) -> Steps:
        """Read the id; report a call whose name was waiting for it."""
        call_id = yield from read_word(at)
        if call_id is None:
            return (yield from Json(argues=False).run(at))
        at.calls.identify(call_id)
        if at.calls.has_name and not at.calls.started:
            at.start_call()
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the shape, quoted."""
        return f'"\\"" {self.shape} "\\""'


def read_char(at: Cursor, wanted: str) -> Generator[None, None, str]:
    """Read whitespace and one of the wanted characters, and return that; "" if something else is here."""
    yield from read_space(at)
    return take_one(at, wanted)
