"""Command R7B, Command A, Cohere2 MoE: an array of calls with ids in an action block; the answer has its own block.

The ids are small numbers in quotes. Reasoning opens the message, or the prompt has opened it, and it may end where the
next block opens.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.regions import MarkedRegion
from gateway.toolcalls.nodes.series import Array, OptionalMarker

_CALL = call_object(name="tool_name", arguments="parameters", id_first="tool_call_id", id_shape="[0-9]{1,2}")
_ACTION = MarkedRegion("<|START_ACTION|>", Array(_CALL, "[\n    ", ",\n    ", "\n]"), OptionalMarker("<|END_ACTION|>"))
_ANSWER = ("<|START_RESPONSE|>", "<|START_TEXT|>")

COMMAND_R7B = Format(
    name="command_r7b",
    body=Seq(
        Thought("<|START_THINKING|>", "<|END_THINKING|>", ends=("<|START_ACTION|>", *_ANSWER)),
        Prose(_ACTION, mutes=(*_ANSWER, "<|END_RESPONSE|>", "<|END_TEXT|>")),
    ),
    calls=_ACTION,
    shape=(
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "TOOL", "parameters": {"KEY": "VALUE"}}\n]'
        "<|END_ACTION|>"
    ),
    template_has=("<|START_ACTION|>",),
)
