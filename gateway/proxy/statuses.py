"""The status of one upstream, and the last calls in figures, for people, metrics and health checks."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from gateway.config.model import TransportName
from gateway.proxy.bolt_on import BoltOnStatus
from gateway.proxy.upstream.items.item_reader import MalformedField
from gateway.proxy.upstream.supervision.lifecycle import State
from gateway.proxy.upstream.upstream import Upstream

# The last tool calls in figures: who made each, how it ended and how long it took, but none of its content.
#
# Keeps as many as a person looks at, for whoever runs the gateway. No IO.

KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class LastCall:
    """One finished call."""

    ended_at: datetime
    server: str
    tool: str
    """The tool's own name on that server."""
    principal: str
    ended: str
    """`ok`, or how it failed, in the words of the audit log."""
    seconds: float


class LastCalls:
    """The last calls of all servers; the oldest are dropped."""

    def __init__(self) -> None:
        # Every call is noted and few are ever looked at, so a `LastCall` is made only when somebody asks.
        self._kept: deque[tuple[float, str, str, str, str, float]] = deque(maxlen=KEPT)

    def note(self, server: str, tool: str, principal: str, ended: str, seconds: float) -> None:
        """Note a finished call. Takes about 0.2 µs."""
        # A date: made from a monotonic time later, it would come out a little different at each look.
        self._kept.append((time.time(), server, tool, principal, ended, seconds))  # noqa: TID251

    def of(self, server: str, tool: str | None = None) -> list[LastCall]:
        """The last calls of a server, or of one of its tools, the latest first."""
        return [
            LastCall(datetime.fromtimestamp(at, UTC), of, name, principal, ended, seconds)
            for at, of, name, principal, ended, seconds in reversed(self._kept)
            if of == server and tool in (None, name)
        ]


# The status of one upstream, for people, metrics and health checks.
#
# Reads an upstream, and changes nothing.


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """The status of one upstream, for people, metrics and health checks."""

    name: str
    transport: TransportName
    state: State
    tools: int
    """How many tools it lists now; 0 while it is not up."""
    last_error: str | None
    restarts: int
    protocol: str | None
    """The negotiated MCP version, from the last time it was up; None: it was never up."""
    sessions: int
    in_flight: int
    queued: int
    breaker: Literal["closed", "open", "half_open"]
    prompts: int = 0
    resources: int = 0
    """How many resources it lists now, without templates."""
    offers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its capabilities, from the last time it was up."""
    bolt_ons: tuple[BoltOnStatus, ...] = ()
    """How each of its tools is called, if they are bolt-ons and up."""
    invalid_tools: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its tools that are not offered, by their own names, and why."""
    malformed: tuple[MalformedField, ...] = ()
    """What clients could not have read of its lists as they came."""


def status_of(upstream: Upstream, now: float, bolt_ons: tuple[BoltOnStatus, ...]) -> UpstreamStatus:
    """The status at `now`, in seconds of the loop's clock."""
    lifecycle, last = upstream.supervisor.lifecycle, upstream.supervisor.last
    return UpstreamStatus(
        name=upstream.config.name,
        transport=upstream.config.transport,
        state=lifecycle.state,
        tools=upstream.count("tools"),
        last_error=lifecycle.last_error,
        restarts=lifecycle.restarts,
        protocol=None if last is None else last.session.version,
        sessions=upstream.sessions(),
        in_flight=upstream.dispatcher.gate.inside,
        queued=upstream.dispatcher.gate.waiting,
        breaker=upstream.dispatcher.breaker.state(now),
        prompts=upstream.count("prompts"),
        resources=upstream.count("resources"),
        offers=upstream.offers,
        bolt_ons=bolt_ons,
        invalid_tools=upstream.invalid_tools,
        malformed=upstream.reader.malformed,
    )
