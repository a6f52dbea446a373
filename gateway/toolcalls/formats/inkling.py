"""Inkling: blocks of several kinds; each call is one block with a JSON object of `name` and `args`.

Thinking, text and calls may come in any order. The prompt opens the first block.
"""

from collections.abc import Generator
from dataclasses import dataclass

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.channels import Header, peek_header
from gateway.toolcalls.nodes.combinators import Seq, pick
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Passage
from gateway.toolcalls.nodes.readers import Lit, Marker, Node, Space, Steps
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor

# Messages in blocks, as Inkling writes them: `<|message_model|>`, an optional name, the block's kind, and the text.
#
# A block of thinking is reasoning, one that invokes a tool is a call (its name stands before the kind, and again in the
# object), any other is content. Each ends with an end marker, which may be missing.

MODEL, INVOKE, END = "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"
_THINKING = "<|content_thinking|>"
TEXT = "<|content_text|>"
_TEXTS = (TEXT, "<|content_invoke_tool_text|>", "<|content_tool_error|>")
_KINDS = (_THINKING, INVOKE, *_TEXTS)
_ENDS = (END, "<|content_model_end_sampling|>")
_STOPS = (*_ENDS, MODEL, *_KINDS)
_OBJECT = call_object(arguments="args")
_CALL = MarkedRegion(INVOKE, Space(), _OBJECT, OptionalMarker(END))

NAMED_CALL = CallNode(Seq(Header(f"{{name}}{INVOKE}"), _OBJECT.node, Marker(END)))
"""A call with the tool's name before it, as the grammar writes it."""


@dataclass(frozen=True, slots=True)
class Inkling(Node):
    """A whole turn; the prompt may have begun its first block."""

    def run(self, at: Cursor) -> Steps:
        """Read blocks to the end."""
        stops: tuple[Node, ...] = tuple(map(Lit, _STOPS))
        begun = at.prompt_tail.rstrip(WHITESPACE)
        stop = next((text for text in (MODEL, *_KINDS) if begun.endswith(text)), MODEL)
        while True:
            yield from self._block(at, stop)
            found = yield from pick(at, stops)
            if found is None or not at.heeds_marker():
                return True
            stop = _STOPS[stops.index(found)]
            if stop != INVOKE:
                yield from found.run(at)

    def _block(self, at: Cursor, kind: str) -> Generator[None, None, None]:
        """Read what follows a marker, up to the next one."""
        name = ""
        if kind == MODEL:
            # A name is not text: it is followed by a kind.
            header = at.spelling.plain((yield from peek_header(at, _STOPS)) or "")
            kind = next((text for text in _KINDS if header.endswith(text)), MODEL)
            if kind != MODEL:
                name = at.take(at.position + len(header) - len(kind))
        if kind == INVOKE:
            yield from _CALL.run_after(name, at)
        yield from Passage("reasoning" if kind == _THINKING else "content", (), "", ends=_STOPS).run(at)

    def grammar(self, g: Grammar) -> str:
        """Write nothing: a grammar is for a call."""
        return ""

    def children(self) -> tuple[Node, ...]:
        """Return the markers."""
        return tuple(map(Marker, _STOPS))


INKLING = Format(
    name="inkling",
    body=Inkling(),
    calls=Calls(NAMED_CALL, Lit(MODEL)),
    shape=f'TOOL{INVOKE}{{"name": "TOOL", "args": {{"KEY": "VALUE"}}}}{END}',
    answer=TEXT,
    template_has=(INVOKE,),
)
