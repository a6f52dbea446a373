"""DeepSeek V3.2, V4 and V4.1: calls in DSML tags; each argument says whether it is a string.

The section's name differs and may be misspelled (`tool_calls`, `toolcalls`, `tool`); both formats read all of them.
V4.1 writes a space before the tags' names. Some models write a call's arguments as one object, a self-closing tag, or
an argument's tag without its mark. A value that is not a string is JSON; where the tool's schema says otherwise, the
schema wins. An argument `arguments` or `input` that the tool does not have holds all arguments. Two newlines before a
section are not content. The prompt opens reasoning, or closes it; a call also ends it.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import JsonObject
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Space, Start
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import Closer, OptionalMarker, Variants
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import RawEnding
from gateway.toolcalls.schema.kinds import ALL

_SECTIONS = ("function_calls", "tool_calls", "toolcalls", "calls", " calls", "tool")
_PLAIN, _PLAIN_END = "<parameter", "</parameter>"
_NAME = r"""(?P<quote>["']?)(?P<key>.*?)(?P=quote)(?P<closed>\s*/)?"""
_HEAD = r"""(?P<quote>["']?)(?P<key>.*?)(?P=quote)(?:\s+string=["']?(?P<string>true|false)["']?)?"""


def _call(gap: str, closers: tuple[str, ...]) -> tuple[str, CallNode]:
    """Return the beginning of a call's tag, and the call; its tags have a `gap` before their names."""
    invoke, parameter = f"｜DSML｜{gap}invoke", f"｜DSML｜{gap}parameter"
    behind = (f"<{parameter}", f"</{parameter}>", _PLAIN, _PLAIN_END, f"</{invoke}>", *closers)
    plain = Parameters(
        opener=f"{_PLAIN} name=",
        head=_HEAD,
        ending=RawEnding(_PLAIN_END, followers=behind, stops=(f"</{parameter}>",)),
        ends=(),
        written=("", ""),
        unknown=ALL,
    )
    parameters = Parameters(
        opener=f"<{parameter} name=",
        head=_HEAD,
        ending=RawEnding(
            f"</{parameter}>",
            followers=behind,
            stops=(f"\n<{parameter} name=", f"{_PLAIN_END}\n</{invoke}>", f"{_PLAIN_END}\n<{parameter} name="),
        ),
        ends=(f"</{invoke}>", f"<{invoke} name=", *closers),
        written=(f'<{parameter} name="{{key}}" string="{{string}}">', f"</{parameter}>\n"),
        strays=(f"</{parameter}>", _PLAIN_END),
        unknown=ALL,
        wrappers=("arguments", "input"),
        others=(plain,),
    )
    head = f"<{invoke} name="
    # Some models write the arguments as one object, and a call without any as a self-closing tag.
    body = Variants(Seq(Start(), JsonObject()), parameters, writes=parameters)
    name = TagName(written='"{name}">', head=_NAME)
    return head, CallNode(Seq(head, name, Space("\n"), body, OptionalMarker(f"</{invoke}>")))


def _family(name: str, section: str, lacks: tuple[str, ...] = ()) -> Format:
    sections = (section, *(other for other in _SECTIONS if other != section))
    openers, closers = zip(*((f"<｜DSML｜{name}>", f"</｜DSML｜{name}>") for name in sections), strict=True)
    (head, plain), (spaced_head, spaced) = (_call(gap, closers) for gap in ("", " "))
    any_call = Variants(plain, spaced, writes=plain)
    ending = Closer(closers[0], closers[1:])
    regions = [MarkedRegion(opener, Space("\n"), Calls(Seq(any_call, Space("\n"))), ending) for opener in openers]
    # The section's opening may be missing; its end is markup anyway.
    bare = [
        Bare(head, Calls(Seq(call, Space())), *map(OptionalMarker, closers))
        for head, call in ((head, plain), (spaced_head, spaced))
    ]
    return Format(
        name=name,
        body=Seq(Thought("<think>", "</think>", openers), Prose(*regions, *bare, lead="\n\n")),
        calls=regions[0],
        shape=f'{openers[0]}\n<｜DSML｜invoke name="TOOL">\n'
        f'<｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>\n</｜DSML｜invoke>\n{closers[0]}',
        template_has=("｜DSML｜", section),
        template_lacks=lacks,
    )


DEEPSEEK_V32 = _family("deepseek_v32", "function_calls")
DEEPSEEK_V4 = _family("deepseek_v4", "tool_calls", ("function_calls",))
