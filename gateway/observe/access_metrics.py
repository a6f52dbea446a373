"""The metrics about who may call, and about the records of calls.

Turns refusals and lost lines into series. Labels are words from fixed lists, never the name of a caller.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter

from gateway.observe.labels import BOUND_KINDS, OTHER, one_of

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
        """Create every series, so that each is there from the start."""
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
