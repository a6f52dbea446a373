"""Calls written as Python: `f(city='LA', days=3)`, read into a name and a JSON object.

A call is told at its first keyword, or its closing parenthesis: `[text](link)` and `f(x)` are prose. Values are
literals of Python or JSON, converted as they come. Below: `literal`, by way of `typed`. Above: `formats`.
"""

import re
import string
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.combinators import pick
from gateway.toolcalls.cursor import Cursor
from gateway.toolcalls.gbnf import Grammar
from gateway.toolcalls.literal import PYTHON
from gateway.toolcalls.nodes import MAX_WORD, First, Lit, Node, Space, Steps
from gateway.toolcalls.raw_gbnf import arguments_in_order, python_value
from gateway.toolcalls.spelling import Spelling
from gateway.toolcalls.typed import read_literal

_LETTERS = tuple(string.ascii_letters + "_")
_NAME = re.compile(r"[A-Za-z_][\w.\-/:]*+")
# Schemas name arguments as they like; a model writes `dry-run=True` for one that Python could not have.
_KEYWORD = re.compile(r"[^\W\d][\w.\-]*+")
_CLOSE, _COMMA = Lit(")"), Lit(",")


@dataclass(frozen=True, slots=True)
class PythonCall(Node):
    """One call with keyword arguments. With `known`, only of a tool of the request, where it has any.

    A `suffix` of the name is no part of it, and must be there: the grammar does not write such a call.
    """

    known: bool = False
    suffix: str = ""

    def first(self, spelling: Spelling) -> First:
        """Give what a Python name begins with."""
        return _LETTERS

    def run(self, at: Cursor) -> Steps:
        """Read the name, then arguments up to the closing parenthesis."""
        name = yield from _read_word(at, _NAME, "(")
        if name is None or not name.endswith(self.suffix) or (self.known and at.tools and name not in at.tools):
            return False
        at.calls.named(name.removesuffix(self.suffix))
        first = True
        while True:
            yield from Space().run(at)
            if (yield from pick(at, (_CLOSE,))):
                yield from _CLOSE.run(at)
                break
            if not (yield from self._argue(at, first=first)):
                return False
            first = False
        if first:
            at.start_call()
        else:
            at.calls.argue("}")
        return True

    def _argue(self, at: Cursor, *, first: bool) -> Steps:
        """Read one argument and the comma behind it, if one is there."""
        key = yield from _read_word(at, _KEYWORD, "=")
        if key is None:
            return False
        if first:
            at.start_call()
        at.calls.argue(f'{"{" if first else ", "}"{key}": ')
        yield from Space().run(at)
        if not (yield from read_literal(at, PYTHON)):
            return False
        yield from Space().run(at)
        if (yield from pick(at, (_COMMA,))):
            return (yield from _COMMA.run(at))
        return (yield from pick(at, (_CLOSE,))) is not None

    def grammar(self, g: Grammar) -> str:
        """Give the call with its arguments in the schema's order."""

        def write(key: str, schema: object) -> str:
            return f"{g.literal(f'{key}=')} {python_value(g, schema, g.current.parameters)}"

        return (
            f"{g.name()} {g.literal('(')} {arguments_in_order(g, g.current.parameters, write, ', ')} {g.literal(')')}"
        )


def _read_word(at: Cursor, pattern: re.Pattern[str], mark: str) -> Generator[None, None, str | None]:
    """Read a word and the mark behind it, whitespace between them free; None, and nothing read, if none is here."""
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
