"""Muse Glimmer: messages to recipients, calls in ATEM tags.

Reasoning goes to `self`, the answer to `user`, and each call, as a separate message, to the tool's name. Values are raw
text, typed by the tool's schema.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.headers import Header
from gateway.toolcalls.nodes.invoke import invoke_call, invoke_shape
from gateway.toolcalls.nodes.readers import Lit, Node, Space
from gateway.toolcalls.nodes.recipients import MESSAGE, MORE, START, Muse
from gateway.toolcalls.nodes.regions import Calls
from gateway.toolcalls.nodes.series import OptionalMarker

_BLOCK, _BLOCK_END = "<atem:function_calls>", "</atem:function_calls>"


def _call(length: int) -> Node:
    header = Header(f" to={{name}}{MESSAGE}", length)
    call = invoke_call(_BLOCK_END, "atem:", header, Space(), _BLOCK, Space("\n"))
    return Seq(call, OptionalMarker(_BLOCK_END, lead="\n"))


MUSE_GLIMMER = Format(
    name="muse_glimmer",
    body=Muse(_call, _BLOCK),
    calls=Calls(_call(0), Lit(f"{MORE}{START}assistant")),
    shape=f" to=TOOL{MESSAGE}{_BLOCK}\n{invoke_shape('atem:')}\n{_BLOCK_END}",
    answer=f" to=user{MESSAGE}",
    template_has=(_BLOCK, "to=self"),
)
