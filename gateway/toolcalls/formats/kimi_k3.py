"""Kimi K3: every part of a message between `<|open|>` and `<|close|>` tags, with the type of each argument in its tag.

The answer has its own section, even when it is empty. The prompt opens reasoning; a section also ends it.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Space
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import OptionalMarker
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import RawEnding
from gateway.toolcalls.schema.kinds import ALL

_SEP = "<|sep|>"
_TOOLS, _TOOLS_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
_ANSWER, _ANSWER_END = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
_CALL_END, _VALUE_END = "<|close|>call<|sep|>", "<|close|>argument<|sep|>"

_PARAMETERS = Parameters(
    opener="<|open|>argument key=",
    head=r'"(?P<key>.*?)"(?:\s+type="(?P<type>\w+)")?',
    head_end=_SEP,
    ending=RawEnding(_VALUE_END, followers=("<|open|>argument", _CALL_END, _TOOLS_END)),
    ends=(_CALL_END, _TOOLS_END),
    written=('<|open|>argument key="{key}" type="{type}"<|sep|>', _VALUE_END),
    unknown=ALL,
)
_NAME = TagName(end=_SEP, written='"{name}" index="1"<|sep|>', head=r'"(?P<key>.*?)"(?:\s.*)?')
_CALL = CallNode(Seq("<|open|>call tool=", _NAME, _PARAMETERS, OptionalMarker(_CALL_END)))
_SECTION = MarkedRegion(_TOOLS, Space(), Calls(Seq(_CALL, Space())), OptionalMarker(_TOOLS_END))

KIMI_K3 = Format(
    name="kimi_k3",
    body=Seq(
        Thought("<|open|>think<|sep|>", "<|close|>think<|sep|>", (_ANSWER, _TOOLS)),
        Prose(_SECTION, mutes=(_ANSWER, _ANSWER_END, "<|close|>message<|sep|>")),
    ),
    calls=_SECTION,
    shape='<|open|>tools<|sep|><|open|>call tool="TOOL" index="1"<|sep|>'
    f'<|open|>argument key="KEY" type="string"<|sep|>VALUE{_VALUE_END}{_CALL_END}{_TOOLS_END}',
    template_has=("<|open|>", "<|close|>", "<|sep|>"),
)
