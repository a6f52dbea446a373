"""A metrics page: how a metric is described, what is left out, and the values that a metric's label may have."""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.registry import Collector

from gateway.observe.prompt_losses import LossReason


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as the reference page shows it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


class WithoutCreated(Collector):
    """A registry without the `_created` samples, which double the page and which none of the project's rules reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the registry."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def read_counter(counter: Counter) -> dict[str, float]:
    """The values of a counter by its one label; by an empty text if it has none."""
    samples = [s for metric in counter.collect() for s in metric.samples if s.name.endswith("_total")]
    return {next(iter(s.labels.values()), ""): s.value for s in samples}


def read_histogram(histogram: Histogram, *labels: str) -> list[tuple[float, int]]:
    """The buckets of a histogram's series with these labels, added up: each upper bound, and how many values fell
    between the bound before it and this one."""
    below: dict[float, int] = {}
    for sample in (s for metric in histogram.collect() for s in metric.samples if s.name.endswith("_bucket")):
        if any(label in sample.labels.values() for label in labels):
            bound = float(sample.labels["le"])
            below[bound] = below.get(bound, 0) + int(sample.value)
    counts = [0, *below.values()]
    return [(bound, count - before) for (bound, count), before in zip(below.items(), counts, strict=False)]


def count_tasks() -> int:
    """How many tasks the running event loop has; 0 outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


# A stranger who could choose labels could use up the memory, so every value is checked.

OTHER: Final = "other"

REASONS: Final = ("shape", "map", "range", "special", "text", OTHER)
"""Those of `leaf_sdk.leaf.verify.Reason`, and `map`: ids of a map that is not accepted."""
TOOL_OUTCOMES: Final = ("ok", "tool_error", "timeout", "unavailable", "refused", "cancelled", OTHER)
LIST_KINDS: Final = ("tools", "prompts", "resources", OTHER)
DROP_REASONS: Final = ("nobody", "slow_client", OTHER)
"""`nobody`: several clients share the session and can't be told apart. `slow_client`: the client does not read."""
ERROR_KINDS: Final = {
    -32700: "parse",
    -32600: "invalid_request",
    -32601: "method_not_found",
    -32602: "invalid_params",
    -32603: "internal",
    -32000: "server",
    -32001: "timeout",
    -32002: "not_found",
    -32020: "header_mismatch",
    -32021: "capability",
    -32022: "version",
    -32042: "elicitation",
    -32800: "cancelled",
}
"""Codes of JSON-RPC and of MCP's revisions, as words."""
BOLT_ON_FORMS: Final = ("raw", "encoded", "text", "refused", OTHER)
"""How the arguments of a call to a bolt-on were sent: as the model's own ids, as ids made here, as text, not at all."""
BOUND_KINDS: Final = (
    "session",
    "parked_call",
    "subscription",
    "watched_resource",
    "client_session",
    "queued_call",
    OTHER,
)
"""Bounded things of which each principal has a share."""
LOSS_REASONS: Final = (*get_args(LossReason), OTHER)
CHAT_OUTCOMES: Final = ("ok", "client_error", "engine_error", "cancelled", OTHER)
SOURCES: Final = ("leaf", "shim", "scaffold", OTHER)

MAP_ID: Final = re.compile(r"(sha256:)?[0-9a-f]{6,64}")
MAPS_BOUND: Final = 32
SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SERVERS_BOUND: Final = 256


class BoundedLabel:
    """Values of one label: those of the right shape, the first `bound` of them; the rest are `other`."""

    def __init__(self, pattern: re.Pattern[str], bound: int) -> None:
        self._pattern = pattern
        self._bound = bound
        self._seen: set[str] = set()

    def admit(self, value: str) -> str:
        """The value itself, or `other` if it has another shape or is one too many."""
        if value in self._seen:
            return value
        if len(self._seen) >= self._bound or self._pattern.fullmatch(value) is None:
            return OTHER
        self._seen.add(value)
        return value


def one_of(words: tuple[str, ...], word: str) -> str:
    """The word itself, or `other` when it is none of `words`."""
    return word if word in words else OTHER
