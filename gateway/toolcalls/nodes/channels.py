"""Messages in channels, as gpt-oss and LLM-jp write them: a header says what the text behind it is.

`analysis` is reasoning, a recipient makes a call of it, all else is content. Headers come damaged (doubled markers, the
recipient before or behind the channel, words that mean nothing), so they are read by what they mention. A message goes
up to an end marker, or to where the next header begins.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.until import text_without
from gateway.toolcalls.nodes.combinators import Choice, Seq, pick
from gateway.toolcalls.nodes.json import Json
from gateway.toolcalls.nodes.readers import MAX_WORD, Lit, Marker, Node, Reasoned, Space, Steps, Until, skip_until
from gateway.toolcalls.nodes.regions import Bare, Call
from gateway.toolcalls.nodes.series import unwritten
from gateway.toolcalls.stream.cursor import WHITESPACE, Channel, Cursor

_START, _CHANNEL, _MESSAGE, _CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_STOPS = (*_ENDS, _START, _CHANNEL, _MESSAGE)
_HEADS = tuple(map(Lit, (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, " to=", "to=")))
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL_NAME = re.compile(r"(?:<\|channel\|>\s*)+(\w+)")
_PEOPLE = ("assistant", "user", "system", "developer", "all")


@dataclass(frozen=True, slots=True)
class Head:
    """What a header says: the tool that is called, if one is, or the channel of the text.

    `sure` says that the tool is one of the request's: of those that the model was trained with, it has no prefix.
    """

    tool: str
    channel: Channel
    sure: bool

    @property
    def speaks(self) -> bool:
        """Whether the text is for the person."""
        return not self.tool and self.channel == "content"

    @classmethod
    def of(cls, text: str) -> "Head":
        """Read a header's text."""
        recipients = _RECIPIENT.findall(text)
        channels = _CHANNEL_NAME.findall(text)
        analysis = bool(channels) and channels[-1] == "analysis"
        recipient = str(recipients[-1]) if recipients else ""
        # In the analysis channel the model talks to tools of its own, which nobody gave it.
        calls = recipient not in ("", *_PEOPLE) and (not analysis or recipient.startswith("functions."))
        tool = recipient.removeprefix("functions.") if calls else ""
        return cls(tool, "reasoning" if analysis else "content", recipient.startswith("functions."))


@dataclass(frozen=True, slots=True)
class HarmonyCall(Node):
    """A call's header, which is `length` characters long, and its arguments. The grammar writes the usual header."""

    tool: str = ""
    length: int = 0

    def run(self, at: Cursor) -> Steps:
        """Read the header, tell the call, read the arguments; there may be none."""
        at.take(at.position + self.length)
        at.calls.named(self.tool)
        at.start_call()
        yield from Space().run(at)
        if (not at.unread and at.ended) or (yield from pick(at, tuple(map(Lit, _ENDS)))):
            return bool(at.unread)
        return (yield from Json().run(at))

    def grammar(self, g: Grammar) -> str:
        """Give the header and the arguments. The end marker ends the generation, which no grammar can name."""
        head = f"{_CHANNEL}commentary to=functions.{g.current.name} {_CONSTRAIN}json{_MESSAGE}"
        return f"{g.literal(head)} {g.arguments()}"


_END = Seq(Space(), unwritten(Choice(*_ENDS)))
"""The marker that ends a message; it may be missing."""


@dataclass(frozen=True, slots=True)
class Harmony(Node):
    """A whole turn: messages in channels, of which the prompt may have begun the first."""

    def run(self, at: Cursor) -> Steps:
        """Read messages to the end."""
        begun, message, _ = at.prompt_tail.rpartition(_START)[2].partition(_MESSAGE)
        said = False
        if message:
            what = Head.of(begun)
            said = what.speaks
            yield from self._message(at, what, 0)
            begun = ""
        expected = _CHANNEL in begun
        while at.unread or not at.ended:
            head = (yield from _peek(at)) if expected or (yield from pick(at, _HEADS)) else None
            if head is None:
                yield from self._stray(at)
            elif not head:
                _cut_off(at)
            else:
                what = Head.of(begun + at.spelling.plain(head))
                if said and what.speaks:
                    # Messages to the person are texts of their own.
                    at.calls.content("\n")
                said = said or what.speaks
                yield from self._message(at, what, len(head))
            begun, expected = "", False
        return True

    def _message(self, at: Cursor, head: Head, length: int) -> Generator[None, None, None]:
        if not head.tool:
            at.take(at.position + length)
            yield from Until(head.channel, _STOPS).run(at)
        elif head.sure or head.tool in at.tools or (yield from _brings_object(at, length)):
            yield from Bare(_START, Call(HarmonyCall(head.tool, length)), _END).run_after("", at)
            return
        else:
            at.take(at.position + length)
            at.calls.abandon("malformed", f"a message to {head.tool!r}, which this request does not offer, is left out")
            yield from skip_until(at, _STOPS)
        yield from _END.run(at)

    def _stray(self, at: Cursor) -> Generator[None, None, None]:
        """Tell text without a header. A marker that begins none is dropped: it frames nothing."""
        marker = yield from pick(at, tuple(map(Lit, _STOPS)))
        if marker:
            yield from marker.run(at)
        yield from Until("content", _STOPS).run(at)
        yield from _END.run(at)

    def grammar(self, g: Grammar) -> str:
        """Nothing: a grammar is for a call."""
        return ""

    def reasoning(self, g: Grammar, tail: str) -> Reasoned:
        """Give a message in the analysis channel, and the beginning of the next."""
        opened = tail.rpartition(_START)[2].partition(_MESSAGE)
        inside = f"{text_without(g, _STOPS)} {g.markup(f'<|end|>{_START}assistant')}"
        if opened[1] and Head.of(opened[0]).channel == "reasoning":
            return Reasoned(inside, "opened")
        return Reasoned(f"({g.markup(f'{_CHANNEL}analysis{_MESSAGE}')} {inside})", "neither")

    def children(self) -> tuple[Node, ...]:
        """Give the markers."""
        return tuple(map(Marker, (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)))


def _peek(at: Cursor) -> Generator[None, None, str | None]:
    """Give the header that stands here, its last marker included, as it stands in the stream.

    None where what stands here is too long for one, "" where the stream ends inside one.
    """
    finder = at.spelling.finder((_MESSAGE, *_ENDS))
    message = at.spelling.spell(_MESSAGE)
    while True:
        at.scanned += at.unread
        end, found = finder.find(at.buffer, at.position, ended=at.ended)
        if end - at.position > MAX_WORD:
            return None
        if at.ended and not found:
            return ""
        if found:
            more = len(message) if at.buffer.startswith(message, end) else 0
            return at.buffer[at.position : end + more]
        yield


def _brings_object(at: Cursor, length: int) -> Steps:
    """Whether what stands behind the header is an object, or nothing: arguments, not the code that a model runs."""
    enders = tuple(map(at.spelling.spell, _STOPS))
    while True:
        at.scanned += at.unread - length
        behind = at.buffer[at.position + length :]
        rest = behind.lstrip(WHITESPACE)
        if at.ended or len(behind) > MAX_WORD or not any(ender.startswith(rest) for ender in enders):
            return not rest or rest.startswith(("{", *enders))
        if rest in enders:
            return True
        yield


def _cut_off(at: Cursor) -> None:
    """Drop a header that the stream ends in: it is markup. If it was to be a call's, that is reported."""
    if _RECIPIENT.search(at.take(len(at.buffer))):
        at.calls.abandon("truncated", f"the stream ended inside the header of a tool call, at character {at.offset}")
