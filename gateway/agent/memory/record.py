"""How an answer was made: the source of each of its ids, what was found again, and how long each part took.

Kept with the answer that is remembered, and only while somebody looks (`gateway/agent/recall.py`): a conversation goes
on without it. It holds figures and names, no text but the few words around what a client changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.agent.memory.misses import Miss
from gateway.observe.labels import LossReason
from gateway.observe.trajectories import Span

if TYPE_CHECKING:
    from array import array

_RECORD_BYTES: Final = 700
_PART_BYTES: Final = 160
"""What a record takes, and each span, generation and call of it, measured."""


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One generation. Counts are ids, times are seconds; None: the engine did not say."""

    start: int
    """Ids of the context before it."""
    count: int
    reasoning: int
    """Part of `count`, at its beginning."""
    held: int
    """Ids of the generation before it: what could be reused."""
    cached: int | None
    """Ids of its prompt that were found in the cache."""
    prefilled: int
    """Ids that were processed while the tools before it worked."""
    prefilled_seconds: float
    """In which they were."""
    first: float
    """To its first id, from when everything for it was there."""
    prompt_seconds: float | None
    generate_seconds: float | None
    guessed: bool
    logprobs: "array[float]"
    """Of its ids; not a number where the engine did not say. Empty: it was not asked."""


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
class Found:
    """What the answer's first prompt found of the conversation before it. Counts are ids."""

    held: int
    reused: int
    lost: int
    reason: LossReason | None
    miss: Miss | None


@dataclass(slots=True)
class Notes:
    """What is known so far of an answer that is being made."""

    generations: list[GenerationRecord] = field(default_factory=list[GenerationRecord])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    found: list[Found] = field(default_factory=list[Found])
    """One, once its first prompt has been compared."""


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """How one answer was made."""

    ended: str
    kept: int
    """Ids of the answer before with which it begins."""
    spans: Sequence[Span]
    """Of all ids behind them, as the answer is remembered."""
    generations: Sequence[GenerationRecord]
    calls: Sequence[CallRecord]
    found: Found | None
    """None where it goes on from nothing, or the engine did not say."""

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        parts = len(self.spans) + len(self.generations) + len(self.calls)
        logprobs = sum(len(each.logprobs) * each.logprobs.itemsize for each in self.generations)
        return _RECORD_BYTES + parts * _PART_BYTES + logprobs
