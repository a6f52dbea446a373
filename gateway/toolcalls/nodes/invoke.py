"""A call as an `<invoke>` tag with a `<parameter>` tag for each argument: MiniMax M2, dots, Muse Glimmer.

Families differ in the tags' prefix and in what stands around the calls. Attributes are in single or double quotes or
unquoted; values are raw text, typed by the tool's schema.
"""

from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.readers import Node, Space
from gateway.toolcalls.nodes.regions import Call
from gateway.toolcalls.nodes.series import OptionalMarker
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import Ending


def invoke_call(block_end: str, prefix: str = "", *before: Node | str) -> Call:
    """Return a call inside a block that ends with `block_end`; `before` are nodes of the call before its tag."""
    tag_end, value_end = f"</{prefix}invoke>", f"</{prefix}parameter>"
    parameters = Parameters(
        opener=f"<{prefix}parameter name=",
        ending=Ending(
            value_end,
            followers=(f"<{prefix}parameter", value_end, tag_end, block_end),
            stops=(f"{tag_end}\n{block_end}", f"\n<{prefix}parameter name="),
            newline="pair",
        ),
        ends=(tag_end, block_end),
        written=(f'<{prefix}parameter name="{{key}}">', f"{value_end}\n"),
        strays=(value_end,),
    )
    head = (f"<{prefix}invoke name=", TagName(written='"{name}">'))
    return Call(Seq(*before, *head, Space("\n"), parameters, OptionalMarker(tag_end)))


def invoke_shape(prefix: str = "") -> str:
    """Return one call as a prompt shows it."""
    value = f'<{prefix}parameter name="KEY">VALUE</{prefix}parameter>'
    return f'<{prefix}invoke name="TOOL">\n{value}\n</{prefix}invoke>'
