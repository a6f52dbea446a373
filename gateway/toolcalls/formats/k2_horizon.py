"""K2 Horizon: the tool's name, then tags for each argument's key, its type if asked for, and its value.

Values are raw text, typed by the tag or by the tool's schema. If asked for JSON, the model writes an object between the
same markers. There are three pairs of markers for reasoning, one for each level of effort.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Marker, Space
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series, Variants
from gateway.toolcalls.nodes.tagged import Parameters
from gateway.toolcalls.nodes.typed import RawEnding
from gateway.toolcalls.schema.kinds import ALL

_OPENER, _CALL, _CALL_END = "<ifm|tool_calls>", "<ifm|tool_call>", "</ifm|tool_call>"
_KEY, _VALUE, _VALUE_END = "<ifm|arg_key>", "<ifm|arg_value>", "</ifm|arg_value>"
_PARAMETERS = Parameters(
    opener=_KEY,
    head=r"(?P<key>.+?)</ifm\|arg_key>\s*(?:<ifm\|arg_type>(?P<type>\w*).*?</ifm\|arg_type>)?",
    head_end=_VALUE,
    ending=RawEnding(_VALUE_END, followers=(_KEY, _CALL_END)),
    ends=(_CALL_END,),
    written=(f"{_KEY}{{key}}</ifm|arg_key>\n{_VALUE}", f"{_VALUE_END}\n"),
    unknown=ALL,
)
_TAGGED = CallNode(Seq(Space(), Capture("name", "\n", also=(_KEY, _CALL_END)), Space("\n"), _PARAMETERS))
_OBJECT = call_object()
_ONE = Seq(Marker(_CALL), Variants(_OBJECT, _TAGGED, writes=_TAGGED), OptionalMarker(_CALL_END))
_SECTION = MarkedRegion(_OPENER, Space("\n"), Series(_ONE, "\n"), OptionalMarker("</ifm|tool_calls>", lead="\n"))
_THOUGHTS = tuple(
    Thought(f"<ifm|{name}>", f"</ifm|{name}>", (_OPENER,)) for name in ("think", "think_fast", "think_faster")
)

K2_HORIZON = Format(
    name="k2_horizon",
    body=Seq(*_THOUGHTS, Prose(_SECTION, mutes=("<|ifm|im_end|>",))),
    calls=_SECTION,
    shape=f"{_OPENER}\n{_CALL}TOOL\n{_KEY}KEY</ifm|arg_key>\n{_VALUE}VALUE{_VALUE_END}\n{_CALL_END}\n</ifm|tool_calls>",
    template_has=(_OPENER, _KEY),
)
