"""Gemma 4: calls in a syntax of their own, back to back; thoughts in a channel, at any place.

Strings stand between markers and hold anything, braces and quotation marks included. The prompt may have closed the
thought channel, or opened it; a turn's framing is no content.
"""

from gateway.toolcalls.combinators import Seq
from gateway.toolcalls.format import Format
from gateway.toolcalls.gemma import GemmaObject
from gateway.toolcalls.nodes import Capture, Marker, Space
from gateway.toolcalls.passages import Aside, Prose, Thought
from gateway.toolcalls.regions import Call, Calls, Region

_CALL = Call(Seq("call:", Capture("name", "{"), GemmaObject()))
_REGION = Region("<|tool_call>", Space(), _CALL, Space(), Marker("<tool_call|>"))

GEMMA_4 = Format(
    name="gemma4",
    body=Seq(
        Thought("<|channel>thought", "<channel|>", regions=(_REGION,)),
        Prose(_REGION, Aside("<|channel>thought", "<channel|>"), mutes=("<|tool_response>", "<turn|>")),
    ),
    calls=Calls(_REGION),
    shape='<|tool_call>call:TOOL{KEY:<|"|>VALUE<|"|>}<tool_call|>',
    template_has=("<|tool_call>",),
)
