"""Granite 3.x: an array of calls after `<|tool_call|>`, which `]` ends; 3.1 spells the marker `<tool_call>`.

The answer is in `<response>` after `<think>` (3.3), or two sentences frame the reasoning (3.2).
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.regions import MarkedRegion
from gateway.toolcalls.nodes.series import Array, OptionalMarker

_ARRAY = Array(call_object())
_REGION = MarkedRegion("<|tool_call|>", _ARRAY)

GRANITE_3 = Format(
    name="granite_3",
    body=Seq(
        Thought("<think>", "</think>"),
        Thought("Here is my thought process:", "Here is my response:"),
        Thought("Here's my thought process:", "Here's my response:"),
        Prose(
            _REGION,
            MarkedRegion("<tool_call>", _ARRAY, OptionalMarker("</tool_call>")),
            mutes=("<response>", "</response>"),
        ),
    ),
    calls=_REGION,
    shape='<|tool_call|>[{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]',
    template_has=("<|tool_call|>", "<|start_of_role|>"),
)
