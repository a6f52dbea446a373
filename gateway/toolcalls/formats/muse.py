"""Muse Glimmer: messages to recipients, calls in ATEM tags.

Reasoning goes to `self`, the answer to `user`, and each call, as a separate message, to the tool's name. Values are raw
text, typed by the tool's schema.
"""

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.channels import Header, peek_after, peek_header
from gateway.toolcalls.nodes.combinators import Choice, Seq, pick
from gateway.toolcalls.nodes.passages import Passage
from gateway.toolcalls.nodes.readers import Lit, Marker, Node, Space, Steps, Until
from gateway.toolcalls.nodes.regions import Bare, Calls
from gateway.toolcalls.nodes.series import OptionalMarker, unwritten
from gateway.toolcalls.nodes.tagged import invoke_call, invoke_shape
from gateway.toolcalls.stream.cursor import Cursor

# Messages to recipients, as Muse Glimmer writes them: ` to=NAME<|message|>`, and then a call in tags.
#
# A message to `self` is reasoning, one to `user` the answer, one to any other name a call. A message ends at an end
# marker or where the next one begins. A tool's name stands in the header and in the tag; in the header models double it
# (`f.f`).

START, MESSAGE, MORE, END = "<|start|>", "<|message|>", "<|eom|>", "<|eot|>"
_STOPS = (MORE, END, START)
_HEADS = tuple(map(Lit, (START, MESSAGE, " to=", "to=")))
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


@dataclass(frozen=True, slots=True)
class Muse(Node):
    """A whole turn; `call` makes a call whose header has the given length, `block` is the text after that header."""

    call: Callable[[int], Node]
    block: str

    def run(self, at: Cursor) -> Steps:
        """Read messages to the end."""
        while (at.unread or not at.ended) and at.heeds_marker():
            head = None
            if (yield from pick(at, _HEADS)):
                head = yield from peek_header(at, (MESSAGE, MORE, END))
            if head is None or not at.spelling.plain(head).endswith(MESSAGE):
                marker = yield from pick(at, tuple(map(Lit, (*_STOPS, MESSAGE))))
                if marker:
                    yield from marker.run(at)
                yield from Until("content", (*_STOPS, MESSAGE)).run(at)
            else:
                yield from self._message(at, _RECIPIENT.findall(at.spelling.plain(head)), len(head))
            yield from unwritten(Choice(*map(Lit, (MORE, END)))).run(at)
        return True

    def _message(self, at: Cursor, recipients: list[str], length: int) -> Generator[None, None, None]:
        recipient = recipients[-1] if recipients else "user"
        may_call = recipient not in ("self", "user")
        if may_call and (yield from peek_after(at, length, (self.block,))).startswith(self.block):
            yield from Bare(START, self.call(length)).run_after("", at)
            return
        at.take(at.position + length)
        yield from Passage("reasoning" if recipient == "self" else "content", (), "", ends=_STOPS).run(at)

    def grammar(self, g: Grammar) -> str:
        """Write nothing: a grammar is for a call."""
        return ""

    def children(self) -> tuple[Node, ...]:
        """Return the markers and the call."""
        return (*map(Marker, (START, MESSAGE, MORE, END)), self.call(0))


_BLOCK, _BLOCK_END = "<atem:function_calls>", "</atem:function_calls>"


def _call(length: int) -> Node:
    header = Header(f" to={{name}}{MESSAGE}", length)
    call = invoke_call(_BLOCK_END, "atem:", header, Space(), _BLOCK, Space("\n"))
    return Seq(call, OptionalMarker(_BLOCK_END, lead="\n"))


MUSE_GLIMMER = Format(
    name="muse_glimmer",
    body=Muse(_call, _BLOCK),
    calls=Calls(_call(0), Lit(f"{MORE}{START}assistant")),
    shape=f" to=TOOL{MESSAGE}{_BLOCK}\n{invoke_shape('atem:')}\n{_BLOCK_END}",
    answer=f" to=user{MESSAGE}",
    template_has=(_BLOCK, "to=self"),
)
