"""LongCat, ERNIE 4.5, InternLM2, GigaChat 3, Granite 20B, Nemotron Mini, Command R+: JSON in markers of their own.

GigaChat 3.0 writes a message with the role `function call`, 3.1 one marker. InternLM2 uses the key `parameters`;
Command R+ also `tool_name`, in a code fence after `Action:`. ERNIE answers in `<response>` after reasoning.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Lit, Marker, Space
from gateway.toolcalls.nodes.regions import Bare, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import Array, OptionalMarker, Variants

_CALL = call_object()
_ONE_OR_MORE = Variants(Array(_CALL), writes=_CALL)
_OBJECT = '{"name": "TOOL", "arguments": {"KEY": "VALUE"}}'
_PARAMETERS = '{"name": "TOOL", "parameters": {"KEY": "VALUE"}}'

_LONGCAT = MarkedRegion(
    "<longcat_tool_call>", Space("\n"), _ONE_OR_MORE, OptionalMarker("</longcat_tool_call>", lead="\n")
)

LONGCAT = Format(
    name="longcat",
    body=Seq(Thought("<longcat_think>", "</longcat_think>", regions=(_LONGCAT,)), Prose(_LONGCAT)),
    calls=Calls(_LONGCAT, Space("\n")),
    shape=f"<longcat_tool_call>\n{_OBJECT}\n</longcat_tool_call>",
    template_has=("<longcat_tool_call>",),
)

_ERNIE = MarkedRegion("<tool_call>", Space("\n"), _ONE_OR_MORE, OptionalMarker("</tool_call>", lead="\n"))

ERNIE_45 = Format(
    name="ernie45",
    body=Seq(Thought("<think>", "</think>", regions=(_ERNIE,)), Prose(_ERNIE, mutes=("<response>", "</response>"))),
    calls=Calls(_ERNIE, Space("\n")),
    shape=f"<tool_call>\n{_OBJECT}\n</tool_call>",
    template_has=("<tool_call>", "<response>"),
    template_lacks=("<|start_of_role|>", "<function=", "<arg_key>", "<parameter", "<invoke"),
)

_PLUGIN = MarkedRegion(
    "<|action_start|>",
    Space(),
    Marker("<|plugin|>"),
    Space("\n"),
    call_object(arguments="parameters"),
    OptionalMarker("<|action_end|>"),
)

INTERNLM_2 = Format(
    name="internlm2",
    body=Seq(Thought("<think>", "</think>", regions=(_PLUGIN,)), Prose(_PLUGIN)),
    calls=Calls(_PLUGIN),
    shape=f"<|action_start|><|plugin|>\n{_PARAMETERS}<|action_end|>",
    template_has=("<|action_start|>", "<|plugin|>"),
)

_ROLE = "<|role_sep|>"
_MESSAGE = MarkedRegion("<|message_sep|>", Space("\n\n"), "function call", Marker(_ROLE), Space("\n"), _CALL)
_MARKED = MarkedRegion("<|function_call|>", Space(), _CALL)

GIGACHAT_3 = Format(
    name="gigachat3",
    body=Prose(_MESSAGE, _MARKED, mutes=("</s>",)),
    calls=Calls(_MESSAGE),
    shape=f"<|message_sep|>\n\nfunction call{_ROLE}\n{_OBJECT}",
    template_has=("function call", _ROLE),
    template_lacks=("<|function_call|>",),
)

GIGACHAT_31 = Format(
    name="gigachat31",
    body=Prose(_MARKED, _MESSAGE, mutes=("</s>",)),
    calls=Calls(_MARKED),
    shape=f"<|function_call|>{_OBJECT}",
    template_has=("<|function_call|>", _ROLE),
)

_FUNCTION = MarkedRegion("<function_call>", Space(" "), _CALL)

GRANITE_20B = Format(
    name="granite_20b",
    body=Prose(_FUNCTION),
    calls=Calls(_FUNCTION, Space("\n")),
    shape=f"<function_call> {_OBJECT}",
    template_has=("<function_call>", "<|function_call_library|>"),
)

_TOOLCALL = MarkedRegion("<toolcall>", Space(" "), _ONE_OR_MORE, OptionalMarker("</toolcall>", lead=" "))

NEMOTRON_MINI = Format(
    name="nemotron_mini",
    body=Prose(_TOOLCALL),
    calls=Calls(_TOOLCALL, Space(" ")),
    shape=f"<toolcall> {_OBJECT} </toolcall>",
    template_has=("<extra_id_1>", "<tool> "),
)

_FENCE, _LIST = (
    Lit("```json"),
    Array(call_object(name="tool_name", arguments="parameters"), "[\n    ", ",\n    ", "\n]"),
)
_ACTION = Bare("Action:", "Action:", Space("\n"), _FENCE, Space("\n"), _LIST, OptionalMarker("```", lead="\n"))

COMMAND_R_PLUS = Format(
    name="command_r_plus",
    body=Prose(_ACTION, mutes=("<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")),
    calls=_ACTION,
    shape='Action:\n```json\n[\n    {"tool_name": "TOOL", "parameters": {"KEY": "VALUE"}}\n]\n```',
    template_has=("Action:", "```json", '"tool_name"'),
    template_lacks=("<|START_ACTION|>",),
)
