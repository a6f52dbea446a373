"""DeepSeek V3.2, V4 and V4.1: calls in DSML tags; each argument says whether it is a string.

The sections' names differ and are misspelled (`tool_calls`, `toolcalls`, `tool`); all are read by both. What is no
string is JSON. Two newlines before a section are no content. The prompt opens reasoning, or closes it; a section ends
it too.
"""

from gateway.toolcalls.combinators import Choice, Seq
from gateway.toolcalls.format import Format
from gateway.toolcalls.kinds import ALL
from gateway.toolcalls.nodes import Marker, Space
from gateway.toolcalls.passages import Prose, Thought
from gateway.toolcalls.regions import Bare, Call, Calls, Region
from gateway.toolcalls.series import Loose
from gateway.toolcalls.tagged import Parameters, TagName
from gateway.toolcalls.typed import Ending

_SECTIONS = ("function_calls", "tool_calls", "toolcalls", "calls", " calls", "tool")
_END = "</｜DSML｜invoke>"
_HEAD = r"""(?P<quote>["']?)(?P<key>.*?)(?P=quote)(?:\s+string=["']?(?P<string>true|false)["']?)?"""


def _family(name: str, section: str, lacks: tuple[str, ...] = ()) -> Format:
    sections = (section, *(other for other in _SECTIONS if other != section))
    openers, closers = zip(*((f"<｜DSML｜{name}>", f"</｜DSML｜{name}>") for name in sections), strict=True)
    parameters = Parameters(
        opener="<｜DSML｜parameter name=",
        head=_HEAD,
        ending=Ending(
            "</｜DSML｜parameter>",
            followers=("<｜DSML｜parameter", "</｜DSML｜parameter>", _END, *closers),
            stops=("\n<｜DSML｜parameter name=",),
        ),
        ends=(_END, *closers),
        written=('<｜DSML｜parameter name="{key}" string="{string}">', "</｜DSML｜parameter>\n"),
        strays=("</｜DSML｜parameter>",),
        unknown=ALL,
    )
    call = Call(Seq("<｜DSML｜invoke name=", TagName(written='"{name}">'), Space("\n"), parameters, Loose(_END)))
    regions = [
        Region(opener, Space("\n"), Calls(Seq(call, Space("\n"))), Choice(Marker(closer), *map(Marker, others)))
        for opener, closer, others in ((opener, closers[0], closers[1:]) for opener in openers)
    ]
    bare = Bare("<｜DSML｜invoke name=", call)
    return Format(
        name=name,
        body=Seq(Thought("<think>", "</think>", regions=tuple(regions)), Prose(*regions, bare, lead="\n\n")),
        calls=regions[0],
        shape=f'{openers[0]}\n<｜DSML｜invoke name="TOOL">\n'
        f'<｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>\n{_END}\n{closers[0]}',
        template_has=("｜DSML｜", section),
        template_lacks=lacks,
    )


DEEPSEEK_V32 = _family("deepseek_v32", "function_calls")
DEEPSEEK_V4 = _family("deepseek_v4", "tool_calls", ("function_calls",))
