"""Strings in a call's JSON that are held until they are whole: keys, and the tool's name."""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.readers import MAX_WORD, First, Node, Steps
from gateway.toolcalls.stream.cursor import Cursor
from gateway.toolcalls.stream.spelling import Spelling

_PLAIN = r'[^"\\\x00-\x1f\udc00-\udfff]*+'
_STRING_BODY = rf'"{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*'
_STRING = re.compile(_STRING_BODY + '"')
_STRING_START = re.compile(_STRING_BODY + r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
_OTHER_WORD = re.compile(r"'(?P<quoted>[^'\\\x00-\x1f]++)'|(?P<bare>[A-Za-z_$][\w$.-]*+)(?=[ \t]*+[:,}\n])")
_OTHER_START = re.compile(r"'[^'\\\x00-\x1f]*+\Z|[A-Za-z_$][\w$.-]*+[ \t]*+\Z")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_word(at: Cursor) -> Generator[None, None, str | None]:
    """Read a JSON string of at most `MAX_WORD` characters, quotes included; None, and nothing read, if none is here.

    Models also write such a word in single quotes, or without any.
    """
    while True:
        at.scanned += min(at.unread, MAX_WORD)
        limit = at.position + MAX_WORD
        if found := _STRING.match(at.buffer, at.position, limit):
            # An escape can name half a surrogate pair, which UTF-8 can't encode.
            return LONE_SURROGATE.sub("�", str(json.loads(at.take(found.end()))))
        if found := _OTHER_WORD.match(at.buffer, at.position, limit):
            at.calls.repair(f"its word at character {at.offset} is not in double quotes")
            word = found["quoted"] or found["bare"]
            at.take(found.end())
            return at.spelling.plain(word)
        begun = any(start.match(at.buffer, at.position, limit) for start in (_STRING_START, _OTHER_START))
        if at.ended or at.unread >= MAX_WORD or (at.unread and not begun):
            return None
        yield


@dataclass(frozen=True, slots=True)
class QuotedName(Node):
    """The tool's name as a JSON string; from here on the call can be reported.

    `after` names what must also be known: the arguments have begun (their node then `starts` the call), or the model's
    own id has arrived (`QuotedId`).
    """

    after: Literal["", "arguments", "id"] = ""

    def first(self, spelling: Spelling) -> First:
        """Return the quotation mark."""
        return ('"',)

    def run(self, at: Cursor) -> Steps:
        """Read the whole name and report the call, if nothing else must be known."""
        name = yield from read_word(at)
        if not name:
            return False
        at.calls.named(name)
        ready = {"": True, "arguments": at.calls.has_arguments, "id": at.calls.has_id}
        if ready[self.after]:
            at.start_call()
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the name of the current tool, quoted as JSON quotes it."""
        return g.literal(json.dumps(g.current.name, ensure_ascii=False))
