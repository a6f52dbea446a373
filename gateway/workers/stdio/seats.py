"""All workers at one process, and whose clients may be meant by what the process says unasked. Pure."""

from dataclasses import dataclass

from gateway.proxy.transport.stdio.host_protocol import SHIFT
from gateway.workers.stdio.seat import Seat, remember


@dataclass(frozen=True, slots=True)
class Audience:
    """The worker that hears what belongs to no request."""

    seat: Seat
    sole: bool
    """Whether it can't be meant for another worker's clients."""


class Seats:
    """The connections of workers, by their numbers."""

    def __init__(self) -> None:
        """Start with no workers."""
        self.count = 0
        """How many connections there have ever been."""
        self._seats: dict[int, Seat] = {}
        self._orphans: dict[int, None] = {}
        """Clients' requests whose worker has left and which the process has not answered."""
        self._forgot = False
        """Whether there may be more of them than are remembered."""

    def __len__(self) -> int:
        return len(self._seats)

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
