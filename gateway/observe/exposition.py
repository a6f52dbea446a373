"""Parts of a metrics page: how a metric is described, what is left out, how a metric is read back.

It knows none of the gateway's metrics.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.registry import Collector


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


def read_histogram(histogram: Histogram, label: str) -> list[tuple[float, int]]:
    """The buckets of a histogram's series with this label: each upper bound, and how many values fell between the bound
    before it and this one."""
    samples = [s for metric in histogram.collect() for s in metric.samples if s.name.endswith("_bucket")]
    below = [(float(s.labels["le"]), int(s.value)) for s in samples if label in s.labels.values()]
    counts = [count for _, count in below]
    return [(bound, count - before) for (bound, count), before in zip(below, [0, *counts], strict=False)]


def count_tasks() -> int:
    """How many tasks the running event loop has; 0 outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
