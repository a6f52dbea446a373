"""Nodes that read JSON inside a call: its arguments, and the object around them.

The parser accepts the object's keys in any order and ignores unknown ones, as models write them; the grammar writes
them in the declared order, spelled as `json.dumps` does.
"""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.quoted import LONE_SURROGATE, read_word
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Node, Steps, read_space, take_one
from gateway.toolcalls.nodes.reading import JsonReading, surroundings
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling
from gateway.toolcalls.values.json_scanner import Scan
from gateway.toolcalls.values.mended import mended

_BARE_KEY = re.compile(r"[A-Za-z_$][\w$-]*+[ \t\r\n]*+")
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
        reading, calls = JsonReading(at), at.calls
        if self.starts and calls.has_name and not calls.started:
            at.start_call()
        if self.argues:
            while at.position == len(at.buffer) and not at.ended:
                yield
            if at.buffer.startswith(('"', "n", "N"), at.position):
                return (yield from _read_odd(at))
        while True:
            fragment = reading.read()
            if self.argues and fragment:
                calls.argue(fragment)
            if reading.state is not Scan.MORE or at.ended:
                return reading.state is Scan.WHOLE
            yield

    def grammar(self, g: Grammar) -> str:
        """Write the arguments of the current tool, by its schema."""
        return g.arguments()


def _read_odd(at: Cursor) -> Steps:
    """Read arguments that are not an object, held until they are whole: models write `null`, or encode JSON twice."""
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
        if not (yield from _read_char(at, "{")):
            return False
        yield from read_space(at)
        name = yield from read_word(at)
        if not name or not (yield from _read_char(at, ":")):
            return False
        at.calls.named(name)
        at.start_call()
        yield from read_space(at)
        return (yield from Json().run(at)) and bool((yield from _read_char(at, "}")))

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


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a record and its value. The first of `keys` is the one that the grammar writes."""

    keys: tuple[str, ...]
    node: Node
    required: bool = True
    written: bool = True
    """Whether the grammar writes it."""


@dataclass(frozen=True, slots=True)
class Record(Node):
    """A JSON object with known fields in any order, each at most once; other keys are ignored.

    The last brace may be missing: what follows then shows whether the object was whole. With `strict`, for places where
    any JSON may stand, the brace must be there and an object with another key does not match.
    """

    fields: tuple[Field, ...]
    strict: bool = False

    def first(self, spelling: Spelling) -> First:
        """Return the opening brace."""
        return ("{",)

    def run(self, at: Cursor) -> Steps:
        """Read the object and run each field's node on its value."""
        missing = {field for field in self.fields if field.required}
        braces = yield from _read_braces(at)
        char = "," if braces else ""
        if char and (yield from _read_char(at, "}")):
            return not missing
        seen: set[Field] = set()
        while char == ",":
            yield from read_space(at)
            key = yield from read_word(at)
            if key is None and seen and (yield from _read_char(at, "}")):
                at.calls.repair("it has a comma too many")
                char = "}"
                break
            field = next((field for field in self.fields if key in field.keys), None)
            if key is None or field in seen or (self.strict and not field) or not (yield from _read_value(at, field)):
                return False
            if field:
                seen.add(field)
            char = yield from _read_char(at, ",}")
        whole = (yield from _close(at, braces)) if char else not self.strict and (at.unread > 0 or at.whole)
        return whole and missing <= seen

    def grammar(self, g: Grammar) -> str:
        """Write the object with its fields in order, spelled as `json.dumps` spells it."""
        parts: list[str] = []
        for number, field in enumerate(field for field in self.fields if field.written):
            key = json.dumps(field.keys[0], ensure_ascii=False)
            parts += [g.literal(f"{', ' if number else '{'}{key}: "), field.node.grammar(g)]
        return " ".join([*parts, g.literal("}")])

    def children(self) -> tuple[Node, ...]:
        """Return the fields' nodes."""
        return tuple(field.node for field in self.fields)


def _read_char(at: Cursor, wanted: str) -> Generator[None, None, str]:
    """Read whitespace and one of the wanted characters, and return that; "" if something else is here."""
    yield from read_space(at)
    return take_one(at, wanted)


def _read_braces(at: Cursor) -> Generator[None, None, int]:
    """Read the opening brace, or two of them, as templates teach that double their braces; return how many."""
    if not (yield from _read_char(at, "{")):
        return 0
    if not (yield from _read_char(at, "{")):
        return 1
    at.calls.repair("its braces are doubled")
    return 2


def _close(at: Cursor, braces: int) -> Steps:
    """Read the second closing brace where two were opened; it may be missing."""
    if braces > 1:
        yield from _read_char(at, "}")
    return True


def _read_value(at: Cursor, field: Field | None) -> Steps:
    """Read the colon and the value of a field, or of an unknown key."""
    if not (yield from _read_char(at, ":")):
        return False
    yield from read_space(at)
    return (yield from (field.node if field else Json(argues=False)).run(at))
