"""The metrics about who may call, and about what is written down of it.

Turns refusals and lost lines into series. Labels are words of fixed lists; no name of a caller is ever one.
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
        """Every series is there from the start."""
        self._failures = counter("codec_auth_failures", "Requests whose credentials were refused, by reason.", "reason")
        self._limited = counter(
            "codec_requests_limited", "Requests refused because one caller asked too much.", "limit"
        )
        self._lost = counter("codec_audit_lines_dropped", "Lines of the audit log that could not be written.")
        self._untold = counter(
            "codec_trajectory_lines_dropped", "Lines of the file of trajectories that could not be written."
        )
        self._bounds = counter(
            "codec_bound_refusals",
            "What was refused because all, or one caller's share, was taken.",
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
        """A request came without a good credential; `reason` is one of AUTH_FAILURES."""
        self._failures.labels(one_of(AUTH_FAILURES, reason)).inc()

    def limited(self, limit: str) -> None:
        """A request was one too many; `limit` is one of LIMITS."""
        self._limited.labels(one_of(LIMITS, limit)).inc()

    def bound_refused(self, kind: str, limit: str) -> None:
        """One more of a bounded thing was not given; `kind` is one of BOUND_KINDS, `limit` one of BOUNDS."""
        self._bounds.labels(one_of(BOUND_KINDS, kind), one_of(BOUNDS, limit)).inc()

    def audit_dropped(self, lines: int) -> None:
        """So many lines of the audit log are lost."""
        self._lost.inc(lines)

    def trajectories_dropped(self, lines: int) -> None:
        """So many lines of the file of trajectories are lost."""
        self._untold.inc(lines)
