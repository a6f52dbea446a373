"""The metrics pages of all workers as one page: each series is the sum over the workers that have it.

Turns texts in the exposition format into one. What an ended worker had counted stays in the sums, as far as its last
page says, so that no counter ever falls. Gauges that are no amounts are not added up: `LEAST` and `MOST` name them. No
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
"""Of these the smallest counts: a server is up where it is for every worker."""
MOST: Final = frozenset({"codec_build_info", "codec_upstream_breaker", "codec_tool_definition_tokens"})
"""Of these the largest."""

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
        """The last page of each that runs."""
        self._ended: Page = {}
        """What those counted that have ended."""

    def heard(self, worker: int, page: Page) -> None:
        """Take the current page of a worker."""
        self._last[worker] = page

    def ended(self, worker: int) -> None:
        """A worker has ended; the next one with this number counts from zero."""
        if (page := self._last.pop(worker, None)) is not None:
            self._ended = _added([self._ended, _counted(page)])

    def render(self, heard: Iterable[int], own: str) -> bytes:
        """Give one page for all workers.

        Args:
            heard: workers that have just answered. Of the others only counters are included, as they last were.
            own: another page to include.
        """
        now = set(heard)
        pages = [page if worker in now else _counted(page) for worker, page in self._last.items()]
        registry = CollectorRegistry()
        registry.register(_Collected(_added([*pages, read_page(own), self._ended])))
        return generate_latest(registry)


class _Collected(Collector):
    """Families as the library writes them."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def collect(self) -> Iterable[Metric]:
        """Every family."""
        for family in self._page.values():
            metric = Metric(family.name, family.help, family.kind)
            for (name, labels), value in family.samples.items():
                metric.add_sample(name, dict(labels), value)
            yield metric


def read_page(page: str) -> Page:
    """A page in the exposition format. Some 30 µs a line: not for an event loop on which others wait."""
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
