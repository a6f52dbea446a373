"""Families that write each argument in a tag: DeepSeek V3.2 and V4, GLM, Hunyuan 3, MiniCPM5, Qwen3-Coder, Step 3."""

from typing import Literal

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import (
    Array,
    Closer,
    Nothing,
    OptionalMarker,
    Series,
    Variants,
    maybe,
    unwritten,
)
from gateway.toolcalls.nodes.json_nodes import JsonObject
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Lit, Marker, Seq, Space, Start
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.tagged import Parameters, TagName
from gateway.toolcalls.nodes.typed import RawEnding
from gateway.toolcalls.schema.json_types import ALL

# DeepSeek V3.2, V4 and V4.1: calls in DSML tags; each argument says whether it is a string.
#
# The section's name differs and may be misspelled (`tool_calls`, `toolcalls`, `tool`); both formats read all of them.
# V4.1 writes a space before the tags' names. Some models write a call's arguments as one object, a self-closing tag, or
# an argument's tag without its mark. A value that is not a string is JSON; where the tool's schema says otherwise, the
# schema wins. An argument `arguments` or `input` that the tool does not have holds all arguments. Two newlines before a
# section are not content. The prompt opens reasoning, or closes it; a call also ends it.

_DSML_SECTIONS = ("function_calls", "tool_calls", "toolcalls", "calls", " calls", "tool")
_PLAIN, _PLAIN_END = "<parameter", "</parameter>"
_DSML_NAME = r"""(?P<quote>["']?)(?P<key>.*?)(?P=quote)(?P<closed>\s*/)?"""
_DSML_HEAD = r"""(?P<quote>["']?)(?P<key>.*?)(?P=quote)(?:\s+string=["']?(?P<string>true|false)["']?)?"""


def _call(gap: str, closers: tuple[str, ...]) -> tuple[str, CallNode]:
    """Return the beginning of a call's tag, and the call; its tags have a `gap` before their names."""
    invoke, parameter = f"｜DSML｜{gap}invoke", f"｜DSML｜{gap}parameter"
    behind = (f"<{parameter}", f"</{parameter}>", _PLAIN, _PLAIN_END, f"</{invoke}>", *closers)
    plain = Parameters(
        opener=f"{_PLAIN} name=",
        head=_DSML_HEAD,
        ending=RawEnding(_PLAIN_END, followers=behind, stops=(f"</{parameter}>",)),
        ends=(),
        written=("", ""),
        unknown=ALL,
    )
    parameters = Parameters(
        opener=f"<{parameter} name=",
        head=_DSML_HEAD,
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
    name = TagName(written='"{name}">', head=_DSML_NAME)
    return head, CallNode(Seq(head, name, Space("\n"), body, OptionalMarker(f"</{invoke}>")))


def _dsml_family(name: str, section: str, lacks: tuple[str, ...] = ()) -> Format:
    sections = (section, *(other for other in _DSML_SECTIONS if other != section))
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


DEEPSEEK_V32 = _dsml_family("deepseek_v32", "function_calls")
DEEPSEEK_V4 = _dsml_family("deepseek_v4", "tool_calls", ("function_calls",))


# GLM 4.5 to 4.7, Spark 2.5, Ling 3: the tool's name, then each argument as a key tag and a value tag.
#
# Versions differ only in their newlines (4.7 and Spark write none). A call without arguments is just a name. Values are
# raw text, typed by the tool's schema; a value without a schema is JSON if it can be read as JSON. A call as Hermes
# writes it is read too, and a value without its closing tag. Templates open reasoning in the prompt, or close it there.
# Ling writes the end of its turn as text.


def _glm_family(name: str, gap: str, has: tuple[str, ...] = (), lacks: tuple[str, ...] = ()) -> Format:
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
GLM45 = _glm_family("glm45", "\n", lacks=("</arg_key><arg_value>",))
GLM47 = _glm_family("glm47", "", has=("</arg_key><arg_value>",))


# Hunyuan 3: calls in a section, each argument as a key tag and a value tag.
#
# The published models end every tag's name with `:opensource`; both spellings are read. Values are raw text, typed by
# the tool's schema; a value without a schema is JSON if it can be read as JSON.

_SUFFIX = ":opensource"


def _section(suffix: str) -> MarkedRegion:
    call_end, calls_end = f"</tool_call{suffix}>", f"</tool_calls{suffix}>"
    key, value, value_end = f"<arg_key{suffix}>", f"<arg_value{suffix}>", f"</arg_value{suffix}>"
    key_end, separator = f"</arg_key{suffix}>", f"<tool_sep{suffix}>"
    parameters = Parameters(
        opener=key,
        head="(?P<key>.+)",
        head_end=key_end,
        bridge=value,
        ending=RawEnding(value_end, followers=(key, call_end)),
        ends=(call_end, calls_end),
        written=(f"{key}{{key}}{key_end}\n{value}", f"{value_end}\n"),
        unknown=ALL,
    )
    head = Seq(f"<tool_call{suffix}>", Space(), Capture("name", separator), separator, Space("\n"))
    call = CallNode(Seq(head, parameters, OptionalMarker(call_end)))
    return MarkedRegion(f"<tool_calls{suffix}>", Space("\n"), Calls(Seq(call, Space("\n"))), OptionalMarker(calls_end))


_HUNYUAN_SECTIONS = tuple(map(_section, (_SUFFIX, "")))

HUNYUAN_3 = Format(
    name="hy_v3",
    body=Seq(
        Thought(f"<think{_SUFFIX}>", f"</think{_SUFFIX}>", (_HUNYUAN_SECTIONS[0].opener.text,)),
        Thought("<think>", "</think>", (_HUNYUAN_SECTIONS[1].opener.text,)),
        Prose(*_HUNYUAN_SECTIONS),
    ),
    calls=_HUNYUAN_SECTIONS[0],
    shape=f"<tool_calls{_SUFFIX}>\n<tool_call{_SUFFIX}>TOOL<tool_sep{_SUFFIX}>\n<arg_key{_SUFFIX}>KEY</arg_key{_SUFFIX}>\n"
    f"<arg_value{_SUFFIX}>VALUE</arg_value{_SUFFIX}>\n</tool_call{_SUFFIX}>\n</tool_calls{_SUFFIX}>",
    template_has=("<tool_sep", "<arg_key"),
)


# K2 Horizon: the tool's name, then tags for each argument's key, its type if asked for, and its value.
#
# Values are raw text, typed by the tag or by the tool's schema. If asked for JSON, the model writes an object between
# the same markers. There are three pairs of markers for reasoning, one for each level of effort.

_K2_HORIZON_OPENER, _K2_HORIZON_CALL, _CALL_END = "<ifm|tool_calls>", "<ifm|tool_call>", "</ifm|tool_call>"
_KEY, _VALUE, _K2_HORIZON_VALUE_END = "<ifm|arg_key>", "<ifm|arg_value>", "</ifm|arg_value>"
_K2_HORIZON_PARAMETERS = Parameters(
    opener=_KEY,
    head=r"(?P<key>.+?)</ifm\|arg_key>\s*(?:<ifm\|arg_type>(?P<type>\w*).*?</ifm\|arg_type>)?",
    head_end=_VALUE,
    ending=RawEnding(_K2_HORIZON_VALUE_END, followers=(_KEY, _CALL_END)),
    ends=(_CALL_END,),
    written=(f"{_KEY}{{key}}</ifm|arg_key>\n{_VALUE}", f"{_K2_HORIZON_VALUE_END}\n"),
    unknown=ALL,
)
_TAGGED = CallNode(Seq(Space(), Capture("name", "\n", also=(_KEY, _CALL_END)), Space("\n"), _K2_HORIZON_PARAMETERS))
_OBJECT = call_object()
_ONE = Seq(Marker(_K2_HORIZON_CALL), Variants(_OBJECT, _TAGGED, writes=_TAGGED), OptionalMarker(_CALL_END))
_K2_HORIZON_SECTION = MarkedRegion(
    _K2_HORIZON_OPENER, Space("\n"), Series(_ONE, "\n"), OptionalMarker("</ifm|tool_calls>", lead="\n")
)
_THOUGHTS = tuple(
    Thought(f"<ifm|{name}>", f"</ifm|{name}>", (_K2_HORIZON_OPENER,))
    for name in ("think", "think_fast", "think_faster")
)

K2_HORIZON = Format(
    name="k2_horizon",
    body=Seq(*_THOUGHTS, Prose(_K2_HORIZON_SECTION, mutes=("<|ifm|im_end|>",))),
    calls=_K2_HORIZON_SECTION,
    shape=f"{_K2_HORIZON_OPENER}\n{_K2_HORIZON_CALL}TOOL\n{_KEY}KEY</ifm|arg_key>\n{_VALUE}VALUE{_K2_HORIZON_VALUE_END}\n{_CALL_END}\n</ifm|tool_calls>",
    template_has=(_K2_HORIZON_OPENER, _KEY),
)


# MiniCPM5: a tag for the function and one for each parameter, without markers around them.
#
# Values are raw text, typed by the tool's schema; one with a `<` or a newline in it is in a CDATA section. The space
# inside a tag may be missing, or be written as `Ġ`. An argument `arguments` or `properties` that the tool does not have
# holds all arguments. Templates open reasoning in the prompt, or close it there.

_NAMED = r"""[\sĠ]*name=(?P<quote>["'])(?P<key>.*)(?P=quote)"""
_MINICPM5_VALUE_END, _FUNCTION_END = "</param>", "</function>"
_MINICPM5_PARAMETERS = Parameters(
    opener="<param",
    head=_NAMED,
    ending=RawEnding(_MINICPM5_VALUE_END, followers=("<param", _MINICPM5_VALUE_END, _FUNCTION_END, "<function")),
    ends=(_FUNCTION_END, "<function"),
    written=('<param name="{key}">', _MINICPM5_VALUE_END),
    strays=(_MINICPM5_VALUE_END,),
    wrappers=("arguments", "properties"),
    quotes=("<![CDATA[", "]]>"),
)
_MINICPM5_NAME = TagName(written=' name="{name}">', head=_NAMED)
# The word is common in code: without a name in the tag this is not a call.
_FUNCTION = Bare(
    "<function",
    CallNode(Seq("<function", _MINICPM5_NAME, Space(), _MINICPM5_PARAMETERS, OptionalMarker(_FUNCTION_END))),
)

MINICPM_5 = Format(
    name="minicpm5",
    body=Seq(Thought("<think>", "</think>"), Prose(_FUNCTION)),
    calls=Calls(_FUNCTION, Space("\n")),
    shape=f'<function name="TOOL"><param name="KEY">VALUE{_MINICPM5_VALUE_END}{_FUNCTION_END}',
    template_has=('<function name="', '<param name="'),
)


# Qwen3-Coder, Qwen3.5, Nemotron 3 Nano, Step 3.5, MiMo, Seed-OSS: a tag for the function and one for each argument.
#
# Values are raw text, typed by the tool's schema. Models sometimes forget the outer opening tag, and forget closing
# tags or write them twice; reasoning may end where a call begins. MiMo and Seed write values without newlines around
# them: there, newlines are markup only if a value has one on both sides.

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


def _qwen3_coder_family(
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


QWEN3_CODER = _qwen3_coder_family("qwen3_coder", ("<parameter=",), ("<seed:", "MiMo"))
MIMO = _qwen3_coder_family("mimo", ("MiMo",), gap="", newline="pair", written=("<parameter={key}>", "</parameter>"))
SEED_OSS = _qwen3_coder_family(
    "seed_oss", (), prefix="seed:", newline="pair", written=("<parameter={key}>", "</parameter>\n")
)


# Step 3: `<steptml:invoke>` tags, each between two markers, in one section.
#
# Values are raw text, typed by the tool's schema. The prompt opens reasoning.

_STEP3_OPENER, _CLOSER = "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"
_BEGIN, _END, _SEPARATOR = (Marker(f"<｜tool_{part}｜>") for part in ("call_begin", "call_end", "sep"))
_INVOKE_END, _STEP3_VALUE_END = "</steptml:invoke>", "</steptml:parameter>"
_STEP3_PARAMETERS = Parameters(
    opener="<steptml:parameter name=",
    ending=RawEnding(_STEP3_VALUE_END, followers=("<steptml:parameter", _STEP3_VALUE_END, _INVOKE_END, _END.text)),
    ends=(_INVOKE_END, _END.text),
    written=('<steptml:parameter name="{key}">', _STEP3_VALUE_END),
    strays=(_STEP3_VALUE_END,),
)
_KIND = Seq("function", _SEPARATOR)
_STEP3_HEAD = Seq(Variants(_KIND, Seq(), writes=_KIND), "<steptml:invoke name=", TagName(written='"{name}">'))
_ENDS = (OptionalMarker(_INVOKE_END), OptionalMarker(_END.text), unwritten(Lit(_SEPARATOR.text)))
_STEP3_CALL = CallNode(Seq(_BEGIN, _STEP3_HEAD, _STEP3_PARAMETERS, *_ENDS))
_STEP3_SECTION = MarkedRegion(_STEP3_OPENER, Series(_STEP3_CALL), OptionalMarker(_CLOSER))

STEP_3 = Format(
    name="step3",
    body=Seq(Thought("<think>", "</think>", (_STEP3_OPENER,)), Prose(_STEP3_SECTION)),
    calls=_STEP3_SECTION,
    shape=f'{_STEP3_OPENER}{_BEGIN.text}function{_SEPARATOR.text}<steptml:invoke name="TOOL">'
    f'<steptml:parameter name="KEY">VALUE{_STEP3_VALUE_END}{_INVOKE_END}{_END.text}{_CLOSER}',
    template_has=("<steptml:invoke",),
)
