"""Functionary 3.1 and 3.2: the name in a tag, or recipients after `>>>`, each on a line of its own.

3.2 addresses the user as the recipient `all`; its prompt ends with the first `>>>`.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Choice, Seq
from gateway.toolcalls.nodes.json_nodes import Json, JsonObject
from gateway.toolcalls.nodes.passages import Prose
from gateway.toolcalls.nodes.readers import Capture, Lit, Space, Start
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, LeadingRegion, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series, Variants, unwritten

_TAGGED = MarkedRegion(
    "<function=", CallNode(Seq(Capture("name", ">"), ">", Start(), Space(), Json())), OptionalMarker("</function>")
)

FUNCTIONARY_31 = Format(
    name="functionary_31",
    body=Prose(_TAGGED),
    calls=Calls(_TAGGED),
    shape='<function=TOOL>{"KEY": "VALUE"}</function>',
    template_has=("<function=", "</function>"),
    template_lacks=("<parameter=", "<tool_call>", ">>>"),
)

_CALL = CallNode(Seq(Capture("name", "\n"), "\n", Space(), Choice(Seq(Start(), JsonObject()))))
_RECIPIENT = Variants(Lit("all\n"), _CALL, writes=_CALL)

FUNCTIONARY_32 = Format(
    name="functionary_32",
    body=Seq(LeadingRegion(Bare("", unwritten(Lit(">>>")), _RECIPIENT)), Prose(MarkedRegion(">>>", _RECIPIENT))),
    calls=Series(_CALL, ">>>"),
    shape='TOOL\n{"KEY": "VALUE"}',
    answer="all\n",
    template_has=(">>>all",),
)
