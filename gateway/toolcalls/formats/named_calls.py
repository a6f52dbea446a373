"""Families that write a tool's name between markers, and its arguments as JSON: DeepSeek to V3.1, Kimi K2, and more."""

import re
from dataclasses import dataclass

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.combinators import Choice, OptionalMarker, Series, Variants, unwritten
from gateway.toolcalls.nodes.json_nodes import Json, JsonObject
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import (
    Capture,
    First,
    Lit,
    Marker,
    Node,
    Seq,
    Space,
    Start,
    Steps,
    is_name,
    read_until,
)
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, LeadingRegion, MarkedRegion
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling

# DeepSeek R1, V3 and V3.1, and the distilled models: calls in a section, the arguments of R1 and V3 in a code fence.
#
# R1's distilled models lack the tokens and spell the section's opening in several ways, or leave it out. The ends of
# calls and of the section may be missing. The prompt opens reasoning, and may also close it.

_DEEPSEEK_BEGIN, _DEEPSEEK_END = "<｜tool▁call▁begin｜>", OptionalMarker("<｜tool▁call▁end｜>")
_SEPARATOR = Marker("<｜tool▁sep｜>")
_DEEPSEEK_CLOSER = OptionalMarker("<｜tool▁calls▁end｜>")
_DEEPSEEK_OPENER = "<｜tool▁calls▁begin｜>"
_OTHER_OPENERS = (
    "<｜tool_calls_begin｜>",
    "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>",
    "<｜tool▁calls｜>",
)
_THOUGHT = Thought("<think>", "</think>")
_OBJECT = '{"KEY": "VALUE"}'

_FENCED = CallNode(
    Seq(
        OptionalMarker(_DEEPSEEK_BEGIN),
        "function",
        _SEPARATOR,
        Capture("name", "\n", also=("```",)),
        Start(),
        OptionalMarker("```json", lead="\n"),
        Space("\n"),
        Json(),
        OptionalMarker("```", lead="\n"),
        _DEEPSEEK_END,
    )
)
_FENCED_SECTION = MarkedRegion(_DEEPSEEK_OPENER, Series(_FENCED, "\n"), _DEEPSEEK_CLOSER)

DEEPSEEK_V3 = Format(
    name="deepseek_v3",
    body=Seq(
        _THOUGHT,
        Prose(
            _FENCED_SECTION,
            *(MarkedRegion(other, Series(_FENCED), _DEEPSEEK_CLOSER) for other in (*_OTHER_OPENERS, _DEEPSEEK_BEGIN)),
        ),
    ),
    calls=_FENCED_SECTION,
    shape=f"{_DEEPSEEK_OPENER}{_DEEPSEEK_BEGIN}function{_SEPARATOR.text}TOOL\n```json\n{_OBJECT}\n```{_DEEPSEEK_END.text}{_DEEPSEEK_CLOSER.text}",
    template_has=("<｜tool▁sep｜>", "```json"),
)

_DEEPSEEK_REST = Seq(Capture("name", _SEPARATOR.text), _SEPARATOR, Start(), Space(), Json(), _DEEPSEEK_END)
_PLAIN = CallNode(Seq(Marker(_DEEPSEEK_BEGIN), _DEEPSEEK_REST))
_PLAIN_SECTION = MarkedRegion(_DEEPSEEK_OPENER, Series(_PLAIN), _DEEPSEEK_CLOSER)

DEEPSEEK_V31 = Format(
    name="deepseek_v31",
    body=Seq(
        _THOUGHT, Prose(_PLAIN_SECTION, MarkedRegion(_DEEPSEEK_BEGIN, CallNode(_DEEPSEEK_REST), _DEEPSEEK_CLOSER))
    ),
    calls=_PLAIN_SECTION,
    shape=f"{_DEEPSEEK_OPENER}{_DEEPSEEK_BEGIN}TOOL{_SEPARATOR.text}{_OBJECT}{_DEEPSEEK_END.text}{_DEEPSEEK_CLOSER.text}",
    template_has=("<｜tool▁sep｜>",),
    template_lacks=("```json",),
)


# Functionary 3.1 and 3.2: the name in a tag, or recipients after `>>>`, each on a line of its own.
#
# 3.2 addresses the user as the recipient `all`; its prompt ends with the first `>>>`.

_TAGGED = MarkedRegion(
    "<function=", CallNode(Seq(Capture("name", ">"), ">", Start(), Space(), Json())), OptionalMarker("</function>")
)

FUNCTIONARY_31 = Format(
    name="functionary_31",
    body=Prose(_TAGGED),
    calls=Calls(_TAGGED),
    shape='<function=TOOL>{"KEY": "VALUE"}</function>',
    template_has=("<function=", "</function>"),
    template_lacks=("<parameter=", "<tool_call>", ">>>"),
)

_FUNCTIONARY_CALL = CallNode(Seq(Capture("name", "\n"), "\n", Space(), Choice(Seq(Start(), JsonObject()))))
_RECIPIENT = Variants(Lit("all\n"), _FUNCTIONARY_CALL, writes=_FUNCTIONARY_CALL)

FUNCTIONARY_32 = Format(
    name="functionary_32",
    body=Seq(LeadingRegion(Bare("", unwritten(Lit(">>>")), _RECIPIENT)), Prose(MarkedRegion(">>>", _RECIPIENT))),
    calls=Series(_FUNCTIONARY_CALL, ">>>"),
    shape='TOOL\n{"KEY": "VALUE"}',
    answer="all\n",
    template_has=(">>>all",),
)


# Kimi K2, K2 Thinking, K2.5: calls in a section, each with an id that names its tool: `functions.NAME:N`.
#
# The id is kept, since the model's template writes it again. The section's markers and a call's end may be missing.
# Calls may come inside reasoning that was not closed; the reasoning continues after them.

_NUMBER = re.compile(r"[:_]\d+\Z")


@dataclass(frozen=True, slots=True)
class NumberedName(Node):
    """The id with the name in it, up to a delimiter, which is not read."""

    delimiter: str

    def first(self, spelling: Spelling) -> First:
        """Return None for anything: an unknown tool is a call too."""
        return None

    def run(self, at: Cursor) -> Steps:
        """Hold the id until its delimiter arrives, and report it and the name in it."""
        text = yield from read_until(at, (self.delimiter,))
        call_id = (text or "").strip(WHITESPACE)
        name = _name(call_id, at)
        if not name or not is_name(name, at):
            return False
        at.calls.identify(call_id)
        at.calls.named(name)
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the id with the tool's name in it."""
        return f"{g.literal(f'functions.{g.current.name}:')} [0-9]{{1,2}}"


def _name(call_id: str, at: Cursor) -> str:
    """Return the tool's name: the id without prefix and number, in the spelling that is a tool of the request."""
    plain = _NUMBER.sub("", call_id.removeprefix("functions.")) if ":" in call_id else call_id
    plain = plain.removeprefix("functions.")
    under = plain.removeprefix("functions_")
    spellings = (plain, plain.rpartition(".")[2], under, _NUMBER.sub("", under))
    return next((name for name in spellings if name in at.tools), plain)


_KIMI_BEGIN, _KIMI_END = Marker("<|tool_call_begin|>"), OptionalMarker("<|tool_call_end|>")
_KIMI_ARGUMENTS = Marker("<|tool_call_argument_begin|>")
_KIMI_OPENER, _KIMI_CLOSER = "<|tool_calls_section_begin|>", OptionalMarker("<|tool_calls_section_end|>")
_KIMI_REST = Seq(NumberedName(_KIMI_ARGUMENTS.text), _KIMI_ARGUMENTS, Start(), Space(), Json(), _KIMI_END)
_KIMI_CALLS = Series(CallNode(Seq(_KIMI_BEGIN, _KIMI_REST)))
_KIMI_SECTION = MarkedRegion(_KIMI_OPENER, _KIMI_CALLS, _KIMI_CLOSER)
_REGIONS = (
    _KIMI_SECTION,
    MarkedRegion("<|tool_call_section_begin|>", _KIMI_CALLS, _KIMI_CLOSER, OptionalMarker("<|tool_call_section_end|>")),
    MarkedRegion(_KIMI_BEGIN.text, CallNode(_KIMI_REST), _KIMI_CLOSER),
)

KIMI_K2 = Format(
    name="kimi_k2",
    body=Seq(Thought("<think>", "</think>", regions=_REGIONS, goes_on=True), Prose(*_REGIONS)),
    calls=_KIMI_SECTION,
    shape=f"{_KIMI_OPENER}{_KIMI_BEGIN.text}functions.TOOL:0"
    f'{_KIMI_ARGUMENTS.text}{{"KEY": "VALUE"}}{_KIMI_END.text}{_KIMI_CLOSER.text}',
    template_has=("<|tool_calls_section_begin|>",),
)


# PLaMo 3: calls in a section, with the name and the arguments between markers of their own.
#
# Each marker consists of several tokens.


def _begin(what: str) -> str:
    return f"<|plamo:begin_{what}:plamo|>"


def _end(what: str) -> str:
    return f"<|plamo:end_{what}:plamo|>"


_MESSAGE = "<|plamo:msg|>"
_JSON = Lit(f"<|plamo:constrain|>json{_MESSAGE}")
_HEAD = (Marker(_begin("tool_request")), Space(), Marker(_begin("tool_name")))
_PLAMO3_NAME = Capture("name", _end("tool_name"))
_PLAMO3_ARGUMENTS = Seq(_begin("tool_arguments"), Variants(_JSON, Lit(_MESSAGE), Seq(), writes=_JSON), Space(), Json())
_PLAMO3_CALL = CallNode(
    Seq(
        *_HEAD,
        _PLAMO3_NAME,
        Marker(_end("tool_name")),
        Start(),
        Space(),
        _PLAMO3_ARGUMENTS,
        OptionalMarker(_end("tool_arguments")),
        OptionalMarker(_end("tool_request")),
    )
)
_PLAMO3_SECTION = MarkedRegion(_begin("tool_requests"), Series(_PLAMO3_CALL), OptionalMarker(_end("tool_requests")))

PLAMO_3 = Format(
    name="plamo3",
    body=Seq(
        Thought(_begin("think"), _end("think"), (_begin("tool_requests"),)),
        Prose(_PLAMO3_SECTION, mutes=("<|plamo:tag|>",)),
    ),
    calls=_PLAMO3_SECTION,
    shape=f"{_begin('tool_requests')}{_begin('tool_request')}{_begin('tool_name')}TOOL{_end('tool_name')}"
    f'{_begin("tool_arguments")}{_JSON.text}{{"KEY": "VALUE"}}{_end("tool_arguments")}{_end("tool_request")}'
    f"{_end('tool_requests')}",
    template_has=(_begin("tool_requests"),),
)


# Solar Open: calls with ids and names between markers, after reasoning in a message of its own.
#
# The ids are up to ten letters or digits. An answer is a message too; the markers that frame it are not content.

_SOLAR_BEGIN, _SOLAR_NAME, _ARGS = (Marker(f"<|tool_call:{part}|>") for part in ("begin", "name", "args"))
_SOLAR_END = OptionalMarker("<|tool_call:end|>")
_SOLAR_REST = Seq(
    Capture("id", _SOLAR_NAME.text, shape="[a-z0-9]{1,10}"),
    _SOLAR_NAME,
    Capture("name", _ARGS.text),
    _ARGS,
    Start(),
    Space(),
    Json(),
    _SOLAR_END,
)
_SOLAR_CALLS = MarkedRegion(
    "<|tool_calls|>", Series(CallNode(Seq(_SOLAR_BEGIN, _SOLAR_REST))), OptionalMarker("<|calls|>")
)
_ALONE = MarkedRegion(_SOLAR_BEGIN.text, CallNode(_SOLAR_REST), OptionalMarker("<|calls|>"))

SOLAR_OPEN = Format(
    name="solar_open",
    body=Seq(
        Thought("<|think|>", "<|end|>", regions=(_SOLAR_CALLS, _ALONE)),
        Prose(_SOLAR_CALLS, _ALONE, mutes=("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")),
    ),
    calls=_SOLAR_CALLS,
    shape=f"<|tool_calls|>{_SOLAR_BEGIN.text}call000000{_SOLAR_NAME.text}TOOL"
    f'{_ARGS.text}{{"KEY": "VALUE"}}{_SOLAR_END.text}<|calls|>',
    template_has=(_SOLAR_BEGIN.text,),
)
