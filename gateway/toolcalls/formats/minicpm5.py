"""MiniCPM5: a tag for the function and one for each parameter, without markers around them.

Values are raw text, typed by the tool's schema; one with a `<` or a newline in it stands in a CDATA section. The space
inside a tag goes missing, or comes as `Ġ`; an argument `arguments` or `properties` that the tool does not have holds
them all. Templates open reasoning in the prompt, or close it there.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Space
from gateway.toolcalls.nodes.regions import Bare, Call, Calls
from gateway.toolcalls.nodes.series import Loose
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import Ending

_NAMED = r"""[\sĠ]*name=(?P<quote>["'])(?P<key>.*)(?P=quote)"""
_VALUE_END, _FUNCTION_END = "</param>", "</function>"
_PARAMETERS = Parameters(
    opener="<param",
    head=_NAMED,
    ending=Ending(_VALUE_END, followers=("<param", _VALUE_END, _FUNCTION_END, "<function")),
    ends=(_FUNCTION_END, "<function"),
    written=('<param name="{key}">', _VALUE_END),
    strays=(_VALUE_END,),
    wrappers=("arguments", "properties"),
    quotes=("<![CDATA[", "]]>"),
)
_NAME = TagName(written=' name="{name}">', head=_NAMED)
# A word that code is full of: without a name in the tag it is none of ours.
_FUNCTION = Bare("<function", Call(Seq("<function", _NAME, Space(), _PARAMETERS, Loose(_FUNCTION_END))))

MINICPM_5 = Format(
    name="minicpm5",
    body=Seq(Thought("<think>", "</think>"), Prose(_FUNCTION)),
    calls=Calls(_FUNCTION, Space("\n")),
    shape=f'<function name="TOOL"><param name="KEY">VALUE{_VALUE_END}{_FUNCTION_END}',
    template_has=('<function name="', '<param name="'),
)
