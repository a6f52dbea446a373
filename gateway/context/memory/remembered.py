"""One answer that is remembered, and what is kept with it: large results, the figures of its request, how it was made.

An answer is a node of the memory's tree, with what it adds to the answer before it. Every place that reports on a
request reads the same figures: `codec` in its answer, the console, `codec-gateway why`, `/status`. The record of how an
answer was made is kept only while somebody is watching (`compose/recall.py`): a conversation can continue without it,
and it holds no text except the few words around what a client changed. Pure data.
"""

import re
import sys
from array import array
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from gateway.context.memory.defined_tools import NO_TOOLS, DefinedTools
from gateway.context.memory.message_digests import Call, Miss, Shown
from gateway.engine.interface import Message
from gateway.observe.prompt_losses import LossReason
from gateway.observe.trajectories import Span
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.vocab import TokenMap

# An answer as the model lived it: its turns with their ids, the results in between, and what its client was shown.
#
# Filled while the answer is made, and kept unchanged afterwards. A turn is cut where its client saw it end: before a
# stop string, or where a stream broke. It knows neither engine nor client.

MESSAGE_BYTES: Final = 600
"""Bytes that a lived message takes besides its ids and texts, measured."""

_SPAN_BYTES: Final = 160
"""Bytes that a span takes, measured."""
_MARKS: Final = 48
"""Characters that are enough to tell the marks of one format from those of another."""


@dataclass(frozen=True, slots=True)
class LivedTurn:
    """A turn of the model, besides its ids."""

    calls: tuple[CallClosed, ...] = ()
    content: bool = True
    reasoning: bool = False
    ended_by: int | None = None
    """The end-of-turn id that it ended with; None where the model did not end it."""
    broken: bool = False
    """Whether it has a call that broke off; an answer whose client knows of such a call is not remembered."""
    form: str = ""
    """What it wrote around its words (`Lived.formed`): by it a template shows the turn as it was written, or not."""
    start: int | None = None
    """Ids of the context before it; None where another replica made it."""
    model_ids: tuple[str, ...] = ()
    """The ids of its calls as the model and its template know them; `calls` have those that clients know."""

    def end_text(self, token_map: TokenMap) -> str:
        """The text of the token that it ended with; "" where there was none, or the map does not have it."""
        if self.ended_by is None or not token_map.has_id(self.ended_by):
            return ""
        return token_map.token_bytes(self.ended_by).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Lived:
    """One message as the model lived it, with its ids in the context."""

    message: Message
    """A turn of the model, or the result of a call; a result's content is read from its ids."""
    ids: "array[int]"
    turn: LivedTurn | None = None
    """What kind of turn it was, for a turn of the model; None for a result."""
    spans: tuple[Span, ...] = ()
    """Where the ids came from; () for a turn of the model that was not cut."""

    def formed(self, token_map: TokenMap) -> "Lived":
        """The same message; a turn of the model gets its form: what it writes around its words, up to a call."""
        if self.turn is None:
            return self
        # An id of the engine's padding has no text.
        text, marks = token_map.decode(filter(token_map.has_id, self.ids)), list[str]()
        for words in (str(self.message.get("reasoning_content") or "").strip(), str(self.message["content"]).strip()):
            before, found, after = text.partition(words) if words else ("", "", text)
            if found:
                marks.append(before[-_MARKS:])
                text = after
        form = sys.intern("|".join((*marks, *re.findall(r"^\W*\w*\W*", text[:_MARKS]))))
        return replace(self, turn=replace(self.turn, form=form))

    @property
    def own(self) -> int:
        """How many ids of a turn the model wrote: all, unless it was cut inside a token."""
        return self.spans[0].count if self.spans else len(self.ids)

    @property
    def size(self) -> int:
        """Bytes that it takes, approximately."""
        texts = sum(sys.getsizeof(value) for value in self.message.values() if isinstance(value, str))
        calls = sum(
            sys.getsizeof(call["function"]["arguments"]) + MESSAGE_BYTES
            for call in self.message.get("tool_calls") or ()
        )
        spans = len(self.spans) * _SPAN_BYTES
        return MESSAGE_BYTES + len(self.ids) * self.ids.itemsize + texts + calls + spans


@dataclass(slots=True)
class LivedAnswer:
    """The answer that is being made."""

    messages: list[Lived] = field(default_factory=list[Lived])
    content: list[str] = field(default_factory=list[str])
    """Texts that the client was shown."""
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])
    """Calls that the client was shown."""
    start: int = 0
    """Ids of the context before the last turn."""
    whole: bool = True
    """Whether what the client was shown tells all that its turns hold: not where one of its own calls broke off."""

    @property
    def shown(self) -> Shown:
        """The answer as its client sees it."""
        return Shown("".join(self.content), "".join(self.reasoning), tuple(self.calls))

    @property
    def last(self) -> Lived | None:
        """The last turn of the model."""
        return next((each for each in reversed(self.messages) if each.turn is not None), None)

    def add_turn(self, start: int, ids: Sequence[int], content: str, reasoning: str, turn: LivedTurn, own: int) -> None:
        """Add the turn of a finished generation.

        `start`: ids before it; `content`, `reasoning`: their whole text; `own`: how many of the ids the model wrote.
        """
        self.start = start
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning:
            message["reasoning_content"] = reasoning
        if turn.calls:
            message["tool_calls"] = [_shown_call(call) for call in turn.calls]
        # The turn's ids include those of its calls.
        calls = tuple(replace(call, ids=()) for call in turn.calls)
        spans = () if own == len(ids) else (Span("model", own), Span("assistant", len(ids) - own))
        self.messages.append(Lived(message, array("I", ids), replace(turn, calls=calls, start=start), spans))

    def add_result(self, call_id: str, name: str, ids: Sequence[int], spans: tuple[Span, ...] = ()) -> None:
        """Add the result of a finished call of the gateway's tools. `spans`: where its ids came from."""
        message = {"role": "tool", "tool_call_id": call_id, "name": name}
        self.messages.append(Lived(message, array("I", ids), spans=spans))


def _shown_call(call: CallClosed) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def cut_turn(
    ids: Sequence[int], content: str, told: str, token_map: TokenMap, hidden: Container[int] = ()
) -> list[int] | None:
    """Return the ids of a turn up to where its client saw it end; None where that place can't be determined.

    `content`: the whole text of the turn; `told`: the beginning of it that was shown; `hidden`: ids of which
    neither has a text.
    """
    pieces = [b"" if token_id in hidden else token_map.token_bytes(token_id) for token_id in ids]
    written, shown = b"".join(pieces), told.encode("utf-8", "replace")
    # The whole content is searched for, since what was shown may occur again after it.
    at = written.rfind(content.encode("utf-8", "replace"))
    if not shown or at < 0:
        return None
    stop = at + len(shown)
    size, kept = len(written), len(ids)
    while kept:
        if size <= stop:
            rest = _text(written[size:stop])
            if rest is not None:
                return [*ids[:kept], *token_map.encode(rest)]
        kept -= 1
        size -= len(pieces[kept])
    return list(token_map.encode(told)) if at == 0 else None


def _text(written: bytes) -> str | None:
    try:
        return written.decode()
    except UnicodeDecodeError:
        return None


IdSource = Literal["leaf", "shim"]
_SOURCE_BYTES: Final = 96
"""Of one entry: a tuple and a number."""
_RECORD_BYTES: Final = 700
_PART_BYTES: Final = 160
"""Bytes that a record takes, and each span, generation and call of it, measured."""
SUMMARY: Final = "summary"
"""Key of a message that stands for an earlier part of its conversation: the text that the gateway wrote for it."""
NO_ENGINE: Final = -1
"""`Remembered.engine` where the engine was another process's."""


class IdsElsewhere(Protocol):
    """Ids that are not in memory."""

    def read(self) -> "array[int]":
        """Read the ids. Raises `OSError`."""
        ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class KeptResult:
    """One result. What its conversation knows of it stays, even when its ids are gone."""

    handle: str
    """Its name for the model."""
    owner: str
    tool: str
    """The tool that returned it."""
    map_id: str
    tokens: int
    sources: tuple[tuple[IdSource, int], ...]
    """Where consecutive ids came from, each with the place where they end; neighbours differ."""
    digest: bytes
    shape: str
    """What it is, in a line."""
    content: "array[int] | IdsElsewhere | None" = field(default=None, repr=False)
    """Its ids; None: they are no longer kept. Only the store (`context/large_result_store.py`) sets this."""

    @property
    def bytes_beside(self) -> int:
        """Bytes that it takes beside its ids, however few they are."""
        return len(self.sources) * _SOURCE_BYTES


@dataclass(frozen=True, slots=True)
class ContextChange:
    """What kept the context of a request small, or made it larger."""

    kind: Literal["deferred", "loaded", "cleared", "summed_up", "compacted"]
    tokens: int
    """Of the definitions that were deferred or loaded, or of what was taken out; of the prompt that was summed up."""
    count: int = 0
    """How many tools or results; of `compacted`, the tokens of the summary."""


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """Counts of tokens. `cached <= prompt`, `reused + recomputed <= held` and `recomputed <= processed`."""

    prompt: int
    """Prompt tokens of all its generations, as in `usage`: each generation is a prompt to the engine."""
    cached: int
    """Those of them that came from the engine's cache."""
    held: int = 0
    """Tokens that were cached at the end of the answer that it continues, or almost continues."""
    reused: int = 0
    """Those of `held` that its first prompt took from the cache."""
    recomputed: int = 0
    """Tokens of its first prompt that the engine had cached for the conversation and processed again."""
    reason: LossReason | None = None
    """Why not all of `held` was reused; None where it was."""
    recall_miss: Miss | None = None
    """Details where no earlier answer was recalled, such as what the client changed."""
    tokens_per_second: float | None = None
    """How fast its answer was generated; None where the engine did not say."""
    changes: tuple[ContextChange, ...] = ()
    """What was deferred, loaded, cleared and compacted."""

    @property
    def loss(self) -> LossReason | None:
        """Why tokens were recomputed; None where none were."""
        return self.reason if self.recomputed else None

    @property
    def counts(self) -> dict[str, int]:
        """All counts by the names that the APIs and `/status` give them."""
        return {
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "processed_tokens": self.prompt - self.cached,
            "held": self.held,
            "reused": self.reused,
            "lost": self.recomputed,
        }


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One generation. Counts are ids, times are seconds; None: the engine did not say."""

    start: int
    """Ids of the context before it."""
    count: int
    reasoning: int
    """Part of `count`, at its beginning."""
    held: int
    """Ids of the previous generation's prompt and output: what could be reused."""
    cached: int | None
    """Ids of its prompt that were found in the cache."""
    prefilled: int
    """Ids that were processed while the tools before it worked."""
    prefilled_seconds: float
    """Seconds that the engine took for those."""
    first: float
    """Time to its first id, from when everything for it was there."""
    prompt_seconds: float | None
    generate_seconds: float | None
    guessed: bool
    logprobs: "array[float]"
    """Log-probabilities of its ids; NaN where the engine did not say. Empty: it was not asked."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call that the gateway made. Counts are ids of its result."""

    call_id: str
    name: str
    server: str | None
    seconds: float
    leaf: int
    shim: int
    is_error: bool


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """How one answer was made."""

    ended: str
    kept: int
    """Ids at its beginning that it has in common with the answer before."""
    spans: Sequence[Span]
    """Sources of all ids after those, as the answer is remembered."""
    generations: Sequence[GenerationRecord]
    calls: Sequence[CallRecord]
    recall_miss: Miss | None
    """What its client changed, where that is why it continues from nothing."""

    @property
    def size(self) -> int:
        """Bytes that it takes, approximately."""
        parts = len(self.spans) + len(self.generations) + len(self.calls)
        logprobs = sum(len(each.logprobs) * each.logprobs.itemsize for each in self.generations)
        return _RECORD_BYTES + parts * _PART_BYTES + logprobs


@dataclass(slots=True, eq=False)
class Remembered:
    """One answer, and the conversation up to it. Only its place in the tree, its record and its summary may change."""

    owner: str
    before: "Remembered | None"
    """The answer that its request continued from."""
    place: int
    """Where the answer stands among the client's messages."""
    shown: Shown
    lived: tuple[Lived, ...]
    kept: int
    """How many of the first ids of `before` it keeps."""
    added: "array[int]"
    """Ids that follow those."""
    held: int
    """Ids that the engine has processed."""
    engine: int
    """The number of the engine's start that made it (`ReadyEngine.number`)."""
    number: int
    """The conversation that it belongs to; all branches of one have the same number."""
    engine_name: str = "engine"
    """Which of the gateway's engines."""
    answer_id: str = ""
    original_ids: int = 0
    """How many of its ids, from the first, it was made with: all, unless its last turn was cut inside a token."""
    strangers: bytes = b""
    """Digest of answers before it that are not remembered (`History.strangers`)."""
    digest: bytes = b""
    tools: DefinedTools = NO_TOOLS
    """The tools that the prompt defined at its end."""
    results: tuple[KeptResult, ...] = ()
    """Results of its calls and of those before it that were kept, since they were too large for the model."""
    model: str | None = None
    """The model that wrote it; this, the map and the time are None where another replica made the answer."""
    map_id: str | None = None
    made: float | None = None
    """When it was made, by `time.monotonic`."""
    figures: RequestFigures | None = None
    """What its request cost, without words of its client; None where the engine did not say, or another replica made
    it."""
    record: AnswerRecord | None = None
    """How it was made; None where nobody was watching."""
    summary: bytes = b""
    """Digest of the text that stands for the conversation up to it; b"" where it was not summed up."""
    followers: int = field(default=0, repr=False)
    size: int = 0

    def chain(self) -> list["Remembered"]:
        """The answers of this conversation up to this one, the first one first."""
        found: list[Remembered] = []
        node: Remembered | None = self
        while node is not None:
            found.append(node)
            node = node.before
        return found[::-1]

    def ids(self) -> list[int]:
        """All ids that the conversation had at the end of this answer."""
        ids: array[int] = array("I")
        for node in self.chain():
            del ids[node.kept :]
            ids.extend(node.added)
        return ids.tolist()
