"""One answer that is remembered, and what is kept with it: large results, the figures of its request, how it was made.

An answer is a node of the memory's tree, with what it adds to the answer before it. Every place that reports on a
request reads the same figures: `codec` in its answer, the console, `codec-gateway why`, `/status`. The record of how an
answer was made is kept only while somebody is watching (`compose/recall.py`): a conversation can continue without it,
and it holds no text except the few words around what a client changed. Pure data.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from gateway.context.memory.defined_tools import NO_TOOLS, DefinedTools
from gateway.context.memory.history import Miss, Shown
from gateway.context.memory.lived import Lived
from gateway.observe.exposition import LossReason
from gateway.observe.trajectories import Span

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
    """Its ids; None: they are no longer kept. Only the store (`context/result_store.py`) sets this."""

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
    def processed(self) -> int:
        """Prompt tokens that the engine processed."""
        return self.prompt - self.cached

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
            "processed_tokens": self.processed,
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
