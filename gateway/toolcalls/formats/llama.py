"""Llama 3.1 to 4, and models that answer in plain JSON: a call is a bare object, or several.

No marker distinguishes a call from other JSON. At the beginning of a message an object counts if it has a name,
arguments and no other keys; behind text, by the rule that all formats share. Everything else stays content. Llama calls
its built-in tools in Python syntax after a marker: `brave_search.call(query="...")`. Llama 4 puts either form, or a
list of Python calls, between two markers. xLAM also writes its list in other families' markers.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import bare_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.python_call import PythonCall
from gateway.toolcalls.nodes.readers import Space
from gateway.toolcalls.nodes.regions import Bare, CallNode, LeadingRegion, MarkedRegion
from gateway.toolcalls.nodes.series import Array, OptionalMarker, Series, Variants

_ANY = bare_object()
_OBJECTS = Bare("{", Series(_ANY, "; "))
_TAGGED = Series(Variants(_ANY, CallNode(PythonCall(suffix=".call")), writes=_ANY), "; ")
_LISTED = Seq("[", Series(CallNode(PythonCall()), ", "), "]")
_MARKED = MarkedRegion(
    "<|python_start|>", Space(), Variants(_LISTED, _TAGGED, writes=_TAGGED), OptionalMarker("<|python_end|>")
)

LLAMA_3 = Format(
    name="llama_3",
    body=Seq(LeadingRegion(_OBJECTS), Prose(MarkedRegion("<|python_tag|>", _TAGGED), _MARKED)),
    calls=_OBJECTS,
    shape='{"name": "TOOL", "parameters": {"KEY": "VALUE"}}',
    template_has=("<|start_header_id|>", '"parameters":'),
    template_or=("<|header_start|>",),
    template_lacks=("<tool_call>", "<TOOLCALL>", ">>>", "<function=", "[func_name1(", "functools["),
)

_CALL = bare_object("arguments")
_ARRAY = Bare("[", Array(_CALL))

JSON = Format(
    name="json",
    body=Seq(
        Thought("<think>", "</think>"),
        LeadingRegion(_ARRAY),
        LeadingRegion(Bare("{", Series(_CALL, ","))),
        Prose(
            MarkedRegion("[TOOL_CALLS]", Array(_CALL)),
            MarkedRegion("<tool_call>", Array(_CALL), OptionalMarker("</tool_call>")),
        ),
    ),
    calls=_ARRAY,
    shape='[{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]',
    template_or=('[{"name": "tool_call_name"',),
)
