"""Nodes that know what calls are made of: the call, and the region around it.

A region is everything from an opening marker to its closing one; a call is one part of it. An error inside a region
ends with it: its text becomes content, and the message continues.
"""

from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import MAX_CALLS, Grammar
from gateway.toolcalls.nodes.combinators import Many, pick, skip_spare
from gateway.toolcalls.nodes.readers import First, Marker, Node, Seq, Space, Steps, read_space, skip_until, walk
from gateway.toolcalls.stream.cursor import Cursor
from gateway.toolcalls.stream.spelling import Spelling
from gateway.toolcalls.values.json_scanner import missing_end


class RegionTooLong(Exception):
    """Thrown into a running region by the machine when the region has grown beyond its bound."""


@dataclass(frozen=True, slots=True)
class CallNode(Node):
    """One call. Under a grammar, one alternative for each tool.

    With `name_suffices`, a call that waited in vain for more than its name is reported at its end.
    """

    node: Node
    name_suffices: bool = True

    def first(self, spelling: Spelling) -> First:
        """Return what the call begins with."""
        return self.node.first(spelling)

    def run(self, at: Cursor) -> Steps:
        """Read one call. A call without a name can't be reported and does not count."""
        at.begin_call()
        if not (yield from self.node.run(at)):
            return False
        if not at.calls.started:
            if not (self.name_suffices and at.calls.has_name):
                return False
            at.start_call()
        at.calls.complete()
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the call for each tool."""
        return g.each_tool(self.node.grammar)

    def children(self) -> tuple[Node, ...]:
        """Return what the call is made of."""
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Calls(Node):
    """One call or more, each a `CallNode` or a region; the grammar allows more than one only where the request does."""

    node: Node
    separator: Node | None = None

    def first(self, spelling: Spelling) -> First:
        """Return what the first call begins with."""
        return self.node.first(spelling)

    def run(self, at: Cursor) -> Steps:
        """Read calls for as long as more follow."""
        return (yield from Many(self.node, self.separator, least=1).run(at))

    def grammar(self, g: Grammar) -> str:
        """Write one call, or up to `MAX_CALLS`."""
        separator = self.separator.grammar(g) if self.separator else ""
        return g.repeat(self.node.grammar(g), separator, 1, MAX_CALLS if g.parallel else 1)

    def children(self) -> tuple[Node, ...]:
        """Return the call and the separator."""
        return (self.node,) if self.separator is None else (self.node, self.separator)


@dataclass(frozen=True, slots=True, init=False)
class MarkedRegion(Node):
    """An opening marker and what belongs to it, up to and including its closing marker."""

    opener: Marker
    body: Node
    markers: tuple[str, ...]
    """The markers that may follow a value inside."""

    def __init__(self, opener: str, *body: Node | str) -> None:
        object.__setattr__(self, "opener", Marker(opener))
        object.__setattr__(self, "body", Seq(*body))
        inside = (node.text for node in walk(self.body) if isinstance(node, Marker))
        object.__setattr__(self, "markers", tuple(dict.fromkeys((*self._opening, *inside))))

    @property
    def _opening(self) -> tuple[str, ...]:
        return (self.opener.text,)

    def first(self, spelling: Spelling) -> First:
        """Return the opening marker."""
        return self.opener.first(spelling)

    def run(self, at: Cursor) -> Steps:
        """Read the region. It never fails: what it can't read becomes content again."""
        return (yield from self.run_after("", at))

    def run_after(self, lead: str, at: Cursor) -> Steps:
        """Read the region after a `lead`, which becomes content if the region breaks. Returns whether it was whole."""
        at.open_region(lead, self.markers)
        reason = None
        try:
            whole = yield from Seq(*self.children()).run(at)
        except RegionTooLong as error:
            whole, reason = False, str(error)
        if whole:
            if _last(self.body) is None and not at.buffer.endswith(at.stops, 0, at.position):
                while not (at.unread or at.ended):
                    yield
                yield from skip_spare(at, at.stops)
            return at.close_region()
        if at.calls.answered and not at.cut:
            return (yield from self._spoil(at, reason))
        if self._break(at, reason):
            yield from self._drop(at)
        return False

    def _break(self, at: Cursor, reason: str | None) -> bool:
        """Make content of what was read; return whether the rest of the region is dropped."""
        at.break_region(reason)
        return at.calls.policy.malformed == "drop" and at.channel == "content"

    def _spoil(self, at: Cursor, reason: str | None) -> Steps:
        """Close a call that can't be read, but gets an answer; the rest of its text is part of it."""
        at.spoil_call(missing_end(at.calls.arguments), reason)
        yield from self._drop(at)
        return at.close_region()

    def _drop(self, at: Cursor) -> Generator[None, None, None]:
        """Read on without emitting anything, to the closing marker or the next opening one, whichever comes first."""
        closer = _last(self.body)
        yield from skip_until(at, self._rest_ends(closer))
        if closer:
            yield from closer.run(at)

    def _rest_ends(self, closer: Marker | None) -> tuple[str, ...]:
        return (closer.text, self.opener.text) if closer else (self.opener.text,)

    def grammar(self, g: Grammar) -> str:
        """Write the opener and the body."""
        return f"{self.opener.grammar(g)} {self.body.grammar(g)}"

    def children(self) -> tuple[Node, ...]:
        """Return the opener and the body."""
        return (self.opener, self.body)


class Bare(MarkedRegion):
    """A region without markers, recognised by how its body begins; it is no error if it turns out not to be a call."""

    __slots__ = ()

    @property
    def _opening(self) -> tuple[str, ...]:
        return ()

    def _break(self, at: Cursor, reason: str | None) -> bool:
        """Make content of what was read, without a diagnostic where it was no call."""
        if at.region_told or at.calls.has_arguments:
            at.break_region(reason)
        else:
            at.withdraw_region()
        return False

    def _rest_ends(self, closer: Marker | None) -> tuple[str, ...]:
        # A bracket may also stand in the call itself.
        return (*self.markers, self.opener.text) if len(self.opener.text) > 1 else self.markers

    def grammar(self, g: Grammar) -> str:
        """Write the body."""
        return self.body.grammar(g)

    def children(self) -> tuple[Node, ...]:
        """Return the body; its first text is not a marker."""
        return (self.body,)


@dataclass(frozen=True, slots=True)
class LeadingRegion(Node):
    """A bare region that may stand at the beginning of a message, or after its reasoning; whitespace may come first."""

    region: Bare

    @property
    def nullable(self) -> bool:
        """A message may begin with anything else."""
        return True

    def run(self, at: Cursor) -> Steps:
        """Read the region if it is here; if not, the whitespace is content."""
        lead = yield from read_space(at)
        if (yield from pick(at, (self.region.body,))) is None:
            at.calls.content(lead)
        elif (yield from self.region.run_after(lead, at)):
            yield from Space().run(at)
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the region."""
        return self.region.grammar(g)

    def children(self) -> tuple[Node, ...]:
        """Return the region."""
        return (self.region,)


def _last(node: Node) -> Marker | None:
    """Return the marker with which a node ends, if it ends with one."""
    while isinstance(node, Seq) and node.nodes:
        node = node.nodes[-1]
    return node if isinstance(node, Marker) else None
