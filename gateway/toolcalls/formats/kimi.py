"""Kimi K2, K2 Thinking, K2.5: calls in a section, each with an id that names its tool: `functions.NAME:N`.

The id is kept, since the model's template writes it again. The section's markers and a call's end may be missing. Calls
may come inside reasoning that was not closed; the reasoning continues after them.
"""

import re
from dataclasses import dataclass

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import First, Marker, Node, Space, Start, Steps, is_name, read_until
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling

# A call's id that names its tool: `functions.NAME:N`, as Kimi K2 writes it.
#
# The id is reported unchanged, since the model's template writes it again.

_NUMBER = re.compile(r"[:_]\d+\Z")


@dataclass(frozen=True, slots=True)
class NumberedName(Node):
    """The id with the name in it, up to a delimiter, which is not read."""

    delimiter: str

    def first(self, spelling: Spelling) -> First:
        """Return None for anything: an unknown tool is a call too."""
        return None

    def run(self, at: Cursor) -> Steps:
        """Hold the id until its delimiter arrives, and report it and the name in it."""
        text = yield from read_until(at, (self.delimiter,))
        call_id = (text or "").strip(WHITESPACE)
        name = _name(call_id, at)
        if not name or not is_name(name, at):
            return False
        at.calls.identify(call_id)
        at.calls.named(name)
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the id with the tool's name in it."""
        return f"{g.literal(f'functions.{g.current.name}:')} [0-9]{{1,2}}"


def _name(call_id: str, at: Cursor) -> str:
    """Return the tool's name: the id without prefix and number, in the spelling that is a tool of the request."""
    plain = _NUMBER.sub("", call_id.removeprefix("functions.")) if ":" in call_id else call_id
    plain = plain.removeprefix("functions.")
    under = plain.removeprefix("functions_")
    spellings = (plain, plain.rpartition(".")[2], under, _NUMBER.sub("", under))
    return next((name for name in spellings if name in at.tools), plain)


_BEGIN, _END = Marker("<|tool_call_begin|>"), OptionalMarker("<|tool_call_end|>")
_ARGUMENTS = Marker("<|tool_call_argument_begin|>")
_OPENER, _CLOSER = "<|tool_calls_section_begin|>", OptionalMarker("<|tool_calls_section_end|>")
_REST = Seq(NumberedName(_ARGUMENTS.text), _ARGUMENTS, Start(), Space(), Json(), _END)
_CALLS = Series(CallNode(Seq(_BEGIN, _REST)))
_SECTION = MarkedRegion(_OPENER, _CALLS, _CLOSER)
_REGIONS = (
    _SECTION,
    MarkedRegion("<|tool_call_section_begin|>", _CALLS, _CLOSER, OptionalMarker("<|tool_call_section_end|>")),
    MarkedRegion(_BEGIN.text, CallNode(_REST), _CLOSER),
)

KIMI_K2 = Format(
    name="kimi_k2",
    body=Seq(Thought("<think>", "</think>", regions=_REGIONS, goes_on=True), Prose(*_REGIONS)),
    calls=_SECTION,
    shape=f'{_OPENER}{_BEGIN.text}functions.TOOL:0{_ARGUMENTS.text}{{"KEY": "VALUE"}}{_END.text}{_CLOSER.text}',
    template_has=("<|tool_calls_section_begin|>",),
)
