"""MiniMax M2 and M3: calls as `<invoke>` tags in one block, the names of tools as attributes.

Attributes come in either quotation marks or in none. Values are raw text, typed by the tool's schema. M2 has arguments'
names in attributes too, and its prompt opens reasoning. M3 writes a mark before every tag and an element for each
argument, with elements inside for objects and lists; without reasoning it begins with the end of reasoning.
"""

from gateway.toolcalls.combinators import Seq
from gateway.toolcalls.elements import Elements
from gateway.toolcalls.format import Format
from gateway.toolcalls.nodes import Marker, Space
from gateway.toolcalls.passages import Prose, Thought
from gateway.toolcalls.regions import Call, Calls, Region
from gateway.toolcalls.series import Loose
from gateway.toolcalls.tagged import Parameters, TagName
from gateway.toolcalls.typed import Ending

_PARAMETERS = Parameters(
    opener="<parameter name=",
    ending=Ending(
        "</parameter>",
        followers=("<parameter", "</parameter>", "</invoke>", "</minimax:tool_call>"),
        stops=("</invoke>\n</minimax:tool_call>", "\n<parameter name="),
        newline="pair",
    ),
    ends=("</invoke>", "</minimax:tool_call>"),
    written=('<parameter name="{key}">', "</parameter>\n"),
    strays=("</parameter>",),
)
_CALL = Call(
    Seq("<invoke name=", TagName(written='"{name}">'), Space("\n"), _PARAMETERS, Loose("</invoke>")),
)
_BLOCK = Region("<minimax:tool_call>", Space("\n"), Calls(Seq(_CALL, Space("\n"))), Marker("</minimax:tool_call>"))

MINIMAX_M2 = Format(
    name="minimax_m2",
    body=Seq(Thought("<think>", "</think>", ("<minimax:tool_call>",)), Prose(_BLOCK)),
    calls=_BLOCK,
    shape='<minimax:tool_call>\n<invoke name="TOOL">\n<parameter name="KEY">VALUE</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    template_has=("<minimax:tool_call>", "<invoke name="),
)

_MARK = "]<]minimax[>["
_OPENER_3, _CLOSER_3, _INVOKE_END = f"{_MARK}<tool_call>", f"{_MARK}</tool_call>", f"{_MARK}</invoke>"
_HEAD = f"{_MARK}<invoke name="
_ELEMENTS = Elements(_MARK, (_INVOKE_END, _CLOSER_3, _HEAD))
_INVOKE = Call(Seq(_HEAD, TagName(written='"{name}">'), _ELEMENTS, Loose(_INVOKE_END)))
_BLOCK_3 = Region(_OPENER_3, Space("\n"), Calls(Seq(_INVOKE, Space("\n"))), Loose(_CLOSER_3))

MINIMAX_M3 = Format(
    name="minimax_m3",
    body=Seq(Thought("<mm:think>", "</mm:think>", (_OPENER_3,)), Prose(_BLOCK_3)),
    calls=_BLOCK_3,
    shape=f'{_OPENER_3}\n{_HEAD}"TOOL">{_MARK}<KEY>VALUE{_MARK}</KEY>{_INVOKE_END}\n{_CLOSER_3}',
    template_has=(_MARK,),
)
