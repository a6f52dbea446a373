"""Kimi K2, K2 Thinking, K2.5: calls in a section, each with an id that names its tool: `functions.NAME:N`.

The id is kept, since the model's template writes it again. The section's markers and a call's end may be missing. Calls
may come inside reasoning that was not closed; the reasoning continues after them.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json import Json
from gateway.toolcalls.nodes.numbered import NumberedName
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Marker, Space, Start
from gateway.toolcalls.nodes.regions import Call, Region
from gateway.toolcalls.nodes.series import OptionalMarker, Series

_BEGIN, _END = Marker("<|tool_call_begin|>"), OptionalMarker("<|tool_call_end|>")
_ARGUMENTS = Marker("<|tool_call_argument_begin|>")
_OPENER, _CLOSER = "<|tool_calls_section_begin|>", OptionalMarker("<|tool_calls_section_end|>")
_REST = Seq(NumberedName(_ARGUMENTS.text), _ARGUMENTS, Start(), Space(), Json(), _END)
_CALLS = Series(Call(Seq(_BEGIN, _REST)))
_SECTION = Region(_OPENER, _CALLS, _CLOSER)
_REGIONS = (
    _SECTION,
    Region("<|tool_call_section_begin|>", _CALLS, _CLOSER, OptionalMarker("<|tool_call_section_end|>")),
    Region(_BEGIN.text, Call(_REST), _CLOSER),
)

KIMI_K2 = Format(
    name="kimi_k2",
    body=Seq(Thought("<think>", "</think>", regions=_REGIONS, goes_on=True), Prose(*_REGIONS)),
    calls=_SECTION,
    shape=f'{_OPENER}{_BEGIN.text}functions.TOOL:0{_ARGUMENTS.text}{{"KEY": "VALUE"}}{_END.text}{_CLOSER.text}',
    template_has=("<|tool_calls_section_begin|>",),
)
