"""All workers at one process, and whose clients may be meant by what the process says unasked. Pure."""

from dataclasses import dataclass

from gateway.proxy.transport.stdio.words import SHIFT
from gateway.workers.stdio.seat import Seat, remember


@dataclass(frozen=True, slots=True)
class Audience:
    """The worker that hears what belongs to no request."""

    seat: Seat
    sole: bool
    """Whether it can be for no other worker's clients."""


class Seats:
    """The connections of workers, by their numbers."""

    def __init__(self) -> None:
        """Nobody has joined yet."""
        self.count = 0
        """Those that there ever were."""
        self._seats: dict[int, Seat] = {}
        self._orphans: dict[int, None] = {}
        """Requests of clients whose worker left, and which the process has not answered."""
        self._forgot = False
        """Whether there may be more of them."""

    def __len__(self) -> int:
        return len(self._seats)

    def __getitem__(self, number: int) -> Seat:
        return self._seats[number]

    def join(self) -> Seat:
        """Add a worker. A number is never used twice: answers for its last owner may still come."""
        self.count += 1
        seat = self._seats[self.count] = Seat(self.count)
        return seat

    def leave(self, number: int) -> Seat:
        """Remove a worker. What it asked may still be answered, to nobody."""
        seat = self._seats.pop(number)
        for each in (*seat.calls, *seat.given_up):
            self._forgot = remember(self._orphans, each) or self._forgot
        self._forgot = self._forgot or seat.forgot
        return seat

    def of(self, request: int) -> Seat | None:
        """The worker that sent this request; None: it has left."""
        return self._seats.get(request >> SHIFT)

    def all(self) -> list[Seat]:
        """All workers."""
        return list(self._seats.values())

    def bury(self, request: int) -> bool:
        """A request was answered. Gives whether its worker had left."""
        if request not in self._orphans:
            return False
        del self._orphans[request]
        return True

    def audience(self) -> Audience | None:
        """The worker that hears what belongs to no request: the only one with clients. None: no worker is there."""
        if not self._seats:
            return None
        busy = [seat for seat in self._seats.values() if seat.has_callers]
        alone = not self._orphans and not self._forgot and len(busy) <= 1
        return Audience(busy[0] if busy else next(iter(self._seats.values())), alone)
