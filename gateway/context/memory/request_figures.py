"""The figures of one request: prompt tokens, how many of them were cached, how many were recomputed, and why.

Every place that reports on a request reads these: `codec` in its answer, the console, `codec-gateway why`, `/status`.
They are made in `gateway/agent/figures.py`. Pure data.
"""

from dataclasses import dataclass
from typing import Literal

from gateway.context.memory.misses import Miss
from gateway.observe.exposition import LossReason


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
