"""The nodes that combine nodes: one of several, one many times.

Choices are predictive: they look at the literals with which an alternative can begin, and wait only while these don't
decide. There is no backtracking, so no text is read twice.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.readers import First, Lit, Node, Seq, Steps
from gateway.toolcalls.stream.cursor import Cursor, Sight
from gateway.toolcalls.stream.spelling import Spelling


def pick(at: Cursor, options: tuple[Node, ...]) -> Generator[None, None, Node | None]:
    """Decide, in order, which of several nodes begins here; None if none does. Reads nothing."""
    while True:
        for option in options:
            first = option.first(at.spelling)
            sights = {Sight.YES} if first is None else {at.foresee(text) for text in first}
            if Sight.YES in sights:
                return option
            if Sight.UNSURE in sights:
                break
        else:
            return None
        yield


@dataclass(frozen=True, slots=True, init=False)
class Choice(Node):
    """The first of several nodes that can begin here. If one's beginning starts with another's, it must come first."""

    options: tuple[Node, ...]

    def __init__(self, *options: Node | str) -> None:
        object.__setattr__(self, "options", tuple(Lit(node) if isinstance(node, str) else node for node in options))

    def first(self, spelling: Spelling) -> First:
        """Return what any of them can begin with."""
        texts: list[str] = []
        for option in self.options:
            first = option.first(spelling)
            if first is None:
                return None
            texts.extend(first)
        return tuple(texts)

    def run(self, at: Cursor) -> Steps:
        """Pick one and run it."""
        option = yield from pick(at, self.options)
        return option is not None and (yield from option.run(at))

    def grammar(self, g: Grammar) -> str:
        """Write the alternatives."""
        return g.either(option.grammar(g) for option in self.options)

    def children(self) -> tuple[Node, ...]:
        """Return the alternatives."""
        return self.options


@dataclass(frozen=True, slots=True)
class Many(Node):
    """A node `least` to `most` times (None: without end), with a separator in between if there is one.

    The first `least` times the node is required; after that the node, or the separator before it, may be missing.
    """

    node: Node
    separator: Node | None = None
    least: int = 0
    most: int | None = None

    @property
    def nullable(self) -> bool:
        """Whether it may be missing."""
        return self.least == 0 or self.node.nullable

    def first(self, spelling: Spelling) -> First:
        """Return what the node can begin with."""
        return self.node.first(spelling)

    def run(self, at: Cursor) -> Steps:
        """Run the node as often as it occurs."""
        count = 0
        while self.most is None or count < self.most:
            lead = self.separator if self.separator and count else self.node
            if count >= self.least and (yield from pick(at, (lead,))) is None:
                return True
            if lead is not self.node and not (yield from lead.run(at)):
                return False
            if not (yield from self.node.run(at)):
                return False
            count += 1
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the node with its bounds."""
        separator = self.separator.grammar(g) if self.separator else ""
        return g.repeat(self.node.grammar(g), separator, self.least, self.most)

    def children(self) -> tuple[Node, ...]:
        """Return the node and the separator."""
        return (self.node,) if self.separator is None else (self.node, self.separator)


def maybe(node: Node | str) -> Many:
    """Make a node that may be missing."""
    return Many(Seq(node), most=1)


# Closing brackets that a model wrote once too often, or forgot, at the end of its calls.
#
# Small models miscount brackets. What follows decides: before a marker that belongs there they mean nothing.

_MAX_SPARE = 64
"""Most characters of spare brackets and whitespace that are held until it is clear what follows."""

_BRACES = re.compile(r"\}[ \t\r\n}]*+")
_BRACKETS = re.compile(r"[}\])][ \t\r\n}\])]*+")


def skip_spare(at: Cursor, followers: tuple[str, ...], *, braces: bool = False) -> Generator[None, None, None]:
    """Skip brackets here if one of `followers` (as they stand in the stream), or the end of the stream, follows.

    `braces`: only those, because a bracket may belong here.
    """
    spare = _BRACES if braces or any(text.startswith("]") for text in followers) else _BRACKETS
    while found := spare.match(at.buffer, at.position, at.position + _MAX_SPARE):
        at.scanned += found.end() - at.position
        rest = at.buffer[found.end() : found.end() + _MAX_SPARE]
        if rest.startswith(followers) or (not rest and at.ended):
            at.calls.repair(f"it has brackets too many at character {at.offset}")
            at.take(found.end())
            return
        unsure = found.end() - at.position < _MAX_SPARE and any(text.startswith(rest) for text in followers)
        if at.ended or not (unsure or not rest):
            return
        yield


def lacks_rest(at: Cursor, what: str) -> bool:
    """Whether the model ended its message here; then it left out `what` of the current call, which is repaired."""
    if not at.whole or at.unread:
        return False
    at.calls.repair(f"{what} is missing at character {at.offset}")
    return True


def lacks_closer(at: Cursor, *others: str) -> Generator[None, None, bool]:
    """Whether a marker of the region, or the end of the message, stands where a closing bracket is missing.

    `others` are texts that show it too.
    """
    followers = tuple(map(Lit, (*others, *map(at.spelling.plain, at.stops))))
    if (yield from pick(at, followers)) is None:
        return lacks_rest(at, "a closing bracket")
    at.calls.repair(f"a closing bracket is missing at character {at.offset}")
    return True
