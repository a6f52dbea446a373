"""Phi-4-mini, FireFunction v2: `functools` and an array of calls; Phi's template also shows one object in markers."""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose
from gateway.toolcalls.nodes.regions import Bare, MarkedRegion
from gateway.toolcalls.nodes.series import Array, OptionalMarker, Variants

_ARRAY = Array(call_object())
# Without an array after it, the word is a Python module.
_LIST = Variants(_ARRAY, writes=_ARRAY)
_FUNCTOOLS = Bare("functools", "functools", _LIST)

PHI_4_MINI = Format(
    name="phi_4_mini",
    body=Prose(_FUNCTOOLS, MarkedRegion("<|tool_call|>", _ARRAY, OptionalMarker("<|/tool_call|>"))),
    calls=_FUNCTOOLS,
    shape='functools[{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]',
    template_has=("<|/tool|>",),
    template_or=("functools[",),
)
