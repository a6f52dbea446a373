"""Gemma 4, FunctionGemma: calls in a syntax of their own, back to back; reasoning in a channel, at any place.

Strings are between markers and may contain anything, including braces and quotation marks. The prompt may have closed
the reasoning channel, or opened it. Models may leave out the channel's name, or `call`; they also write other quotation
marks, parentheses for braces, or a JSON object, and forget a string's end or the last brace. Markers that frame a turn
are not content. FunctionGemma does not reason, and has its own markers.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.gemma_object import GemmaObject
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Aside, Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Lit, Space
from gateway.toolcalls.nodes.regions import Call, Calls, Region
from gateway.toolcalls.nodes.series import Array, Closer, Variants
from gateway.toolcalls.values.dialects import FUNCTION_GEMMA as ESCAPED

_CALLED = Variants(Lit("call:"), Lit(":"), writes=Lit("call:"))


def _region(opener: str, arguments: GemmaObject, closer: str) -> Region:
    optional = Variants(arguments, Seq(), writes=arguments)
    also = ("(", "[", closer)
    named = Seq(_CALLED, Capture("name", "{", also=also))
    name = Variants(named, Capture("name", "{", also=also, known=True), writes=named)
    call = Call(Seq(name, optional))
    called = Variants(Array(call_object()), call, writes=call)
    return Region(opener, Space(), called, Space(), Closer(closer))


_REGION = _region("<|tool_call>", GemmaObject(), "<tool_call|>")
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

_FUNCTION = _region("<start_function_call>", GemmaObject(ESCAPED), "<end_function_call>")

FUNCTION_GEMMA = Format(
    name="function_gemma",
    body=Prose(_FUNCTION, mutes=("<start_function_response>", "<end_of_turn>")),
    calls=Calls(_FUNCTION),
    shape="<start_function_call>call:TOOL{KEY:<escape>VALUE<escape>}<end_function_call>",
    template_has=("<start_function_call>",),
)
