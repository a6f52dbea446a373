"""MiniMax M2 and M3, dots: calls as `<invoke>` tags in one block, the names of tools as attributes.

Attributes are in single or double quotes or unquoted. Values are raw text, typed by the tool's schema. M2 also has the
names of arguments in attributes, and its prompt opens reasoning. M3 writes a mark before every tag and an element for
each argument, with elements inside for objects and lists; if it does not reason, it begins with the closing marker of
reasoning. A JSON object instead of the tags is read too, and a call without its block; dots is like M2.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq, maybe
from gateway.toolcalls.nodes.elements import Elements
from gateway.toolcalls.nodes.invoke import invoke_call, invoke_shape
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Marker, Space
from gateway.toolcalls.nodes.regions import Bare, Call, Calls, Region
from gateway.toolcalls.nodes.series import Array, Closer, OptionalMarker, Variants
from gateway.toolcalls.nodes.tagged import TagName

_BLOCK_END = "</minimax:tool_call>"
_CALLED = Calls(Seq(invoke_call(_BLOCK_END), Space("\n")))
_BLOCK = Region(
    "<minimax:tool_call>",
    Space("\n"),
    Variants(Array(call_object()), _CALLED, writes=_CALLED),
    Closer(_BLOCK_END),
)
_DOTS_END = "</dots_function_call>"
_INVOKES = Calls(Seq(invoke_call(_DOTS_END), Space("\n")))
_DOTS = Region(
    "<dots_function_call>",
    Space("\n"),
    Variants(Array(call_object()), _INVOKES, writes=_INVOKES),
    OptionalMarker(_DOTS_END),
)


def _bare(calls: Calls, closer: str) -> Bare:
    """Calls without the opening marker of their block."""
    return Bare("<invoke name=", calls, maybe(Marker(closer)))


DOTS = Format(
    name="dots",
    body=Seq(Thought("<think>", "</think>", ("<dots_function_call>",)), Prose(_DOTS, _bare(_INVOKES, _DOTS_END))),
    calls=_DOTS,
    shape=f"<dots_function_call>\n{invoke_shape()}\n{_DOTS_END}",
    template_has=("<dots_function_call>",),
)

MINIMAX_M2 = Format(
    name="minimax_m2",
    body=Seq(Thought("<think>", "</think>", ("<minimax:tool_call>",)), Prose(_BLOCK, _bare(_CALLED, _BLOCK_END))),
    calls=_BLOCK,
    shape=f"<minimax:tool_call>\n{invoke_shape()}\n{_BLOCK_END}",
    template_has=("<minimax:tool_call>", "<invoke name="),
)

_MARK = "]<]minimax[>["
_OPENER_3, _CLOSER_3, _INVOKE_END = f"{_MARK}<tool_call>", f"{_MARK}</tool_call>", f"{_MARK}</invoke>"
_HEAD = f"{_MARK}<invoke name="
_ELEMENTS = Elements(_MARK, (_INVOKE_END, _CLOSER_3, _HEAD))
_INVOKE = Call(Seq(_HEAD, TagName(written='"{name}">'), _ELEMENTS, OptionalMarker(_INVOKE_END)))
_BLOCK_3 = Region(_OPENER_3, Space("\n"), Calls(Seq(_INVOKE, Space("\n"))), OptionalMarker(_CLOSER_3))

MINIMAX_M3 = Format(
    name="minimax_m3",
    body=Seq(Thought("<mm:think>", "</mm:think>", (_OPENER_3,)), Prose(_BLOCK_3)),
    calls=_BLOCK_3,
    shape=f'{_OPENER_3}\n{_HEAD}"TOOL">{_MARK}<KEY>VALUE{_MARK}</KEY>{_INVOKE_END}\n{_CLOSER_3}',
    template_has=(_MARK,),
)
