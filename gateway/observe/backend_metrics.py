"""The metrics about what the gateway calls: engines, their slot files, MCP servers, and the store of replicas."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.observe.exposition import BOLT_ON_FORMS, ERROR_KINDS, OTHER, BoundedLabel, Described, one_of

# Labels are names from the configuration, and words from fixed lists.

_SINCE: Final = ("start", "middle")


class EngineMetrics:
    """What is counted about engines."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge], engines: BoundedLabel) -> None:
        self._engines = engines
        self._up = gauge(
            "codec_pool_engine_up", "Whether this engine answers and its map is proven (1 or 0).", "engine"
        )
        self._running = gauge("codec_pool_engine_answers", "Answers that this engine is generating.", "engine")
        self._moved = counter(
            "codec_pool_answers_moved",
            "Answers moved to another engine because this one was lost; `at`: before their first id or after it.",
            "engine",
            "at",
        )

    def engine_up(self, engine: str, up: bool) -> None:
        """An engine came up or went away."""
        self._up.labels(self._engines.admit(engine)).set(up)

    def engine_running(self, engine: str, answers: int) -> None:
        """`answers` answers are being made with an engine now."""
        self._running.labels(self._engines.admit(engine)).set(answers)

    def answer_moved(self, engine: str, *, begun: bool) -> None:
        """An answer left an engine that was lost; `begun`: whether it had ids already."""
        self._moved.labels(self._engines.admit(engine), _SINCE[begun]).inc()


_WAYS: Final = ("save", "restore")
_FAULTS: Final = ("gone", "link", "owner", "mode", "size", "digest", "note", "engine", "save", OTHER)


class SlotFileMetrics:
    """What is counted about slot files."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self._moves = counter("codec_slot_file_moves", "Slots saved to files or restored from them.", "way")
        self._bytes = counter(
            "codec_slot_file_moved_bytes", "Bytes of the slot files that were written or read.", "way"
        )
        self._ids = counter("codec_slot_file_restored_ids", "Ids in the slots that were restored.")
        self._refused = counter(
            "codec_slot_files_refused",
            "Slot files that were rejected or could not be written, by reason; in each case ids are processed again.",
            "reason",
        )
        self._held = gauge("codec_slot_file_bytes", "Total size of all slot files in bytes.")
        for way in _WAYS:
            self._moves.labels(way)
            self._bytes.labels(way)
        for fault in _FAULTS[:-1]:
            self._refused.labels(fault)

    def moved(self, way: Literal["save", "restore"], size: int, *, ids: int = 0) -> None:
        """A slot was saved to a file of `size` bytes or restored from it; `ids`: how many were restored."""
        self._moves.labels(way).inc()
        self._bytes.labels(way).inc(size)
        self._ids.inc(ids)

    def refused(self, fault: str) -> None:
        """A file was not used, or (`save`) not written."""
        self._refused.labels(one_of(_FAULTS, fault)).inc()

    def held(self, size: int) -> None:
        """All slot files together have `size` bytes now."""
        self._held.set(size)


SharedResult = Literal["ok", "nothing", "away", "late", "lost", "refused", "unreadable", "dropped"]
SHARED_KINDS: Final = ("limit", "response", "memory", "event", "sign-in", "pending")
SHARED_RESULTS: Final[tuple[SharedResult, ...]] = get_args(SharedResult)


class SharedMetrics:
    """What is counted about the shared store."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self._up = gauge(
            "codec_shared_up", "Whether the shared store answers (1) or not (0); 1 where none is configured."
        )
        self._up.set(1)
        self._operations = counter(
            "codec_shared_operations",
            "Operations on the shared store, by kind and result.",
            "kind",
            "result",
        )
        self._series = {
            (kind, result): self._operations.labels(kind, result) for kind in SHARED_KINDS for result in SHARED_RESULTS
        }

    def up(self, up: bool) -> None:
        """The store answers, or no longer does."""
        self._up.set(up)

    def asked(self, kind: str, result: SharedResult) -> None:
        """The store was asked once; `kind` is one of SHARED_KINDS."""
        self._series[kind, result].inc()


# What is already kept elsewhere (calls in flight, sessions, the breaker) is read when the page is requested, and costs
# a call nothing.

_BREAKER: Final = {"closed": 0, "half_open": 1, "open": 2}
_QUEUE_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


class Standing(Protocol):
    """The state of one server."""

    @property
    def name(self) -> str:
        """As it is configured."""
        ...

    @property
    def in_flight(self) -> int:
        """Calls that are running."""
        ...

    @property
    def queued(self) -> int:
        """Calls that are waiting."""
        ...

    @property
    def sessions(self) -> int:
        """Sessions that are open."""
        ...

    @property
    def breaker(self) -> Literal["closed", "open", "half_open"]:
        """Whether calls are let through."""
        ...


@dataclass(frozen=True, slots=True)
class Makers:
    """What makes metrics, and where they are described."""

    registry: CollectorRegistry
    described: list[Described]
    counter: Callable[..., Counter]
    gauge: Callable[..., Gauge]
    histogram: Callable[..., Histogram]


_GAUGES: Final[tuple[tuple[str, str, Callable[[Standing], int]], ...]] = (
    ("codec_upstream_in_flight", "Requests that are running on the MCP server.", lambda it: it.in_flight),
    ("codec_upstream_queued", "Requests that are waiting for their turn on the MCP server.", lambda it: it.queued),
    ("codec_upstream_sessions", "Sessions that are open with the MCP server.", lambda it: it.sessions),
    (
        "codec_upstream_breaker",
        "Breaker of the MCP server: requests pass (0), one may pass as a trial (1), or all are refused (2).",
        lambda it: _BREAKER[it.breaker],
    ),
)


class ServerMetrics:
    """What is counted and shown about the MCP servers besides their calls."""

    def __init__(self, makers: Makers, servers: BoundedLabel) -> None:
        """`servers` admits their names."""
        self._servers = servers
        makers.described.extend(Described(name, "gauge", ("server",), text) for name, text, _ in _GAUGES)
        self._standings = _Standings(servers)
        makers.registry.register(self._standings)
        self._queue = makers.histogram(
            "codec_upstream_queue_seconds",
            "Seconds that requests waited for their turn; those that did not have to wait are not counted.",
            _QUEUE_SECONDS,
            "server",
        )
        self._errors = makers.counter(
            "codec_upstream_errors", "JSON-RPC errors that the MCP server answered with.", "server", "kind"
        )
        self._answered = makers.counter(
            "codec_mcp_errors", "Requests of MCP clients that were answered with a JSON-RPC error.", "kind"
        )
        self._definitions = makers.gauge(
            "codec_tool_definition_tokens",
            "Tokens of the definitions of the MCP server's tools (a quarter of their bytes where no map is loaded).",
            "server",
        )
        self._bolt_ons = makers.counter(
            "codec_bolt_on_calls", "Calls to bolt-on tools, by how their arguments were sent.", "form"
        )
        for kind in (*ERROR_KINDS.values(), OTHER):
            self._answered.labels(kind)
        for form in BOLT_ON_FORMS[:-1]:
            self._bolt_ons.labels(form)

    def follow(self, standings: Callable[[], Iterable[Standing]]) -> None:
        """Ask `standings` for the state of the servers whenever the page is requested."""
        self._standings.follow(standings)

    def queued(self, server: str, seconds: float) -> None:
        """A request waited `seconds` for its turn."""
        self._queue.labels(self._servers.admit(server)).observe(seconds)

    def refused(self, server: str, code: object) -> None:
        """The server answered with a JSON-RPC error of this code."""
        self._errors.labels(self._servers.admit(server), kind_of(code)).inc()

    def bolt_on_called(self, form: str) -> None:
        """A bolt-on was called, or refused; `form` is one of `BOLT_ON_FORMS`."""
        self._bolt_ons.labels(one_of(BOLT_ON_FORMS, form)).inc()

    def answered(self, code: object) -> None:
        """An MCP client's request was answered with a JSON-RPC error of this code."""
        self._answered.labels(kind_of(code)).inc()

    def defined(self, tokens: Mapping[str, int]) -> None:
        """What the definitions of each server's tools cost now, in tokens."""
        self._definitions.clear()
        for server, count in tokens.items():
            self._definitions.labels(self._servers.admit(server)).inc(count)


def kind_of(code: object) -> str:
    """The word for a JSON-RPC error code, whatever a server puts there; one of those in `ERROR_KINDS`, or `other`."""
    return ERROR_KINDS.get(code, OTHER) if isinstance(code, int) else OTHER


class _Standings(Collector):
    """The gauges that are read when the page is requested."""

    def __init__(self, servers: BoundedLabel) -> None:
        self._servers = servers
        self._ask: Callable[[], Iterable[Standing]] = tuple

    def follow(self, standings: Callable[[], Iterable[Standing]]) -> None:
        """Ask `standings` from now on."""
        self._ask = standings

    def collect(self) -> Iterable[Metric]:
        """Yield a family for each gauge. Servers beyond the bound are shown as one, with the sum of their values."""
        standings = list(self._ask())
        for name, text, read in _GAUGES:
            values: dict[str, int] = {}
            for each in standings:
                label = self._servers.admit(each.name)
                values[label] = values.get(label, 0) + read(each)
            family = GaugeMetricFamily(name, text, labels=("server",))
            for label, value in values.items():
                family.add_metric((label,), value)
            yield family
