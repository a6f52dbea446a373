"""The metrics of the parent of several workers."""

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.exposition import generate_latest

from gateway.observe.connection_metrics import ConnectionMetrics
from gateway.observe.exposition import Described, WithoutCreated


class WorkerMetrics:
    """What a parent counts."""

    def __init__(self) -> None:
        """Create every series, so that each is there from the start."""
        self._registry = CollectorRegistry(auto_describe=True)
        self._described: list[Described] = []
        self.running = self._gauge("codec_workers", "Workers that are taking requests.")
        self.restarts = self._counter("codec_worker_restarts", "Times that a worker was restarted.")
        self.own = tuple(self._described)
        """The metrics that no worker has."""
        self.connections = ConnectionMetrics(self._counter, self._gauge)
        ProcessCollector(registry=self._registry)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:  # noqa: A002 - the library's own word
        self._described.append(Described(f"{name}_total", "counter", labels, help))
        return Counter(name, help, labels, registry=self._registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:  # noqa: A002
        self._described.append(Described(name, "gauge", labels, help))
        return Gauge(name, help, labels, registry=self._registry)

    def render(self) -> str:
        """Return the text exposition."""
        return generate_latest(WithoutCreated(self._registry)).decode()
