"""MiroThinker: an MCP server's name, a tool's name and arguments as JSON, all in tags; calls may share the outer tag.

The server's name is ignored: the tool's name is enough. Its template writes earlier calls as Hermes does, so the models
do so too.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.hermes import HERMES_REGION
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, IgnoredWord, Space, Start
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series

_SERVER, _SERVER_END, _TOOL, _TOOL_END = "<server_name>", "</server_name>", "<tool_name>", "</tool_name>"
_CALL = CallNode(
    Seq(
        *(_SERVER, IgnoredWord(_SERVER_END), _SERVER_END, Space("\n"), _TOOL, Capture("name", _TOOL_END), _TOOL_END),
        *(Start(), Space("\n"), "<arguments>", Space("\n"), Json(), OptionalMarker("</arguments>", lead="\n")),
    )
)
_REGION = MarkedRegion("<use_mcp_tool>", Space("\n"), Series(_CALL, "\n"), OptionalMarker("</use_mcp_tool>", lead="\n"))

MIRO_THINKER = Format(
    name="miro_thinker",
    body=Seq(Thought("<think>", "</think>", regions=(_REGION,)), Prose(_REGION, HERMES_REGION)),
    calls=_REGION,
    shape=f"<use_mcp_tool>\n{_SERVER}SERVER{_SERVER_END}\n{_TOOL}TOOL{_TOOL_END}\n<arguments>\n"
    '{"KEY": "VALUE"}\n</arguments>\n</use_mcp_tool>',
    template_has=("<use_mcp_tool>",),
)
