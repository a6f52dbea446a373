"""Nemotron Nano v2, Apriel, Hunyuan, Jamba, MiniMax M1: a list of calls between two markers, after reasoning.

MiniMax M1 writes one call on each line instead of an array. Apriel 1.6 opens its reasoning in the prompt with a
sentence and ends it with `[BEGIN FINAL RESPONSE]`; 1.5 used `<thinking>`. Hunyuan puts the answer in `<answer>`.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Space
from gateway.toolcalls.nodes.regions import MarkedRegion
from gateway.toolcalls.nodes.series import Array, OptionalMarker, Series, Variants

_CALL = call_object()
_ARRAY = Array(_CALL)
_THINK = Thought("<think>", "</think>")
_OPENER, _CLOSER = "<tool_calls>", OptionalMarker("</tool_calls>")
_OBJECT = '{"name": "TOOL", "arguments": {"KEY": "VALUE"}}'
_SHAPE = f"<tool_calls>[{_OBJECT}]</tool_calls>"

_TOOLCALL = MarkedRegion("<TOOLCALL>", _ARRAY, OptionalMarker("</TOOLCALL>"))
_LIST = MarkedRegion(_OPENER, _ARRAY, _CLOSER)
_SPREAD = MarkedRegion(_OPENER, Array(_CALL, "[\n    ", ",\n    ", "\n]"), _CLOSER)
_LINES = MarkedRegion(
    _OPENER, Space("\n"), Variants(_ARRAY, writes=Series(_CALL, "\n")), OptionalMarker(_CLOSER.text, lead="\n")
)

NEMOTRON_NANO = Format(
    name="nemotron_nano",
    body=Seq(_THINK, Prose(_TOOLCALL)),
    calls=_TOOLCALL,
    shape=f"<TOOLCALL>[{_OBJECT}]</TOOLCALL>",
    template_has=("<TOOLCALL>",),
)

APRIEL = Format(
    name="apriel",
    body=Seq(
        Thought("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", (_OPENER,)),
        Thought("<thinking>", "</thinking>"),
        Prose(_LIST, mutes=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]")),
    ),
    calls=_LIST,
    shape=_SHAPE,
    template_has=("<tool_calls>[", "[BEGIN FINAL RESPONSE]"),
)

HUNYUAN = Format(
    name="hunyuan",
    body=Seq(Thought("<think>", "</think>", (_OPENER,)), Prose(_LIST, mutes=("<answer>", "</answer>"))),
    calls=_LIST,
    shape=_SHAPE,
    template_has=("<tool_calls>", "<answer>"),
    template_or=('<tool_calls>[{"name": "func_name1"',),
)

JAMBA = Format(
    name="jamba",
    body=Seq(_THINK, Prose(_SPREAD)),
    calls=_SPREAD,
    shape=f"<tool_calls>[\n    {_OBJECT}\n]</tool_calls>",
    template_has=("<tool_calls>[",),
    template_lacks=("[BEGIN FINAL RESPONSE]", "<answer>"),
)

MINIMAX_M1 = Format(
    name="minimax_m1",
    body=Seq(_THINK, Prose(_LINES)),
    calls=_LINES,
    shape=f"<tool_calls>\n{_OBJECT}\n</tool_calls>",
    template_has=("<tool_calls>", "<beginning_of_sentence>"),
)
