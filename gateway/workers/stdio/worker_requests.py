"""All workers at one process: the requests each has sent, how many calls may run, and whose clients may be meant."""

from dataclasses import dataclass
from typing import Final

from gateway.proxy.transport.stdio.hosted import SHIFT

# Clients' requests are kept apart from the gateway's own, because what the server says unasked may be meant for a
# client. A request that was given up counts until it is answered, since a server need not heed a cancellation.

MOST: Final = 256
"""How many requests are remembered one by one that were given up and not answered."""
OURS: Final = frozenset(
    {
        b"initialize",
        b"logging/setLevel",
        b"ping",
        b"prompts/list",
        b"resources/list",
        b"resources/subscribe",
        b"resources/templates/list",
        b"resources/unsubscribe",
        b"server/discover",
        b"subscriptions/listen",
        b"tools/list",
    }
)
"""Requests that a gateway makes for itself. What the server says meanwhile is for nobody in particular."""
NEVER_CANCELLED: Final = frozenset({b"initialize", b"ping", b"server/discover"})
SIGNS_OF_LIFE: Final = frozenset({b"initialize", b"ping", b"server/discover", b"tools/list"})
"""Requests that a healthy server answers at once."""


class Seat:
    """One connection of a worker."""

    __slots__ = ("calls", "forgot", "given_up", "level", "number", "ours", "silent_since")

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls: dict[int, None] = {}
        """Clients' requests that are running at the server."""
        self.given_up: dict[int, None] = {}
        """Clients' requests that nobody waits for any more."""
        self.ours: dict[int, bytes] = {}
        """Requests of the gateway itself, and their methods."""
        self.forgot = False
        """Whether more were given up than are remembered."""
        self.level: str | None = None
        """The log level that it asked for; None: it has asked for none."""
        self.silent_since: float | None = None
        """When it asked for a sign of life; None: it has never asked, or has had an answer since."""

    @property
    def has_callers(self) -> bool:
        """Whether what the server says unasked may be meant for a client of this worker."""
        return bool(self.calls or self.given_up or self.forgot)

    def ask(self, number: int, method: bytes, now: float) -> None:
        """Note a request that the gateway itself sends."""
        self.ours[number] = method
        if method in SIGNS_OF_LIFE:
            self.silent_since = now

    def want_level(self, level: str) -> None:
        """Note that the worker wants log messages from this level on."""
        self.level = level

    def give_up(self, number: int) -> bool:
        """Note that nobody waits for a request any more. Returns whether the server has to be told."""
        if number in self.calls:
            del self.calls[number]
            self.forgot = remember(self.given_up, number) or self.forgot
            return True
        return self.ours.pop(number, None) is not None

    def settle(self, number: int) -> bool:
        """Note the answer to a request. Returns whether the request had been sent."""
        self.silent_since = None
        if number in self.calls:
            del self.calls[number]
            return True
        if number in self.ours:
            del self.ours[number]
            return True
        return self.given_up.pop(number, 0) is None


def remember(numbers: dict[int, None], number: int) -> bool:
    """Add a number. Returns whether the oldest had to be forgotten for it."""
    numbers[number] = None
    if len(numbers) <= MOST:
        return False
    del numbers[next(iter(numbers))]
    return True


@dataclass(frozen=True, slots=True)
class Audience:
    """The worker that hears what belongs to no request."""

    seat: Seat
    sole: bool
    """Whether it can't be meant for another worker's clients."""


class Seats:
    """The connections of workers, by their numbers."""

    def __init__(self) -> None:
        self.count = 0
        """How many connections there have ever been."""
        self._seats: dict[int, Seat] = {}
        self._orphans: dict[int, None] = {}
        """Clients' requests whose worker has left and which the process has not answered."""
        self._forgot = False
        """Whether there may be more of them than are remembered."""

    def __getitem__(self, number: int) -> Seat:
        return self._seats[number]

    def join(self) -> Seat:
        """Add a worker. A number is never used twice: answers for its previous owner may still come."""
        self.count += 1
        seat = self._seats[self.count] = Seat(self.count)
        return seat

    def leave(self, number: int) -> Seat:
        """Remove a worker. Its requests may still be answered; nobody gets the answers."""
        seat = self._seats.pop(number)
        for each in (*seat.calls, *seat.given_up):
            self._forgot = remember(self._orphans, each) or self._forgot
        self._forgot = self._forgot or seat.forgot
        return seat

    def of(self, request: int) -> Seat | None:
        """The worker that sent this request; None if it has left."""
        return self._seats.get(request >> SHIFT)

    def all(self) -> list[Seat]:
        """All workers."""
        return list(self._seats.values())

    def bury(self, request: int) -> bool:
        """Note the answer to a request. Returns whether it was one whose worker has left."""
        if request not in self._orphans:
            return False
        del self._orphans[request]
        return True

    def audience(self) -> Audience | None:
        """The worker that hears what belongs to no request: the first with clients' requests, or else the first of all.

        None if there are no workers.
        """
        if not self._seats:
            return None
        busy = [seat for seat in self._seats.values() if seat.has_callers]
        alone = not self._orphans and not self._forgot and len(busy) <= 1
        return Audience(busy[0] if busy else next(iter(self._seats.values())), alone)


class Turns:
    """At most `most` calls at a time; the others wait in order. Each worker bounds how many of its own calls wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._waiting: dict[int, bytes] = {}

    def take(self, number: int, line: bytes) -> bool:
        """Whether a request may be sent now; otherwise `end` returns it later."""
        if self._running < self._most:
            self._running += 1
            return True
        self._waiting[number] = line
        return False

    def withdraw(self, number: int) -> bool:
        """Drop a request. Returns whether it was waiting."""
        return self._waiting.pop(number, None) is not None

    def end(self) -> tuple[int, bytes] | None:
        """Note that a running request has ended. Returns the next one, which counts as running from now on."""
        if not self._waiting:
            self._running -= 1
            return None
        number = next(iter(self._waiting))
        return number, self._waiting.pop(number)

    def withdraw_all(self, number: int) -> None:
        """Drop all waiting requests of a connection."""
        for each in [each for each in self._waiting if each >> SHIFT == number]:
            del self._waiting[each]
