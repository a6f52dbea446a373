"""One conversation while its next answer is made: what was asked, its context, and the engine that continues it.

The context's ids only ever grow at their end, so the engine's KV cache stays valid. Contents are spliced in between the
pieces that the template writes after a turn like the model's last one (`engine/rendering/template.py`). It does not
generate and does not run tools.
"""

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.context.compose.id_sources import SourceTrail, span_without_tool
from gateway.context.history.template_messages import begun_ids
from gateway.context.memory import (
    ANSWER,
    NO_TOOLS,
    CallRecord,
    ContextChange,
    DefinedTools,
    GenerationRecord,
    History,
    KeptResult,
    LivedAnswer,
    LivedTurn,
    Miss,
    Remembered,
)
from gateway.context.memory.defined_tools import ToolDigests
from gateway.engine.interface import Message
from gateway.engine.pool.pool import Stay
from gateway.engine.rendering.scaffold import WRITTEN, Scaffold, TurnEnd, TurnShape
from gateway.engine.slots.slot import Hints
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import RequestInvalid
from gateway.observe.trajectories import Sampled, Span
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Diagnostic

_COMPOUND: Final = re.compile(r"[A-Za-z0-9]+(?:[_.-]+[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")
_LONGEST_NAME: Final = 128
_NO_TURN = LivedTurn()
_PROMPT_TAIL: Final = 64
"""Ids at the end of the prompt: enough to tell whether the template opened a reasoning block."""


@dataclass(frozen=True, slots=True)
class SearchTool:
    """The tool with which the model searches for tools that are not defined yet."""

    spec: ToolSpec
    query: str = "query"
    """The argument that says what it looks for, in words."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks of its conversation, as the model that answers it takes it."""

    format: Format
    tools: tuple[ToolSpec, ...] = ()
    """Those that the prompt is to define."""
    deferred: Mapping[str, ToolEntry] = field(default_factory=dict[str, ToolEntry])
    """By name, those that are defined only where a search finds them."""
    search: SearchTool | None = None
    """The tool that finds those, one of `tools`; None: the gateway does not search, but a tool of the client's may."""
    result_tools: tuple[ToolSpec, ...] = ()
    """Those that read results that were kept; they are defined behind the first of these. (): the client wants none."""
    client_tools: frozenset[str] = frozenset()
    """Names of tools that the client runs itself."""
    principal: Principal = ANYBODY
    """On whose behalf the gateway's tools are called."""
    server_of: Callable[[str], str | None] = lambda name: None
    """Returns the server of a tool of the gateway, by the tool's name."""
    may_call: bool = True
    """Whether calls may be made; if not, the prompt still holds the tools' definitions."""
    model: str | None = None
    """The name by which the client asks for the model; None: it names none."""
    home: bytes = b""
    """The key that decides which of several engines answers (`engine/pool/engine_choice.py`)."""
    digests: ToolDigests = field(default_factory=ToolDigests)
    """Of the tools' definitions."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What of the messages and tools the model reads in another form, or not at all."""

    @property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """By name, the parameters of the tools whose calls a client may send back with their defaults filled in."""
        deferred = (each.spec for name, each in self.deferred.items() if name in self.client_tools)
        return {tool.name: tool.parameters for tool in (*self.tools, *deferred)}

    def owner_of(self, tool: str) -> str | None:
        """Return the server of a tool; None for one that came with the request."""
        return None if tool in self.client_tools else self.server_of(tool)

    def may_be_deferred(self, name: str) -> bool:
        """Whether a name may mean a tool whose definition the model has not read: models guess names.

        It is made of several words, as names of tools are, or the last part of such a tool's name.
        """
        if not self.deferred or len(name) > _LONGEST_NAME:
            return False
        return bool(_COMPOUND.fullmatch(name)) or any(name == each.rpartition("__")[2] for each in self.deferred)


@dataclass(slots=True)
class Observer:
    """The records of one answer that is being made."""

    watched: bool = False
    """Whether somebody is watching: only then there are records of generations and calls."""
    logprobs: bool = False
    """Whether the engine is asked how probable its ids were."""
    sampled: list[Sampled] = field(default_factory=list[Sampled])
    """The model's turns."""
    generations: list[GenerationRecord] = field(default_factory=list[GenerationRecord])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])


@dataclass(slots=True)
class Context:
    """Everything that the model was given or wrote, in order. Only its own methods change it."""

    ids: list[int]
    earlier: tuple[int, ...] = ()
    """Number of calls in each earlier turn that made any; the last turn is left out."""
    last: LivedTurn = _NO_TURN
    """The model's last turn."""
    sources: SourceTrail | None = None
    """Where the ids came from; None: nobody asks for it."""
    preamble: int = 0
    """Ids at its beginning that other conversations begin with too, if it was rendered whole; 0: not known."""
    question: int = 0
    """Ids up to the model's first turn after the user's last message; 0: not known."""
    begun: tuple[int, ...] = ()
    """Ids at its end that already begin the model's turn; () once the model has written."""
    defines: bool = False
    """Whether the template defines tools in it."""

    def splice(
        self, scaffold: Scaffold, contents: Sequence[Sequence[int]], sources: Sequence[Sequence[Span]] = ()
    ) -> None:
        """Append contents and the scaffold around them, which opens the model's next turn.

        `sources`: the spans of each content; they are read only where sources are kept.
        """
        self.ids += scaffold.pieces[0]
        for content, after in zip(contents, scaffold.pieces[1:], strict=True):
            self.ids += content
            self.ids += after
        if self.sources is not None:
            self.sources.add([Span("template", len(scaffold.pieces[0]))])
            for source, after in zip(sources, scaffold.pieces[1:], strict=True):
                self.sources.add([*source, Span("template", len(after))])
        if self.last.calls:
            self.earlier += (len(self.last.calls),)

    def write(self, ids: Sequence[int], turn: LivedTurn) -> None:
        """Append the model's turn."""
        self.ids += ids
        self.last, self.begun = turn, ()
        if self.sources is not None:
            self.sources.add([span_without_tool("model", len(ids))])

    def note_question(self, ids: int) -> None:
        """Note how many ids stand before the model's first turn after the user's last message; 0: it is not known."""
        self.question = ids

    def begin_turn(self, ids: Sequence[int]) -> None:
        """Append what a client has written of the model's turn."""
        self.ids += ids
        self.begun = tuple(ids)

    def last_turn(self, ready: ReadyEngine) -> tuple[TurnShape, TurnEnd]:
        """Return the shape and end of the model's last turn; calls that are text for the template are content."""
        turn, token_map, fmt = self.last, ready.token_map, ready.tool_format
        calls = () if fmt.calls_as_text else turn.calls
        shape = TurnShape(
            calls=tuple(call.name for call in calls),
            content=turn.content or (fmt.calls_as_text and bool(turn.calls)),
            reasoning=turn.reasoning,
            tools=self.defines and not fmt.preamble,
            earlier=self.earlier,
        )
        tail = self.ids[-WRITTEN:]
        end = TurnEnd(
            lambda: token_map.decode(filter(token_map.has_id, tail)), turn.end_text(token_map), turn.model_ids
        )
        return shape, end


def calls_of_turns(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the number of calls in each turn of a history that makes any."""
    return tuple(len(message["tool_calls"]) for message in messages if message.get("tool_calls"))


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a conversation continues from."""

    history: History | None = None
    """The messages that it began with, as a memory compares them; None: it is not remembered."""
    before: Remembered | None = None
    """The remembered answer that it continues from."""
    kept: int = 0
    """Ids of that answer that are the beginning of the prompt."""
    miss: Miss | None = None
    """Why it continues from no remembered answer."""

    @property
    def has_answers(self) -> bool:
        """Whether its messages hold an answer of the model, so that some of it may be cached."""
        return self.history is not None and bool(self.history.answers)


_NOTHING: Final = Continuation()


@dataclass(slots=True)
class Spliced:
    """What was appended since the last generation. Counts are ids, by where they came from."""

    leaf: int = 0
    shim: int = 0
    scaffold: int = 0
    prefilled: int = 0
    """Ids of the scaffold that the engine has already processed."""
    prefilled_seconds: float = 0.0
    """Seconds that the engine took to process those."""
    seconds: float = 0.0
    """Seconds it took to tokenize contents and to splice them: part of the time to the next token."""


def readable(results: Sequence[KeptResult], asked: Asked) -> tuple[KeptResult, ...]:
    """Return the results that are still kept, if nothing but the gateway's own tools has the names of their readers."""
    names = {tool.name for tool in asked.tools} | asked.deferred.keys()
    if not asked.result_tools or any(tool.name in names for tool in asked.result_tools):
        return ()
    return tuple(each for each in results if each.content is not None)


@dataclass(slots=True)
class Conversation:
    """One conversation while its next answer is made."""

    asked: Asked
    stay: Stay
    """The engine that continues it, and what can take that engine's place."""
    context: Context
    continuation: Continuation = _NOTHING
    defined: DefinedTools = NO_TOOLS
    """The tools that its prompt defines."""
    results: tuple[KeptResult, ...] = ()
    """Results of its calls that were kept, since they were too large for the model."""
    observer: Observer | None = None
    """Records how its answer is made; None: nobody looks at it."""
    changes: tuple[ContextChange, ...] = ()
    """What was taken out of its messages."""
    answer_id: str = field(default_factory=lambda: secrets.token_hex(12))
    """The answer's name, for its client and in trajectories."""
    lived: LivedAnswer = field(default_factory=LivedAnswer)
    """The answer that is being made."""
    held: int = 0
    """Ids of the last generation's prompt and output; before the first, those of the remembered answer."""
    guessed: bool = False
    """Whether the last generation has ids that were guessed (engine/wire/llama_cpp_json.py)."""
    spliced: Spliced = field(default_factory=Spliced)

    @property
    def first_answer_id(self) -> str:
        """The name of the conversation's first answer that is remembered; this answer's if there is none."""
        before = self.continuation.before
        return self.answer_id if before is None else before.chain()[0].answer_id

    @property
    def ready(self) -> ReadyEngine:
        """The running engine that continues it now."""
        return self.stay.ready

    @property
    def ids(self) -> list[int]:
        """The ids of its context."""
        return self.context.ids

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called: those of the request whose definitions the model has read."""
        tools, deferred = self.asked.tools, self.asked.deferred
        if deferred:
            found = dict.fromkeys(each.name for each in self.defined.entries if each.name in deferred)
            tools = (*tools, *(deferred[name].spec for name in found))
        if self.results:
            tools = (*tools, *(tool for tool in self.asked.result_tools if not self.has(tool.name)))
        return tools

    @property
    def readable_results(self) -> tuple[KeptResult, ...]:
        """Those of its results that are still kept, if the model may read on in them."""
        return readable(self.results, self.asked)

    def has(self, name: str) -> bool:
        """Whether a tool is one of the request's whose definitions the model has read."""
        # A loop: this is asked several times a request, and a generator costs more than all else here.
        for each in self.defined.entries if name in self.asked.deferred else self.asked.tools:
            if each.name == name:
                return True
        return False

    def is_clients(self, name: str) -> bool:
        """Whether a call of a tool is the client's to make."""
        return name in self.asked.client_tools and self.has(name)

    @property
    def room(self) -> int:
        """How many more ids fit into the engine's context."""
        return self.ready.facts.context - len(self.ids)

    @property
    def prompt_tail(self) -> str:
        """The end of the prompt as text: it shows whether the model's turn begins inside reasoning."""
        ids = self.ids[: len(self.ids) - len(self.context.begun)]
        return self.ready.token_map.decode(ids[-_PROMPT_TAIL:])

    def begin_turn(self, text: str) -> None:
        """Begin the model's turn with a given text. Raises `RequestInvalid` where it would go on as reasoning."""
        begun = begun_ids(text, self.prompt_tail, self.asked.format, self.ready.token_map)
        if begun is None:
            raise RequestInvalid(
                "continue_final_message: this model's turn begins with reasoning, so your text would become reasoning; "
                "begin it with the whole reasoning (<think>...</think>), or leave continue_final_message out",
                param="continue_final_message",
            )
        self.context.begin_turn(begun)

    def note_changes(self, *changes: ContextChange) -> None:
        """Note what was taken out of its messages."""
        self.changes += changes

    def define(self, tools: Sequence[ToolSpec]) -> None:
        """Note that a result of its answer defines tools."""
        if tools:
            self.defined = self.defined.having(tools, ANSWER, self.asked.digests, self.asked.client_tools)

    async def hints(self) -> Hints:
        """Return what is known of its next prompt, for the choice of a slot. Raises `EngineUnavailable`."""
        ready, context, before = self.ready, self.context, self.continuation.before
        # Asked only where a cache can't be cut just anywhere.
        limited = ready.slots.rewind != "anywhere" and context.last.reasoning
        return Hints(
            preamble=context.preamble,
            question=context.question,
            returns=limited and len(context.ids) > context.question and await ready.template.drops_reasoning(),
            answer=self.answer_id,
            before=before.answer_id if before is not None else "",
        )

    async def around_results(self) -> Scaffold:
        """Return the scaffold of the results of the last turn's calls."""
        started = time.perf_counter()
        shape, end = self.context.last_turn(self.ready)
        count = len(self.context.last.calls)
        scaffold = await self.stay.ask(lambda ready: ready.template.scaffold(shape, end, "tool", count))
        self.spliced.seconds += time.perf_counter() - started
        return scaffold

    def splice(self, scaffold: Scaffold, contents: Sequence[Sequence[int]], sources: Sequence[Sequence[Span]]) -> None:
        """Append the results of calls and the scaffold around them. `sources`: the spans of each content."""
        started = time.perf_counter()
        self.context.splice(scaffold, contents, sources)
        self.spliced.scaffold += scaffold.size
        self.spliced.seconds += time.perf_counter() - started
