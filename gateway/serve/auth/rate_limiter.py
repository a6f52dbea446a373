"""How much one caller may ask: requests a minute, requests at a time, guesses of one address, signatures of all.

Token buckets and counters in tables of bounded size, on a clock that is handed in: no task, no lock, nothing waits. It
knows no HTTP and no credential.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, Literal, TypeVar

from gateway.serve.auth.identity import Identity
from gateway.serve.http.client_address import network_of

TABLE_BOUND: Final = 4096
FAILURES_AT_ONCE: Final = 20
FAILURES_A_SECOND: Final = 0.2
SIGNATURES_AT_ONCE: Final = 400
SIGNATURES_A_SECOND: Final = 200.0
"""One takes up to a quarter of a millisecond: a stranger who makes tokens up costs a twentieth of a core."""
_BUSY_WAIT: Final = 1.0
MINUTE: Final = 60.0
_WHOLE: Final = 1.0 - 1e-6
"""A token: who waited exactly as long as told must find one, however the sum is rounded."""

V = TypeVar("V")
Kind = Literal["call", "stream", "word"]
"""A stream stays open as long as its client wants to listen; it must not take the place of a call. A word begins
nothing: it may be what ends or answers a call that runs, and so needs no place of one."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One request too many."""

    limit: Literal["rate", "concurrency", "tries", "signatures"]
    wait: float
    """Seconds after which asking again is worth it."""


class Bucket:
    """A token bucket: `size` at once, then `a_second`."""

    __slots__ = ("_at", "_left")

    def __init__(self, size: float, now: float) -> None:
        """Full."""
        self._left = size
        self._at = now

    def left(self, size: float, a_second: float, now: float) -> float:
        """Tokens that are there now. The size and the rate are asked anew: a key's file may have changed."""
        self._left = min(size, self._left + (now - self._at) * a_second)
        self._at = now
        return self._left

    def take(self, size: float, a_second: float, now: float) -> float:
        """Take one token: 0, or the seconds until there is one."""
        left = self.left(size, a_second, now)
        if left < _WHOLE:
            return (1.0 - left) / a_second
        self._left = max(0.0, left - 1.0)
        return 0.0


class _Account:
    """What one principal has asked lately, and has open."""

    __slots__ = ("bucket", "running")

    def __init__(self, size: float, now: float) -> None:
        self.bucket = Bucket(size, now)
        self.running: dict[Kind, int] = {"call": 0, "stream": 0, "word": 0}

    @property
    def idle(self) -> bool:
        return not any(self.running.values())


class Limiter:
    """The limits of all principals."""

    def __init__(self, clock: Callable[[], float] = monotonic, *, bound: int = TABLE_BOUND) -> None:
        """`bound`: principals that are remembered; of more, who was quiet for longest is forgotten."""
        self._clock = clock
        self._bound = bound
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def enter(self, identity: Identity, kind: Kind) -> Refused | None:
        """Admit one request (None), or say which limit it is over.

        Whoever is admitted must `leave` with the same arguments.
        """
        if (refused := self.begin(identity, kind)) is not None:
            return refused
        wait = self.take(identity) if identity.allowance.rate else 0.0
        if wait:
            self.leave(identity, kind)
            return Refused("rate", wait)
        return None

    def begin(self, identity: Identity, kind: Kind) -> Refused | None:
        """The same, without a look at the rate."""
        allowance = identity.allowance
        if allowance.is_free:
            return None
        account = self._account(identity, self._clock())
        if allowance.concurrency and account.running[kind] >= allowance.concurrency:
            return Refused("concurrency", _BUSY_WAIT)
        account.running[kind] += 1
        return None

    def take(self, identity: Identity, share: float = 1.0) -> float:
        """Take what one request counts of the rate: 0, or the seconds until it can be taken.

        `share`: this replica's part of the rate; one request at a time is always there, be it after a while.
        """
        rate = identity.allowance.rate * share
        now = self._clock()
        return self._account(identity, now).bucket.take(max(rate, 1.0), rate / MINUTE, now)

    def leave(self, identity: Identity, kind: Kind) -> None:
        """One admitted request is over."""
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
    """How many signatures are checked a second, whoever sends them: none can be guessed, but each costs a check."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._bucket = Bucket(SIGNATURES_AT_ONCE, clock())

    def take(self) -> float:
        """Check one now (0), or after so many seconds."""
        return self._bucket.take(SIGNATURES_AT_ONCE, SIGNATURES_A_SECOND, self._clock())


class FailedTries:
    """Addresses from which wrong guesses came, and whether one may try again."""

    def __init__(self, clock: Callable[[], float] = monotonic, *, bound: int = TABLE_BOUND) -> None:
        self._clock = clock
        self._bound = bound
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def refused(self, address: str) -> Refused | None:
        """None where this address may try again now."""
        bucket = self._buckets.get(network_of(address))
        left = 1.0 if bucket is None else bucket.left(FAILURES_AT_ONCE, FAILURES_A_SECOND, self._clock())
        return None if left >= _WHOLE else Refused("tries", (1.0 - left) / FAILURES_A_SECOND)

    def failed(self, address: str) -> None:
        """One try from there was no good."""
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
    """Forget the entry that was quiet for longest, if the table is full. One that is in use stays, over the bound."""
    if len(table) >= bound:
        oldest = next((name for name, entry in table.items() if may_go(entry)), None)
        if oldest is not None:
            del table[oldest]
