"""Families whose call is one JSON object, bare or between markers: Hermes, Qwen, Llama, MiroThinker, and more."""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.tagged_arguments import FUNCTION_CALL
from gateway.toolcalls.nodes.combinators import Array, Nothing, OptionalMarker, Series, Variants
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.objects import bare_object, call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.python_call import PythonCall
from gateway.toolcalls.nodes.readers import Capture, IgnoredWord, Lit, Marker, Seq, Space, Start
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, LeadingRegion, MarkedRegion

# Hermes, Qwen2.5, Qwen3, QwQ, Granite 4, Bielik, MiMo-VL: JSON between `<tool_call>` markers, after reasoning if any.
#
# This is also the shape that we teach to models whose template does not support tools, under the name `generic`. The
# markers are one token each in Qwen2.5 and later, and ordinary text elsewhere (Qwen2, SmolLM2). The closing marker may
# be missing, and between the markers models may put several calls, an array, a code fence, nothing, or a call as
# Qwen3-Coder writes it.

_HERMES_CALL = call_object()
_END = OptionalMarker("</tool_call>", lead="\n")
_HERMES_OBJECTS = Array(_HERMES_CALL)
_FENCED = Seq("```json", Space(), _HERMES_OBJECTS, Space(), OptionalMarker("```"))
_CALLED = Variants(_HERMES_OBJECTS, Nothing(_END.text), FUNCTION_CALL, _FENCED, writes=_HERMES_CALL)
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


# LongCat, ERNIE 4.5, InternLM2, GigaChat 3, Granite 20B, Nemotron Mini, Command R+: JSON in markers of their own.
#
# GigaChat 3.0 writes a message with the role `function call`, 3.1 one marker. InternLM2 uses the key `parameters`;
# Command R+ also `tool_name`, in a code fence after `Action:`. ERNIE answers in `<response>` after reasoning.

_WRAPPED_CALL = call_object()
_ONE_OR_MORE = Variants(Array(_WRAPPED_CALL), writes=_WRAPPED_CALL)
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
_MESSAGE = MarkedRegion("<|message_sep|>", Space("\n\n"), "function call", Marker(_ROLE), Space("\n"), _WRAPPED_CALL)
_WRAPPED_MARKED = MarkedRegion("<|function_call|>", Space(), _WRAPPED_CALL)

GIGACHAT_3 = Format(
    name="gigachat3",
    body=Prose(_MESSAGE, _WRAPPED_MARKED, mutes=("</s>",)),
    calls=Calls(_MESSAGE),
    shape=f"<|message_sep|>\n\nfunction call{_ROLE}\n{_OBJECT}",
    template_has=("function call", _ROLE),
    template_lacks=("<|function_call|>",),
)

GIGACHAT_31 = Format(
    name="gigachat31",
    body=Prose(_WRAPPED_MARKED, _MESSAGE, mutes=("</s>",)),
    calls=Calls(_WRAPPED_MARKED),
    shape=f"<|function_call|>{_OBJECT}",
    template_has=("<|function_call|>", _ROLE),
)

_FUNCTION = MarkedRegion("<function_call>", Space(" "), _WRAPPED_CALL)

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


# Llama 3.1 to 4, and models that answer in plain JSON: a call is a bare object, or several.
#
# No marker distinguishes a call from other JSON. At the beginning of a message an object counts if it has a name,
# arguments and no other keys; behind text, by the rule that all formats share. Everything else stays content. Llama
# calls its built-in tools in Python syntax after a marker: `brave_search.call(query="...")`. Llama 4 puts either form,
# or a list of Python calls, between two markers. xLAM also writes its list in other families' markers.

_ANY = bare_object()
_LLAMA_OBJECTS = Bare("{", Series(_ANY, "; "))
_TAGGED = Series(Variants(_ANY, CallNode(PythonCall(suffix=".call")), writes=_ANY), "; ")
_LISTED = Seq("[", Series(CallNode(PythonCall()), ", "), "]")
_LLAMA_MARKED = MarkedRegion(
    "<|python_start|>", Space(), Variants(_LISTED, _TAGGED, writes=_TAGGED), OptionalMarker("<|python_end|>")
)

LLAMA_3 = Format(
    name="llama_3",
    body=Seq(LeadingRegion(_LLAMA_OBJECTS), Prose(MarkedRegion("<|python_tag|>", _TAGGED), _LLAMA_MARKED)),
    calls=_LLAMA_OBJECTS,
    shape='{"name": "TOOL", "parameters": {"KEY": "VALUE"}}',
    template_has=("<|start_header_id|>", '"parameters":'),
    template_or=("<|header_start|>",),
    template_lacks=("<tool_call>", "<TOOLCALL>", ">>>", "<function=", "[func_name1(", "functools["),
)

_LLAMA_CALL = bare_object("arguments")
_ARRAY = Bare("[", Array(_LLAMA_CALL))

JSON = Format(
    name="json",
    body=Seq(
        Thought("<think>", "</think>"),
        LeadingRegion(_ARRAY),
        LeadingRegion(Bare("{", Series(_LLAMA_CALL, ","))),
        Prose(
            MarkedRegion("[TOOL_CALLS]", Array(_LLAMA_CALL)),
            MarkedRegion("<tool_call>", Array(_LLAMA_CALL), OptionalMarker("</tool_call>")),
        ),
    ),
    calls=_ARRAY,
    shape='[{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]',
    template_or=('[{"name": "tool_call_name"',),
)


# MiroThinker: an MCP server's name, a tool's name and arguments as JSON, all in tags; calls may share the outer tag.
#
# The server's name is ignored: the tool's name is enough. Its template writes earlier calls as Hermes does, so the
# models do so too.

_SERVER, _SERVER_END, _TOOL, _TOOL_END = "<server_name>", "</server_name>", "<tool_name>", "</tool_name>"
_MIRO_CALL = CallNode(
    Seq(
        *(_SERVER, IgnoredWord(_SERVER_END), _SERVER_END, Space("\n"), _TOOL, Capture("name", _TOOL_END), _TOOL_END),
        *(Start(), Space("\n"), "<arguments>", Space("\n"), Json(), OptionalMarker("</arguments>", lead="\n")),
    )
)
_REGION = MarkedRegion(
    "<use_mcp_tool>", Space("\n"), Series(_MIRO_CALL, "\n"), OptionalMarker("</use_mcp_tool>", lead="\n")
)

MIRO_THINKER = Format(
    name="miro_thinker",
    body=Seq(Thought("<think>", "</think>", regions=(_REGION,)), Prose(_REGION, HERMES_REGION)),
    calls=_REGION,
    shape=f"<use_mcp_tool>\n{_SERVER}SERVER{_SERVER_END}\n{_TOOL}TOOL{_TOOL_END}\n<arguments>\n"
    '{"KEY": "VALUE"}\n</arguments>\n</use_mcp_tool>',
    template_has=("<use_mcp_tool>",),
)
