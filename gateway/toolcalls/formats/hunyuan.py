"""Hunyuan 3: calls in a section, each argument as a key tag and a value tag.

The published models end every tag's name with `:opensource`; both spellings are read. Values are raw text, typed by the
tool's schema; a value without a schema is JSON if it can be read as JSON.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Space
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker
from gateway.toolcalls.nodes.tagged import Parameters
from gateway.toolcalls.nodes.typed import RawEnding
from gateway.toolcalls.schema.kinds import ALL

_SUFFIX = ":opensource"


def _section(suffix: str) -> MarkedRegion:
    call_end, calls_end = f"</tool_call{suffix}>", f"</tool_calls{suffix}>"
    key, value, value_end = f"<arg_key{suffix}>", f"<arg_value{suffix}>", f"</arg_value{suffix}>"
    key_end, separator = f"</arg_key{suffix}>", f"<tool_sep{suffix}>"
    parameters = Parameters(
        opener=key,
        head="(?P<key>.+)",
        head_end=key_end,
        bridge=value,
        ending=RawEnding(value_end, followers=(key, call_end)),
        ends=(call_end, calls_end),
        written=(f"{key}{{key}}{key_end}\n{value}", f"{value_end}\n"),
        unknown=ALL,
    )
    head = Seq(f"<tool_call{suffix}>", Space(), Capture("name", separator), separator, Space("\n"))
    call = CallNode(Seq(head, parameters, OptionalMarker(call_end)))
    return MarkedRegion(f"<tool_calls{suffix}>", Space("\n"), Calls(Seq(call, Space("\n"))), OptionalMarker(calls_end))


_SECTIONS = tuple(map(_section, (_SUFFIX, "")))

HUNYUAN_3 = Format(
    name="hy_v3",
    body=Seq(
        Thought(f"<think{_SUFFIX}>", f"</think{_SUFFIX}>", (_SECTIONS[0].opener.text,)),
        Thought("<think>", "</think>", (_SECTIONS[1].opener.text,)),
        Prose(*_SECTIONS),
    ),
    calls=_SECTIONS[0],
    shape=f"<tool_calls{_SUFFIX}>\n<tool_call{_SUFFIX}>TOOL<tool_sep{_SUFFIX}>\n<arg_key{_SUFFIX}>KEY</arg_key{_SUFFIX}>\n"
    f"<arg_value{_SUFFIX}>VALUE</arg_value{_SUFFIX}>\n</tool_call{_SUFFIX}>\n</tool_calls{_SUFFIX}>",
    template_has=("<tool_sep", "<arg_key"),
)
