"""What happens while a request is answered, in order, as the endpoints above see it.

The tool-call parser's events go through as they are, with `index` counted over the whole response; the agent adds what
it did itself. Nothing here knows OpenAI's JSON.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from gateway.agent.memory import Miss
from gateway.engine.interface import Timings
from gateway.observe.labels import LossReason
from gateway.toolcalls import Event

Source = Literal["leaf", "shim", "gateway"]
"""Where the ids of a tool's result came from: the tool itself, the gateway's tokenizer, or the gateway's own words."""

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class IdsGenerated:
    """The next ids that the model wrote and that stay in the context (an end-of-turn id does not)."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """An id that was sampled: the logarithm of its probability (None: the engine did not tell), and the likeliest."""

    token_id: int
    logprob: float | None
    tops: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ContentSampled:
    """The ids that the content told next was read from. Comes only to who asked for it."""

    tokens: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class SplicedPart:
    """Ids put into the context that the model did not write. `call_id`: the call that they answer, if they do."""

    ids: tuple[int, ...]
    source: Literal["leaf", "shim", "scaffold"]
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class IdsSpliced:
    """What was appended to the context between two generations, in order."""

    parts: tuple[SplicedPart, ...]


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call of one of the gateway's tools is over. Counts are ids spliced into the context."""

    call_id: str
    name: str
    arguments: str
    said: str | Callable[[], str]
    """What the tool said, for people, or what makes it; the model gets the ids."""
    source: Source
    leaf_ids: int
    shim_ids: int
    is_error: bool
    seconds: float

    @property
    def text(self) -> str:
        """What the tool said. Where it said ids they are read for this: for whoever shows it, and nobody else."""
        return self.said if isinstance(self.said, str) else self.said()


@dataclass(frozen=True, slots=True)
class PromptCompared:
    """What of an earlier request's context this one found in the engine. Counts are ids."""

    held: int
    """What the engine held at the end of the answer that the conversation goes on from, or nearly does."""
    reused: int
    """The part of the prompt that the engine did not process again."""
    reason: LossReason | None = None
    """Why not all that was held has been reused; None where it has."""
    miss: Miss | None = None
    """What the client has changed, where that is why."""

    @property
    def lost(self) -> int:
        """Ids that could have been reused and were not."""
        return max(self.held - self.reused, 0) if self.reason is not None else 0


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """One generation is over. Counts are ids, times are seconds."""

    prompt: int
    """Ids that the model was given, reused ones included."""
    generated: int
    """Ids that the model wrote and that stay in the context (an end-of-turn id does not)."""
    reinjected_leaf: int
    """Result ids spliced in before this generation, as the tool sent them."""
    reinjected_shim: int
    scaffold: int
    """The template's own ids spliced in before this generation."""
    held: int
    """Ids of the previous generation's prompt and output: what could be reused."""
    timings: Timings | None
    """None when a stop string cut the generation short, before the engine's own account."""
    ttft: float
    """To the first id, from the moment the results (or the question) were there: making and splicing ids included."""
    guessed: bool
    """Some ids of this generation were lost by the stream and found by choice (engine/llama_cpp/repair.py)."""
    reasoning: int = 0
    """Part of `generated`: ids up to and with those of reasoning, its opening marker included."""
    prefilled: int = 0
    """Ids of the scaffold that were processed while the tools worked: part of those that `timings` calls processed."""
    prefilled_seconds: float = 0.0
    """The engine's, for those: hidden behind the tools, and part of no other time here."""
    moved: int = 0
    """Engines that were lost over it, each with another that went on from the ids that were there."""

    @property
    def reuse(self) -> float | None:
        """Share of the previous turn's ids that the engine found in its KV cache; None for a first turn.

        A slot file may have brought more than those: an earlier conversation of the same words.
        """
        if not self.held or self.timings is None:
            return None
        return min(self.timings.cache_n, self.held) / self.held


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. Ids are summed over its generations: each one is a prompt of its own to the engine."""

    reason: FinishReason
    prompt_ids: int
    cached_ids: int
    completion_ids: int
    reasoning_ids: int = 0
    """Part of `completion_ids`."""
    stop: str | None = None
    """The stop string that ended it, if one did."""


AgentEvent = (
    Event | IdsGenerated | ContentSampled | IdsSpliced | ToolFinished | PromptCompared | GenerationFinished | Finished
)
"""Events of ids come only to who asked for them: with the prompt, they are the whole context, id by id."""
Emit = Callable[[AgentEvent], Awaitable[None]]
"""Takes one event; slow takers slow the generation down."""
