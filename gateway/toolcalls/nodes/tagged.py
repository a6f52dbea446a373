"""Nodes for calls written in tags: a name, then a tag for each argument with its raw value inside.

Turns `<parameter=city>Paris</parameter>` and its relatives into the pieces of a JSON object, in the order in which the
model writes them. One declaration serves the parser and the grammar. A call is reported once its name is followed by an
argument or the call's end: prose that mentions a tag stays prose.
"""

import json
import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.raw import arguments_in_order, raw_value
from gateway.toolcalls.nodes.combinators import OptionalMarker, lacks_rest, pick
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Lit, Node, Seq, Space, Steps, is_name
from gateway.toolcalls.nodes.regions import CallNode
from gateway.toolcalls.nodes.typed import RawEnding, as_json, read_text, read_value, unbroken
from gateway.toolcalls.schema.json_types import ALL, STRING, Kinds, kinds_of, mapping_of
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling

QUOTED = r"""(?P<quote>["']?)(?P<key>.*)(?P=quote)"""
"""A name in a tag; models quote it with either quotation mark, or not at all."""


@dataclass(frozen=True, slots=True)
class TagName(Node):
    """A call's name inside a tag, up to the tag's end, which is read; `written` is what the grammar writes."""

    end: str = ">"
    written: str = "{name}>"
    head: str = QUOTED

    def first(self, spelling: Spelling) -> First:
        """Return None for anything: an unknown tool is a call too."""
        return None

    def run(self, at: Cursor) -> Steps:
        """Hold the name until the tag ends."""
        found = yield from read_head(at, self.end, self.head)
        if found is None or not found["key"] or not is_name(found["key"], at):
            return False
        at.calls.named(found["key"])
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the tool's name and the tag's end."""
        return g.markup(self.written, name=g.current.name)


@dataclass(frozen=True, slots=True)
class Parameters(Node):
    """The arguments of the current call, each in a tag, in any order; emitted as one object.

    `opener` begins a tag, `head` matches what follows up to `head_end`: its group `key` names the argument; `string`
    (true or false) or `type` gives its type, if the format does. `bridge` stands between the head and the value. `ends`
    may follow the last argument; `strays` are closing tags that models write once too often. `written` is what the
    grammar writes around a value. A key that no schema knows has the types `unknown`; one of `wrappers` that the tool
    does not have holds the whole object. A value may stand between two `quotes` and is then text up to the second one:
    the grammar writes strings like this if they contain a `<`. `others` are tags that models write instead. With
    `resumes`, the whole tag of another known argument ends a value too.
    """

    opener: str
    ending: RawEnding
    ends: tuple[str, ...]
    written: tuple[str, str]
    head: str = QUOTED
    head_end: str = ">"
    bridge: str = ""
    strays: tuple[str, ...] = ()
    unknown: Kinds = STRING
    wrappers: tuple[str, ...] = ()
    quotes: tuple[str, str] | None = None
    others: "tuple[Parameters, ...]" = ()
    resumes: bool = False

    @property
    def nullable(self) -> bool:
        """A call may have no arguments."""
        return True

    def run(self, at: Cursor) -> Steps:
        """Read arguments for as long as more follow."""
        tags = {Lit(tag.opener): tag for tag in (self, *self.others)}
        strays = tuple(map(Lit, self.strays))
        while True:
            yield from Space().run(at)
            found = yield from pick(at, (*tags, *strays))
            if found is None:
                break
            yield from found.run(at)
            if isinstance(found, Lit) and (tag := tags.get(found)):
                if not at.calls.started:
                    at.start_call()
                if not (yield from tag._read(at)):
                    return False
        ended = (yield from pick(at, tuple(map(Lit, self.ends)))) or lacks_rest(at, "its closing tag")
        cut_off = not ended and at.ended and self._may_go_on(at)
        if not at.calls.started:
            if not (ended or cut_off):
                return False
            at.start_call()
        if at.calls.has_arguments and not cut_off:
            at.calls.argue("}")
        return not cut_off

    def _may_go_on(self, at: Cursor) -> bool:
        """Whether the rest of the stream could have become another argument, or the end of the arguments."""
        rest = unbroken(at.buffer[at.position :], ended=at.ended)
        return any(at.spelling.spell(text).startswith(rest) for text in (self.opener, *self.ends))

    def _read(self, at: Cursor) -> Steps:
        properties = _properties(at)
        found = yield from read_head(at, self.head_end, self.head, properties)
        if found is None:
            return False
        if self.bridge:
            yield from Space().run(at)
            if not (yield from Lit(self.bridge).run(at)):
                return False
        key = found["key"]
        ending = yield from self._ending(at)
        if ending is None:
            return False
        if self.resumes:
            tags = (f"{self.opener}{other}{self.head_end}" for other in properties if other != key)
            ending = replace(ending, stops=tuple(text for tag in tags for text in (f"\n{tag}", tag)))
        if key in self.wrappers and properties and key not in properties:
            return (yield from self._read_wrapped(at, key, ending))
        # A key is emitted with the beginning of its value: until then it may be cut off.
        at.calls.argue(f"{_glue(at)}{json.dumps(key, ensure_ascii=False)}: ")
        return (yield from read_value(at, self._kinds(at, key, found.groupdict()), ending))

    def _ending(self, at: Cursor) -> Generator[None, None, RawEnding | None]:
        """Return how the value that begins here ends, and read the quote with which it begins, if it has one.

        None where the stream ends with text that may be either the quote or the value.
        """
        if self.quotes is None:
            return self.ending
        opener, closer = self.quotes
        if (yield from pick(at, (quote := Lit(opener),))) is not None:
            yield from quote.run(at)
            return RawEnding(f"{closer}{self.ending.closer}", followers=self.ending.followers)
        rest = unbroken(at.buffer[at.position :], ended=at.ended)
        return None if at.ended and rest and at.spelling.spell(opener).startswith(rest) else self.ending

    def _read_wrapped(self, at: Cursor, key: str, ending: RawEnding) -> Steps:
        """Read a value that holds all arguments as one object; if it is not an object, it is an ordinary argument."""
        held: list[str] = []
        if not (yield from read_text(at, ending, False, held.append)):
            return False
        value = as_json("".join(held), ALL)
        members = value[1:-1].strip(WHITESPACE) if value.startswith("{") else f"{json.dumps(key)}: {value}"
        if members:
            at.calls.argue(_glue(at) + members)
        return True

    def _kinds(self, at: Cursor, key: str, head: Mapping[str, str | None]) -> Kinds:
        """Return the types of an argument: those that the tag says, else those of the schema.

        The schema overrules a tag that contradicts it: the model wrote the value for the schema.
        """
        tool, properties = at.tools.get(at.calls.name), _properties(at)
        known = kinds_of(properties[key], tool.parameters) if tool and key in properties else None
        if string := head.get("string"):
            said = STRING if string == "true" else ALL - STRING
            return said if known is None else (said & known or known)
        if kind := head.get("type"):
            return (frozenset({kind}) & ALL) or ALL
        return self.unknown if known is None else known

    def grammar(self, g: Grammar) -> str:
        """Write the required arguments in the schema's order, then those that may be missing."""
        root = g.current.parameters
        return arguments_in_order(g, root, lambda key, schema: self._write(g, key, schema, root), "")

    def _write(self, g: Grammar, key: str, schema: object, root: Mapping[str, Any]) -> str:
        before, after = self.written
        # A schema that no value fits, as of `allOf` that contradict each other, is not held.
        kinds = kinds_of(schema, root) or ALL
        typed = sorted(kinds)[0] if len(kinds) == 1 else "string" if "string" in kinds else sorted(kinds)[0]
        head = g.markup(before, key=key, string="true" if "string" in kinds else "false", type=typed)
        if self.quotes and "string" in kinds:
            opener, closer = self.quotes
            plain = f"{raw_value(g, schema, root, '<')} {g.markup(after)}"
            quoted = f"{g.literal(opener)} {raw_value(g, schema, root, closer)} {g.markup(closer + after)}"
            return f"{head} ({plain} | {quoted})"
        value = raw_value(g, schema, root, self.ending.closer, paired=self.ending.newline == "pair")
        return f"{head} {value} {g.markup(after)}"


def _properties(at: Cursor) -> Mapping[str, Any]:
    """Return the schemas of the called tool's arguments; none if the tool is unknown."""
    tool = at.tools.get(at.calls.name)
    return mapping_of(tool.parameters.get("properties") if tool else None)


def _glue(at: Cursor) -> str:
    """Return the text before the next member of the object."""
    return ", " if at.calls.has_arguments else "{"


def read_head(
    at: Cursor, end: str, pattern: str, known: Iterable[str] = ()
) -> Generator[None, None, re.Match[str] | None]:
    """Read the head of a tag and its end; return the match of `pattern` for the head, None if it does not match.

    None, with nothing read, where the end is not within `MAX_WORD` characters. An end inside a `known` key is part of
    that key.
    """
    finder = at.spelling.finder((end,))
    holders = tuple(key for key in known if end in key)
    start = 0
    while True:
        at.scanned += at.unread - start
        stop, whole = finder.find(at.buffer, at.position + start, ended=at.ended)
        if stop - at.position > MAX_WORD:
            return None
        inside = _inside(at, stop, end, holders) if whole else None
        if inside is False:
            break
        if inside:
            start = stop + len(end) - at.position
        elif at.ended:
            return None
        else:
            yield
    head = at.spelling.plain(at.buffer[at.position : stop])
    at.take(stop + len(at.spelling.spell(end)))
    return re.fullmatch(pattern, head.strip(WHITESPACE), re.DOTALL)


def _inside(at: Cursor, stop: int, end: str, keys: tuple[str, ...]) -> bool | None:
    """Whether the tag's end at `stop` is inside one of several keys; None while more text is needed to decide."""
    unsure = False
    for key, start in ((each, stop - found.start()) for each in keys for found in re.finditer(re.escape(end), each)):
        text = at.buffer[start : start + len(key)]
        if start >= at.position and text == key:
            return True
        unsure |= start >= at.position and key.startswith(text)
    return None if unsure else False


# A call as an `<invoke>` tag with a `<parameter>` tag for each argument: MiniMax M2, dots, Muse Glimmer.
#
# Families differ in the tags' prefix and in what stands around the calls. Attributes are in single or double quotes or
# unquoted; values are raw text, typed by the tool's schema.


def invoke_call(block_end: str, prefix: str = "", *before: Node | str) -> CallNode:
    """Return a call inside a block that ends with `block_end`; `before` are nodes of the call before its tag."""
    tag_end, value_end = f"</{prefix}invoke>", f"</{prefix}parameter>"
    parameters = Parameters(
        opener=f"<{prefix}parameter name=",
        ending=RawEnding(
            value_end,
            followers=(f"<{prefix}parameter", value_end, tag_end, block_end),
            stops=(f"{tag_end}\n{block_end}", f"\n<{prefix}parameter name="),
            newline="pair",
        ),
        ends=(tag_end, block_end),
        written=(f'<{prefix}parameter name="{{key}}">', f"{value_end}\n"),
        strays=(value_end,),
    )
    head = (f"<{prefix}invoke name=", TagName(written='"{name}">'))
    return CallNode(Seq(*before, *head, Space("\n"), parameters, OptionalMarker(tag_end)))


def invoke_shape(prefix: str = "") -> str:
    """Return one call as a prompt shows it."""
    value = f'<{prefix}parameter name="KEY">VALUE</{prefix}parameter>'
    return f'<{prefix}invoke name="TOOL">\n{value}\n</{prefix}invoke>'
