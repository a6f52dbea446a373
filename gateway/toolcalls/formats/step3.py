"""Step 3: `<steptml:invoke>` tags, each between two markers, in one section.

Values are raw text, typed by the tool's schema. The prompt opens reasoning.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Lit, Marker
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series, Variants, unwritten
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import RawEnding

_OPENER, _CLOSER = "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"
_BEGIN, _END, _SEPARATOR = (Marker(f"<｜tool_{part}｜>") for part in ("call_begin", "call_end", "sep"))
_INVOKE_END, _VALUE_END = "</steptml:invoke>", "</steptml:parameter>"
_PARAMETERS = Parameters(
    opener="<steptml:parameter name=",
    ending=RawEnding(_VALUE_END, followers=("<steptml:parameter", _VALUE_END, _INVOKE_END, _END.text)),
    ends=(_INVOKE_END, _END.text),
    written=('<steptml:parameter name="{key}">', _VALUE_END),
    strays=(_VALUE_END,),
)
_KIND = Seq("function", _SEPARATOR)
_HEAD = Seq(Variants(_KIND, Seq(), writes=_KIND), "<steptml:invoke name=", TagName(written='"{name}">'))
_ENDS = (OptionalMarker(_INVOKE_END), OptionalMarker(_END.text), unwritten(Lit(_SEPARATOR.text)))
_CALL = CallNode(Seq(_BEGIN, _HEAD, _PARAMETERS, *_ENDS))
_SECTION = MarkedRegion(_OPENER, Series(_CALL), OptionalMarker(_CLOSER))

STEP_3 = Format(
    name="step3",
    body=Seq(Thought("<think>", "</think>", (_OPENER,)), Prose(_SECTION)),
    calls=_SECTION,
    shape=f'{_OPENER}{_BEGIN.text}function{_SEPARATOR.text}<steptml:invoke name="TOOL">'
    f'<steptml:parameter name="KEY">VALUE{_VALUE_END}{_INVOKE_END}{_END.text}{_CLOSER}',
    template_has=("<steptml:invoke",),
)
