"""The basic nodes in which formats are written; each node is both an incremental parser and a grammar.

`run` is a generator that reads from the cursor, yields where it needs more text, and returns whether it found what it
stands for. A failed node has read nothing of what it failed on. There is no look-ahead node and no backtracking, so
parser and grammar (`gbnf`) accept the same calls; the parser is freer in whitespace and in the order of keys.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal

from gateway.toolcalls.grammar.gbnf import Grammar, text_without
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor, Sight, TextChannel
from gateway.toolcalls.stream.spelling import Spelling

Steps = Generator[None, None, bool]
"""One run of a node: yields for more text, returns whether it matched."""

First = tuple[str, ...] | None
"""The texts with which a node can begin, as they stand in the stream; None where anything can."""


@dataclass(frozen=True, slots=True)
class Reasoned:
    """Reasoning as a GBNF expression, up to where calls begin, and whether the prompt has opened or closed it."""

    grammar: str
    prompt: Literal["opened", "closed", "neither"]


_NO_NAME = re.compile(r"""[][{}()<>"`\s]""")

MAX_WORD = 256
"""Most characters of a name, id or key, which are held until they are whole; MCP's tool names have at most 128."""


class Node(ABC):
    """A part of a format's definition. Holds no state: one definition serves all streams at once."""

    __slots__ = ()

    @property
    def nullable(self) -> bool:
        """Whether the node can match nothing at all."""
        return False

    def first(self, spelling: Spelling) -> First:
        """Return the texts with which a match can begin; None: it can begin with anything."""
        del spelling
        return None

    @abstractmethod
    def run(self, at: Cursor) -> Steps:
        """Read the node from the stream."""

    @abstractmethod
    def grammar(self, g: Grammar) -> str:
        """Return the node as a GBNF expression."""

    def children(self) -> tuple["Node", ...]:
        """Return the nodes that this one is made of."""
        return ()

    def reasoning(self, g: Grammar, tail: str) -> "Reasoned | None":
        """Return the reasoning that the node reads before calls, after a prompt that ends with `tail`; None: none."""
        del g, tail
        return None


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything under it."""
    yield node
    for child in node.children():
        yield from walk(child)


@dataclass(frozen=True, slots=True)
class Lit(Node):
    """Exactly this text."""

    text: str

    def first(self, spelling: Spelling) -> First:
        """Return the text itself."""
        return (spelling.spell(self.text),)

    def run(self, at: Cursor) -> Steps:
        """Wait until it is certain whether the text stands here; read it if it does."""
        text = at.spelling.spell(self.text)
        while (sight := at.foresee(text)) is Sight.UNSURE:
            yield
        if sight is Sight.YES:
            at.take(at.position + len(text))
        return sight is Sight.YES

    def grammar(self, g: Grammar) -> str:
        """Write the text, quoted."""
        return g.markup(self.text)


class Marker(Lit):
    """A literal that may be one special token: then it counts only as that token, never as its spelling."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class Seq(Node):
    """One node after another; a bare text is a literal."""

    nodes: tuple[Node, ...]

    def __init__(self, *nodes: Node | str) -> None:
        object.__setattr__(self, "nodes", tuple(Lit(node) if isinstance(node, str) else node for node in nodes))

    @property
    def nullable(self) -> bool:
        """Whether all of it may be missing."""
        return all(node.nullable for node in self.nodes)

    def first(self, spelling: Spelling) -> First:
        """Return what the first nodes can begin with, up to the first node that can't be missing."""
        texts: list[str] = []
        for node in self.nodes:
            first = node.first(spelling)
            if first is None:
                return None
            texts.extend(first)
            if not node.nullable:
                return tuple(texts)
        return None

    def run(self, at: Cursor) -> Steps:
        """Run the nodes in order; stop at the first that fails."""
        for node in self.nodes:
            if not (yield from node.run(at)):
                return False
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the nodes side by side."""
        return " ".join(filter(None, (node.grammar(g) for node in self.nodes)))

    def children(self) -> tuple[Node, ...]:
        """Return the nodes."""
        return self.nodes


@dataclass(frozen=True, slots=True)
class Space(Node):
    """Any whitespace, or none. `canonical` is what the grammar writes."""

    canonical: str = ""

    @property
    def nullable(self) -> bool:
        """Whitespace may always be missing."""
        return True

    def first(self, spelling: Spelling) -> First:
        """Return the whitespace characters."""
        return tuple(WHITESPACE)

    def run(self, at: Cursor) -> Steps:
        """Read until something else comes."""
        while not at.skip_whitespace():
            yield
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the canonical whitespace."""
        return g.literal(self.canonical)


@dataclass(frozen=True, slots=True)
class Until(Node):
    """Text up to the first of several delimiters, emitted on a channel as it arrives; the delimiter is not read.

    Without a delimiter, everything up to the end of the stream. Only text that may begin a delimiter is held back.
    """

    channel: TextChannel
    delimiters: tuple[str, ...]

    @property
    def nullable(self) -> bool:
        """The text may be empty."""
        return True

    def run(self, at: Cursor) -> Steps:
        """Emit text until a delimiter stands here, or nothing is left."""
        finder = at.spelling.finder(self.delimiters)
        tell = at.calls.content if self.channel == "content" else at.calls.reasoning
        while True:
            at.scanned += at.unread
            end, whole = finder.find(at.buffer, at.position, ended=at.ended)
            tell(at.take(end))
            if whole or at.ended:
                return True
            yield

    def grammar(self, g: Grammar) -> str:
        """Write any text without a delimiter in it."""
        return text_without(g, self.delimiters)


@dataclass(frozen=True, slots=True)
class Capture(Node):
    """A call's name or id, up to a delimiter, which is not read; reported whole or not at all.

    `shape` is what the grammar lets the model write for an id; a name is the tool's own. `also` are other delimiters,
    which models write instead of the right one. With `known`, only the name of a tool of the request counts.
    """

    what: Literal["name", "id"]
    delimiter: str
    shape: str = "[a-zA-Z0-9]{9}"
    also: tuple[str, ...] = ()
    known: bool = False

    def first(self, spelling: Spelling) -> First:
        """Return None for anything: an unknown tool is a call too."""
        return None

    def run(self, at: Cursor) -> Steps:
        """Hold the text until its delimiter arrives; its length is bounded."""
        held = yield from read_until(at, (self.delimiter, *self.also))
        if held is None:
            return False
        text = held.strip(WHITESPACE)
        if self.what == "name" and (not is_name(text, at) or (self.known and text not in at.tools)):
            return False
        (at.calls.named if self.what == "name" else at.calls.identify)(text)
        return bool(text)

    def grammar(self, g: Grammar) -> str:
        """Write the tool's name, or the shape of an id."""
        return g.name() if self.what == "name" else self.shape


@dataclass(frozen=True, slots=True)
class IgnoredWord(Node):
    """A word that is ignored, up to a delimiter, which is not read; `shape` is what the grammar writes."""

    delimiter: str
    shape: str = "[a-zA-Z0-9_-]{1,64}"

    def run(self, at: Cursor) -> Steps:
        """Read the word; its length is bounded."""
        return (yield from read_until(at, (self.delimiter,))) is not None

    def grammar(self, g: Grammar) -> str:
        """Write the shape."""
        return self.shape


@dataclass(frozen=True, slots=True)
class Start(Node):
    """The place from which the call can be reported: its name is known, and its id if the model gives one."""

    @property
    def nullable(self) -> bool:
        """It reads nothing."""
        return True

    def first(self, spelling: Spelling) -> First:
        """Return no text: it begins with nothing."""
        return ()

    def run(self, at: Cursor) -> Steps:
        """Report the call."""
        at.start_call()
        return True
        yield

    def grammar(self, g: Grammar) -> str:
        """Write nothing."""
        return ""


def is_name(text: str, at: Cursor) -> bool:
    """Whether a text can be a tool's name: with brackets, quotes or blanks in it, only one that exists."""
    return text in at.tools or not _NO_NAME.search(text)


def read_space(at: Cursor) -> Generator[None, None, str]:
    """Read whitespace until something else follows, and return it."""
    held = ""
    while True:
        start = at.position
        over = at.skip_whitespace()
        held += at.buffer[start : at.position]
        if over:
            return held
        yield


def take_one(at: Cursor, chars: str) -> str:
    """Read and return one of several characters if it is next, else "". Never waits; `read_space` before it does."""
    at.scanned += 1
    if not at.unread or at.buffer[at.position] not in chars:
        return ""
    return at.take(at.position + 1)


def read_until(at: Cursor, delimiters: tuple[str, ...]) -> Generator[None, None, str | None]:
    """Read at most `MAX_WORD` characters up to a delimiter, which is not read; None, and nothing read, without one."""
    finder = at.spelling.finder(delimiters)
    while True:
        at.scanned += at.unread
        end, whole = finder.find(at.buffer, at.position, ended=at.ended)
        if end - at.position > MAX_WORD or (at.ended and not whole):
            return None
        if whole:
            return at.take(end)
        yield


def skip_until(at: Cursor, delimiters: tuple[str, ...]) -> Generator[None, None, None]:
    """Skip text up to one of the delimiters, which is not read, or to the end of the stream."""
    finder = at.spelling.finder(delimiters) if delimiters else None
    while True:
        at.scanned += at.unread
        end, found = (
            finder.find(at.buffer, at.position, ended=at.ended) if finder is not None else (len(at.buffer), False)
        )
        at.take(end)
        if found or at.ended:
            return
        yield
