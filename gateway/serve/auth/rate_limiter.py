"""Rate limits: a caller's requests a minute and at a time, an address's wrong guesses, everybody's signature checks.

Token buckets and counters in tables of bounded size, on a clock that is passed in: no tasks, no locks, no waiting. It
knows no HTTP and no credentials.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, Literal, TypeVar

from gateway.serve.auth.identity import Identity
from gateway.serve.http.connection_limits import network_of
from gateway.shared import Shared

TABLE_BOUND: Final = 4096
FAILURES_AT_ONCE: Final = 20
FAILURES_A_SECOND: Final = 0.2
SIGNATURES_AT_ONCE: Final = 400
SIGNATURES_A_SECOND: Final = 200.0
"""A check takes up to a quarter of a millisecond: a stranger with made-up tokens costs a twentieth of a core."""
_BUSY_WAIT: Final = 1.0
MINUTE: Final = 60.0
_WHOLE: Final = 1.0 - 1e-6
"""What counts as one token: a caller who waited exactly as long as told must find one, despite rounding errors."""

V = TypeVar("V")
RequestKind = Literal["call", "stream", "control"]
"""A stream stays open as long as its client wants to listen, and must not take the place of a call. A control
message starts nothing: it may end or answer a running call, and so must not need a call's place."""


@dataclass(frozen=True, slots=True)
class RateRefused:
    """The refusal of a request that is over a limit."""

    limit: Literal["rate", "concurrency", "tries", "signatures"]
    wait: float
    """Seconds after which it is worth trying again."""


class Bucket:
    """A token bucket: `size` at once, then `a_second`."""

    __slots__ = ("_at", "_left")

    def __init__(self, size: float, now: float) -> None:
        self._left = size
        self._at = now

    def left(self, size: float, a_second: float, now: float) -> float:
        """Tokens that are left now. Size and rate are passed each time, since the key file may have changed them."""
        self._left = min(size, self._left + (now - self._at) * a_second)
        self._at = now
        return self._left

    def take(self, size: float, a_second: float, now: float) -> float:
        """Take one token. Returns 0, or the seconds until there is one."""
        left = self.left(size, a_second, now)
        if left < _WHOLE:
            return (1.0 - left) / a_second
        self._left = max(0.0, left - 1.0)
        return 0.0


class _Account:
    """What one principal has asked lately, and what it has running."""

    __slots__ = ("bucket", "running")

    def __init__(self, size: float, now: float) -> None:
        self.bucket = Bucket(size, now)
        self.running: dict[RequestKind, int] = {"call": 0, "stream": 0, "control": 0}

    @property
    def idle(self) -> bool:
        return not any(self.running.values())


class Limiter:
    """The limits of all principals."""

    def __init__(self, clock: Callable[[], float] = monotonic, *, bound: int = TABLE_BOUND) -> None:
        """`bound`: principals to remember; beyond it, the one that was quiet for longest is forgotten."""
        self._clock = clock
        self._bound = bound
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def enter(self, identity: Identity, kind: RequestKind) -> RateRefused | None:
        """Admit one request (None), or say which limit it exceeds.

        For every admitted request, `leave` must be called with the same arguments.
        """
        if (refused := self.begin(identity, kind)) is not None:
            return refused
        wait = self.take(identity) if identity.allowance.rate else 0.0
        if wait:
            self.leave(identity, kind)
            return RateRefused("rate", wait)
        return None

    def begin(self, identity: Identity, kind: RequestKind) -> RateRefused | None:
        """Like `enter`, but ignore the rate."""
        allowance = identity.allowance
        if allowance.is_free:
            return None
        account = self._account(identity, self._clock())
        if allowance.concurrency and account.running[kind] >= allowance.concurrency:
            return RateRefused("concurrency", _BUSY_WAIT)
        account.running[kind] += 1
        return None

    def take(self, identity: Identity, share: float = 1.0) -> float:
        """Count one request against the rate. Returns 0, or the seconds until there is room for it.

        `share`: this replica's part of the rate. However small it is, the bucket holds one request, if after a wait.
        """
        rate = identity.allowance.rate * share
        now = self._clock()
        return self._account(identity, now).bucket.take(max(rate, 1.0), rate / MINUTE, now)

    def leave(self, identity: Identity, kind: RequestKind) -> None:
        """Record that one admitted request is over."""
        if not identity.allowance.is_free:
            self._accounts[identity.principal.name].running[kind] -= 1

    def __len__(self) -> int:
        return len(self._accounts)

    def _account(self, identity: Identity, now: float) -> _Account:
        name = identity.principal.name
        account = self._accounts.get(name)
        if account is None:
            _make_room(self._accounts, self._bound, lambda old: old.idle)
            account = self._accounts[name] = _Account(identity.allowance.rate, now)
        self._accounts.move_to_end(name)
        return account


class SignatureChecks:
    """Limits the signatures checked a second, over all senders: none can be guessed, but each check costs time."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._bucket = Bucket(SIGNATURES_AT_ONCE, clock())

    def take(self) -> float:
        """Take the right to one check: 0 means now, otherwise the seconds to wait for it."""
        return self._bucket.take(SIGNATURES_AT_ONCE, SIGNATURES_A_SECOND, self._clock())


class FailedTries:
    """The addresses that sent wrong guesses, and whether one may try again."""

    def __init__(self, clock: Callable[[], float] = monotonic, *, bound: int = TABLE_BOUND) -> None:
        self._clock = clock
        self._bound = bound
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def refused(self, address: str) -> RateRefused | None:
        """None if this address may try again now."""
        bucket = self._buckets.get(network_of(address))
        left = 1.0 if bucket is None else bucket.left(FAILURES_AT_ONCE, FAILURES_A_SECOND, self._clock())
        return None if left >= _WHOLE else RateRefused("tries", (1.0 - left) / FAILURES_A_SECOND)

    def failed(self, address: str) -> None:
        """Record a failed try from this address."""
        network, now = network_of(address), self._clock()
        bucket = self._buckets.get(network)
        if bucket is None:
            _make_room(self._buckets, self._bound, lambda _: True)
            bucket = self._buckets[network] = Bucket(FAILURES_AT_ONCE, now)
        self._buckets.move_to_end(network)
        bucket.take(FAILURES_AT_ONCE, FAILURES_A_SECOND, now)

    def __len__(self) -> int:
        return len(self._buckets)


def _make_room(table: "OrderedDict[str, V]", bound: int, may_go: Callable[[V], bool]) -> None:
    """If the table is full, forget the entry that was quiet for longest. Entries in use stay, even over the bound."""
    if len(table) >= bound:
        oldest = next((name for name, entry in table.items() if may_go(entry)), None)
        if oldest is not None:
            del table[oldest]


# The shared store, if there is one and it answers, counts requests a minute and wrong guesses; otherwise each replica
# goes on with buckets of its own and its share of the rate. Each replica counts the requests that run at the same time
# for itself.


class RateLimits:
    """How much callers may ask of this replica and of all replicas together."""

    def __init__(self, limiter: Limiter, tries: FailedTries, shared: Shared | None) -> None:
        """`shared`: counts for all replicas; None: this replica counts for itself."""
        self._limiter = limiter
        self._tries = tries
        self._shared = shared

    async def enter(self, identity: Identity, kind: RequestKind, *, counted: bool) -> RateRefused | None:
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
        return RateRefused("rate", wait) if wait else None

    def leave(self, identity: Identity, kind: RequestKind) -> None:
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

    async def refused(self, address: str) -> RateRefused | None:
        """None if this address may try again now."""
        refused = self._tries.refused(address)
        if refused is not None or self._shared is None:
            return refused
        wait = await self._shared.wait("tries", network_of(address), FAILURES_AT_ONCE, FAILURES_A_SECOND)
        return RateRefused("tries", wait) if wait else None

    async def failed(self, address: str) -> None:
        """Record a failed try from this address."""
        self._tries.failed(address)
        if self._shared is not None:
            await self._shared.take("tries", network_of(address), FAILURES_AT_ONCE, FAILURES_A_SECOND)
