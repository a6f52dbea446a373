"""How many calls of clients run at a process at a time, whoever's workers they come from. Pure."""

from gateway.proxy.transport.stdio.words import SHIFT


class Turns:
    """`most` calls at the process, the others in the order in which they came; each worker bounds what it sends."""

    def __init__(self, most: int) -> None:
        """Nothing runs."""
        self._most = most
        self._running = 0
        self._waiting: dict[int, bytes] = {}

    def take(self, number: int, line: bytes) -> bool:
        """Whether this request may go out now; it comes out of `end` else."""
        if self._running < self._most:
            self._running += 1
            return True
        self._waiting[number] = line
        return False

    def withdraw(self, number: int) -> bool:
        """Whether this request waited; it does no more."""
        return self._waiting.pop(number, None) is not None

    def end(self) -> tuple[int, bytes] | None:
        """One that ran does no more: the next, which runs now."""
        if not self._waiting:
            self._running -= 1
            return None
        number = next(iter(self._waiting))
        return number, self._waiting.pop(number)

    def withdraw_all(self, number: int) -> None:
        """None of this connection's waits any more."""
        for each in [each for each in self._waiting if each >> SHIFT == number]:
            del self._waiting[each]
