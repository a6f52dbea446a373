"""GBNF, llama.cpp's grammar language: named rules, quoting, character classes, choices and repetition.

Every expression made here can be put beside another or repeated: it is a rule's name, a literal, a class, something in
parentheses, or (`markup`) a sequence of literals and tokens, which `repeat` turns into a rule. JSON Schema is left to
`schemas.py`. Source: llama.cpp, `grammars/README.md` and `src/llama-grammar.cpp`: it expands a repetition into a rule
for each time, and refuses 2000 and more, multiplied by what was expanded inside the same parentheses, and left
recursion.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from string import Formatter
from typing import Any, Final, Protocol, TypeVar

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


# A choice of given texts to GBNF: many are written as a tree of their beginnings.
#
# llama.cpp tries every token of the vocabulary against every text that is still possible, so 9,000 that begin alike
# would take seconds for each token; in a tree there is one way at each character. Each fork is a rule of its own:
# nested parentheses would be as deep as the tree. Pure.

MAX_PLAIN: Final = 32
"""Most texts that are written one after the other."""


def one_of(g: Grammar, texts: Iterable[str]) -> str:
    """Return the expression for any of some texts; "" where there is none."""
    known = list(dict.fromkeys(texts))
    if len(known) <= MAX_PLAIN:
        return g.either(map(g.literal, known))
    known.sort()
    forks = [(root := g.reserve("texts"), known, 0)]
    while forks:
        name, group, at = forks.pop()
        ways: list[str] = []
        for each in _by_character(group, at):
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(each[0], each[-1], strict=False)))
            if len(each) > 1:
                forks.append((rest := g.reserve("texts"), each, shared))
                ways.append(f"{g.literal(each[0][at:shared])} {rest}".strip())
            else:
                ways.append(g.literal(each[0][at:]))
        g.define(name, g.either(ways))
    return root


def _by_character(group: list[str], at: int) -> Iterable[list[str]]:
    """Sorted texts by their character at a place; the one that ends there comes alone."""
    found: dict[str, list[str]] = {}
    for text in group:
        found.setdefault(text[at : at + 1], []).append(text)
    return found.values()


# Text without a closing marker in it, to GBNF: the exact complement of an Aho-Corasick automaton.
#
# There is a rule for each state; each may end, and a character that would complete a marker has no alternative. Where
# characters are counted, there is a rule for each state and count.

MAX_STATES = 1_000
"""Most rules for one text. A count that would take more is left out, or made smaller."""

_NUL = r"\u0000"


def text_without(
    g: Grammar, markers: tuple[str, ...], *, least: int = 0, most: int | None = None, not_first: str = ""
) -> str:
    """Return the expression for texts of `least` to `most` characters without the markers in them.

    `not_first`: characters with which a text can't begin.
    """
    key = ("until", markers, least, most, not_first)
    return g.once(key, lambda: _Text(g, markers, least, most, not_first).written())


class _Text:
    """One automaton written as rules. A state is the longest end of the text that is the beginning of a marker."""

    def __init__(self, g: Grammar, markers: tuple[str, ...], least: int, most: int | None, not_first: str) -> None:
        self._g = g
        self._markers = markers
        self._states = {text[:length] for text in markers for length in range(len(text))}
        self._alphabet = sorted(set("".join(markers)))
        room = MAX_STATES // len(self._states)
        self._most = most if most is not None and most <= room else None
        self._least = min(least, room if self._most is None else self._most)
        self._not_first = not_first
        self._rules: dict[tuple[str, int], str] = {}

    def written(self) -> str:
        """Write the rules and return the name of the first."""
        if self._most == 0:
            return ""
        first = self._rule("", 0)
        done = 0
        while done < len(self._rules):
            (state, count), name = list(self._rules.items())[done]
            steps = f"({' | '.join(self._steps(state, count))})"
            self._g.define(name, steps if count < self._least else f"{steps}?")
            done += 1
        return first

    def _steps(self, state: str, count: int) -> Iterator[str]:
        barred = self._not_first if not count and not state else ""
        targets = {char: self._target(state + char) for char in self._alphabet if char not in barred}
        named = [char for char, to in targets.items() if to != ""]
        for char in named:
            to = targets[char]
            if to is not None:
                yield self._step(self._g.one_of(char), to, count)
        yield self._step(self._g.none_of(dict.fromkeys((*named, *barred)), _NUL), "", count)

    def _step(self, char: str, state: str, count: int) -> str:
        """Return the expression for a character and what may follow it."""
        after = count + 1 if self._most is not None else min(count + 1, self._least)
        return char if after == self._most else f"{char} {self._rule(state, after)}"

    def _rule(self, state: str, count: int) -> str:
        if (state, count) not in self._rules:
            self._rules[state, count] = self._g.reserve("until")
        return self._rules[state, count]

    def _target(self, text: str) -> str | None:
        """Return the state after `text`; None where it ends with a whole marker."""
        if text.endswith(self._markers):
            return None
        return next(text[start:] for start in range(len(text) + 1) if text[start:] in self._states)
