"""DeepSeek R1, V3 and V3.1, and the distilled models: calls in a section, the arguments of R1 and V3 in a code fence.

R1's distilled models lack the tokens and spell the section's opening in several ways, or leave it out. The ends of
calls and of the section may be missing. The prompt opens reasoning, and may also close it.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Marker, Space, Start
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series

_BEGIN, _END = "<｜tool▁call▁begin｜>", OptionalMarker("<｜tool▁call▁end｜>")
_SEPARATOR = Marker("<｜tool▁sep｜>")
_CLOSER = OptionalMarker("<｜tool▁calls▁end｜>")
_OPENER = "<｜tool▁calls▁begin｜>"
_OTHER_OPENERS = (
    "<｜tool_calls_begin｜>",
    "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>",
    "<｜tool▁calls｜>",
)
_THOUGHT = Thought("<think>", "</think>")
_OBJECT = '{"KEY": "VALUE"}'

_FENCED = CallNode(
    Seq(
        OptionalMarker(_BEGIN),
        "function",
        _SEPARATOR,
        Capture("name", "\n", also=("```",)),
        Start(),
        OptionalMarker("```json", lead="\n"),
        Space("\n"),
        Json(),
        OptionalMarker("```", lead="\n"),
        _END,
    )
)
_FENCED_SECTION = MarkedRegion(_OPENER, Series(_FENCED, "\n"), _CLOSER)

DEEPSEEK_V3 = Format(
    name="deepseek_v3",
    body=Seq(
        _THOUGHT,
        Prose(_FENCED_SECTION, *(MarkedRegion(other, Series(_FENCED), _CLOSER) for other in (*_OTHER_OPENERS, _BEGIN))),
    ),
    calls=_FENCED_SECTION,
    shape=f"{_OPENER}{_BEGIN}function{_SEPARATOR.text}TOOL\n```json\n{_OBJECT}\n```{_END.text}{_CLOSER.text}",
    template_has=("<｜tool▁sep｜>", "```json"),
)

_REST = Seq(Capture("name", _SEPARATOR.text), _SEPARATOR, Start(), Space(), Json(), _END)
_PLAIN = CallNode(Seq(Marker(_BEGIN), _REST))
_PLAIN_SECTION = MarkedRegion(_OPENER, Series(_PLAIN), _CLOSER)

DEEPSEEK_V31 = Format(
    name="deepseek_v31",
    body=Seq(_THOUGHT, Prose(_PLAIN_SECTION, MarkedRegion(_BEGIN, CallNode(_REST), _CLOSER))),
    calls=_PLAIN_SECTION,
    shape=f"{_OPENER}{_BEGIN}TOOL{_SEPARATOR.text}{_OBJECT}{_END.text}{_CLOSER.text}",
    template_has=("<｜tool▁sep｜>",),
    template_lacks=("```json",),
)
