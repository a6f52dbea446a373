"""MiniMax M2: calls as `<invoke>` tags in one block, the names of tools and arguments as attributes.

Attributes come in either quotation marks or in none. Values are raw text, typed by the tool's schema. The prompt opens
reasoning.
"""

from gateway.toolcalls.combinators import Seq
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
