"""Qwen3-Coder, Qwen3.5, Nemotron 3 Nano, Step 3.5, MiMo, Seed-OSS: a tag for the function and one for each argument.

Values are raw text, typed by the tool's schema. Models sometimes forget the outer opening tag, and forget closing tags
or write them twice; reasoning may end where a call begins. MiMo and Seed write values without newlines around them:
there, newlines are markup only if a value has one on both sides.
"""

from typing import Literal

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq, maybe
from gateway.toolcalls.nodes.json_nodes import JsonObject
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Marker, Space, Start
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import Array, Closer, Nothing, OptionalMarker, Variants
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import RawEnding

_OBJECTS = Array(call_object())
"""What models write here if they were also trained on Hermes' form."""

_WRITTEN = ("<parameter={key}>\n", "\n</parameter>\n")


def _function(closer: str, gap: str, newline: Literal["always", "pair"], written: tuple[str, str]) -> CallNode:
    parameters = Parameters(
        opener="<parameter=",
        ending=RawEnding(
            "</parameter>",
            followers=("<parameter=", "</parameter>", "</function>", closer),
            stops=("\n<parameter=", f"\n</function>\n{closer}"),
            newline=newline,
        ),
        ends=("</function>", closer),
        written=written,
        strays=("</parameter>",),
    )
    body = Variants(Seq(Start(), JsonObject()), parameters, writes=parameters)
    return CallNode(Seq("<function=", TagName(), Space(gap), body, OptionalMarker("</function>"), Space(gap)))


FUNCTION_CALL = _function("</tool_call>", "\n", "always", _WRITTEN)


def _family(
    name: str,
    has: tuple[str, ...],
    lacks: tuple[str, ...] = (),
    *,
    prefix: str = "",
    gap: str = "\n",
    newline: Literal["always", "pair"] = "always",
    written: tuple[str, str] = _WRITTEN,
) -> Format:
    opener, closer = f"<{prefix}tool_call>", f"</{prefix}tool_call>"
    call = _function(closer, gap, newline, written)
    called = Variants(call, _OBJECTS, Nothing(closer), writes=call)
    region = MarkedRegion(opener, Space(gap), called, Closer(closer))
    bare = Bare("<function=", call, maybe(Marker(closer)))
    return Format(
        name=name,
        body=Seq(Thought(f"<{prefix}think>", f"</{prefix}think>", (opener,)), Prose(region, bare)),
        calls=Calls(region, Space("\n")),
        shape=f"{opener}{gap}<function=TOOL>{gap}{written[0].format(key='KEY')}VALUE{written[1]}</function>{gap}{closer}",
        template_has=(opener, "<function=", *has),
        template_lacks=lacks,
    )


QWEN3_CODER = _family("qwen3_coder", ("<parameter=",), ("<seed:", "MiMo"))
MIMO = _family("mimo", ("MiMo",), gap="", newline="pair", written=("<parameter={key}>", "</parameter>"))
SEED_OSS = _family("seed_oss", (), prefix="seed:", newline="pair", written=("<parameter={key}>", "</parameter>\n"))
