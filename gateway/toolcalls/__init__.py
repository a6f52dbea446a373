"""Tool calls out of token ids, and the grammars and texts that make a model write them. No IO, no clock, no logs.

`parser_for` makes the parser of one generation: ids in, events out. A format is one declaration (`formats/`), from
which both the incremental parser and the GBNF come. `parser.py` and `message.py` read, over the nodes of a format;
`stream.watcher` stands alone: regions between two ids, nothing decoded.
"""

from gateway.toolcalls.formats.answer import AnswerForm, answer_grammar
from gateway.toolcalls.formats.chosen import AUTO, ChosenFormat, choose_format
from gateway.toolcalls.formats.format import CallTrigger, Format, call_grammar, call_triggers
from gateway.toolcalls.formats.registry import UnknownFormat, format_for_template, format_named, format_names
from gateway.toolcalls.grammar.loosened import LooseTools, loosened, too_much
from gateway.toolcalls.message import Message, ToolCall, join_events, parse, stream
from gateway.toolcalls.parser import StreamParser, parser_for
from gateway.toolcalls.preamble import call_text, system_preamble
from gateway.toolcalls.schema.spec import ToolSpec, read_tools
from gateway.toolcalls.schema.validate import validate_call
from gateway.toolcalls.stream.calls import is_of_one_turn
from gateway.toolcalls.stream.events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Event,
    Reasoning,
)
from gateway.toolcalls.stream.policy import Policy
from gateway.toolcalls.stream.tokens import Vocabulary
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
    "format_for_template",
    "format_named",
    "format_names",
    "is_of_one_turn",
    "join_events",
    "loosened",
    "parse",
    "parser_for",
    "read_tools",
    "stream",
    "system_preamble",
    "too_much",
    "validate_call",
]
