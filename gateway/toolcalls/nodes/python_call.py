"""Calls written as Python: `f(city='LA', days=3)`, read into a name and a JSON object.

A call is reported at its first argument, or at its closing parenthesis: `[text](link)` and `f(x)` are prose. An
argument without a keyword is the one at the same position in the tool's schema. Values are literals of Python or JSON,
converted as they arrive.
"""

import json
import re
import string
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.raw import arguments_in_order, python_value
from gateway.toolcalls.nodes.combinators import pick
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Lit, Node, Space, Steps
from gateway.toolcalls.nodes.spare import lacks_closer
from gateway.toolcalls.nodes.typed import read_literal
from gateway.toolcalls.schema.kinds import mapping_of
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling
from gateway.toolcalls.values.dialects import PYTHON_CALL

_LETTERS = tuple(string.ascii_letters + "_")
_NAME = re.compile(r"[A-Za-z_][\w.\-/:]*+")
# Schemas may use any argument names; models write `dry-run=True` or `$filter='x'`, which are not valid Python.
_KEYWORD = re.compile(r"""[^\s=,()\[\]{}'"]++""")
_VALUE = re.compile(r"""[rRbBuUfF]{0,2}["']|[\[{(+\-.0-9]|(?:True|False|None|true|false|null)\b""")
_OPENING, _CLOSING = Lit("["), Lit("]")
_CLOSE, _COMMA = Lit(")"), Lit(",")


@dataclass(frozen=True, slots=True)
class PythonCall(Node):
    """One call with its arguments. With `known`, only of a tool of the request, if the request has any.

    Without `reports`, the caller reports it. A `suffix` must follow the name and is not part of it; the grammar does
    not write such a call.
    """

    known: bool = False
    reports: bool = True
    suffix: str = ""

    def first(self, spelling: Spelling) -> First:
        """Return the characters with which a Python name begins."""
        return _LETTERS

    def run(self, at: Cursor) -> Steps:
        """Read the name, then arguments up to the closing parenthesis."""
        name = yield from _read_word(at, _NAME, "(")
        if name is None or not name.endswith(self.suffix) or (self.known and at.tools and name not in at.tools):
            return False
        at.calls.named(name.removesuffix(self.suffix))
        tool = at.tools.get(at.calls.name)
        keys = tuple(mapping_of(tool.parameters.get("properties") if tool else None))
        count = 0
        while True:
            yield from Space().run(at)
            if (yield from pick(at, (_CLOSE,))):
                yield from _CLOSE.run(at)
                break
            if count and (yield from lacks_closer(at, "]")):
                break
            if not (yield from self._argue(at, keys[count : count + 1], first=not count)):
                return False
            count += 1
        if not count:
            self._report(at)
        else:
            at.calls.argue("}")
        return True

    def _report(self, at: Cursor) -> None:
        if self.reports:
            at.start_call()

    def _argue(self, at: Cursor, place: tuple[str, ...], *, first: bool) -> Steps:
        """Read one argument and the comma after it, if there is one; `place` has the key for one without a keyword."""
        key = yield from _read_word(at, _KEYWORD, "=")
        if key is None:
            if not place or not _VALUE.match(at.buffer, at.position):
                return False
            (key,) = place
        if first:
            self._report(at)
        at.calls.argue(f"{'{' if first else ', '}{json.dumps(key, ensure_ascii=False)}: ")
        yield from Space().run(at)
        if not (yield from read_literal(at, PYTHON_CALL)):
            return False
        yield from Space().run(at)
        if (yield from pick(at, (_COMMA,))):
            return (yield from _COMMA.run(at))
        return (yield from pick(at, (_CLOSE,))) is not None or (yield from lacks_closer(at, "]"))

    def grammar(self, g: Grammar) -> str:
        """Write the call with its arguments in the schema's order."""

        def write(key: str, schema: object) -> str:
            return f"{g.literal(f'{key}=')} {python_value(g, schema, g.current.parameters)}"

        return (
            f"{g.name()} {g.literal('(')} {arguments_in_order(g, g.current.parameters, write, ', ')} {g.literal(')')}"
        )


@dataclass(frozen=True, slots=True)
class CallList(Node):
    """A list of calls in brackets. The closing one may be missing before the region's markers and at the message's end.

    A list of objects does not begin it.
    """

    calls: Node

    def first(self, spelling: Spelling) -> First:
        """Return the bracket with what may follow it."""
        return tuple(f"[{char}" for char in (*_LETTERS, *WHITESPACE))

    def run(self, at: Cursor) -> Steps:
        """Read the brackets, and the calls between them."""
        if not ((yield from _OPENING.run(at)) and (yield from self.calls.run(at))):
            return False
        return (yield from _CLOSING.run(at)) or (yield from lacks_closer(at))

    def grammar(self, g: Grammar) -> str:
        """Write the list."""
        return f"{_OPENING.grammar(g)} {self.calls.grammar(g)} {_CLOSING.grammar(g)}"

    def children(self) -> tuple[Node, ...]:
        """Return the calls."""
        return (self.calls,)


def _read_word(at: Cursor, pattern: re.Pattern[str], mark: str) -> Generator[None, None, str | None]:
    """Read a word and the mark after it, with or without blanks between; None, and nothing read, if none is here."""
    while True:
        at.scanned += min(at.unread, MAX_WORD)
        end = at.position + MAX_WORD
        word = pattern.match(at.buffer, at.position, end)
        if word is None and at.unread:
            return None
        behind = word.end() if word else at.position
        while behind < min(len(at.buffer), end) and at.buffer[behind] in " \t":
            behind += 1
        if word and behind < min(len(at.buffer), end):
            if at.buffer[behind] != mark:
                return None
            at.take(behind + 1)
            return word.group()
        if at.ended or behind >= end:
            return None
        yield
