"""Hermes, Qwen2.5, Qwen3, QwQ, Granite 4, Bielik, MiMo-VL: JSON between `<tool_call>` markers, after reasoning if any.

The same shape is the one that we teach to models whose template knows no tools, under the name `generic`. The markers
are one token each in Qwen2.5 and later, and ordinary text elsewhere (Qwen2, SmolLM2).
"""

from gateway.toolcalls.combinators import Seq
from gateway.toolcalls.format import Format
from gateway.toolcalls.nodes import Lit, Marker, Space
from gateway.toolcalls.objects import call_object
from gateway.toolcalls.passages import Prose, Thought
from gateway.toolcalls.regions import Calls, Region
from gateway.toolcalls.series import unwritten

# Small models miscount braces: one too few is `Record`'s to bear, one too many stands before the marker.
_SPARE = unwritten(Lit("}"))
_REGION = Region("<tool_call>", Space("\n"), call_object(), _SPARE, Space("\n"), Marker("</tool_call>"))
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
