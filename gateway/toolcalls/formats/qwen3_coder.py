"""Qwen3-Coder, Qwen3.5, Nemotron 3 Nano, Step 3.5, MiMo, Seed-OSS: a tag for the function and one for each argument.

Values are raw text, typed by the tool's schema. The outer opener is sometimes forgotten, closing tags too, or written
twice; reasoning may end where a call begins. MiMo and Seed write values without newlines around them: there a newline
is markup only where one stands on both sides.
"""

from typing import Literal

from gateway.toolcalls.combinators import Seq, maybe
from gateway.toolcalls.format import Format
from gateway.toolcalls.nodes import Marker, Space
from gateway.toolcalls.passages import Prose, Thought
from gateway.toolcalls.regions import Bare, Call, Calls, Region
from gateway.toolcalls.series import Loose
from gateway.toolcalls.tagged import Parameters, TagName
from gateway.toolcalls.typed import Ending


def _family(
    name: str,
    has: tuple[str, ...],
    lacks: tuple[str, ...] = (),
    *,
    prefix: str = "",
    gap: str = "\n",
    newline: Literal["always", "pair"] = "always",
    written: tuple[str, str] = ("<parameter={key}>\n", "\n</parameter>\n"),
) -> Format:
    opener, closer = f"<{prefix}tool_call>", f"</{prefix}tool_call>"
    parameters = Parameters(
        opener="<parameter=",
        ending=Ending(
            "</parameter>",
            followers=("<parameter=", "</parameter>", "</function>", closer),
            stops=("\n<parameter=", f"\n</function>\n{closer}"),
            newline=newline,
        ),
        ends=("</function>", closer),
        written=written,
        strays=("</parameter>",),
    )
    function = (TagName(), Space(gap), parameters, Loose("</function>"), Space(gap))
    region = Region(opener, Space(gap), Call(Seq("<function=", *function)), Marker(closer))
    bare = Bare("<function=", Call(Seq("<function=", *function)), maybe(Marker(closer)))
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
