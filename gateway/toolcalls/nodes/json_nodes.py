"""Nodes that read JSON inside a call: its arguments, and the object around them.

The parser accepts the object's keys in any order and ignores unknown ones, as models write them; the grammar writes
them in the declared order, spelled as `json.dumps` does.
"""

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.combinators import lacks_closer
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Node, Steps, read_space, take_one
from gateway.toolcalls.schema.json_types import NUMBERS, KindsInside, mapping_of
from gateway.toolcalls.schema.merge import listed
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling
from gateway.toolcalls.values.json_repair import MendingScanner, mended
from gateway.toolcalls.values.json_scanner import JsonScanner, Scan
from gateway.toolcalls.values.string_end import PathStep, Surroundings

# Strings in a call's JSON that are held until they are whole: keys, and the tool's name.

_PLAIN = r'[^"\\\x00-\x1f\udc00-\udfff]*+'
_STRING_BODY = rf'"{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*'
_STRING = re.compile(_STRING_BODY + '"')
_STRING_START = re.compile(_STRING_BODY + r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
_OTHER_WORD = re.compile(r"'(?P<quoted>[^'\\\x00-\x1f]++)'|(?P<bare>[A-Za-z_$][\w$.-]*+)(?=[ \t]*+[:,}\n])")
_OTHER_START = re.compile(r"'[^'\\\x00-\x1f]*+\Z|[A-Za-z_$][\w$.-]*+[ \t]*+\Z")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_word(at: Cursor) -> Generator[None, None, str | None]:
    """Read a JSON string of at most `MAX_WORD` characters, quotes included; None, and nothing read, if none is here.

    Models also write such a word in single quotes, or without any.
    """
    while True:
        at.scanned += min(at.unread, MAX_WORD)
        limit = at.position + MAX_WORD
        if found := _STRING.match(at.buffer, at.position, limit):
            # An escape can name half a surrogate pair, which UTF-8 can't encode.
            return LONE_SURROGATE.sub("�", str(json.loads(at.take(found.end()))))
        if found := _OTHER_WORD.match(at.buffer, at.position, limit):
            at.calls.repair(f"its word at character {at.offset} is not in double quotes")
            word = found["quoted"] or found["bare"]
            at.take(found.end())
            return at.spelling.plain(word)
        begun = any(start.match(at.buffer, at.position, limit) for start in (_STRING_START, _OTHER_START))
        if at.ended or at.unread >= MAX_WORD or (at.unread and not begun):
            return None
        yield


@dataclass(frozen=True, slots=True)
class QuotedName(Node):
    """The tool's name as a JSON string; from here on the call can be reported.

    `after` names what must also be known: the arguments have begun (their node then `starts` the call), or the model's
    own id has arrived (`QuotedId`).
    """

    after: Literal["", "arguments", "id"] = ""

    def first(self, spelling: Spelling) -> First:
        """Return the quotation mark."""
        return ('"',)

    def run(self, at: Cursor) -> Steps:
        """Read the whole name and report the call, if nothing else must be known."""
        name = yield from read_word(at)
        if not name:
            return False
        at.calls.named(name)
        ready = {"": True, "arguments": at.calls.has_arguments, "id": at.calls.has_id}
        if ready[self.after]:
            at.start_call()
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the name of the current tool, quoted as JSON quotes it."""
        return g.literal(json.dumps(g.current.name, ensure_ascii=False))


# Reads one JSON value from the cursor as it arrives: strictly, and from its first flaw on by what it means.
#
# A flaw that leaves one reading is noted on the call; the caller gets JSON text either way, or learns that there is
# none.


class JsonReading:
    """The reading of one value at the cursor."""

    def __init__(self, at: Cursor, stops: tuple[str, ...] = ()) -> None:
        """`stops`: what may follow the value besides the region's markers."""
        self._at = at
        self._stops = stops
        self._strict = JsonScanner()
        self._mending: MendingScanner | None = None

    @property
    def state(self) -> Scan:
        """Whether the value goes on, is whole, or has no reading."""
        return self._strict.state if self._mending is None else self._mending.state

    @property
    def mends(self) -> bool:
        """Whether a flaw was found."""
        return self._mending is not None

    @property
    def guesses(self) -> bool:
        """Whether the reading depends on which quotes belong to a string."""
        return self._mending is not None and self._mending.guesses

    def read(self) -> str:
        """Read what has arrived; return the JSON text that it adds.

        Where the stream cuts the value off, the text that was held back is part of it.
        """
        at = self._at
        at.scanned += at.unread
        told = ""
        if self._mending is None:
            end = self._strict.scan(at.buffer, at.position, ended=at.ended)
            cut = at.ended and not at.whole and self._strict.state is not Scan.WHOLE
            told = at.take(len(at.buffer) if cut else end)
            flawed = self._strict.state is Scan.WRONG or (at.whole and self._strict.state is Scan.MORE)
            if cut or not flawed:
                return told
            self._mending = self._mend(told)
        end, more = self._mending.scan(at.buffer, at.position, ended=at.ended, whole=at.whole)
        at.take(end)
        return told + more

    def _mend(self, told: str) -> MendingScanner:
        at = self._at
        at.calls.repair(f"its JSON is not valid at character {at.offset}")
        around = surroundings(at)
        around = replace(around, stops=(*self._stops, *around.stops))
        return MendingScanner(self._strict, around, at.spelling.plain, at.calls.arguments + told)


def surroundings(at: Cursor) -> Surroundings:
    """Return what the request and the format say about the current call's arguments."""
    tool = at.tools.get(at.calls.name)
    root = mapping_of(tool.parameters if tool else None)
    properties = mapping_of(root.get("properties"))

    inside = KindsInside(root)

    def is_text(path: Sequence[PathStep]) -> bool:
        kinds = inside.at(path)
        return "string" in kinds and not kinds & NUMBERS

    return Surroundings(tuple(properties), at.stops, is_text)


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
