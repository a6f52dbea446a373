"""The metrics pages of all workers as one page: each series is the sum over the workers that have it.

Turns texts in the exposition format into one. What a worker counted stays in the sums after its end, as its last page
said it, so that no counter ever falls. Gauges that are not amounts are not added up: `LEAST` and `MOST` name them. No
IO.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LEAST: Final = frozenset(
    {
        *("codec_upstream_up", "codec_engine_up", "codec_pool_engine_up", "codec_shared_up"),
        *("process_start_time_seconds", "process_max_fds"),
    }
)
"""Metrics of which the smallest value is taken: a server is up if it is up for every worker."""
MOST: Final = frozenset({"codec_build_info", "codec_upstream_breaker", "codec_tool_definition_tokens"})
"""Metrics of which the largest value is taken."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Family:
    name: str
    help: str
    kind: str
    samples: dict[_Key, float] = field(default_factory=dict[_Key, float])


Page = dict[str, _Family]


class Sums:
    """What all workers have counted."""

    def __init__(self) -> None:
        self._last: dict[int, Page] = {}
        """The last page of each running worker."""
        self._ended: Page = {}
        """What workers counted that have ended."""

    def update(self, worker: int, page: Page) -> None:
        """Take the current page of a worker."""
        self._last[worker] = page

    def ended(self, worker: int) -> None:
        """Note that a worker has ended; the next one with this number counts from zero."""
        if (page := self._last.pop(worker, None)) is not None:
            self._ended = _added([self._ended, _counted(page)])

    def render(self, answered: Iterable[int], own: str) -> bytes:
        """Return one page for all workers.

        Args:
            answered: workers that have just answered. For the others, only counters are included, as they last were.
            own: another page to include.
        """
        now = set(answered)
        pages = [page if worker in now else _counted(page) for worker, page in self._last.items()]
        registry = CollectorRegistry()
        registry.register(_Collected(_added([*pages, read_page(own), self._ended])))
        return generate_latest(registry)


class _Collected(Collector):
    """Gives the families of a page to the library, which writes them."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        for family in self._page.values():
            metric = Metric(family.name, family.help, family.kind)
            for (name, labels), value in family.samples.items():
                metric.add_sample(name, dict(labels), value)
            yield metric


def read_page(page: str) -> Page:
    """Parse a page in the exposition format. Takes about 30 µs a line: too long for an event loop with other work."""
    families: Page = {}
    for metric in text_string_to_metric_families(page):
        samples = {(each.name, tuple(sorted(each.labels.items()))): float(each.value) for each in metric.samples}
        families[metric.name] = _Family(metric.name, metric.documentation, metric.type, samples)
    return families


def _counted(page: Page) -> Page:
    """The page without gauges: only what never falls."""
    return {name: family for name, family in page.items() if family.kind in {"counter", "histogram"}}


def _added(pages: Iterable[Page]) -> Page:
    total: Page = {}
    for page in pages:
        for name, family in page.items():
            into = total.setdefault(name, _Family(name, family.help, family.kind)).samples
            join = _how(name)
            for key, value in family.samples.items():
                into[key] = join(into[key], value) if key in into else value
    return total


def _how(name: str) -> Callable[[float, float], float]:
    if name in LEAST:
        return min
    return max if name in MOST else float.__add__
