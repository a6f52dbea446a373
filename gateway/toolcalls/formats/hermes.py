"""Hermes, Qwen2.5, Qwen3, QwQ, Granite 4, Bielik, MiMo-VL: JSON between `<tool_call>` markers, after reasoning if any.

This is also the shape that we teach to models whose template does not support tools, under the name `generic`. The
markers are one token each in Qwen2.5 and later, and ordinary text elsewhere (Qwen2, SmolLM2). The closing marker may be
missing, and between the markers models may put several calls, an array, a code fence, nothing, or a call as Qwen3-Coder
writes it.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.qwen3_coder import FUNCTION_CALL
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Space
from gateway.toolcalls.nodes.regions import Calls, MarkedRegion
from gateway.toolcalls.nodes.series import Array, Nothing, OptionalMarker, Variants

_CALL = call_object()
_END = OptionalMarker("</tool_call>", lead="\n")
_OBJECTS = Array(_CALL)
_FENCED = Seq("```json", Space(), _OBJECTS, Space(), OptionalMarker("```"))
_CALLED = Variants(_OBJECTS, Nothing(_END.text), FUNCTION_CALL, _FENCED, writes=_CALL)
HERMES_REGION = MarkedRegion("<tool_call>", Space("\n"), _CALLED, _END)
_BODY = Seq(Thought("<think>", "</think>", regions=(HERMES_REGION,)), Prose(HERMES_REGION))
_CALLS = Calls(HERMES_REGION, Space("\n"))
_SHAPE = '<tool_call>\n{"name": "TOOL", "arguments": {"KEY": "VALUE"}}\n</tool_call>'

HERMES = Format(
    name="hermes",
    body=_BODY,
    calls=_CALLS,
    shape=_SHAPE,
    template_has=("<tool_call>", '"arguments'),
    # Qwen3-Coder and Nemotron, GLM, MiniMax and MiroThinker write other things between the same markers.
    template_lacks=("<function=", "<arg_key>", "<parameter", "<use_mcp_tool>"),
)

GENERIC = Format(name="generic", body=_BODY, calls=_CALLS, shape=_SHAPE)
