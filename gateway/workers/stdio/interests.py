"""What all workers together want of a process: subscriptions to resources, and a log level.

In the handshake era both belong to the process's only client, which here stands for all workers. A subscription ends
with the last worker that wants it; of the log levels, the one that lets the most through is used. Pure.
"""

from functools import reduce

from gateway.proxy.upstream.session.session import least_severe
from gateway.workers.stdio.seats import Seats


class Interests:
    """What the workers at one process want to be told."""

    def __init__(self, seats: Seats) -> None:
        """Start with no subscriptions."""
        self._seats = seats
        self._subscribers: dict[str, set[int]] = {}

    def subscribe(self, number: int, uri: object) -> None:
        """Subscribe a worker to a resource."""
        if isinstance(uri, str):
            self._subscribers.setdefault(uri, set()).add(number)

    def unsubscribe(self, number: int, uri: object) -> bool:
        """Unsubscribe a worker. Returns whether the process has to be told, because no subscriber is left."""
        if not isinstance(uri, str) or uri not in self._subscribers:
            return True
        self._subscribers[uri].discard(number)
        if self._subscribers[uri]:
            return False
        del self._subscribers[uri]
        return True

    def leave(self, number: int) -> list[str]:
        """Unsubscribe a worker that leaves. Returns the resources that have no subscribers left."""
        its = [uri for uri, numbers in self._subscribers.items() if number in numbers]
        return [uri for uri in its if self.unsubscribe(number, uri)]

    def subscribers(self, uri: object) -> list[int]:
        """The workers that are subscribed to a resource."""
        return sorted(self._subscribers.get(uri, ())) if isinstance(uri, str) else []

    def level(self, number: int, level: object) -> str | None:
        """Note the log level that a worker asks for. Returns the one that lets through what every worker wants.

        None for a level that is not a string.
        """
        if not isinstance(level, str):
            return None
        self._seats[number].want_level(level)
        others = [seat.level for seat in self._seats.all() if seat.level is not None]
        return reduce(least_severe, others, level)
