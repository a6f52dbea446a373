"""Apertus: an array of objects in which the tool's name is the key, between two markers, after inner deliberation."""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import KeyedCall
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import Array, OptionalMarker

_TOOLS = MarkedRegion("<|tools_prefix|>", Array(CallNode(KeyedCall())), OptionalMarker("<|tools_suffix|>"))

APERTUS = Format(
    name="apertus",
    body=Seq(Thought("<|inner_prefix|>", "<|inner_suffix|>"), Prose(_TOOLS)),
    calls=_TOOLS,
    shape='<|tools_prefix|>[{"TOOL": {"KEY": "VALUE"}}]<|tools_suffix|>',
    template_has=("<|tools_prefix|>",),
)
