"""A call as one JSON object: the ways in which families write it, and its members with known keys in any order."""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.combinators import lacks_closer
from gateway.toolcalls.nodes.json_nodes import (
    Json,
    JsonObject,
    JsonReading,
    QuotedId,
    QuotedName,
    ignore,
    read_char,
    read_json,
    read_word,
    surroundings,
)
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Lit, Node, Steps, read_space
from gateway.toolcalls.nodes.regions import CallNode
from gateway.toolcalls.stream.cursor import Cursor
from gateway.toolcalls.stream.spelling import Spelling

# A JSON object whose members are the parts of a call, with known keys in any order.
#
# What models leave out of it or write too much is read as what it means: commas, braces, arguments beside the name.

_BEHIND = re.compile(r"[ \t\r\n]*+,?[ \t\r\n]*+")


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a record and its value. The first of `keys` is the one that the grammar writes."""

    keys: tuple[str, ...]
    node: Node
    written: bool = True
    """Whether the grammar writes it."""


@dataclass(frozen=True, slots=True)
class RecordNode(Node):
    """A JSON object with known fields in any order, each at most once; other keys are ignored.

    The last brace may be missing: what follows then shows whether the object was whole. With `strict`, for places where
    any JSON may stand, an object with another key does not match. With `beside`, parameters of the tool may stand here
    in place of an object of them.
    """

    fields: tuple[Field, ...]
    strict: bool = False
    beside: bool = False

    def first(self, spelling: Spelling) -> First:
        """Return the opening brace."""
        return ("{",)

    def run(self, at: Cursor) -> Steps:
        """Read the object and run each field's node on its value."""
        braces = yield from _read_braces(at)
        char = "," if braces else ""
        if char and (yield from read_char(at, "}")):
            return True
        seen: set[Field] = set()
        argued = False
        while char == ",":
            yield from read_space(at)
            key = yield from read_word(at)
            if key is None and seen and (yield from read_char(at, "}")):
                at.calls.repair("it has a comma too many")
                char = "}"
                break
            field = next((field for field in self.fields if key in field.keys), None)
            if key is None or field in seen or (self.strict and not field) or (argued and field):
                return False
            argues = field is None and self.beside and _is_argument(at, key, argued=argued)
            if argues:
                at.calls.argue(f"{', ' if argued else '{'}{json.dumps(key, ensure_ascii=False)}: ")
                argued = True
            if not (yield from _read_value(at, field, argues=argues)):
                return False
            if field:
                seen.add(field)
            char = yield from _read_separator(at)
        if argued:
            at.calls.repair("its arguments stand beside its name")
            at.calls.argue("}")
        whole = (yield from _close(at, braces)) if char else (yield from self._lacks_brace(at))
        if self.beside and not at.calls.has_arguments and (yield from _goes_on(at)):
            return False
        return whole

    def _lacks_brace(self, at: Cursor) -> Steps:
        """Whether the object is whole but for its last brace."""
        return (yield from lacks_closer(at, *(() if self.strict else ("]", ";"))))

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


def _read_braces(at: Cursor) -> Generator[None, None, int]:
    """Read the opening brace, or two of them, as templates teach that double their braces; return how many."""
    if not (yield from read_char(at, "{")):
        return 0
    if not (yield from read_char(at, "{")):
        return 1
    at.calls.repair("its braces are doubled")
    return 2


def _close(at: Cursor, braces: int) -> Steps:
    """Read the second closing brace where two were opened; it may be missing."""
    if braces > 1:
        yield from read_char(at, "}")
    return True


def _read_separator(at: Cursor) -> Generator[None, None, str]:
    """Read what follows a member, and return it; a comma that is missing before the next one counts as read."""
    char = yield from read_char(at, ",}")
    if char or not at.buffer.startswith('"', at.position):
        return char
    at.calls.repair(f"a comma is missing at character {at.offset}")
    return ","


def _goes_on(at: Cursor) -> Steps:
    """Whether a member follows the brace: then it closes the object too early."""
    while (behind := _BEHIND.match(at.buffer, at.position)) and behind.end() == len(at.buffer):
        if at.ended or len(behind.group()) >= MAX_WORD:
            return False
        yield
    return behind is not None and "," in behind.group() and at.buffer.startswith('"', behind.end())


def _is_argument(at: Cursor, key: str, *, argued: bool) -> bool:
    """Whether a key beside the tool's name is one of its parameters, and there is no object of them."""
    return (argued or not at.calls.has_arguments) and key not in ("id", "type") and key in surroundings(at).keys


def _read_value(at: Cursor, field: Field | None, *, argues: bool) -> Steps:
    """Read the colon and the value of a field, of an argument, or of an unknown key."""
    if not (yield from read_char(at, ":")):
        return False
    yield from read_space(at)
    if field:
        return (yield from field.node.run(at))
    return (yield from read_json(at, JsonReading(at), at.calls.argue if argues else ignore))


# A call as one JSON object, in the ways in which families write it: which keys it has, and when it can be reported.
#
# The parser accepts `parameters` and other words for `arguments`, an object inside `function`, keys in any order, and
# unknown keys; the grammar writes the family's own form.


def call_object(
    name: str = "name", arguments: str = "arguments", id_first: str = "", id_last: str = "", id_shape: str = ""
) -> CallNode:
    """Return a call that is an object with a name and arguments, and with an id where the family writes one.

    `id_first` or `id_last` is the key of the id, which the grammar writes before or after the others, in the shape
    `id_shape`. Such a call is reported when its id is known or it is over, since an id can't be reported later. Without
    either, the parser ignores an id.
    """
    named = QuotedName(after="id" if id_first or id_last else "")
    others = tuple(key for key in ("arguments", "parameters", "args", "input") if key != arguments)
    fields = (Field(tuple(dict.fromkeys((name, "name"))), named), Field((arguments, *others), Json()))
    nested = Field(("function",), RecordNode(fields), written=False)
    call_id = Field((id_first or id_last,), QuotedId(id_shape))
    before, behind = ((call_id,) if key else () for key in (id_first, id_last))
    return CallNode(RecordNode((*before, *fields, *behind, nested), beside=True))


def bare_object(arguments: str = "parameters") -> CallNode:
    """Return a call that is an object without a marker: it counts only with a name and arguments and no other keys."""
    named = QuotedName(after="arguments")
    others = tuple(key for key in ("parameters", "arguments") if key != arguments)
    fields = (Field(("name",), named), Field((arguments, *others), JsonObject(starts=True)))
    kind = Field(("type",), Lit('"function"'), written=False)
    nested = Field(("function",), RecordNode(fields, strict=True), written=False)
    return CallNode(RecordNode((kind, *fields, nested), strict=True), name_suffices=False)
