"""Families whose calls are an array of JSON objects: Apertus, Apriel, Cohere's, Granite, Hunyuan, Jamba, MiniMax M1,
Mistral, Nemotron Nano and Phi-4-mini.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Array, MaybeMissing, OptionalMarker, Series, Variants, unwritten
from gateway.toolcalls.nodes.json_nodes import Json, KeyedCall
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Lit, Marker, Node, Seq, Space, Start
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, MarkedRegion

# Nemotron Nano v2, Apriel, Hunyuan, Jamba, MiniMax M1: a list of calls between two markers, after reasoning.
#
# MiniMax M1 writes one call on each line instead of an array. Apriel 1.6 opens its reasoning in the prompt with a
# sentence and ends it with `[BEGIN FINAL RESPONSE]`; 1.5 used `<thinking>`. Hunyuan puts the answer in `<answer>`.

_ARRAYS_CALL = call_object()
_ARRAYS_ARRAY = Array(_ARRAYS_CALL)
_THINK = Thought("<think>", "</think>")
_ARRAYS_OPENER, _CLOSER = "<tool_calls>", OptionalMarker("</tool_calls>")
_OBJECT = '{"name": "TOOL", "arguments": {"KEY": "VALUE"}}'
_SHAPE = f"<tool_calls>[{_OBJECT}]</tool_calls>"

_TOOLCALL = MarkedRegion("<TOOLCALL>", _ARRAYS_ARRAY, OptionalMarker("</TOOLCALL>"))
_ARRAYS_LIST = MarkedRegion(_ARRAYS_OPENER, _ARRAYS_ARRAY, _CLOSER)
_SPREAD = MarkedRegion(_ARRAYS_OPENER, Array(_ARRAYS_CALL, "[\n    ", ",\n    ", "\n]"), _CLOSER)
_LINES = MarkedRegion(
    _ARRAYS_OPENER,
    Space("\n"),
    Variants(_ARRAYS_ARRAY, writes=Series(_ARRAYS_CALL, "\n")),
    OptionalMarker(_CLOSER.text, lead="\n"),
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
        Thought("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", (_ARRAYS_OPENER,)),
        Thought("<thinking>", "</thinking>"),
        Prose(_ARRAYS_LIST, mutes=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]")),
    ),
    calls=_ARRAYS_LIST,
    shape=_SHAPE,
    template_has=("<tool_calls>[", "[BEGIN FINAL RESPONSE]"),
)

HUNYUAN = Format(
    name="hunyuan",
    body=Seq(Thought("<think>", "</think>", (_ARRAYS_OPENER,)), Prose(_ARRAYS_LIST, mutes=("<answer>", "</answer>"))),
    calls=_ARRAYS_LIST,
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


# Apertus: an array of objects in which the tool's name is the key, between two markers, after inner deliberation.

_TOOLS = MarkedRegion("<|tools_prefix|>", Array(CallNode(KeyedCall())), OptionalMarker("<|tools_suffix|>"))

APERTUS = Format(
    name="apertus",
    body=Seq(Thought("<|inner_prefix|>", "<|inner_suffix|>"), Prose(_TOOLS)),
    calls=_TOOLS,
    shape='<|tools_prefix|>[{"TOOL": {"KEY": "VALUE"}}]<|tools_suffix|>',
    template_has=("<|tools_prefix|>",),
)


# Command R7B, Command A, Cohere2 MoE: an array of calls with ids in an action block; the answer has its own block.
#
# The ids are small numbers in quotes. Reasoning opens the message, or the prompt has opened it, and it may end where
# the next block opens.

_COHERE_CALL = call_object(name="tool_name", arguments="parameters", id_first="tool_call_id", id_shape="[0-9]{1,2}")
_ACTION = MarkedRegion(
    "<|START_ACTION|>", Array(_COHERE_CALL, "[\n    ", ",\n    ", "\n]"), OptionalMarker("<|END_ACTION|>")
)
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


# Granite 3.x: an array of calls after `<|tool_call|>`, which `]` ends; 3.1 spells the marker `<tool_call>`.
#
# The answer is in `<response>` after `<think>` (3.3), or two sentences frame the reasoning (3.2).

_GRANITE_ARRAY = Array(call_object())
_REGION = MarkedRegion("<|tool_call|>", _GRANITE_ARRAY)

GRANITE_3 = Format(
    name="granite_3",
    body=Seq(
        Thought("<think>", "</think>"),
        Thought("Here is my thought process:", "Here is my response:"),
        Thought("Here's my thought process:", "Here's my response:"),
        Prose(
            _REGION,
            MarkedRegion("<tool_call>", _GRANITE_ARRAY, OptionalMarker("</tool_call>")),
            mutes=("<response>", "</response>"),
        ),
    ),
    calls=_REGION,
    shape='<|tool_call|>[{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]',
    template_has=("<|tool_call|>", "<|start_of_role|>"),
)


# Mistral: an array of objects with ids (Nemo and before), a name and an id (Small 3.2), a name alone (v11 and later).
#
# All three begin with `[TOOL_CALLS]`, and the parser of each accepts what the others write, since one tokenizer serves
# many templates. Ids are nine letters or digits, and the templates refuse a history without them.

_MISTRAL_OPENER, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", Marker("[CALL_ID]")
_NINE = "[a-zA-Z0-9]{9}"
_GIVEN_ID = Seq(_ID, Capture("id", _ARGS, shape=_NINE, also=("{",)))
_TAIL = Seq(Start(), OptionalMarker(_ARGS), Space(), MaybeMissing(Json(), _MISTRAL_OPENER))
_MISTRAL_ARRAY = Array(call_object(id_last="id", id_shape=_NINE))
_NAMED = CallNode(Seq(Capture("name", _ARGS, also=(_ID.text, "{")), unwritten(_GIVEN_ID), _TAIL))
_NAMED_WITH_ID = CallNode(Seq(Capture("name", _ID.text), _GIVEN_ID, _TAIL))
_THOUGHTS = Seq(Thought("[THINK]", "[/THINK]"), Thought("<think>", "</think>"))


def _region(writes: Node) -> MarkedRegion:
    return MarkedRegion(
        _MISTRAL_OPENER, Space(), Variants(_MISTRAL_ARRAY, _NAMED, writes=writes), unwritten(Lit("[/TOOL_CALLS]"))
    )


def _body(region: MarkedRegion) -> Seq:
    return Seq(_THOUGHTS, Prose(region))


_ARRAYS, _WITH_IDS, _NAMES = map(_region, (_MISTRAL_ARRAY, _NAMED_WITH_ID, _NAMED))

MISTRAL_NEMO = Format(
    name="mistral_nemo",
    body=_body(_ARRAYS),
    calls=_ARRAYS,
    shape='[TOOL_CALLS][{"name": "TOOL", "arguments": {"KEY": "VALUE"}, "id": "call00000"}]',
    template_has=(_MISTRAL_OPENER,),
    template_lacks=(_ARGS,),
)

MISTRAL_SMALL = Format(
    name="mistral_small",
    body=_body(_WITH_IDS),
    calls=Calls(_WITH_IDS),
    shape='[TOOL_CALLS]TOOL[CALL_ID]call00000[ARGS]{"KEY": "VALUE"}',
    template_has=(_MISTRAL_OPENER, _ARGS, _ID.text),
)

MISTRAL = Format(
    name="mistral",
    body=_body(_NAMES),
    calls=Calls(_NAMES),
    shape='[TOOL_CALLS]TOOL[ARGS]{"KEY": "VALUE"}',
    template_has=(_MISTRAL_OPENER, _ARGS),
    template_lacks=(_ID.text,),
)


# Phi-4-mini, FireFunction v2: `functools` and an array of calls; Phi's template also shows one object in markers.

_PHI_ARRAY = Array(call_object())
# Without an array after it, the word is a Python module.
_PHI_LIST = Variants(_PHI_ARRAY, writes=_PHI_ARRAY)
_FUNCTOOLS = Bare("functools", "functools", _PHI_LIST)

PHI_4_MINI = Format(
    name="phi_4_mini",
    body=Prose(_FUNCTOOLS, MarkedRegion("<|tool_call|>", _PHI_ARRAY, OptionalMarker("<|/tool_call|>"))),
    calls=_FUNCTOOLS,
    shape='functools[{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]',
    template_has=("<|/tool|>",),
    template_or=("functools[",),
)
