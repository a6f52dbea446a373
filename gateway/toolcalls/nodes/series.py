"""Nodes for what models write sloppily around calls: lists, missing closing markers, other spellings.

Each reads more than its grammar writes: the grammar is the family's own form, the parser also accepts what its models
were seen to write instead.
"""

from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import MAX_CALLS, Grammar
from gateway.toolcalls.nodes.combinators import Choice, lacks_closer, lacks_rest, pick, skip_spare
from gateway.toolcalls.nodes.readers import First, Lit, Marker, Node, Seq, Space, Steps, take_one
from gateway.toolcalls.stream.cursor import Cursor, Sight
from gateway.toolcalls.stream.spelling import Spelling


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
