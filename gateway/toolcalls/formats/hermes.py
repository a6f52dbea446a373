"""Hermes, Qwen2.5, Qwen3, QwQ, Granite 4, Bielik, MiMo-VL: JSON between `<tool_call>` markers, after reasoning if any.

The same shape is the one that we teach to models whose template knows no tools, under the name `generic`. The markers
are one token each in Qwen2.5 and later, and ordinary text elsewhere (Qwen2, SmolLM2). The closing marker goes missing,
and models put several calls between two markers, or an array.
"""

from gateway.toolcalls.combinators import Seq
from gateway.toolcalls.format import Format
from gateway.toolcalls.nodes import Lit, Space
from gateway.toolcalls.objects import call_object
from gateway.toolcalls.passages import Prose, Thought
from gateway.toolcalls.regions import Calls, Region
from gateway.toolcalls.series import Array, Loose, Spelled, unwritten

# Small models miscount braces: one too few is `Record`'s to bear, one too many stands before the marker.
_SPARE = unwritten(Lit("}"))
_CALL = call_object()
_ONE_OR_MORE = Spelled(Array(_CALL), writes=_CALL)
_REGION = Region("<tool_call>", Space("\n"), _ONE_OR_MORE, _SPARE, Loose("</tool_call>", lead="\n"))
_BODY = Seq(Thought("<think>", "</think>", regions=(_REGION,)), Prose(_REGION))
_CALLS = Calls(_REGION, Space("\n"))
_SHAPE = '<tool_call>\n{"name": "TOOL", "arguments": {"KEY": "VALUE"}}\n</tool_call>'

HERMES = Format(
    name="hermes",
    body=_BODY,
    calls=_CALLS,
    shape=_SHAPE,
    template_has=("<tool_call>", '"arguments'),
    # Qwen3-Coder and Nemotron, GLM, and MiniMax write other things between the same markers.
    template_lacks=("<function=", "<arg_key>", "<parameter"),
)

GENERIC = Format(name="generic", body=_BODY, calls=_CALLS, shape=_SHAPE)
