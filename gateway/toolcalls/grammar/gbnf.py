"""GBNF, llama.cpp's grammar language: named rules, quoting, character classes, choices and repetition.

Every expression made here can be put beside another or repeated: it is a rule's name, a literal, a class, something in
parentheses, or (`markup`) a sequence of literals and tokens, which `repeat` turns into a rule. JSON Schema is left to
`schemas.py`. Source: llama.cpp, `grammars/README.md` and `src/llama-grammar.cpp`: it expands a repetition into a rule
for each time, and refuses 2000 and more, multiplied by what was expanded inside the same parentheses, and left
recursion.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, Protocol, TypeVar

from gateway.toolcalls.schema.merge import Work
from gateway.toolcalls.schema.spec import ToolSpec

_T = TypeVar("_T")

MAX_CALLS = 16
"""Most calls in one answer under a grammar, where parallel calls are allowed."""

MAX_COUNT = 1_000
"""The largest count that a repetition names: half of what llama.cpp accepts. A larger count is dropped."""

MAX_COUNTED = 20_000
"""Largest sum of the counts in one grammar: llama.cpp makes that many rules, for every request again."""

_SINGLE = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*|\[(?:[^\]\\]|\\.)*\]")
"""What can be repeated without parentheses: a rule's name, a class."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CLASS_ESCAPES = _ESCAPES | {"]": "\\]", "[": "\\[", "^": "\\u005E", "-": "\\u002D"}


class Schemas(Protocol):
    """Turns a JSON Schema into an expression whose rules it adds to the grammar."""

    def __call__(self, g: "Grammar", schema: Mapping[str, Any], name: str, /) -> str:
        """Return the expression; its rules are named after `name`."""
        ...


class Grammar:
    """One grammar while it is being written. `tool` is the tool whose call is being written, if any.

    `tokens` are markers that the model must write as one token, with the token's id; it may spell all others freely.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        *,
        parallel: bool,
        schemas: Schemas,
        tokens: Mapping[str, int] | None = None,
        work: Work | None = None,
    ) -> None:
        self.tools = tools
        self.work = work or Work()
        """For taking apart the schemas of all tools."""
        self.parallel = parallel
        self.tool: ToolSpec | None = None
        self._schemas = schemas
        self._tokens = tokens or {}
        self._markers = re.compile("|".join(map(re.escape, sorted(self._tokens, key=len, reverse=True))) or "(?!)")
        self._rules: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._written: dict[Hashable, Any] = {}
        self._counted = 0
        self._patterns = 0
        self.exact = True
        """Whether the grammar has every count that was asked for."""

    def text(self, root: str) -> str:
        """Return the whole grammar, `root` first."""
        rules = {"root": root, **self._rules}
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def rule(self, name: str, body: str) -> str:
        """Add a rule under a new name, made of `name` and a number, and return that."""
        self._numbers[name] = number = self._numbers.get(name, -1) + 1
        self._rules[f"{name}-{number}"] = body
        return f"{name}-{number}"

    def has(self, name: str) -> bool:
        """Whether there is a rule of this name."""
        return name in self._rules

    def once(self, key: Hashable, write: Callable[[], _T]) -> _T:
        """Return an expression that is the same wherever it is used; its rules are written on first use."""
        if key not in self._written:
            self._written[key] = write()
        return self._written[key]

    def reserve(self, name: str) -> str:
        """Reserve a name for a rule that refers to itself; `define` sets its body."""
        return self.rule(name, "")

    def define(self, name: str, body: str) -> None:
        """Set the body of a rule: one that was reserved, or one whose name does not end in a number."""
        self._rules[name] = body

    def literal(self, text: str) -> str:
        """Quote a text; "" for an empty one."""
        return f'"{_escape(text, _ESCAPES)}"' if text else ""

    def markup(self, template: str, **words: str) -> str:
        """Return the expression for a format's own text, which may hold markers; `words` (a name, a key) are filled in.

        A marker that must be one token is written as its id; the words come from outside and are always plain text.
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
        """Return a class of characters."""
        return f"[{_escape(''.join(chars), _CLASS_ESCAPES)}]"

    def ranges(self, ranges: Iterable[tuple[int, int]], *, negated: bool = False) -> str:
        """Return a class of characters by ranges of code points, both ends included; `negated`: of all others."""
        spelled = (
            "-".join(_escape(chr(code), _CLASS_ESCAPES) for code in dict.fromkeys((low, high))) for low, high in ranges
        )
        return f"[{'^' if negated else ''}{''.join(spelled)}]"

    def none_of(self, chars: Iterable[str], also: str = "") -> str:
        """Return the class of all characters except these and those of `also`, which is written as in a class."""
        return f"[^{_escape(''.join(chars), _CLASS_ESCAPES)}{also}]"

    def either(self, alternatives: Iterable[str]) -> str:
        """Return a choice; an empty alternative is left out and makes the choice optional."""
        given = list(dict.fromkeys(alternatives))
        present = [alternative for alternative in given if alternative]
        choice = f"({' | '.join(present)})" if present else ""
        return f"{choice}?" if choice and len(present) < len(given) else choice

    def repeat(self, item: str, separator: str, least: int, most: int | None) -> str:
        """Repeat an item, which matches no empty text, `least` to `most` times (None: without end).

        A count that is too large for the engine is left out: a text may then have more, or fewer, than was asked for.
        """
        if most == 0 or not item:
            return ""
        least, most = self._countable(least, most)
        item = self._single(item)
        if not separator or most == 1:
            return f"{item}{_bounds(least, most)}"
        more = self._single(f"{separator} {item}")
        once = f"({item} {more}{_bounds(max(least - 1, 0), None if most is None else most - 1)})"
        return once if least else f"{once}?"

    def _single(self, item: str) -> str:
        """Put an item into a rule: the engine multiplies a count by counts inside parentheses, but not inside rules."""
        if _SINGLE.fullmatch(item):
            return item
        return self.once(("item", item), lambda: self.rule("item", item))

    def _countable(self, least: int, most: int | None) -> tuple[int, int | None]:
        if most is not None and (most > MAX_COUNT or self._counted + most > MAX_COUNTED):
            most, self.exact = None, False
        if least > MAX_COUNT or self._counted + least > MAX_COUNTED:
            least, self.exact = 1, False
        self._counted += least if most is None else most
        return least, most

    def takes_pattern(self, length: int, most: int) -> bool:
        """Whether one more pattern of this length may be read: all together at most `most` characters."""
        self._patterns += length
        return self._patterns <= most

    def each_tool(self, write: "Writer") -> str:
        """Return a choice of rules, one for each tool, each as `write` returns it."""
        names: list[str] = []
        for tool in self.tools:
            self.tool = tool
            names.append(self.rule("call", write(self)))
        self.tool = None
        return self.either(names)

    def name(self) -> str:
        """Return the current tool's name as a literal."""
        return self.literal(self.current.name)

    def arguments(self) -> str:
        """Return the expression for the current tool's arguments, by its schema."""
        return self._schemas(self, self.current.parameters, "arguments")

    @property
    def current(self) -> ToolSpec:
        """The tool whose call is being written. Raises ValueError outside a Call node, which is a bug in the format."""
        if self.tool is None:
            raise ValueError("a name or arguments stand outside of a Call node; put them inside one")
        return self.tool


class Writer(Protocol):
    """Writes one tool's part of a grammar."""

    def __call__(self, g: Grammar, /) -> str:
        """Return the expression for `g.tool`."""
        ...


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
    # Never `\\x`: llama.cpp reads two digits after it, and xgrammar, which vLLM uses, as many as there are.
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
