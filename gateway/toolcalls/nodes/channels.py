"""Messages that begin with a header, and those in channels, as gpt-oss and LLM-jp write them."""

import re
from collections.abc import Collection, Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar, text_without
from gateway.toolcalls.nodes.combinators import Choice, pick, unwritten
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.passages import Passage
from gateway.toolcalls.nodes.readers import MAX_WORD, Lit, Marker, Node, Reasoned, Seq, Space, Steps, skip_until
from gateway.toolcalls.nodes.regions import Bare, CallNode
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor, TextChannel

# Nodes for messages that begin with a header, which names a recipient and says what the text after it is.


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


# Messages in channels, as gpt-oss and LLM-jp write them: a header says what the text after it is.
#
# The `analysis` channel is reasoning, a message with a recipient is a call, everything else is content. Headers may be
# damaged (doubled markers, the recipient before or after the channel, meaningless words), so they are read by what they
# mention. A message ends at an end marker, or where the next header begins.

_START, _CHANNEL, _MESSAGE, _CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_STOPS = (*_ENDS, _START, _CHANNEL, _MESSAGE)
_HEADS = tuple(map(Lit, (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, " to=", "to=")))
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL_NAME = re.compile(r"(?:<\|channel\|>\s*)+(\w+)")
_PEOPLE = ("assistant", "user", "system", "developer", "all")


@dataclass(frozen=True, slots=True)
class Head:
    """What a header says: the tool that is called, if any, and the channel of the text.

    `sure`: whether the recipient has the prefix of the request's tools; the tools that the model was trained with have
    none.
    """

    tool: str
    channel: TextChannel
    sure: bool

    @property
    def speaks(self) -> bool:
        """Whether the text is for the user."""
        return not self.tool and self.channel == "content"

    @classmethod
    def of(cls, text: str, tools: Collection[str] = ()) -> "Head":
        """Read a header's text; `tools` are the names of the request's."""
        recipients = _RECIPIENT.findall(text)
        channels = _CHANNEL_NAME.findall(text)
        analysis = bool(channels) and channels[-1] == "analysis"
        recipient = str(recipients[-1]) if recipients else ""
        # In the analysis channel the model may call tools from its training, which the request does not offer.
        calls = recipient not in ("", *_PEOPLE) and (not analysis or recipient.startswith("functions."))
        tool = _meant(recipient.removeprefix("functions."), tools) if calls else ""
        return cls(tool, "reasoning" if analysis else "content", recipient.startswith("functions."))


def _meant(name: str, tools: Collection[str]) -> str:
    """The tool that a recipient means: models glue the next word to its name, or write another prefix."""
    bare = name.removeprefix("assistant.").rstrip("?.,:;")
    return next((near for near in (name, bare, bare.removesuffix("json")) if near in tools), name)


@dataclass(frozen=True, slots=True)
class HarmonyCall(Node):
    """A call's header, which is `length` characters long, and its arguments; the grammar writes the template's."""

    tool: str = ""
    length: int = 0

    def run(self, at: Cursor) -> Steps:
        """Read the header, report the call, read the arguments; there may be none."""
        at.take(at.position + self.length)
        at.calls.named(self.tool)
        at.start_call()
        yield from Space().run(at)
        while (yield from pick(at, (again := Lit(_MESSAGE),))) is not None:
            yield from again.run(at)
            yield from Space().run(at)
        if (not at.unread and at.ended) or (yield from pick(at, tuple(map(Lit, _ENDS)))):
            return bool(at.unread)
        return (yield from Json().run(at))

    def grammar(self, g: Grammar) -> str:
        """Write the header as the templates do, and the arguments.

        A grammar can't name the end marker, which ends the generation.
        """
        head = g.markup(f" to=functions.{{name}}{_CHANNEL}commentary json{_MESSAGE}", name=g.current.name)
        return f"{head} {g.arguments()}"


_END = Seq(Space(), unwritten(Choice(*map(Marker, _ENDS))))
"""The marker that ends a message; it may be missing."""


@dataclass(frozen=True, slots=True)
class Harmony(Node):
    """A whole turn: messages in channels; the prompt may have begun the first."""

    def run(self, at: Cursor) -> Steps:
        """Read messages to the end."""
        begun, message, _ = at.prompt_tail.rpartition(_START)[2].partition(_MESSAGE)
        said = False
        if message:
            what = Head.of(begun, at.tools)
            said = what.speaks
            yield from self._message(at, what, 0)
            begun = ""
        expected = _CHANNEL in begun
        while (at.unread or not at.ended) and at.heeds_marker():
            head = None
            if expected or (yield from pick(at, _HEADS)):
                head = yield from peek_header(at, (_MESSAGE,), _ENDS)
            if head is None:
                yield from self._stray(at)
            elif not head:
                _cut_off(at)
            else:
                what = Head.of(begun + at.spelling.plain(head), at.tools)
                if what.tool and "{" in head:
                    # The marker before the arguments is missing.
                    head = head[: head.index("{")]
                    what = Head.of(begun + at.spelling.plain(head), at.tools)
                yield from self._message(at, what, len(head), said=said)
                said = said or (what.speaks and at.calls.spoken)
            begun, expected = "", False
        return True

    def _message(self, at: Cursor, head: Head, length: int, *, said: bool = False) -> Generator[None, None, None]:
        if not head.tool:
            at.take(at.position + length)
            if said and head.speaks and (yield from self._has_text(at)):
                # Each message to the user is a separate text.
                at.calls.content("\n")
            yield from Passage(head.channel, (), "", ends=_STOPS).run(at)
        elif head.sure or head.tool in at.tools or (yield from _brings_object(at, length)):
            yield from Bare(_START, CallNode(HarmonyCall(head.tool, length)), _END).run_after("", at)
            return
        else:
            at.take(at.position + length)
            at.calls.abandon("malformed", f"a message to {head.tool!r}, which is no tool of this request, is left out")
            yield from skip_until(at, _STOPS)
        yield from _END.run(at)

    def _has_text(self, at: Cursor) -> Steps:
        """Whether text stands before the message's end; a damaged header has none behind it."""
        while not (at.unread or at.ended):
            yield
        return at.unread > 0 and (yield from pick(at, tuple(map(Lit, _STOPS)))) is None

    def _stray(self, at: Cursor) -> Generator[None, None, None]:
        """Emit text without a header. A marker that does not begin a header is dropped: it frames nothing."""
        marker = yield from pick(at, tuple(map(Lit, _STOPS)))
        if marker:
            yield from marker.run(at)
        yield from Passage("content", (), "", ends=_STOPS).run(at)
        yield from _END.run(at)

    def grammar(self, g: Grammar) -> str:
        """Write nothing: a grammar is for a call."""
        return ""

    def reasoning(self, g: Grammar, tail: str) -> Reasoned:
        """Write a message in the analysis channel, and the beginning of the next message."""
        opened = tail.rpartition(_START)[2].partition(_MESSAGE)
        inside = f"{text_without(g, _STOPS)} {g.markup(f'<|end|>{_START}assistant')}"
        if opened[1] and Head.of(opened[0]).channel == "reasoning":
            return Reasoned(inside, "opened")
        return Reasoned(f"({g.markup(f'{_CHANNEL}analysis{_MESSAGE}')} {inside})", "neither")

    def children(self) -> tuple[Node, ...]:
        """Return the markers."""
        return tuple(map(Marker, (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)))


def _brings_object(at: Cursor, length: int) -> Steps:
    """Whether an object, or nothing, follows the header: arguments, not code that the model wants to run."""
    enders = tuple(map(at.spelling.spell, _STOPS))
    rest = yield from peek_after(at, length, enders)
    return not rest or rest.startswith(("{", *enders))


def _cut_off(at: Cursor) -> None:
    """Drop a header inside which the stream ends: it is markup. If it has a recipient, report a call cut off."""
    if _RECIPIENT.search(at.take(len(at.buffer))):
        at.calls.abandon("truncated", f"the stream ended inside the header of a tool call, at character {at.offset}")
