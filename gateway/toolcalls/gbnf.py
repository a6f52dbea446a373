"""Nodes to GBNF, llama.cpp's grammar language: named rules, quoting, repetition, and "text without these delimiters".

Every expression that leaves here can be put beside another or repeated: it is a rule's name, a literal, a class, in
parentheses, or (`markup`) literals and tokens side by side, which `repeat` parenthesises. Bounds are everywhere:
a small model under a grammar writes on for as long as it may. What JSON Schema asks for stands in `schema_gbnf`. Above:
the nodes. Source: llama.cpp, `grammars/README.md`; it refuses repetitions above 2000, and left recursion.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, Protocol

from gateway.toolcalls.spec import ToolSpec

MAX_CALLS = 16
"""Calls in one answer under a grammar, where parallel calls are allowed."""

MAX_REPEAT = 2000
"""llama.cpp refuses a grammar with a larger bound ("failed to parse grammar")."""

_LONG = 30
"""Characters from which an expression that is used twice becomes a rule."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CLASS_ESCAPES = _ESCAPES | {"]": "\\]", "[": "\\[", "^": "\\x5E", "-": "\\x2D"}


class Schemas(Protocol):
    """Turns a JSON Schema into an expression whose rules it adds to the grammar."""

    def __call__(self, g: "Grammar", schema: Mapping[str, Any], name: str, /) -> str:
        """Give the expression; its rules are named after `name`."""
        ...


class Grammar:
    """One grammar in the making. `tool` is the tool whose call is being written, if one is.

    `tokens` are markers that the model must write as one token, with its id; all others it may spell as it likes.
    """

    def __init__(
        self, tools: Sequence[ToolSpec], *, parallel: bool, schemas: Schemas, tokens: Mapping[str, int] | None = None
    ) -> None:
        self.tools = tools
        self.parallel = parallel
        self.tool: ToolSpec | None = None
        self._schemas = schemas
        self._tokens = tokens or {}
        self._markers = re.compile("|".join(map(re.escape, sorted(self._tokens, key=len, reverse=True))) or "(?!)")
        self._rules: dict[str, str] = {}

    def text(self, root: str) -> str:
        """Give the whole grammar, `root` first."""
        rules = {"root": root, **self._rules}
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def rule(self, name: str, body: str) -> str:
        """Add a rule under a name that is still free, and give the name."""
        free, number = name, 0
        while free in self._rules:
            number += 1
            free = f"{name}-{number}"
        self._rules[free] = body
        return free

    def shared(self, name: str, body: str) -> str:
        """Add a rule that is the same wherever it is used, once."""
        self._rules.setdefault(name, body)
        return name

    def reserve(self, name: str) -> str:
        """Take a name for a rule that refers to itself; `define` gives its body."""
        return self.rule(name, "")

    def define(self, name: str, body: str) -> None:
        """Give a reserved rule its body."""
        self._rules[name] = body

    def literal(self, text: str) -> str:
        """Quote a text; "" for none."""
        return f'"{_escape(text, _ESCAPES)}"' if text else ""

    def markup(self, template: str, **words: str) -> str:
        """Give a text of the format's own, in which markers may stand, with `words` (a name, a key) at their places.

        A marker that must be one token is written as its id; words from outside are text, whatever they look like.
        """
        parts: list[str] = []
        for text, field, _, _ in Formatter().parse(template) if words else [(template, None, None, None)]:
            start = 0
            for marker in self._markers.finditer(text):
                parts += (self.literal(text[start : marker.start()]), f"<[{self._tokens[marker.group()]}]>")
                start = marker.end()
            parts += (self.literal(text[start:]), self.literal(words[field]) if field else "")
        return " ".join(filter(None, parts))

    def one_of(self, chars: Iterable[str]) -> str:
        """Give a class of characters."""
        return f"[{_escape(''.join(chars), _CLASS_ESCAPES)}]"

    def none_of(self, chars: Iterable[str], also: str = "") -> str:
        """Give all characters but these, and but those of `also`, which is written as in a class."""
        return f"[^{_escape(''.join(chars), _CLASS_ESCAPES)}{also}]"

    def either(self, alternatives: Iterable[str]) -> str:
        """Give a choice; an empty alternative is left out, and the choice may then be missing."""
        given = list(dict.fromkeys(alternatives))
        present = [alternative for alternative in given if alternative]
        choice = f"({' | '.join(present)})" if present else ""
        return f"{choice}?" if choice and len(present) < len(given) else choice

    def repeat(self, item: str, separator: str, least: int, most: int | None) -> str:
        """Give an item `least` to `most` times; bounds above llama.cpp's own are lowered to it."""
        least = min(least, MAX_REPEAT)
        most = None if most is None else min(most, MAX_REPEAT)
        if most == 0 or not item:
            return ""
        if not separator or most == 1:
            return f"({item}){_bounds(least, most)}"
        if len(item) > _LONG:
            # Written twice below: without a rule, the text of nested arrays would double with each level.
            item = self.rule("item", item)
        more = _bounds(max(least - 1, 0), None if most is None else most - 1)
        once = f"({item} ({separator} {item}){more})"
        return once if least else f"{once}?"

    def each_tool(self, write: "Writer") -> str:
        """Give what `write` gives for each tool, as a choice of rules."""
        names: list[str] = []
        for number, tool in enumerate(self.tools):
            self.tool = tool
            names.append(self.rule(f"call-{number}", write(self)))
        self.tool = None
        return self.either(names)

    def name(self) -> str:
        """Give the current tool's name as it is."""
        return self.literal(self.current.name)

    def arguments(self) -> str:
        """Give the current tool's arguments, after its schema."""
        return self._schemas(self, self.current.parameters, "arguments")

    @property
    def current(self) -> ToolSpec:
        """The tool whose call is being written. Raises ValueError outside of a Call node: a fault of the format."""
        if self.tool is None:
            raise ValueError("a name or arguments stand outside of a Call node; put them inside one")
        return self.tool

    def until(self, delimiters: tuple[str, ...]) -> str:
        """Give every text in which none of the delimiters stands.

        The complement of an Aho-Corasick automaton: a rule for each state, each state may end, and a character that
        would complete a delimiter has no alternative.
        """
        states = sorted({text[:length] for text in delimiters for length in range(len(text))}, key=len)
        alphabet = sorted(set("".join(delimiters)))
        name = {state: self.reserve("until") for state in states}
        for state in states:
            targets = {char: _target(state + char, delimiters, name) for char in alphabet}
            steps = [f"{self.one_of(char)} {name[to]}" for char, to in targets.items() if to]
            named = [char for char, to in targets.items() if to != ""]
            steps.append(f"{self.none_of(named)} {name['']}")
            self.define(name[state], f"({' | '.join(steps)})?")
        return name[""]


class Writer(Protocol):
    """Writes one tool's part of a grammar."""

    def __call__(self, g: Grammar, /) -> str:
        """Give the expression for `g.tool`."""
        ...


def _target(text: str, delimiters: tuple[str, ...], states: Mapping[str, str]) -> str | None:
    """Give the state after `text`: its longest end that begins a delimiter; None if it ends with a whole one."""
    if text.endswith(delimiters):
        return None
    return next(text[start:] for start in range(len(text) + 1) if text[start:] in states)


def _bounds(least: int, most: int | None) -> str:
    if least <= 1 and most is None:
        return "+" if least else "*"
    if most == 1:
        return "" if least else "?"
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def _escape(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char) or (char if char.isprintable() else _code_point(char)) for char in text)


def _code_point(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
