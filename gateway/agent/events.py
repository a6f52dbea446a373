"""What happens while a request is answered, in order, as the endpoints above see it.

The tool-call parser's events pass through unchanged, except that `index` counts over the whole response; the agent adds
events for what it did itself. Nothing here knows OpenAI's JSON.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from gateway.context.memory import RequestFigures
from gateway.engine.interface import Timings
from gateway.toolcalls.stream.output_events import Event

Source = Literal["leaf", "shim", "gateway"]
"""Where the ids of a tool's result came from: the tool itself, the gateway's tokenizer, or the gateway's own words."""

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class IdsGenerated:
    """The next ids that the model wrote and that stay in the context (an end-of-turn id does not stay)."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A sampled id, the logarithm of its probability (None: the engine did not report it), and the likeliest ids."""

    token_id: int
    logprob: float | None
    tops: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ContentSampled:
    """The ids from which the next `Content` was read. Emitted only on request."""

    tokens: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class SplicedPart:
    """Ids put into the context that the model did not write. `call_id`: the call that they answer, if any."""

    ids: tuple[int, ...]
    source: Literal["leaf", "shim", "scaffold"]
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class IdsSpliced:
    """What was appended to the context between two generations, in order."""

    parts: tuple[SplicedPart, ...]


@dataclass(frozen=True, slots=True)
class KeptFigures:
    """A result that was too large for the model and was kept. Counts are its own ids."""

    handle: str
    tokens: int
    shown: int
    """How many of them the model got, from the first."""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call of one of the gateway's tools has finished. Counts are ids spliced into the context."""

    call_id: str
    name: str
    arguments: str
    said: str | Callable[[], str]
    """What the tool said, for people, or a function that returns it; the model gets the ids."""
    source: Source
    leaf_ids: int
    shim_ids: int
    is_error: bool
    seconds: float
    found: tuple[str, ...] = ()
    """Names of the tools that it found, for a search of tools."""
    kept: KeptFigures | None = None
    """What was kept of it; None: the model got all of it, or the rest was cut off."""
    saved: int = 0
    """Tokens by which its compact form is shorter."""

    @property
    def text(self) -> str:
        """What the tool said. Ids that came without a text are decoded when this is first read."""
        return self.said if isinstance(self.said, str) else self.said()


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """One generation has finished. Counts are ids, times are seconds."""

    prompt: int
    """Ids that the model was given, reused ones included."""
    generated: int
    """Ids that the model wrote and that stay in the context (an end-of-turn id does not stay)."""
    reinjected_leaf: int
    """Result ids spliced in before this generation, as the tool sent them."""
    reinjected_shim: int
    scaffold: int
    """The template's own ids spliced in before this generation."""
    held: int
    """Ids of the previous generation's prompt and output: what could be reused."""
    timings: Timings | None
    """None when a stop string cut the generation short, before the engine reported its timings."""
    ttft: float
    """Time to the first id since the results (or the question) were there; includes making and splicing their ids."""
    guessed: bool
    """Whether the stream lost some ids of this generation and they were guessed (engine/wire/llama_cpp_json.py)."""
    reasoning: int = 0
    """Part of `generated`: the ids of reasoning, its opening marker included."""
    prefilled: int = 0
    """Ids of the scaffold that were processed while the tools worked; `timings` counts them as processed."""
    prefilled_seconds: float = 0.0
    """Seconds that the engine took for those, while the tools worked; no other time here includes them."""
    moved: int = 0
    """How many engines were lost during it; each time another one continued from the ids so far."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A summary has taken the place of what the conversation held. Counts are ids."""

    text: str
    """The message that stands for it; "" where the model wrote no summary, so that nothing was replaced."""
    found: tuple[str, ...]
    """Tools that the model had found, which are defined anew behind the summary."""
    system: tuple[str, ...]
    """Words of the system's among the messages, which stay in front of the summary."""
    prompt_ids: int
    """Ids of the prompt that the summary was written behind, the instruction included."""
    cached_ids: int
    """Part of `prompt_ids`: those that were in the engine's cache."""
    completion_ids: int
    ends: bool
    """Whether the answer is only the summary."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. Counts are sums over its generations: to the engine each one has a prompt of its own."""

    reason: FinishReason
    prompt_ids: int
    cached_ids: int
    completion_ids: int
    reasoning_ids: int = 0
    """Part of `completion_ids`."""
    stop: str | None = None
    """The stop string that ended it, if one did."""


AgentEvent = (
    Event
    | IdsGenerated
    | ContentSampled
    | IdsSpliced
    | ToolFinished
    | GenerationFinished
    | RequestFigures
    | Compacted
    | Finished
)
"""Events of ids are emitted only on request: together with the prompt, they are the whole context, id by id."""
Emit = Callable[[AgentEvent], Awaitable[None]]
"""Takes one event; a slow receiver slows the generation down."""
