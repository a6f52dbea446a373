"""The status of one upstream, for people, metrics and health checks.

Reads an upstream, and changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.config.model import Transport
from gateway.proxy.bolt_on import BoltOnStatus
from gateway.proxy.upstream.items.item_reader import MalformedField
from gateway.proxy.upstream.supervision.lifecycle import State
from gateway.proxy.upstream.upstream import Upstream


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """The status of one upstream, for people, metrics and health checks."""

    name: str
    transport: Transport
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
