"""Nodes for messages that begin with a header: whose name stands there, and what the text behind it is."""

from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.readers import MAX_WORD, Node, Steps
from gateway.toolcalls.stream.cursor import Cursor


@dataclass(frozen=True, slots=True)
class Header(Node):
    """A header that was seen already and is `length` characters long; `written` is what the grammar writes."""

    written: str
    length: int = 0

    def run(self, at: Cursor) -> Steps:
        """Pass over it."""
        at.take(at.position + self.length)
        return True
        yield

    def grammar(self, g: Grammar) -> str:
        """Give it with the tool's name."""
        return g.markup(self.written, name=g.current.name)


def peek_header(at: Cursor, last: tuple[str, ...]) -> Generator[None, None, str | None]:
    """Give the text up to and with the first of several markers, as it stands in the stream; nothing is read.

    None where none of them comes within `MAX_WORD` characters.
    """
    finder = at.spelling.finder(last)
    spelled = tuple(map(at.spelling.spell, last))
    while True:
        at.scanned += at.unread
        end, found = finder.find(at.buffer, at.position, ended=at.ended)
        if found and end - at.position <= MAX_WORD:
            marker = next(text for text in spelled if at.buffer.startswith(text, end))
            return at.buffer[at.position : end + len(marker)]
        if found or at.ended or end - at.position > MAX_WORD:
            return None
        yield
