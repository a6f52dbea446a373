"""GLM 4.5 to 4.7, Spark 2.5, Ling 3: the tool's name, then each argument as a key tag and a value tag.

Versions differ only in their newlines (4.7 and Spark write none). A call without arguments is just a name. Values are
raw text, typed by the tool's schema; a value without a schema is JSON if it can be read as JSON. A call as Hermes
writes it is read too, and a value without its closing tag. Templates open reasoning in the prompt, or close it there.
Ling writes the end of its turn as text.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Space
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import Array, Closer, Variants
from gateway.toolcalls.nodes.tagged import Parameters
from gateway.toolcalls.nodes.typed import RawEnding
from gateway.toolcalls.schema.kinds import ALL


def _family(name: str, gap: str, has: tuple[str, ...] = (), lacks: tuple[str, ...] = ()) -> Format:
    parameters = Parameters(
        opener="<arg_key>",
        head="(?P<key>.+)",
        head_end="</arg_key>",
        bridge="<arg_value>",
        ending=RawEnding(
            "</arg_value>", followers=("<arg_key>", "</tool_call>"), finals=("\n</tool_call>", "</tool_call>")
        ),
        ends=("</tool_call>",),
        written=(f"<arg_key>{{key}}</arg_key>{gap}<arg_value>", f"</arg_value>{gap}"),
        unknown=ALL,
        resumes=True,
    )
    named = Capture("name", "\n", also=("<arg_key>", "</tool_call>"))
    call = CallNode(Seq(named, Space(gap), parameters))
    called = Variants(Array(call_object()), call, writes=call)
    region = MarkedRegion("<tool_call>", Space(), called, Closer("</tool_call>"))
    return Format(
        name=name,
        body=Seq(Thought("<think>", "</think>", ("<tool_call>",)), Prose(region, mutes=("<|role_end|>",))),
        calls=Calls(region, Space(gap)),
        shape=f"<tool_call>TOOL{gap}<arg_key>KEY</arg_key>{gap}<arg_value>VALUE</arg_value>{gap}</tool_call>",
        template_has=("<tool_call>", "<arg_key>", *has),
        template_lacks=lacks,
    )


# GLM 4.5 and 4.6 write a newline after the name, later templates do not.
GLM45 = _family("glm45", "\n", lacks=("</arg_key><arg_value>",))
GLM47 = _family("glm47", "", has=("</arg_key><arg_value>",))
