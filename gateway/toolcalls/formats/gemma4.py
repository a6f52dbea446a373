"""Gemma 4: calls in a syntax of their own, back to back; thoughts in a channel, at any place.

Strings stand between markers and hold anything, braces and quotation marks included. The prompt may have closed the
thought channel, or opened it, and models leave out its name, or `call`; a turn's framing is no content.
"""

from gateway.toolcalls.combinators import Seq
from gateway.toolcalls.format import Format
from gateway.toolcalls.gemma import GemmaObject
from gateway.toolcalls.nodes import Capture, Lit, Marker, Space
from gateway.toolcalls.passages import Aside, Prose, Thought
from gateway.toolcalls.regions import Call, Calls, Region
from gateway.toolcalls.series import Spelled

_END = "<tool_call|>"
_CALLED = Spelled(Lit("call:"), Lit(":"), writes=Lit("call:"))
_OBJECT = GemmaObject()
_ARGUMENTS = Spelled(_OBJECT, Seq(), writes=_OBJECT)
_CALL = Call(Seq(_CALLED, Capture("name", "{", also=(_END,)), _ARGUMENTS))
_REGION = Region("<|tool_call>", Space(), _CALL, Space(), Marker(_END))
_CHANNEL, _CHANNEL_END = "<|channel>", "<channel|>"

GEMMA_4 = Format(
    name="gemma4",
    body=Seq(
        Thought(_CHANNEL, _CHANNEL_END, ("<|tool_call>",), title="thought"),
        Prose(
            _REGION, Aside(_CHANNEL, _CHANNEL_END, title="thought"), mutes=(_CHANNEL_END, "<|tool_response>", "<turn|>")
        ),
    ),
    calls=Calls(_REGION),
    shape='<|tool_call>call:TOOL{KEY:<|"|>VALUE<|"|>}<tool_call|>',
    template_has=("<|tool_call>",),
)
