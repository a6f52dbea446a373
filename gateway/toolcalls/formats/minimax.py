"""MiniMax M2 and M3, dots: calls as `<invoke>` tags in one block, the names of tools as attributes.

Attributes are in single or double quotes or unquoted. Values are raw text, typed by the tool's schema. M2 also has the
names of arguments in attributes, and its prompt opens reasoning. M3 writes a mark before every tag and an element for
each argument, with elements inside for objects and lists; if it does not reason, it begins with the closing marker of
reasoning. A JSON object instead of the tags is read too, and a call without its block; dots is like M2.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.raw import ITEM, ElementRules
from gateway.toolcalls.nodes.combinators import Array, Closer, OptionalMarker, Variants, lacks_rest, maybe, pick
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Lit, Marker, Node, Seq, Space, Steps
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.tagged import TagName, invoke_call, invoke_shape, read_head
from gateway.toolcalls.nodes.typed import RawEnding, as_json, read_text, read_value
from gateway.toolcalls.schema.json_types import ALL, STRING, Kinds, every_option, kinds_of, mapping_of
from gateway.toolcalls.schema.merge import Schema
from gateway.toolcalls.stream.cursor import Cursor

# Arguments as elements of the same names, with nested values as elements again: how MiniMax M3 writes a call.
#
# Turns `<city>Paris</city>` (every tag after one mark) into the pieces of a JSON object, as they arrive. Items of a
# list are elements named `item`. The schema says what a text is; where it allows a string, only a list is distinguished
# from text. Source: the model's chat template, `to_xml`.

MAX_DEPTH = 64
"""Most levels of elements inside elements."""

_KEY = "(?P<key>[^/].*)"


@dataclass(frozen=True, slots=True)
class Elements(Node):
    """The arguments of the current call, up to one of `ends`, which is not read. `mark` stands before every tag."""

    mark: str
    ends: tuple[str, ...]

    @property
    def nullable(self) -> bool:
        """A call may have no arguments."""
        return True

    def run(self, at: Cursor) -> Steps:
        """Report the call, and its arguments as they arrive."""
        at.start_call()
        tool = at.tools.get(at.calls.name)
        reader = _Reader(at, self.mark, self.ends, tool.parameters if tool else {})
        members = _Members(at.calls.argue, reader.properties(tool.parameters if tool else {}), merge=False)
        return (yield from reader.members(members, tuple(map(Lit, self.ends))))

    def grammar(self, g: Grammar) -> str:
        """Write the required arguments in the schema's order, then those that may be missing."""
        return ElementRules(g, g.current.parameters, self.mark).arguments() or ""

    def children(self) -> tuple[Node, ...]:
        """Return the mark."""
        return (Marker(self.mark),)


class _Members:
    """Writes the members of one object.

    Where the schema names none of them (`merge`), a repeated member becomes a list, so all are held until the last.
    """

    def __init__(self, tell: Callable[[str], None], schemas: Mapping[str, Any], *, merge: bool) -> None:
        self.schemas = schemas
        self._tell = tell
        self._merge = merge
        self._held: dict[str, list[str]] = {}
        self._told = 0

    def begin(self, key: str) -> Callable[[str], None]:
        """Begin a member; return a function that takes the pieces of its value."""
        if self._merge:
            values = self._held.setdefault(key, [])
            values.append("")

            def hold(piece: str) -> None:
                values[-1] += piece

            return hold
        self._say(key)
        return self._tell

    def end(self) -> None:
        """End the object."""
        for key, values in self._held.items():
            self._say(key)
            self._tell(values[0] if len(values) == 1 else f"[{', '.join(values)}]")
        self._tell("}" if self._told else "{}")

    def _say(self, key: str) -> None:
        self._tell(f"{', ' if self._told else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        self._told += 1


class _Reader:
    """Reads the values of one call."""

    def __init__(self, at: Cursor, mark: str, ends: tuple[str, ...], root: Schema) -> None:
        self._at = at
        self._ends = ends
        self._root = root
        self._mark = mark
        self._opener = Lit(f"{mark}<")
        self._item = Lit(f"{mark}<{ITEM}>")
        self._depth = 0

    def properties(self, schema: object) -> Mapping[str, Any]:
        """Return the members that a schema names, in any of its alternatives."""
        parts = list(every_option(schema, self._root))
        return {key: value for part in reversed(parts) for key, value in mapping_of(part.get("properties")).items()}

    def members(self, members: _Members, ends: tuple[Lit, ...], extra: object = None) -> Steps:
        """Read members up to one of `ends`, which is not read; `extra` is the schema of members without one."""
        at = self._at
        while True:
            yield from Space().run(at)
            found = yield from pick(at, (*ends, self._opener))
            if found is None or found is not self._opener:
                if found is None and (self._depth or not lacks_rest(at, "its closing tag")):
                    return False
                members.end()
                return True
            yield from found.run(at)
            head = yield from read_head(at, ">", _KEY, members.schemas)
            if head is None:
                return False
            key = head["key"]
            tell = members.begin(key)
            if not (yield from self._value(members.schemas.get(key, extra), self._closer(key), tell)):
                return False

    def _value(self, schema: object, closer: Lit, tell: Callable[[str], None]) -> Steps:
        """Read a value and its closing tag."""
        at = self._at
        kinds = kinds_of(schema, self._root)
        unknown = kinds == ALL
        if "string" not in kinds:
            yield from Space().run(at)
        options = (self._item,) if "string" in kinds and not unknown else (closer, self._item, self._opener)
        found = (yield from pick(at, options)) if kinds != STRING else None
        if found is self._item and "array" in kinds:
            return (yield from self._list(schema, closer, tell))
        if found in (self._item, self._opener):
            return (yield from self._nested(schema, kinds, closer, tell))
        if found is None and kinds != STRING and self._cut_before(options):
            return False
        if found is closer and not unknown:
            yield from closer.run(at)
            tell("[]" if "array" in kinds else "{}" if "object" in kinds else '""')
            return True
        ending = RawEnding(closer.text, stops=self._ends)
        return (yield from self._text(STRING if unknown else kinds, ending, tell))

    def _cut_before(self, options: tuple[Lit, ...]) -> bool:
        """Whether the stream ends where a tag could have come, so that the value's type can't be known."""
        at = self._at
        rest = at.buffer[at.position :]
        return at.ended and any(at.spelling.spell(option.text).startswith(rest) for option in options)

    def _nested(self, schema: object, kinds: Kinds, closer: Lit, tell: Callable[[str], None]) -> Steps:
        if "object" not in kinds and "array" in kinds:
            return (yield from self._list(schema, closer, tell))
        if self._depth == MAX_DEPTH:
            return False
        self._depth += 1
        properties = self.properties(schema)
        extra = next(
            (
                part["additionalProperties"]
                for part in every_option(schema, self._root)
                if mapping_of(part.get("additionalProperties"))
            ),
            None,
        )
        members = _Members(tell, properties, merge=not properties)
        whole = (yield from self.members(members, (closer,), extra)) and (yield from closer.run(self._at))
        self._depth -= 1
        return whole

    def _list(self, schema: object, closer: Lit, tell: Callable[[str], None]) -> Steps:
        """Read the items of a list, whatever the names of their elements, and its closing tag."""
        if self._depth == MAX_DEPTH:
            return False
        self._depth += 1
        at, between = self._at, "["
        items = next((part["items"] for part in every_option(schema, self._root) if "items" in part), None)
        while True:
            yield from Space().run(at)
            if (yield from pick(at, (closer, self._opener))) is not self._opener:
                break
            yield from self._opener.run(at)
            head = yield from read_head(at, ">", _KEY)
            if head is None:
                return False
            tell(between)
            if not (yield from self._value(items, self._closer(head["key"]), tell)):
                return False
            between = ", "
        self._depth -= 1
        if not (yield from closer.run(at)):
            return False
        tell("]")
        return True

    def _text(self, kinds: Kinds, ending: RawEnding, tell: Callable[[str], None]) -> Steps:
        if tell == self._at.calls.argue:
            return (yield from read_value(self._at, kinds, ending))
        held: list[str] = []
        whole = yield from read_text(self._at, ending, False, held.append)
        tell(as_json("".join(held), kinds))
        return whole

    def _closer(self, key: str) -> Lit:
        return Lit(f"{self._mark}</{key}>")


_BLOCK_END = "</minimax:tool_call>"
_CALLED = Calls(Seq(invoke_call(_BLOCK_END), Space("\n")))
_BLOCK = MarkedRegion(
    "<minimax:tool_call>",
    Space("\n"),
    Variants(Array(call_object()), _CALLED, writes=_CALLED),
    Closer(_BLOCK_END),
)
_DOTS_END = "</dots_function_call>"
_INVOKES = Calls(Seq(invoke_call(_DOTS_END), Space("\n")))
_DOTS = MarkedRegion(
    "<dots_function_call>",
    Space("\n"),
    Variants(Array(call_object()), _INVOKES, writes=_INVOKES),
    OptionalMarker(_DOTS_END),
)


def _bare(calls: Calls, closer: str) -> Bare:
    """Calls without the opening marker of their block."""
    return Bare("<invoke name=", calls, maybe(Marker(closer)))


DOTS = Format(
    name="dots",
    body=Seq(Thought("<think>", "</think>", ("<dots_function_call>",)), Prose(_DOTS, _bare(_INVOKES, _DOTS_END))),
    calls=_DOTS,
    shape=f"<dots_function_call>\n{invoke_shape()}\n{_DOTS_END}",
    template_has=("<dots_function_call>",),
)

MINIMAX_M2 = Format(
    name="minimax_m2",
    body=Seq(Thought("<think>", "</think>", ("<minimax:tool_call>",)), Prose(_BLOCK, _bare(_CALLED, _BLOCK_END))),
    calls=_BLOCK,
    shape=f"<minimax:tool_call>\n{invoke_shape()}\n{_BLOCK_END}",
    template_has=("<minimax:tool_call>", "<invoke name="),
)

_MARK = "]<]minimax[>["
_OPENER_3, _CLOSER_3, _INVOKE_END = f"{_MARK}<tool_call>", f"{_MARK}</tool_call>", f"{_MARK}</invoke>"
_HEAD = f"{_MARK}<invoke name="
_ELEMENTS = Elements(_MARK, (_INVOKE_END, _CLOSER_3, _HEAD))
_INVOKE = CallNode(Seq(_HEAD, TagName(written='"{name}">'), _ELEMENTS, OptionalMarker(_INVOKE_END)))
_BLOCK_3 = MarkedRegion(_OPENER_3, Space("\n"), Calls(Seq(_INVOKE, Space("\n"))), OptionalMarker(_CLOSER_3))

MINIMAX_M3 = Format(
    name="minimax_m3",
    body=Seq(Thought("<mm:think>", "</mm:think>", (_OPENER_3,)), Prose(_BLOCK_3)),
    calls=_BLOCK_3,
    shape=f'{_OPENER_3}\n{_HEAD}"TOOL">{_MARK}<KEY>VALUE{_MARK}</KEY>{_INVOKE_END}\n{_CLOSER_3}',
    template_has=(_MARK,),
)
