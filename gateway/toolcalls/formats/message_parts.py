"""Families whose message has parts with headers, of which some are calls: gpt-oss, Inkling, Kimi K3, Muse Glimmer."""

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.channels import Harmony, HarmonyCall, Header, peek_after, peek_header
from gateway.toolcalls.nodes.combinators import Choice, OptionalMarker, Series, pick, unwritten
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Passage, Prose, Thought
from gateway.toolcalls.nodes.readers import Lit, Marker, Node, Seq, Space, Steps, Until
from gateway.toolcalls.nodes.regions import Bare, CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.tagged import Parameters, TagName, invoke_call, invoke_shape
from gateway.toolcalls.nodes.typed import RawEnding
from gateway.toolcalls.schema.json_types import ALL
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor

# gpt-oss and LLM-jp 4.1: messages in channels; a recipient in the header makes a message a call.
#
# Both spellings of the header are read, with the recipient before or after the channel, and damaged headers by what
# they mention. A preamble in the commentary channel is content; each of several calls is a separate message. Messages
# to the tools that the model was trained with (`python`, `container.exec`) are neither calls nor content, unless the
# request offers such a tool or the message is a JSON object.

HARMONY = Format(
    name="harmony",
    body=Harmony(),
    calls=Series(CallNode(HarmonyCall()), "<|end|><|start|>assistant"),
    shape='<|channel|>commentary to=functions.TOOL <|constrain|>json<|message|>{"KEY": "VALUE"}<|call|>',
    answer="<|channel|>final<|message|>",
    template_has=("<|channel|>", "<|message|>"),
)


# Inkling: blocks of several kinds, in any order: `<|message_model|>`, an optional name, the block's kind, and the text.
#
# A block of thinking is reasoning, one that invokes a tool is a call (its name stands before the kind, and again in the
# object), any other is content. Each ends with an end marker, which may be missing. The prompt opens the first block.

MODEL, INVOKE, INKLING_END = "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"
_THINKING = "<|content_thinking|>"
TEXT = "<|content_text|>"
_TEXTS = (TEXT, "<|content_invoke_tool_text|>", "<|content_tool_error|>")
_KINDS = (_THINKING, INVOKE, *_TEXTS)
_ENDS = (INKLING_END, "<|content_model_end_sampling|>")
_INKLING_STOPS = (*_ENDS, MODEL, *_KINDS)
_OBJECT = call_object(arguments="args")
_INKLING_CALL = MarkedRegion(INVOKE, Space(), _OBJECT, OptionalMarker(INKLING_END))

NAMED_CALL = CallNode(Seq(Header(f"{{name}}{INVOKE}"), _OBJECT.node, Marker(INKLING_END)))
"""A call with the tool's name before it, as the grammar writes it."""


@dataclass(frozen=True, slots=True)
class Inkling(Node):
    """A whole turn; the prompt may have begun its first block."""

    def run(self, at: Cursor) -> Steps:
        """Read blocks to the end."""
        stops: tuple[Node, ...] = tuple(map(Lit, _INKLING_STOPS))
        begun = at.prompt_tail.rstrip(WHITESPACE)
        stop = next((text for text in (MODEL, *_KINDS) if begun.endswith(text)), MODEL)
        while True:
            yield from self._block(at, stop)
            found = yield from pick(at, stops)
            if found is None or not at.heeds_marker():
                return True
            stop = _INKLING_STOPS[stops.index(found)]
            if stop != INVOKE:
                yield from found.run(at)

    def _block(self, at: Cursor, kind: str) -> Generator[None, None, None]:
        """Read what follows a marker, up to the next one."""
        name = ""
        if kind == MODEL:
            # A name is not text: it is followed by a kind.
            header = at.spelling.plain((yield from peek_header(at, _INKLING_STOPS)) or "")
            kind = next((text for text in _KINDS if header.endswith(text)), MODEL)
            if kind != MODEL:
                name = at.take(at.position + len(header) - len(kind))
        if kind == INVOKE:
            yield from _INKLING_CALL.run_after(name, at)
        yield from Passage("reasoning" if kind == _THINKING else "content", (), "", ends=_INKLING_STOPS).run(at)

    def grammar(self, g: Grammar) -> str:
        """Write nothing: a grammar is for a call."""
        return ""

    def children(self) -> tuple[Node, ...]:
        """Return the markers."""
        return tuple(map(Marker, _INKLING_STOPS))


INKLING = Format(
    name="inkling",
    body=Inkling(),
    calls=Calls(NAMED_CALL, Lit(MODEL)),
    shape=f'TOOL{INVOKE}{{"name": "TOOL", "args": {{"KEY": "VALUE"}}}}{INKLING_END}',
    answer=TEXT,
    template_has=(INVOKE,),
)


# Kimi K3: every part of a message between `<|open|>` and `<|close|>` tags, with the type of each argument in its tag.
#
# The answer has its own section, even when it is empty. The prompt opens reasoning; a section also ends it.

_SEP = "<|sep|>"
_TOOLS, _TOOLS_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
_ANSWER, _ANSWER_END = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
_CALL_END, _VALUE_END = "<|close|>call<|sep|>", "<|close|>argument<|sep|>"

_PARAMETERS = Parameters(
    opener="<|open|>argument key=",
    head=r'"(?P<key>.*?)"(?:\s+type="(?P<type>\w+)")?',
    head_end=_SEP,
    ending=RawEnding(_VALUE_END, followers=("<|open|>argument", _CALL_END, _TOOLS_END)),
    ends=(_CALL_END, _TOOLS_END),
    written=('<|open|>argument key="{key}" type="{type}"<|sep|>', _VALUE_END),
    unknown=ALL,
)
_NAME = TagName(end=_SEP, written='"{name}" index="1"<|sep|>', head=r'"(?P<key>.*?)"(?:\s.*)?')
_KIMI_K3_CALL = CallNode(Seq("<|open|>call tool=", _NAME, _PARAMETERS, OptionalMarker(_CALL_END)))
_SECTION = MarkedRegion(_TOOLS, Space(), Calls(Seq(_KIMI_K3_CALL, Space())), OptionalMarker(_TOOLS_END))

KIMI_K3 = Format(
    name="kimi_k3",
    body=Seq(
        Thought("<|open|>think<|sep|>", "<|close|>think<|sep|>", (_ANSWER, _TOOLS)),
        Prose(_SECTION, mutes=(_ANSWER, _ANSWER_END, "<|close|>message<|sep|>")),
    ),
    calls=_SECTION,
    shape='<|open|>tools<|sep|><|open|>call tool="TOOL" index="1"<|sep|>'
    f'<|open|>argument key="KEY" type="string"<|sep|>VALUE{_VALUE_END}{_CALL_END}{_TOOLS_END}',
    template_has=("<|open|>", "<|close|>", "<|sep|>"),
)


# Muse Glimmer: messages to recipients, calls in ATEM tags.
#
# Reasoning goes to `self`, the answer to `user`, and each call, as a separate message, to the tool's name. Values are
# raw text, typed by the tool's schema. A message ends at an end marker or where the next one begins. A tool's name
# stands in the header and in the tag; in the header models double it (`f.f`).

START, MESSAGE, MORE, MUSE_END = "<|start|>", "<|message|>", "<|eom|>", "<|eot|>"
_MUSE_STOPS = (MORE, MUSE_END, START)
_HEADS = tuple(map(Lit, (START, MESSAGE, " to=", "to=")))
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


@dataclass(frozen=True, slots=True)
class Muse(Node):
    """A whole turn; `call` makes a call whose header has the given length, `block` is the text after that header."""

    call: Callable[[int], Node]
    block: str

    def run(self, at: Cursor) -> Steps:
        """Read messages to the end."""
        while (at.unread or not at.ended) and at.heeds_marker():
            head = None
            if (yield from pick(at, _HEADS)):
                head = yield from peek_header(at, (MESSAGE, MORE, MUSE_END))
            if head is None or not at.spelling.plain(head).endswith(MESSAGE):
                marker = yield from pick(at, tuple(map(Lit, (*_MUSE_STOPS, MESSAGE))))
                if marker:
                    yield from marker.run(at)
                yield from Until("content", (*_MUSE_STOPS, MESSAGE)).run(at)
            else:
                yield from self._message(at, _RECIPIENT.findall(at.spelling.plain(head)), len(head))
            yield from unwritten(Choice(*map(Lit, (MORE, MUSE_END)))).run(at)
        return True

    def _message(self, at: Cursor, recipients: list[str], length: int) -> Generator[None, None, None]:
        recipient = recipients[-1] if recipients else "user"
        may_call = recipient not in ("self", "user")
        if may_call and (yield from peek_after(at, length, (self.block,))).startswith(self.block):
            yield from Bare(START, self.call(length)).run_after("", at)
            return
        at.take(at.position + length)
        yield from Passage("reasoning" if recipient == "self" else "content", (), "", ends=_MUSE_STOPS).run(at)

    def grammar(self, g: Grammar) -> str:
        """Write nothing: a grammar is for a call."""
        return ""

    def children(self) -> tuple[Node, ...]:
        """Return the markers and the call."""
        return (*map(Marker, (START, MESSAGE, MORE, MUSE_END)), self.call(0))


_BLOCK, _BLOCK_END = "<atem:function_calls>", "</atem:function_calls>"


def _call(length: int) -> Node:
    header = Header(f" to={{name}}{MESSAGE}", length)
    call = invoke_call(_BLOCK_END, "atem:", header, Space(), _BLOCK, Space("\n"))
    return Seq(call, OptionalMarker(_BLOCK_END, lead="\n"))


MUSE_GLIMMER = Format(
    name="muse_glimmer",
    body=Muse(_call, _BLOCK),
    calls=Calls(_call(0), Lit(f"{MORE}{START}assistant")),
    shape=f" to=TOOL{MESSAGE}{_BLOCK}\n{invoke_shape('atem:')}\n{_BLOCK_END}",
    answer=f" to=user{MESSAGE}",
    template_has=(_BLOCK, "to=self"),
)
