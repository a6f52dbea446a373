"""Gemma 4, FunctionGemma: calls in a syntax of their own, back to back; reasoning in a channel, at any place.

Strings are between markers and may contain anything, including braces and quotation marks. The prompt may have closed
the reasoning channel, or opened it. Models may leave out the channel's name, or `call`; they also write other quotation
marks, parentheses for braces, or a JSON object, and forget a string's end or the last brace. Markers that frame a turn
are not content. FunctionGemma does not reason, and has its own markers.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.grammar.gbnf import Grammar, one_of
from gateway.toolcalls.grammar.raw import NestedRules, raw_text
from gateway.toolcalls.grammar.schema_walk import bounds, length_bounds
from gateway.toolcalls.grammar.schemas import value_rules
from gateway.toolcalls.nodes.combinators import Array, Closer, Variants
from gateway.toolcalls.nodes.json_nodes import surroundings
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Aside, Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, First, Lit, Marker, Node, Seq, Space, Steps
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.typed import read_literal
from gateway.toolcalls.schema.json_types import mapping_of
from gateway.toolcalls.schema.merge import Schema, listed
from gateway.toolcalls.stream.cursor import Cursor
from gateway.toolcalls.stream.spelling import Spelling
from gateway.toolcalls.values.atoms import FUNCTION_GEMMA as ESCAPED
from gateway.toolcalls.values.atoms import GEMMA, ValueDialect

# A call's arguments as Gemma 4 and FunctionGemma write them: `{city:<|"|>Paris<|"|>,days:3}`, read into JSON.
#
# Keys have no quotes; strings stand between special markers and have no escapes.


@dataclass(frozen=True, slots=True)
class GemmaObject(Node):
    """The arguments object; the call is reported where it begins. The dialect's first quote marks strings."""

    dialect: ValueDialect = GEMMA

    def first(self, spelling: Spelling) -> First:
        """Return the opening brace, and what models write instead."""
        return ("{", "(", "[")

    def run(self, at: Cursor) -> Steps:
        """Report the call, and its arguments as they arrive."""
        at.start_call()
        return (yield from read_literal(at, self.dialect, surroundings(at)))

    def grammar(self, g: Grammar) -> str:
        """Write the object, by the tool's schema."""
        return _Rules(g, g.current.parameters, self.dialect.quotes[0]).braced() or g.literal("{}")

    def children(self) -> tuple[Node, ...]:
        """Return the marker around strings."""
        return (Marker(self.dialect.quotes[0]),)


class _Rules(NestedRules):
    """The rules of one schema, with `quote` around strings."""

    def __init__(self, g: Grammar, root: Schema, quote: str) -> None:
        super().__init__(g, root, "gemma")
        self._quote = quote

    def anything(self) -> str:
        """Return the rule for any value."""
        if not self.g.has("gemma"):
            self.g.define("gemma", "")
            kinds = ("boolean", "null", "number", "string", "array", "object")
            self.g.define("gemma", self.g.either(self.of_kind(kind, {}) for kind in kinds))
        return "gemma"

    def braced(self) -> str:
        """Return the expression for the arguments object."""
        return self._braces(self.arguments())

    def members(self, schema: Schema, separator: str = ",") -> str | None:
        """Return the members with commas between them; an object whose schema names none has members of any name."""
        extra = schema.get("additionalProperties", "properties" not in schema)
        if mapping_of(schema.get("properties")) or not extra:
            return super().members(schema, separator)
        value = self.value(extra)
        member = f"[a-zA-Z_] [a-zA-Z0-9_]* {self.g.literal(':')} {value}"
        return (
            self.g.repeat(member, self.g.literal(separator), *bounds(schema, "minProperties", "maxProperties"))
            if value
            else ""
        )

    def member(self, key: str, value: str) -> str:
        """Return the key, without quotes, and the value."""
        return f"{self.g.literal(f'{key}:')} {value}"

    def choice(self, values: Sequence[object]) -> str:
        """Return a string between its markers, any other value as JSON."""
        quote = self.g.markup(self._quote)
        texts = one_of(self.g, (value for value in values if isinstance(value, str)))
        others = (json.dumps(value, ensure_ascii=False) for value in values if not isinstance(value, str))
        quoted = f"({quote} {texts} {quote})" if any(isinstance(value, str) for value in values) else ""
        return self.g.either(filter(None, (quoted, one_of(self.g, others))))

    def of_kind(self, kind: str, schema: Schema) -> str:
        """Return the expression for a value of one type."""
        g = self.g
        match kind:
            case "string":
                return f"({g.markup(self._quote)} {raw_text(g, schema, self._quote)} {g.markup(self._quote)})"
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case _:
                return value_rules(g, {**schema, "type": kind}, self.root, "value")

    def _object(self, schema: Schema) -> str:
        value = self._braces(self.members(schema))
        return f"({value})" if value else ""

    def _braces(self, members: str | None) -> str:
        return "" if members is None else " ".join(filter(None, (self.g.literal("{"), members, self.g.literal("}"))))

    def _array(self, schema: Schema) -> str:
        g = self.g
        if fixed := listed(schema.get("prefixItems")):
            values = list(map(self.value, fixed))
            inside = f" {g.literal(',')} ".join(values)
            return f"({g.literal('[')} {inside} {g.literal(']')})" if all(values) else ""
        least, most = length_bounds(schema)
        item = self.value(schema.get("items", True)) if most != 0 else ""
        if least and not item:
            return ""
        items = g.repeat(item, g.literal(","), least, most)
        return f"({' '.join(filter(None, (g.literal('['), items, g.literal(']'))))})"


_CALLED = Variants(Lit("call:"), Lit(":"), writes=Lit("call:"))


def _region(opener: str, arguments: GemmaObject, closer: str) -> MarkedRegion:
    optional = Variants(arguments, Seq(), writes=arguments)
    also = ("(", "[", closer)
    named = Seq(_CALLED, Capture("name", "{", also=also))
    name = Variants(named, Capture("name", "{", also=also, known=True), writes=named)
    call = CallNode(Seq(name, optional))
    called = Variants(Array(call_object()), call, writes=call)
    return MarkedRegion(opener, Space(), called, Space(), Closer(closer))


_REGION = _region("<|tool_call>", GemmaObject(), "<tool_call|>")
_CHANNEL, _CHANNEL_END = "<|channel>", "<channel|>"

GEMMA_4 = Format(
    name="gemma4",
    body=Seq(
        Thought(_CHANNEL, _CHANNEL_END, ("<|tool_call>",), title="thought"),
        Prose(
            _REGION, Aside(_CHANNEL, _CHANNEL_END, title="thought"), mutes=(_CHANNEL_END, "<|tool_response>", "<turn|>")
        ),
    ),
    calls=Calls(_REGION),
    shape='<|tool_call>call:TOOL{KEY:<|"|>VALUE<|"|>}<tool_call|>',
    template_has=("<|tool_call>",),
)

_FUNCTION = _region("<start_function_call>", GemmaObject(ESCAPED), "<end_function_call>")

FUNCTION_GEMMA = Format(
    name="function_gemma",
    body=Prose(_FUNCTION, mutes=("<start_function_response>", "<end_of_turn>")),
    calls=Calls(_FUNCTION),
    shape="<start_function_call>call:TOOL{KEY:<escape>VALUE<escape>}<end_function_call>",
    template_has=("<start_function_call>",),
)
