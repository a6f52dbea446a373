"""Solar Open: calls with ids and names between markers, after reasoning in a message of its own.

The ids are up to ten letters or digits. An answer is a message too; the markers that frame it are not content.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Marker, Space, Start
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker, Series

_BEGIN, _NAME, _ARGS = (Marker(f"<|tool_call:{part}|>") for part in ("begin", "name", "args"))
_END = OptionalMarker("<|tool_call:end|>")
_REST = Seq(
    Capture("id", _NAME.text, shape="[a-z0-9]{1,10}"),
    _NAME,
    Capture("name", _ARGS.text),
    _ARGS,
    Start(),
    Space(),
    Json(),
    _END,
)
_CALLS = MarkedRegion("<|tool_calls|>", Series(CallNode(Seq(_BEGIN, _REST))), OptionalMarker("<|calls|>"))
_ALONE = MarkedRegion(_BEGIN.text, CallNode(_REST), OptionalMarker("<|calls|>"))

SOLAR_OPEN = Format(
    name="solar_open",
    body=Seq(
        Thought("<|think|>", "<|end|>", regions=(_CALLS, _ALONE)),
        Prose(_CALLS, _ALONE, mutes=("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")),
    ),
    calls=_CALLS,
    shape=f'<|tool_calls|>{_BEGIN.text}call000000{_NAME.text}TOOL{_ARGS.text}{{"KEY": "VALUE"}}{_END.text}<|calls|>',
    template_has=(_BEGIN.text,),
)
