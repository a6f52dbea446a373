"""The nodes that combine nodes: one of several, one many times, and lists of calls as models write them.

Choices are predictive: they look at the literals with which an alternative can begin, and wait only while these don't
decide. There is no backtracking, so no text is read twice.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import MAX_CALLS, Grammar
from gateway.toolcalls.nodes.readers import First, Lit, Marker, Node, Seq, Space, Steps, take_one
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


# Nodes for what models write sloppily around calls: lists, missing closing markers, other spellings.
#
# Each reads more than its grammar writes: the grammar is the family's own form, the parser also accepts what its models
# were seen to write instead.


@dataclass(frozen=True, slots=True)
class Series(Node):
    """Calls one after another, each a `Call` or a node with one inside; whitespace between them is free.

    `between` is what the grammar writes there. Its characters other than whitespace may be there any number of times.
    Whitespace after the last call is read too. There must be at least one call.
    """

    node: Node
    between: str = ""

    def first(self, spelling: Spelling) -> First:
        """Return what the first call begins with."""
        return self.node.first(spelling)

    def run(self, at: Cursor) -> Steps:
        """Read calls for as long as more follow."""
        separator = self.between.strip()
        yield from Space().run(at)
        while True:
            if not (yield from self.node.run(at)):
                return False
            yield from Space().run(at)
            yield from skip_spare(at, (",", "]", *at.stops), braces=True)
            while separator and take_one(at, separator):
                yield from Space().run(at)
            if (yield from pick(at, (self.node,))) is None:
                return True

    def grammar(self, g: Grammar) -> str:
        """Write one call, or up to `MAX_CALLS`."""
        return g.repeat(self.node.grammar(g), g.markup(self.between), 1, MAX_CALLS if g.parallel else 1)

    def children(self) -> tuple[Node, ...]:
        """Return the call."""
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Array(Node):
    """A JSON array of calls. The grammar writes the three texts; the parser reads any whitespace, and an empty array.

    The parser also accepts the calls without brackets, separated by commas, semicolons or nothing.
    """

    node: Node
    opener: str = "["
    between: str = ", "
    closer: str = "]"

    def first(self, spelling: Spelling) -> First:
        """Return the bracket, and what a call begins with."""
        first = self.node.first(spelling)
        return None if first is None else ("[", *first)

    def run(self, at: Cursor) -> Steps:
        """Read the array."""
        yield from Space().run(at)
        if not take_one(at, "["):
            return (yield from Series(self.node, ",;").run(at))
        yield from Space().run(at)
        if take_one(at, "]"):
            return True
        if not (yield from Series(self.node, ",").run(at)):
            return False
        return bool(take_one(at, "]")) or (yield from lacks_closer(at))

    def grammar(self, g: Grammar) -> str:
        """Write the array."""
        calls = Series(self.node, self.between).grammar(g)
        return f"{g.markup(self.opener)} {calls} {g.markup(self.closer)}"

    def children(self) -> tuple[Node, ...]:
        """Return the call."""
        return (self.node,)


@dataclass(frozen=True, slots=True)
class OptionalMarker(Marker):
    """A marker that models leave out: it is read if it is there, and its absence is not an error.

    Whitespace before it is read too; `lead` is what the grammar writes there. A stream that ends inside the marker is
    not an error either.
    """

    lead: str = ""

    @property
    def nullable(self) -> bool:
        """It may be missing."""
        return True

    def run(self, at: Cursor) -> Steps:
        """Read the marker, or the part of it with which the stream ends."""
        yield from Space().run(at)
        text = at.spelling.spell(self.text)
        yield from skip_spare(at, (text,))
        while (sight := at.foresee(text)) is Sight.UNSURE:
            yield
        if sight is Sight.YES:
            at.take(at.position + len(text))
        elif at.ended and text.startswith(at.buffer[at.position :]):
            at.take(len(at.buffer))
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the marker after its lead."""
        return g.markup(self.lead + self.text)


@dataclass(frozen=True, slots=True)
class Closer(Marker):
    """A closing marker, which may be missing only at the end of the message and before the next opening one.

    Models may also write one of `others`. Brackets that the model wrote too many before it are skipped.
    """

    others: tuple[str, ...] = ()

    def first(self, spelling: Spelling) -> First:
        """Return all of them."""
        return tuple(map(spelling.spell, (self.text, *self.others)))

    def run(self, at: Cursor) -> Steps:
        """Skip the brackets and read the marker."""
        closers = tuple(map(Marker, (self.text, *self.others)))
        yield from skip_spare(at, tuple(at.spelling.spell(closer.text) for closer in closers))
        if closer := (yield from pick(at, closers)):
            return (yield from closer.run(at))
        openers = (Lit(at.spelling.plain(stop)) for stop in at.stops[:1])
        if lacks_rest(at, "its closing marker"):
            return True
        if (yield from pick(at, tuple(openers))) is None:
            return False
        at.calls.repair(f"its closing marker is missing at character {at.offset}")
        return True

    def children(self) -> tuple[Node, ...]:
        """Return the other markers."""
        return tuple(map(Marker, self.others))


@dataclass(frozen=True, slots=True)
class MaybeMissing(Node):
    """Arguments that models leave out of a call that has none: at the end of the message, or where `before` follows."""

    node: Node
    before: str

    def first(self, spelling: Spelling) -> First:
        """Return what the arguments begin with."""
        return self.node.first(spelling)

    def run(self, at: Cursor) -> Steps:
        """Read the arguments, if they are there."""
        text = at.spelling.spell(self.before)
        while (sight := at.foresee(text)) is Sight.UNSURE:
            yield
        if sight is Sight.YES:
            at.calls.repair(f"its arguments are missing at character {at.offset}")
            return True
        return lacks_rest(at, "the object of its arguments") or (yield from self.node.run(at))

    def grammar(self, g: Grammar) -> str:
        """Write the arguments."""
        return self.node.grammar(g)

    def children(self) -> tuple[Node, ...]:
        """Return the arguments."""
        return (self.node,)


@dataclass(frozen=True, slots=True, init=False)
class Variants(Choice):
    """The first of several nodes that can begin here; `writes` is the one that the grammar writes."""

    writes: Node

    def __init__(self, *options: Node, writes: Node) -> None:
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "writes", writes)

    def grammar(self, g: Grammar) -> str:
        """Write the node in `writes`."""
        return self.writes.grammar(g)


@dataclass(frozen=True, slots=True)
class Nothing(Node):
    """Nothing at all, directly before the text `before`, which is not read."""

    before: str

    @property
    def nullable(self) -> bool:
        """It reads nothing."""
        return True

    def first(self, spelling: Spelling) -> First:
        """Return the text that follows."""
        return (spelling.spell(self.before),)

    def run(self, at: Cursor) -> Steps:
        """Read nothing."""
        return True
        yield

    def grammar(self, g: Grammar) -> str:
        """Write nothing."""
        return ""


def unwritten(node: Node) -> Variants:
    """Make a node that may be here, but that the grammar never writes."""
    return Variants(node, Seq(), writes=Seq())
