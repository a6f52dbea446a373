"""Where the workers of one machine find each other: a loopback port for each, for as long as the parent lives.

The parent holds the ports without listening on them. So nobody else can take a port while its worker is down, and a
request for something that lived in that worker is refused at once.
"""

import socket
from types import TracebackType
from typing import Self

_LOOPBACK = "127.0.0.1"


class LoopbackPorts:
    """A port for each worker, held for as long as the context lasts."""

    def __init__(self, count: int) -> None:
        """Bind `count` ports."""
        self._held = [_bound(0) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._held:
            each.close()

    @property
    def addresses(self) -> tuple[str, ...]:
        """HOST:PORT of each."""
        return tuple(f"{_LOOPBACK}:{each.getsockname()[1]}" for each in self._held)

    def socket_of(self, number: int) -> socket.socket:
        """A new socket at the address of a worker, for it to listen on."""
        return _bound(self._held[number].getsockname()[1])


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    # This lets several sockets of one user bind the same port. Only those that listen get connections.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((_LOOPBACK, port))
    return bound
