"""The metrics about clients: who may call, the records of calls, connections, streams of frames, and workers."""

from collections.abc import Callable
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.exposition import generate_latest

from gateway.observe.exposition import BOUND_KINDS, OTHER, Described, WithoutCreated, one_of
from leaf_sdk.wire import CODINGS, Format, Reason

# Labels are words from fixed lists, never the name of a caller.

AUTH_FAILURES: Final = (
    "missing",
    "unknown",
    "expired",
    "malformed",
    "algorithm",
    "key",
    "signature",
    "audience",
    "issuer",
    "claims",
    "scope",
    OTHER,
)
LIMITS: Final = ("rate", "concurrency", "tries", "signatures")
BOUNDS: Final = ("share", "bound")


class AccessMetrics:
    """What is counted about callers."""

    def __init__(self, counter: Callable[..., Counter]) -> None:
        self._failures = counter("codec_auth_failures", "Requests whose credentials were refused, by reason.", "reason")
        self._limited = counter(
            "codec_requests_limited", "Requests refused because a caller exceeded a limit, by limit.", "limit"
        )
        self._lost = counter("codec_audit_lines_dropped", "Lines of the audit log that could not be written.")
        self._untold = counter(
            "codec_trajectory_lines_dropped", "Lines of the trajectory file that could not be written."
        )
        self._bounds = counter(
            "codec_bound_refusals",
            "Refusals because a bound, or one principal's share of it, was used up, by kind of thing and limit.",
            "kind",
            "limit",
        )
        for kind in BOUND_KINDS[:-1]:
            for bound in BOUNDS:
                self._bounds.labels(kind, bound)
        for reason in AUTH_FAILURES:
            self._failures.labels(reason)
        for limit in LIMITS:
            self._limited.labels(limit)

    def auth_failed(self, reason: str) -> None:
        """A request had no valid credential; `reason` is one of AUTH_FAILURES."""
        self._failures.labels(one_of(AUTH_FAILURES, reason)).inc()

    def limited(self, limit: str) -> None:
        """A request exceeded a limit; `limit` is one of LIMITS."""
        self._limited.labels(one_of(LIMITS, limit)).inc()

    def bound_refused(self, kind: str, limit: str) -> None:
        """A bound or a share was used up; `kind` is one of BOUND_KINDS, `limit` one of BOUNDS."""
        self._bounds.labels(one_of(BOUND_KINDS, kind), one_of(BOUNDS, limit)).inc()

    def audit_dropped(self, lines: int) -> None:
        """`lines` lines of the audit log were lost."""
        self._lost.inc(lines)

    def trajectories_dropped(self, lines: int) -> None:
        """`lines` lines of the file of trajectories were lost."""
        self._untold.inc(lines)


EndReason = Literal[
    "total",
    "address",
    "descriptors",
    "head_size",
    "head_time",
    "malformed",
    "body_time",
    "idle",
    "write_time",
]
END_REASONS: Final[tuple[EndReason, ...]] = get_args(EndReason)


class ConnectionMetrics:
    """What is counted about the connections of clients."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self._open = gauge("codec_connections", "Open connections of clients.")
        self._ended = counter(
            "codec_connections_ended", "Connections of clients that the gateway refused or ended, by reason.", "reason"
        )
        for reason in END_REASONS:
            self._ended.labels(reason)

    def follow(self, count: Callable[[], int]) -> None:
        """Show what `count` returns as the number of open connections."""
        self._open.set_function(count)

    def ended(self, reason: EndReason) -> None:
        """The gateway refused or ended a connection."""
        self._ended.labels(reason).inc()


FORMATS: Final = (*get_args(Format), OTHER)
_CODINGS: Final = (*CODINGS, OTHER)
_REASONS: Final = (*Reason, OTHER)


class WireMetrics:
    """What is counted about streams."""

    def __init__(self, counter: Callable[..., Counter]) -> None:
        self._streams = counter(
            "codec_wire_streams",
            "Streams of frames, by format, coding and the reason for the coding.",
            "format",
            "coding",
            "reason",
        )
        self._sent = counter(
            "codec_wire_sent_bytes", "Bytes of the bodies of these streams, as sent.", "format", "coding"
        )
        self._plain = counter("codec_wire_plain_bytes", "Bytes of these bodies before compression.", "format", "coding")
        self._ids = counter("codec_wire_ids", "Generated ids in these streams.", "format", "coding")
        self._json = counter(
            "codec_wire_json_bytes",
            "Bytes that the same answers would have taken as events of JSON, at least.",
            "format",
            "coding",
        )

    def stream(self, form: str, coding: str, reason: str, *, sent: int, plain: int, ids: int, as_json: int) -> None:
        """One stream of `ids` generated ids is over.

        It took `sent` bytes, and `plain` before compression; as JSON events it would have taken `as_json`.
        """
        form, coding = one_of(FORMATS, form), one_of(_CODINGS, coding)
        self._streams.labels(form, coding, one_of(_REASONS, reason)).inc()
        self._sent.labels(form, coding).inc(sent)
        self._plain.labels(form, coding).inc(plain)
        self._ids.labels(form, coding).inc(ids)
        self._json.labels(form, coding).inc(as_json)


class WorkerMetrics:
    """What a parent counts."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
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
