"""One conversation as ids, and nothing but ids.

`ids` is everything that the model was given or wrote, in order. It only ever grows at its end, so the engine's KV cache
stays valid. Contents are spliced in between the pieces that the template writes after a turn like the model's last one
(`engine/rendering/template.py`). It does not generate and does not run tools.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gateway.context.compose.begun_turn import begun_ids
from gateway.context.compose.trail import Trail
from gateway.context.memory import History, LivedAnswer, LivedTurn, Miss, Notes, Remembered
from gateway.engine.interface import Message
from gateway.engine.pool.stay import Stay
from gateway.engine.rendering.scaffold import WRITTEN, Scaffold, TurnEnd, TurnShape
from gateway.engine.start.readiness import ReadyEngine
from gateway.errors import RequestInvalid
from gateway.observe.trajectories import Span
from gateway.proxy.caller import ANYBODY, Principal
from gateway.toolcalls import Diagnostic, Format, ToolSpec

T = TypeVar("T")

PROMPT_TAIL = 64
"""Ids at the end of the prompt: enough to tell whether the template opened a reasoning block."""


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


@dataclass(slots=True)
class Conversation:
    """The state of one conversation with one running engine."""

    ready: ReadyEngine
    format: Format
    tools: tuple[ToolSpec, ...]
    ids: list[int]
    client_tools: frozenset[str] = frozenset()
    """Names of tools that the client runs itself."""
    principal: Principal = ANYBODY
    """On whose behalf the gateway's tools are called."""
    server_of: Callable[[str], str | None] = lambda name: None
    """Returns the server of a tool of the gateway, by the tool's name."""
    earlier: tuple[int, ...] = ()
    """Number of calls in each earlier turn that made any; the last turn is left out."""
    turn: LivedTurn = field(default_factory=LivedTurn)
    held: int = 0
    """Ids of the last generation's prompt and output; 0 before the first."""
    guessed: bool = False
    """Whether the last generation has ids that were guessed (engine/wire/llama_cpp/repair.py)."""
    spliced: Spliced = field(default_factory=Spliced)
    history: History | None = None
    """The messages that it began with, as a memory compares them; None: it is not remembered."""
    before: Remembered | None = None
    """The remembered answer that it continues from."""
    kept: int = 0
    """Ids of that answer that are the beginning of the prompt."""
    recall_miss: Miss | None = None
    """Why it continues from no remembered answer."""
    lived: LivedAnswer = field(default_factory=LivedAnswer)
    """The answer that is being made."""
    begun: tuple[int, ...] = ()
    """Ids at the end of the prompt that already begin the model's turn."""
    may_call: bool = True
    """Whether calls may be made; if not, the prompt still holds the tools' definitions."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What of its messages and tools the model reads in another form, or not at all."""
    answer_id: str = field(default_factory=lambda: secrets.token_hex(12))
    """The answer's name, for its client and in trajectories."""
    trail: Trail | None = None
    """Where its ids came from; None: nobody asks for it."""
    notes: Notes | None = None
    """How its answer is made; None: nobody is watching."""
    asked_model: str | None = None
    """The name by which its client asks for the model; None: it names none."""
    home: bytes = b""
    """The key that decides which of several engines answers it (`engine/pool/homes.py`)."""
    stay: Stay | None = None
    """The engine on which its answer is being made, and what can take its place."""

    def current_stay(self) -> Stay:
        """Return its stay; one with its own engine alone, where no pool has set one."""
        self.stay = self.stay or Stay(self.ready)
        return self.stay

    def owner_of(self, tool: str) -> str | None:
        """Return the server of a tool; None for one that came with the request."""
        return None if tool in self.client_tools else self.server_of(tool)

    @property
    def continues(self) -> bool:
        """Whether its messages hold an answer of the model, so that some of it may be cached."""
        return self.history is not None and bool(self.history.answers)

    @property
    def room(self) -> int:
        """How many more ids fit into the engine's context."""
        return self.ready.facts.context - len(self.ids)

    def begin_turn(self, text: str) -> None:
        """Begin the model's turn with a given text. Raises `RequestInvalid` where it would go on as reasoning."""
        token_map = self.ready.token_map
        begun = begun_ids(text, token_map.decode(self.ids[-PROMPT_TAIL:]), self.format, token_map)
        if begun is None:
            raise RequestInvalid(
                "continue_final_message: this model's turn begins with reasoning, so your text would become reasoning; "
                "begin it with the whole reasoning (<think>...</think>), or leave continue_final_message out",
                param="continue_final_message",
            )
        self.begun = tuple(begun)
        self.ids += begun

    async def ask(self, question: str) -> None:
        """Append the next user turn to a conversation whose last turn is the model's."""
        # The client does not know of what follows, so it can be neither remembered nor recorded.
        self.history = self.trail = None
        scaffold = await self.around_question()
        self.splice(scaffold, [scaffold.fitted(0, self.ready.token_map.encode(question), self.ready.token_map)])

    async def asked(self, question: Callable[[ReadyEngine], Awaitable[T]]) -> T:
        """Ask its engine something that any engine of its kind can answer; continue with another one if need be."""
        stay = self.current_stay()
        answer = await stay.ask(question)
        self.ready = stay.ready
        return answer

    async def around_question(self) -> Scaffold:
        """Return the scaffold of the next user turn."""
        shape, end = self.last_turn()
        return await self.ready.template.scaffold(shape, end, "user")

    async def around_results(self) -> Scaffold:
        """Return the scaffold of the results of the last turn's calls."""
        started = time.perf_counter()
        shape, end = self.last_turn()
        scaffold = await self.asked(lambda ready: ready.template.scaffold(shape, end, "tool", len(self.turn.calls)))
        self.spliced.seconds += time.perf_counter() - started
        return scaffold

    def splice(
        self, scaffold: Scaffold, contents: Sequence[Sequence[int]], sources: Sequence[Sequence[Span]] = ()
    ) -> None:
        """Append contents and the scaffold around them, which opens the model's next turn.

        `sources`: the spans of each content; they are read only where a trail is kept.
        """
        started = time.perf_counter()
        self.ids += scaffold.pieces[0]
        for content, after in zip(contents, scaffold.pieces[1:], strict=True):
            self.ids += content
            self.ids += after
        if self.trail is not None:
            self.trail.add([Span("template", len(scaffold.pieces[0]))])
            for source, after in zip(sources, scaffold.pieces[1:], strict=True):
                self.trail.add([*source, Span("template", len(after))])
        if self.turn.calls:
            self.earlier += (len(self.turn.calls),)
        self.spliced.scaffold += scaffold.size
        self.spliced.seconds += time.perf_counter() - started

    def last_turn(self) -> tuple[TurnShape, TurnEnd]:
        """Return the shape and end of the model's last turn; calls that are text for the template are content."""
        turn, token_map, fmt = self.turn, self.ready.token_map, self.ready.tool_format
        calls = () if fmt.calls_as_text else turn.calls
        shape = TurnShape(
            calls=tuple(call.name for call in calls),
            content=turn.content or (fmt.calls_as_text and bool(turn.calls)),
            reasoning=turn.reasoning,
            tools=bool(self.tools) and not fmt.preamble,
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
