"""Reads tool calls from token ids, and makes the grammars and texts that have a model write them. No IO, clock or logs.

`parser_for` makes the parser for one generation: ids in, events out. A format is one declaration (`formats/`), from
which both the incremental parser and the GBNF are derived. `parser.py` and `message.py` read with the nodes of a
format; `stream.watcher` is independent of them: it finds regions between two ids and decodes nothing.
"""

from gateway.toolcalls.formats.answer import AnswerForm, answer_grammar
from gateway.toolcalls.formats.format import CallTrigger, Format, call_grammar, call_triggers
from gateway.toolcalls.formats.registry import (
    AUTO,
    ChosenFormat,
    UnknownFormat,
    call_text,
    choose_format,
    describe_tool,
    format_for_template,
    format_named,
    format_names,
    system_preamble,
)
from gateway.toolcalls.grammar.exact import has_too_many_ways
from gateway.toolcalls.grammar.loosened import LooseTools, loosened, too_much
from gateway.toolcalls.message import Message, ToolCall, join_events, parse, stream
from gateway.toolcalls.parser import StreamParser, parser_for
from gateway.toolcalls.schema.spec import ToolSpec, read_tools, validate_call
from gateway.toolcalls.stream.calls import is_of_one_turn, new_call_ids
from gateway.toolcalls.stream.events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Event,
    Policy,
    Reasoning,
)
from gateway.toolcalls.stream.spelling import Vocabulary
from gateway.toolcalls.stream.watcher import ToolWatcher, WatchEvent

__all__ = [
    "AUTO",
    "AnswerForm",
    "CallArguments",
    "CallClosed",
    "CallStarted",
    "CallTrigger",
    "ChosenFormat",
    "Content",
    "Diagnostic",
    "Event",
    "Format",
    "LooseTools",
    "Message",
    "Policy",
    "Reasoning",
    "StreamParser",
    "ToolCall",
    "ToolSpec",
    "ToolWatcher",
    "UnknownFormat",
    "Vocabulary",
    "WatchEvent",
    "answer_grammar",
    "call_grammar",
    "call_text",
    "call_triggers",
    "choose_format",
    "describe_tool",
    "format_for_template",
    "format_named",
    "format_names",
    "has_too_many_ways",
    "is_of_one_turn",
    "join_events",
    "loosened",
    "new_call_ids",
    "parse",
    "parser_for",
    "read_tools",
    "stream",
    "system_preamble",
    "too_much",
    "validate_call",
]
