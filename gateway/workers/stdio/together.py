"""What workers ask for together: subscriptions to resources, and the log level of a whole process.

In the handshake era both belong to the process's only client, which here stands for all workers: a subscription ends
with the last worker that wants it, and of the log levels the one that lets most through counts. Pure.
"""

from functools import reduce

from gateway.proxy.upstream.session import least_severe
from gateway.workers.stdio.seats import Seats


class Together:
    """What the workers at one process want."""

    def __init__(self, seats: Seats) -> None:
        """Nothing yet."""
        self._seats = seats
        self._subscribers: dict[str, set[int]] = {}

    def subscribe(self, number: int, uri: object) -> None:
        """A worker wants to hear of a resource."""
        if isinstance(uri, str):
            self._subscribers.setdefault(uri, set()).add(number)

    def unsubscribe(self, number: int, uri: object) -> bool:
        """It no longer does; whether the process is to hear of that, since nobody does."""
        if not isinstance(uri, str) or uri not in self._subscribers:
            return True
        self._subscribers[uri].discard(number)
        if self._subscribers[uri]:
            return False
        del self._subscribers[uri]
        return True

    def leave(self, number: int) -> list[str]:
        """A worker leaves: the resources of which nobody else wants to hear."""
        its = [uri for uri, numbers in self._subscribers.items() if number in numbers]
        return [uri for uri in its if self.unsubscribe(number, uri)]

    def subscribers(self, uri: object) -> list[int]:
        """Who wants to hear of a resource."""
        return sorted(self._subscribers.get(uri, ())) if isinstance(uri, str) else []

    def level(self, number: int, level: object) -> str | None:
        """A worker wants these log messages: the level that lets through what each of them wants."""
        if not isinstance(level, str):
            return None
        self._seats[number].want_level(level)
        others = [seat.level for seat in self._seats.all() if seat.level is not None]
        return reduce(least_severe, others, level)
