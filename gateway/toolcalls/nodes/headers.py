"""Nodes for messages that begin with a header, which names a recipient and says what the text after it is."""

from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.readers import MAX_WORD, Node, Steps
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor


@dataclass(frozen=True, slots=True)
class Header(Node):
    """A header that was already seen and is `length` characters long; `written` is what the grammar writes."""

    written: str
    length: int = 0

    def run(self, at: Cursor) -> Steps:
        """Skip the header."""
        at.take(at.position + self.length)
        return True
        yield

    def grammar(self, g: Grammar) -> str:
        """Write the header with the tool's name."""
        return g.markup(self.written, name=g.current.name)


def peek_header(at: Cursor, last: tuple[str, ...], stops: tuple[str, ...] = ()) -> Generator[None, None, str | None]:
    """Return the text up to and including the first of the markers in `last`, as it is in the stream. Reads nothing.

    A marker in `stops` ends the text too, but is left out. None where none of them comes within `MAX_WORD` characters;
    "" where the stream ends before one.
    """
    finder = at.spelling.finder((*last, *stops))
    spelled = tuple(map(at.spelling.spell, last))
    while True:
        at.scanned += at.unread
        end, found = finder.find(at.buffer, at.position, ended=at.ended)
        if end - at.position > MAX_WORD:
            return None
        if found:
            marker = next((text for text in spelled if at.buffer.startswith(text, end)), "")
            return at.buffer[at.position : end + len(marker)]
        if at.ended:
            return ""
        yield


def peek_after(at: Cursor, length: int, texts: tuple[str, ...]) -> Generator[None, None, str]:
    """Return what follows a header of `length` characters, after whitespace, as it is in the stream. Reads nothing.

    Waits until it is known whether one of `texts` follows, for at most `MAX_WORD` characters.
    """
    while True:
        at.scanned += at.unread - length
        behind = at.buffer[at.position + length :]
        rest = behind.lstrip(WHITESPACE)
        if at.ended or len(behind) > MAX_WORD or rest in texts or not any(text.startswith(rest) for text in texts):
            return rest
        yield
