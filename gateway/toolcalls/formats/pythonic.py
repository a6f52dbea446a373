"""Llama 3.2 and 4, LFM2 and 2.5, OLMo 3: calls as Python writes them.

Llama and LFM2 write a list, OLMo one call on each line; Llama 4 and LFM2 have markers around it, which may be missing.
Without them a list counts at the beginning of a message. Behind text it counts only where it ends the message and its
calls fit tools of the request: answers explain such lists, and Python code contains them. LFM2 also writes JSON objects
in its list, and JSON's `true`, `false` and `null` in Python calls. Arguments without keywords, sets, and unescaped
quotes inside a string are read.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Array, Closer, OptionalMarker, Series, Variants
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.python_call import CallList, FinalList, PythonCall
from gateway.toolcalls.nodes.readers import Seq, Space
from gateway.toolcalls.nodes.regions import Bare, CallNode, LeadingRegion, MarkedRegion

_CALLS = Series(CallNode(PythonCall()), ", ")
_ANY = CallList(_CALLS)
_KNOWN = CallList(Series(CallNode(PythonCall(known=True)), ", "))
_PYTHON_END, _LFM2_END = OptionalMarker("<|python_end|>"), OptionalMarker("<|tool_call_end|>")

PYTHONIC = Format(
    name="pythonic",
    body=Seq(
        LeadingRegion(Bare("[", _ANY, _PYTHON_END)),
        Prose(MarkedRegion("<|python_start|>", Space(), _ANY, _PYTHON_END), FinalList(_KNOWN, _PYTHON_END)),
    ),
    calls=_ANY,
    shape="[TOOL(KEY='VALUE')]",
    template_has=("[func_name1(",),
)

_LFM2_LIST = Seq(Space(), Variants(CallList(_CALLS), Array(call_object()), writes=CallList(_CALLS)))
_LFM2 = MarkedRegion("<|tool_call_start|>", _LFM2_LIST, _LFM2_END)
LFM2 = Format(
    name="lfm2",
    body=Seq(
        Thought("<think>", "</think>"),
        LeadingRegion(Bare("[", _KNOWN, _LFM2_END)),
        Prose(_LFM2, FinalList(_KNOWN, _LFM2_END)),
    ),
    calls=_LFM2,
    shape='<|tool_call_start|>[TOOL(KEY="VALUE")]<|tool_call_end|>',
    template_has=("List of tools: ",),
    template_lacks=("<tool_call>", "[func_name1("),
)

_OLMO = MarkedRegion("<function_calls>", Series(CallNode(PythonCall()), "\n"), Closer("</function_calls>"))
OLMO_3 = Format(
    name="olmo_3",
    body=Seq(Thought("<think>", "</think>", ("<function_calls>",)), Prose(_OLMO)),
    calls=_OLMO,
    shape="<function_calls>TOOL(KEY='VALUE')</function_calls>",
    template_has=("<function_calls>",),
)
