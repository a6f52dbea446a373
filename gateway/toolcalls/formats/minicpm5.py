"""MiniCPM5: a tag for the function and one for each parameter, without markers around them.

Values are raw text, typed by the tool's schema; one with a `<` or a newline in it is in a CDATA section. The space
inside a tag may be missing, or be written as `Ġ`. An argument `arguments` or `properties` that the tool does not have
holds all arguments. Templates open reasoning in the prompt, or close it there.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Space
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls
from gateway.toolcalls.nodes.series import OptionalMarker
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import RawEnding

_NAMED = r"""[\sĠ]*name=(?P<quote>["'])(?P<key>.*)(?P=quote)"""
_VALUE_END, _FUNCTION_END = "</param>", "</function>"
_PARAMETERS = Parameters(
    opener="<param",
    head=_NAMED,
    ending=RawEnding(_VALUE_END, followers=("<param", _VALUE_END, _FUNCTION_END, "<function")),
    ends=(_FUNCTION_END, "<function"),
    written=('<param name="{key}">', _VALUE_END),
    strays=(_VALUE_END,),
    wrappers=("arguments", "properties"),
    quotes=("<![CDATA[", "]]>"),
)
_NAME = TagName(written=' name="{name}">', head=_NAMED)
# The word is common in code: without a name in the tag this is not a call.
_FUNCTION = Bare("<function", CallNode(Seq("<function", _NAME, Space(), _PARAMETERS, OptionalMarker(_FUNCTION_END))))

MINICPM_5 = Format(
    name="minicpm5",
    body=Seq(Thought("<think>", "</think>"), Prose(_FUNCTION)),
    calls=Calls(_FUNCTION, Space("\n")),
    shape=f'<function name="TOOL"><param name="KEY">VALUE{_VALUE_END}{_FUNCTION_END}',
    template_has=('<function name="', '<param name="'),
)
