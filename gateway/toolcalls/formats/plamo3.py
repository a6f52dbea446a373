"""PLaMo 3: calls in a section, with the name and the arguments between markers of their own.

Each marker consists of several tokens.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Lit, Marker, Space, Start
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series, Variants


def _begin(what: str) -> str:
    return f"<|plamo:begin_{what}:plamo|>"


def _end(what: str) -> str:
    return f"<|plamo:end_{what}:plamo|>"


_MESSAGE = "<|plamo:msg|>"
_JSON = Lit(f"<|plamo:constrain|>json{_MESSAGE}")
_HEAD = (Marker(_begin("tool_request")), Space(), Marker(_begin("tool_name")))
_NAME = Capture("name", _end("tool_name"))
_ARGUMENTS = Seq(_begin("tool_arguments"), Variants(_JSON, Lit(_MESSAGE), Seq(), writes=_JSON), Space(), Json())
_CALL = CallNode(
    Seq(
        *_HEAD,
        _NAME,
        Marker(_end("tool_name")),
        Start(),
        Space(),
        _ARGUMENTS,
        OptionalMarker(_end("tool_arguments")),
        OptionalMarker(_end("tool_request")),
    )
)
_SECTION = MarkedRegion(_begin("tool_requests"), Series(_CALL), OptionalMarker(_end("tool_requests")))

PLAMO_3 = Format(
    name="plamo3",
    body=Seq(
        Thought(_begin("think"), _end("think"), (_begin("tool_requests"),)), Prose(_SECTION, mutes=("<|plamo:tag|>",))
    ),
    calls=_SECTION,
    shape=f"{_begin('tool_requests')}{_begin('tool_request')}{_begin('tool_name')}TOOL{_end('tool_name')}"
    f'{_begin("tool_arguments")}{_JSON.text}{{"KEY": "VALUE"}}{_end("tool_arguments")}{_end("tool_request")}'
    f"{_end('tool_requests')}",
    template_has=(_begin("tool_requests"),),
)
