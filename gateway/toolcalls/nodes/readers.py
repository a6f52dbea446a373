"""The nodes that formats are written in; each is its own incremental parser and its own grammar. Here: those that read.

`run` is a generator that reads from the cursor, yields where it needs more text, and returns whether it found what it
stands for. A failed node has read nothing of what it failed on. There is no look-ahead node and no way back, hence
parser and grammar (`gbnf`) accept the same calls; the parser is freer in whitespace and in the order of keys.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.until import text_without
from gateway.toolcalls.stream.cursor import WHITESPACE, Channel, Cursor, Sight
from gateway.toolcalls.stream.spelling import Spelling

Steps = Generator[None, None, bool]
"""One run of a node: yields for more text, returns whether it matched."""

First = tuple[str, ...] | None
"""The texts with which a node can begin, as they stand in the stream; None where anything can."""


@dataclass(frozen=True, slots=True)
class Reasoned:
    """Reasoning as a GBNF expression, up to where calls begin, and what the prompt has done with it."""

    grammar: str
    prompt: Literal["opened", "closed", "neither"]


MAX_WORD = 256
"""Characters of a name, id, key or number. What is held until it is whole needs a bound; MCP tool names end at 128."""


class Node(ABC):
    """A piece of a format's definition. Holds no state: one definition serves all streams at once."""

    __slots__ = ()

    @property
    def nullable(self) -> bool:
        """Whether the node can match nothing at all."""
        return False

    def first(self, spelling: Spelling) -> First:
        """Give the texts with which a match can begin; None: with anything."""
        del spelling
        return None

    @abstractmethod
    def run(self, at: Cursor) -> Steps:
        """Read the node from the stream."""

    @abstractmethod
    def grammar(self, g: Grammar) -> str:
        """Give the node as a GBNF expression."""

    def children(self) -> tuple["Node", ...]:
        """Give the nodes that this one is made of."""
        return ()

    def reasoning(self, g: Grammar, tail: str) -> "Reasoned | None":
        """Give the reasoning that the node reads ahead of calls, after a prompt that ends so; None: it reads none."""
        del g, tail
        return None


def walk(node: Node) -> Iterator[Node]:
    """Give a node and everything under it."""
    yield node
    for child in node.children():
        yield from walk(child)


@dataclass(frozen=True, slots=True)
class Lit(Node):
    """Exactly this text."""

    text: str

    def first(self, spelling: Spelling) -> First:
        """Give the text itself."""
        return (spelling.spell(self.text),)

    def run(self, at: Cursor) -> Steps:
        """Wait until the text stands here or can't."""
        text = at.spelling.spell(self.text)
        while (sight := at.foresee(text)) is Sight.UNSURE:
            yield
        if sight is Sight.YES:
            at.take(at.position + len(text))
        return sight is Sight.YES

    def grammar(self, g: Grammar) -> str:
        """Give the text, quoted."""
        return g.markup(self.text)


class Marker(Lit):
    """A literal that may be one special token: then it counts only as that token, never as its spelling."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Space(Node):
    """Any whitespace, or none. `canonical` is what the grammar writes there."""

    canonical: str = ""

    @property
    def nullable(self) -> bool:
        """Whitespace may always be missing."""
        return True

    def first(self, spelling: Spelling) -> First:
        """Give the whitespace characters."""
        return tuple(WHITESPACE)

    def run(self, at: Cursor) -> Steps:
        """Read until something else comes."""
        while not at.skip_whitespace():
            yield
        return True

    def grammar(self, g: Grammar) -> str:
        """Give the canonical whitespace."""
        return g.literal(self.canonical)


@dataclass(frozen=True, slots=True)
class Until(Node):
    """Text up to the first of several delimiters, told on a channel as it comes; the delimiter is not read.

    At the end of the stream, all that is left. Only what may be the start of a delimiter waits.
    """

    channel: Channel
    delimiters: tuple[str, ...]

    @property
    def nullable(self) -> bool:
        """The text may be empty."""
        return True

    def run(self, at: Cursor) -> Steps:
        """Tell text until a delimiter stands here, or nothing is left."""
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
        """Give every text without a delimiter in it."""
        return text_without(g, self.delimiters)


@dataclass(frozen=True, slots=True)
class Capture(Node):
    """A call's name or id, up to a delimiter, which is not read; told as a whole or not at all.

    `shape` is what the grammar lets the model write for an id; a name is the tool's own. Other delimiters, `also`, are
    what models write in place of the right one.
    """

    what: Literal["name", "id"]
    delimiter: str
    shape: str = "[a-zA-Z0-9]{9}"
    also: tuple[str, ...] = ()

    def first(self, spelling: Spelling) -> First:
        """Anything: an unknown tool is a call too."""
        return None

    def run(self, at: Cursor) -> Steps:
        """Hold the text until its delimiter comes; it has a bound."""
        held = yield from read_until(at, (self.delimiter, *self.also))
        if held is None:
            return False
        text = held.strip(WHITESPACE)
        (at.calls.named if self.what == "name" else at.calls.identify)(text)
        return bool(text)

    def grammar(self, g: Grammar) -> str:
        """Give the tool's name, or the shape of an id."""
        return g.name() if self.what == "name" else self.shape


@dataclass(frozen=True, slots=True)
class Passed(Node):
    """A word that says nothing here, up to a delimiter, which is not read; `shape` is what the grammar writes."""

    delimiter: str
    shape: str = "[a-zA-Z0-9_-]{1,64}"

    def run(self, at: Cursor) -> Steps:
        """Read the word; it has a bound."""
        return (yield from read_until(at, (self.delimiter,))) is not None

    def grammar(self, g: Grammar) -> str:
        """Give the shape."""
        return self.shape


@dataclass(frozen=True, slots=True)
class Start(Node):
    """Here the call can be told: its name is known, and its id if the model gives one."""

    @property
    def nullable(self) -> bool:
        """Reads nothing."""
        return True

    def first(self, spelling: Spelling) -> First:
        """Nothing of its own."""
        return ()

    def run(self, at: Cursor) -> Steps:
        """Tell the call."""
        at.start_call()
        return True
        yield

    def grammar(self, g: Grammar) -> str:
        """Nothing."""
        return ""


def read_space(at: Cursor) -> Generator[None, None, str]:
    """Read whitespace until something else comes, and give it."""
    held = ""
    while True:
        start = at.position
        over = at.skip_whitespace()
        held += at.buffer[start : at.position]
        if over:
            return held
        yield


def read_until(at: Cursor, delimiters: tuple[str, ...]) -> Generator[None, None, str | None]:
    """Read at most `MAX_WORD` characters up to a delimiter, not read; None, and nothing read, if none comes."""
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
    """Pass over text up to one of the delimiters, which is not read, or to the end of the stream."""
    finder = at.spelling.finder(delimiters)
    while True:
        at.scanned += at.unread
        end, found = finder.find(at.buffer, at.position, ended=at.ended)
        at.take(end)
        if found or at.ended:
            return
        yield
