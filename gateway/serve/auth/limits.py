"""The limits of one replica and those that all replicas share, behind one interface.

The shared store, if there is one and it answers, counts requests a minute and wrong guesses; otherwise each replica
goes on with buckets of its own (`rate_limiter.py`) and its share of the rate. Each replica counts the requests that run
at the same time for itself. It knows no HTTP.
"""

from gateway.serve.auth.identity import Identity
from gateway.serve.auth.rate_limiter import (
    FAILURES_A_SECOND,
    FAILURES_AT_ONCE,
    MINUTE,
    FailedTries,
    Kind,
    Limiter,
    Refused,
)
from gateway.serve.http.client_address import network_of
from gateway.shared import Shared


class Limits:
    """How much callers may ask of this replica and of all replicas together."""

    def __init__(self, limiter: Limiter, tries: FailedTries, shared: Shared | None) -> None:
        """`shared`: counts for all replicas; None: this replica counts for itself."""
        self._limiter = limiter
        self._tries = tries
        self._shared = shared

    async def enter(self, identity: Identity, kind: Kind, *, counted: bool) -> Refused | None:
        """See `Limiter.enter`. `counted`: the replica that sent the request on has counted it in the shared store."""
        if self._shared is None:
            return self._limiter.enter(identity, kind)
        if (refused := self._limiter.begin(identity, kind)) is not None or counted or not identity.allowance.rate:
            return refused
        wait = -1.0
        try:
            wait = await self._taken(self._shared, identity)
        finally:
            if wait:
                self._limiter.leave(identity, kind)
        return Refused("rate", wait) if wait else None

    def leave(self, identity: Identity, kind: Kind) -> None:
        """Record that one admitted request is over."""
        self._limiter.leave(identity, kind)

    async def _taken(self, shared: Shared, identity: Identity) -> float:
        rate = identity.allowance.rate
        wait = await shared.take("rate", identity.principal.name, rate, rate / MINUTE)
        if wait:
            return wait
        # Kept in step with what the store admits, so that nobody gets a fresh minute when the store goes away.
        alone = self._limiter.take(identity, 1.0 / shared.status.replicas)
        return alone if wait is None else 0.0

    async def refused(self, address: str) -> Refused | None:
        """None if this address may try again now."""
        refused = self._tries.refused(address)
        if refused is not None or self._shared is None:
            return refused
        wait = await self._shared.wait("tries", network_of(address), FAILURES_AT_ONCE, FAILURES_A_SECOND)
        return Refused("tries", wait) if wait else None

    async def failed(self, address: str) -> None:
        """Record a failed try from this address."""
        self._tries.failed(address)
        if self._shared is not None:
            await self._shared.take("tries", network_of(address), FAILURES_AT_ONCE, FAILURES_A_SECOND)
