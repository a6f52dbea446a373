"""Which formats there are, which one a model's calls are read in, and what teaches it to the model."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gateway.errors import ConfigError
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.gemma4 import FUNCTION_GEMMA, GEMMA_4
from gateway.toolcalls.formats.json_arrays import (
    APERTUS,
    APRIEL,
    COMMAND_R7B,
    GRANITE_3,
    HUNYUAN,
    JAMBA,
    MINIMAX_M1,
    MISTRAL,
    MISTRAL_NEMO,
    MISTRAL_SMALL,
    NEMOTRON_NANO,
    PHI_4_MINI,
)
from gateway.toolcalls.formats.json_objects import (
    COMMAND_R_PLUS,
    ERNIE_45,
    GENERIC,
    GIGACHAT_3,
    GIGACHAT_31,
    GRANITE_20B,
    HERMES,
    INTERNLM_2,
    JSON,
    LLAMA_3,
    LONGCAT,
    MIRO_THINKER,
    NEMOTRON_MINI,
)
from gateway.toolcalls.formats.message_parts import HARMONY, INKLING, KIMI_K3, MUSE_GLIMMER
from gateway.toolcalls.formats.minimax import DOTS, MINIMAX_M2, MINIMAX_M3
from gateway.toolcalls.formats.named_calls import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    FUNCTIONARY_31,
    FUNCTIONARY_32,
    KIMI_K2,
    PLAMO_3,
    SOLAR_OPEN,
)
from gateway.toolcalls.formats.pythonic import LFM2, OLMO_3, PYTHONIC
from gateway.toolcalls.formats.tagged_arguments import (
    DEEPSEEK_V4,
    DEEPSEEK_V32,
    GLM45,
    GLM47,
    HUNYUAN_3,
    K2_HORIZON,
    MIMO,
    MINICPM_5,
    QWEN3_CODER,
    SEED_OSS,
    STEP_3,
)
from gateway.toolcalls.nodes.combinators import Array, OptionalMarker, Series, Variants
from gateway.toolcalls.nodes.objects import bare_object, call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Seq, Space
from gateway.toolcalls.nodes.regions import Bare, Calls, MarkedRegion
from gateway.toolcalls.schema.spec import ToolSpec

# The format that a chat template's own text teaches: calls as JSON objects, bare, in a list, or between two tags.
#
# For templates of no known family that do render tools: the text that shows the model a call shows it to us too. Turns
# the first such object into a format; knows only one shape, a `name` and then its `arguments` or `parameters`. A call
# that the template's code assembles from pieces is not read.

NAME = "template"
"""The name of such a format."""

_OBJECT = re.compile(
    r'(?P<opener><[^<>/\s]{1,40}>)?\s*(?P<list>\[?)\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?'
    r'"name"\s*:\s*[^{}:,]{1,80},\s*"(?P<arguments>arguments|parameters)"\s*:'
)
_CLOSES_WITHIN = 400
"""Most characters between an object and the closing tag around it."""


@lru_cache(maxsize=8)
def taught_format(jinja_text: str) -> Format | None:
    """Return the format of the calls that a chat template's text shows; None where it shows none."""
    text = plain_text(jinja_text)
    found = _OBJECT.search(text)
    if found is None:
        return None
    arguments, listed = found["arguments"], bool(found["list"])
    opener = found["opener"] or ""
    closer = f"</{opener[1:]}"
    if opener and closer in text[found.end() : found.end() + _CLOSES_WITHIN]:
        return _between(opener, closer, arguments, listed=listed)
    return _bare(arguments, listed=listed)


def plain_text(jinja_text: str) -> str:
    """Return a template's text with the escapes of its Jinja strings, for quotes and newlines, undone."""
    return jinja_text.replace('\\"', '"').replace("\\n", "\n")


def _shape(arguments: str, *, listed: bool) -> str:
    shape = f'{{"name": "TOOL", {json.dumps(arguments)}: {{"KEY": "VALUE"}}}}'
    return f"[{shape}]" if listed else shape


def _between(opener: str, closer: str, arguments: str, *, listed: bool) -> Format:
    call = call_object(arguments=arguments)
    array = Array(call)
    region = MarkedRegion(
        opener, Space("\n"), Variants(array, writes=array if listed else call), OptionalMarker(closer, lead="\n")
    )
    return Format(
        name=NAME,
        body=Seq(Thought("<think>", "</think>", regions=(region,)), Prose(region)),
        calls=region if listed else Calls(region, Space("\n")),
        shape=f"{opener}\n{_shape(arguments, listed=listed)}\n{closer}",
    )


def _bare(arguments: str, *, listed: bool) -> Format:
    call = bare_object(arguments)
    calls = Bare("[", Array(call)) if listed else Bare("{", Series(call, "; "))
    return replace(JSON, name=NAME, calls=calls, shape=_shape(arguments, listed=listed), template_or=())


# Which formats there are: by name, and by a model's chat template.
#
# An unknown template is not an error: it gets the generic format, which the preamble then teaches. An unknown name is.

_ALL = (
    APERTUS,
    APRIEL,
    COMMAND_R7B,
    COMMAND_R_PLUS,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V4,
    DOTS,
    ERNIE_45,
    FUNCTIONARY_31,
    FUNCTIONARY_32,
    FUNCTION_GEMMA,
    GEMMA_4,
    GENERIC,
    GIGACHAT_3,
    GIGACHAT_31,
    GLM45,
    GLM47,
    GRANITE_20B,
    GRANITE_3,
    HARMONY,
    HERMES,
    HUNYUAN,
    HUNYUAN_3,
    INKLING,
    INTERNLM_2,
    JAMBA,
    JSON,
    K2_HORIZON,
    KIMI_K2,
    KIMI_K3,
    LFM2,
    LLAMA_3,
    LONGCAT,
    MIMO,
    MINICPM_5,
    MINIMAX_M1,
    MINIMAX_M2,
    MINIMAX_M3,
    MIRO_THINKER,
    MISTRAL,
    MISTRAL_NEMO,
    MISTRAL_SMALL,
    MUSE_GLIMMER,
    NEMOTRON_MINI,
    NEMOTRON_NANO,
    OLMO_3,
    PHI_4_MINI,
    PLAMO_3,
    PYTHONIC,
    QWEN3_CODER,
    SEED_OSS,
    SOLAR_OPEN,
    STEP_3,
)
_FORMATS = {fmt.name: fmt for fmt in _ALL}


class UnknownFormat(ConfigError):
    """No format has the name `name`."""

    def __init__(self, name: str) -> None:
        valid = ", ".join(map(repr, sorted(_FORMATS)))
        super().__init__(f"no tool-call format is named {name!r}; use one of {valid}")
        self.name = name


def format_names() -> tuple[str, ...]:
    """Return the names that `format_named` knows, sorted."""
    return tuple(sorted(_FORMATS))


def format_named(name: str) -> Format:
    """Return a format by its name. Raises `UnknownFormat`, whose message lists the valid ones."""
    try:
        return _FORMATS[name]
    except KeyError:
        raise UnknownFormat(name) from None


def format_for_template(jinja_text: str) -> str:
    """Return the name of a chat template's format; "generic" where it is unknown or does not support tools."""
    # Inside a Jinja string the quotes of the JSON are escaped.
    text = jinja_text.replace('\\"', '"')
    for fmt in _FORMATS.values():
        known = bool(fmt.template_has) and all(mark in text for mark in fmt.template_has)
        known = known or any(mark in text for mark in fmt.template_or)
        if known and not any(mark in text for mark in fmt.template_lacks):
            return fmt.name
    return GENERIC.name


# Which format a model's calls are read in, and what teaches it to the model: the chat template, or the gateway's text.
#
# A setting that names a format decides. Otherwise the template does: by texts that are typical of its family, or, where
# the engine says that it renders tools, by the call that its text shows. A template that has neither gets `generic`,
# which the gateway teaches. Decided once for each model.

AUTO = "auto"
"""The setting that leaves the choice to the template."""


@dataclass(frozen=True, slots=True)
class ChosenFormat:
    """The format of one model."""

    format: Format
    preamble: bool
    """Whether the gateway describes tools, and how to call them, in the system text: the template does not, or not in
    a form that could be read."""
    calls_as_text: bool
    """Whether calls are content for the template, which can't write them; never without a preamble."""


def choose_format(
    jinja_text: str, *, supports_tools: bool, supports_calls: bool = False, wanted: str = AUTO
) -> ChosenFormat:
    """Choose the format for a chat template. Raises `UnknownFormat` where `wanted` is neither a format nor "auto"."""
    if wanted != AUTO:
        fmt = format_named(wanted)
    else:
        fmt = format_named(format_for_template(jinja_text))
        if fmt is GENERIC and supports_tools:
            fmt = taught_format(jinja_text) or GENERIC
    preamble = fmt is GENERIC or not supports_tools
    # DeepSeek V3.1's template writes calls, but shows no definitions.
    return ChosenFormat(fmt, preamble, calls_as_text=preamble and (fmt is GENERIC or not supports_calls))


# The system text that teaches tools to a model whose chat template does not support them (SmolLM2).
#
# Lists the tools as JSON and shows one call in the format's own shape. Names, descriptions and schemas come from
# upstream servers and are not trusted: each `<` in them is written as its JSON escape, so that no description can close
# the list, open a call, or spell a control token.

_TEXT = """\
You are a helpful assistant. You can call these tools:
{tools}

To call a tool, write:
{shape}
Answer in one short sentence from the tool's result."""


def system_preamble(fmt: Format, tools: Sequence[ToolSpec]) -> str:
    """Return the text for the system message; "" when there are no tools."""
    if not tools:
        return ""
    return _TEXT.format(tools="\n".join(map(describe_tool, tools)), shape=fmt.shape)


def call_text(fmt: Format, name: str, arguments: str) -> str:
    """Write a call as the format's model would: for the history of a model whose template does not support calls.

    `arguments` is JSON text and is not changed.
    """
    # The name first: an escaped name can't contain the placeholder of the arguments, but arguments may contain TOOL.
    # Only as a whole word, since markers may contain it ([TOOL_CALLS]).
    named = re.sub(r"\bTOOL\b", lambda _: json.dumps(name, ensure_ascii=False)[1:-1], fmt.shape)
    return named.replace(json.dumps({"KEY": "VALUE"}), arguments)


def describe_tool(tool: ToolSpec) -> str:
    """Return a definition as the system text lists it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    line = json.dumps(function, ensure_ascii=False, default=dict)
    return line.replace("<", "\\u003c").encode("utf-8", "replace").decode()
