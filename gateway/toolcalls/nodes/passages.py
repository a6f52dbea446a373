"""Nodes that a whole message is made of: prose and reasoning, with the regions that open in them.

Both are passages of text, each on its own channel: emitted as the text arrives, up to a marker. A marker that only
frames text (`mutes`) is dropped, and the passage continues.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import lru_cache

from gateway.toolcalls.grammar.gbnf import Grammar, text_without
from gateway.toolcalls.nodes.combinators import maybe, pick
from gateway.toolcalls.nodes.readers import MAX_WORD, Marker, Node, Reasoned, Seq, Space, Steps, Until, read_space
from gateway.toolcalls.nodes.regions import Bare, MarkedRegion
from gateway.toolcalls.nodes.unmarked_calls import MAX_TRIED, OPENERS, read_lookalike
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor, TextChannel
from gateway.toolcalls.stream.spelling import Spelling


@dataclass(frozen=True, slots=True)
class Passage:
    """Text on a channel up to one of `ends` (not read), or to the end of the message.

    One `lead` (the newline that templates write between text and a call) belongs to the marker after it. A passage with
    `once` also ends after its first whole region.
    """

    channel: TextChannel
    regions: tuple[MarkedRegion, ...]
    lead: str
    mutes: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    once: bool = False

    def run(self, at: Cursor) -> Steps:
        """Emit the text, read each region that opens, and drop each mute marker; return whether a region ended it."""
        markers = (*(region.opener.text for region in self.regions), *self.mutes, *self.ends)
        # Calls without the format's markers: where regions begin in the same way, these read them.
        bare = tuple(text for text in OPENERS if not any(mark.startswith(text) for mark in markers))
        bare = bare if self.channel == "content" and at.lookalikes else ()
        stops = (*markers, *bare)
        text = Until(self.channel, (*stops, *(self.lead + stop for stop in stops)) if self.lead else stops)
        spelled, guarded = _spelled(at.spelling, self.lead, stops)
        tries = MAX_TRIED
        while True:
            if bare and not at.lookalikes:
                # What would begin a call is text like any other from here on.
                return (yield from self.run(at))
            at.idle = guarded
            yield from text.run(at)
            at.idle = False
            if not at.unread:
                return False
            lead, stop = next(two for text, two in spelled if at.buffer.startswith(text, at.position))
            if stop in self.ends:
                return False
            region = next((region for region in self.regions if region.opener.text == stop), None)
            if stop not in bare and not isinstance(region, Bare) and not at.heeds_marker():
                at.lookalikes = 0
                return (yield from replace(self, regions=(), mutes=()).run(at))
            at.take(at.position + len(at.spelling.spell(lead)))
            at.channel = self.channel
            if stop in bare:
                yield from self._lookalike(lead, at)
            elif (yield from region.run_after(lead, at) if region else self._mute(stop, at)):
                if self.once:
                    yield from Space().run(at)
                    return True
                yield from self._part(at, stops)
            else:
                tries -= isinstance(region, Bare)
            if not tries:
                return (yield from self._without_bare(at).run(at))

    def _mute(self, marker: str, at: Cursor) -> Steps:
        """Drop a marker that only frames text."""
        yield from Marker(marker).run(at)
        return False

    def _without_bare(self, at: Cursor) -> "Passage":
        """As for `lookalikes`: text with so many beginnings of calls that are none is an answer."""
        at.lookalikes = 0
        return replace(self, regions=tuple(region for region in self.regions if not isinstance(region, Bare)))

    def _lookalike(self, lead: str, at: Cursor) -> Generator[None, None, None]:
        """Read a call without markers, if one begins here; stray markers of calls may follow it."""
        inside = (mark for region in self.regions for mark in region.markers if not mark.startswith(OPENERS))
        strays = tuple(dict.fromkeys((*self.mutes, *inside)))
        if (yield from read_lookalike(lead, at, strays)):
            yield from Space().run(at)

    def _part(self, at: Cursor, stops: tuple[str, ...]) -> Generator[None, None, None]:
        """Read the whitespace after a region. Between two texts it separates them; anywhere else it is markup."""
        held = yield from read_space(at)
        if held and at.unread and (yield from pick(at, tuple(map(Marker, stops)))) is None:
            if self.channel == "reasoning":
                at.calls.reasoning(held)
            elif at.calls.spoken:
                at.calls.content(held)


@dataclass(frozen=True, slots=True, init=False)
class Prose(Node):
    """Content with regions in it, to the end of the message; the grammar writes the first region.

    One `lead` belongs to the marker after it. Whitespace right after a whole region is content only where it separates
    two texts; other whitespace is content. `mutes` are markers that frame content but are not part of it.
    """

    regions: tuple[MarkedRegion, ...]
    lead: str
    mutes: tuple[str, ...]

    def __init__(self, *regions: MarkedRegion, lead: str = "\n", mutes: tuple[str, ...] = ()) -> None:
        object.__setattr__(self, "regions", regions)
        object.__setattr__(self, "lead", lead)
        object.__setattr__(self, "mutes", mutes)

    def run(self, at: Cursor) -> Steps:
        """Emit content, and read each region that opens."""
        # Where a call has ended reasoning, the closing marker of the reasoning may still come: it frames nothing then.
        mutes = tuple(dict.fromkeys((*self.mutes, *at.strays)))
        yield from Passage("content", self.regions, self.lead, mutes).run(at)
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the region: a grammar is for a call, and the text before it is free."""
        return self.regions[0].grammar(g)

    def children(self) -> tuple[Node, ...]:
        """Return the regions and the mute markers."""
        return (*self.regions, *map(Marker, self.mutes))


@dataclass(frozen=True, slots=True)
class Thought(Node):
    """Reasoning at the beginning of a message, if there is any, between two markers.

    Where the prompt already ends with the opening marker, the message begins inside reasoning. The newlines next to
    the markers, and all whitespace before the opening one and after the closing one, are markup. Models forget to close
    it: one of `ends` (the markers of what follows) ends reasoning too, and is not read. The `regions` are read inside:
    a call ends reasoning, unless it `goes_on`; what only looks like a call stays reasoning. A `title` may follow the
    opening marker.
    """

    opener: str
    closer: str
    ends: tuple[str, ...] = ()
    regions: tuple[MarkedRegion, ...] = ()
    goes_on: bool = False
    title: str = ""

    @property
    def nullable(self) -> bool:
        """A message may have no reasoning."""
        return True

    def run(self, at: Cursor) -> Steps:
        """Emit reasoning until it closes; if the stream ends first, everything up to the end is reasoning."""
        closer = Marker(self.closer)
        tail = at.prompt_tail.rstrip(WHITESPACE).removesuffix(self.title)
        opened = tail.endswith(self.opener.rstrip(WHITESPACE))
        # Some models repeat the marker that the prompt has written for them, be it the opening or the closing one.
        marker = yield from read_after_space(at, (self.opener,) if opened else (self.opener, self.closer))
        if marker == self.closer:
            return (yield from Space().run(at))
        if not (marker or opened):
            return True
        while at.heeds_marker() and (yield from read_after_space(at, (self.opener,))):
            pass
        if self.title:
            yield from maybe(self.title).run(at)
        yield from maybe("\n").run(at)
        passage = Passage("reasoning", self.regions, "\n", ends=(self.closer, *self.ends), once=not self.goes_on)
        called = yield from passage.run(at)
        at.channel = "content"
        if not called and (yield from Seq(maybe("\n"), closer).run(at)):
            yield from Space().run(at)
        else:
            at.strays = (*at.strays, self.closer)
        return True

    def grammar(self, g: Grammar) -> str:
        """Write nothing: `reasoning` writes what may come before a call."""
        return ""

    def reasoning(self, g: Grammar, tail: str) -> Reasoned:
        """Write the text between the markers, which must not contain anything that would end it."""
        tail = tail.rstrip(WHITESPACE).removesuffix(self.title)
        closer = g.markup(self.closer)
        stops = (self.closer, *self.ends, *(region.opener.text for region in self.regions))
        inside = f'{text_without(g, tuple(filter(None, dict.fromkeys(stops))))} {closer} "\\n"{{0,2}}'
        if tail.endswith(self.opener.rstrip(WHITESPACE)):
            return Reasoned(inside, "opened")
        title = g.literal(f"{self.title}\n" if self.title else "")
        closed = tail.endswith(self.closer.rstrip(WHITESPACE))
        whole = " ".join(filter(None, (g.markup(self.opener), title, inside)))
        return Reasoned(f"({whole})", "closed" if closed else "neither")

    def children(self) -> tuple[Node, ...]:
        """Return the markers and the regions."""
        return (Marker(self.opener), Marker(self.closer), *map(Marker, self.ends), *self.regions)


@dataclass(frozen=True, slots=True, init=False)
class Aside(MarkedRegion):
    """Reasoning between two markers amid content. It can't break: if the stream ends inside it, it is still reasoning.

    The whitespace around it is content, which separates the text before it from the text after it.
    """

    closer: Marker

    def __init__(self, opener: str, closer: str, title: str = "") -> None:
        thought = Until("reasoning", ("\n" + closer, closer))
        object.__setattr__(self, "opener", Marker(opener))
        object.__setattr__(self, "body", Seq(maybe(title), Space(), thought, maybe("\n"), closer))
        object.__setattr__(self, "closer", Marker(closer))
        object.__setattr__(self, "markers", ())

    def run_after(self, lead: str, at: Cursor) -> Steps:
        """Read the passage and its markers; return False, since no whitespace after it belongs to it."""
        at.calls.content(lead)
        yield from self.opener.run(at)
        yield from self.body.run(at)
        return False

    def children(self) -> tuple[Node, ...]:
        """Return the markers."""
        return (self.opener, self.closer)


@lru_cache(maxsize=256)
def _spelled(
    spelling: Spelling, lead: str, stops: tuple[str, ...]
) -> tuple[tuple[tuple[str, tuple[str, str]], ...], bool]:
    """What ends a text, as it appears in the stream, with its lead and its stop; and whether every stop is guarded."""
    longest = sorted(stops, key=len, reverse=True)
    found = tuple(
        (spelling.spell(before + stop), (before, stop)) for before in dict.fromkeys((lead, "")) for stop in longest
    )
    return found, all(map(spelling.guarded, stops))


def read_after_space(at: Cursor, texts: tuple[str, ...]) -> Generator[None, None, str | None]:
    """Read whitespace and one of several texts after it, and return the text; None, and nothing read, without one."""
    spelled = {at.spelling.spell(text): text for text in texts}
    while True:
        window = at.buffer[at.position : at.position + MAX_WORD]
        at.scanned += len(window)
        rest = window.lstrip(WHITESPACE)
        start = at.position + len(window) - len(rest)
        for text, plain in spelled.items():
            if rest.startswith(text):
                at.take(start + len(text))
                return plain
        if at.ended or len(window) == MAX_WORD or not any(text.startswith(rest) for text in spelled):
            return None
        yield
