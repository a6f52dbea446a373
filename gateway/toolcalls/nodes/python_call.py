"""Calls written as Python, one or a list, with a marker or behind text: `f(city='LA', days=3)`."""

import json
import re
import string
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.raw import arguments_in_order, python_value
from gateway.toolcalls.nodes.combinators import lacks_closer, pick, skip_spare
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Lit, Node, Space, Steps, read_space, take_one
from gateway.toolcalls.nodes.regions import Bare, RegionTooLong
from gateway.toolcalls.nodes.typed import read_literal
from gateway.toolcalls.nodes.unmarked_calls import WrittenCall, loaded, report_calls
from gateway.toolcalls.schema.json_types import mapping_of
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling
from gateway.toolcalls.values.atoms import PYTHON_CALL

# Calls written as Python: `f(city='LA', days=3)`, read into a name and a JSON object.
#
# A call is reported at its first argument, or at its closing parenthesis: `[text](link)` and `f(x)` are prose. An
# argument without a keyword is the one at the same position in the tool's schema. Values are literals of Python or
# JSON, converted as they arrive.

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


# Lists of Python calls that a model writes without a marker behind text, as `Let me look. [f(city='LA')]`.
#
# Answers also explain such lists, and Python code contains them. A list is a call where it ends the message, no code
# stands before it on its line, and each of its calls names a tool of the request and fits the tool's schema. Everything
# else stays content. The list is held until its end is known.

_CALL = PythonCall(known=True, reports=False)
_CODE = re.compile(r"""(?:[\w)\]}"'`\\/@#]|[=(,{|#][ \t]*|\b(?:return|yield)[ \t]+)\Z""", re.ASCII)
"""What stands before a list that is a part of code."""


@dataclass(frozen=True, slots=True, init=False)
class FinalList(Bare):
    """A list without an opening marker that ends the message, or several; a `closer` may follow each."""

    closer: Node

    def __init__(self, calls: CallList, closer: Node) -> None:
        Bare.__init__(self, "[", calls, closer)
        object.__setattr__(self, "closer", closer)

    def run_after(self, lead: str, at: Cursor) -> Steps:
        """Read the lists; return whether they are calls. If not, what was read is content."""
        if not at.tools or (not lead and _CODE.search(at.calls.said)):
            at.calls.content(lead)
            at.calls.content(at.take(at.position + 1))
            return False
        at.open_region(lead, self.markers)
        found: list[WrittenCall] = []
        try:
            ends = yield from self._read(at, found)
        except RegionTooLong:
            ends = False
        if ends and all(call.fits(at) for call in found):
            return report_calls(at, found)
        at.withdraw_region()
        if found:
            message = f"the answer shows a call of {found[0].name!r}: text follows it, or its arguments don't fit"
            at.calls.abandon("lookalike", message)
        return False

    def _read(self, at: Cursor, found: list[WrittenCall]) -> Steps:
        """Read all lists; return whether the message ends after them."""
        while (yield from pick(at, (_OPENING,))):
            yield from _OPENING.run(at)
            if not (yield from _read_calls(at, found)):
                return False
            yield from self.closer.run(at)
            yield from read_space(at)
        return not at.unread


def _read_calls(at: Cursor, found: list[WrittenCall]) -> Steps:
    """Read the calls of one list, and the bracket that closes it."""
    while True:
        yield from read_space(at)
        if found and take_one(at, "]"):
            # A comma stood before it.
            return True
        at.begin_call()
        if not (yield from _CALL.run(at)):
            return False
        found.append(_written(at))
        yield from read_space(at)
        yield from skip_spare(at, (",", "]"), braces=True)
        if not take_one(at, ","):
            return bool(take_one(at, "]")) or (yield from lacks_closer(at))


def _written(at: Cursor) -> WrittenCall:
    source = at.calls.arguments or "{}"
    try:
        arguments = dict(mapping_of(loaded(source)))
    except (ValueError, RecursionError):
        arguments = None
    return WrittenCall(at.calls.name, arguments, source, at.calls.repaired)
