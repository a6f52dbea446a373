"""The role in which a gateway process runs: where it listens, and what besides signals may end it.

`process.py` runs the same gateway on its own and as a worker. The role of a process on its own is here, that of a
worker in `gateway/workers`.
"""

import os
import socket
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.app.signals import Shutdown
from gateway.config.model import ServeConfig
from gateway.serve.http.server import listening, take_passed_sockets


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that listen, or will once a server runs on them."""

    faces: socket.socket
    admin: socket.socket
    replicas: socket.socket | None = None
    """For the other replicas; None: it is opened at the address in the settings."""


class ProcessRole(Protocol):
    """What a process gets from its surroundings: its sockets, and orders to end."""

    def listening(self, serve: ServeConfig) -> AbstractContextManager[Listeners]:
        """Open the sockets, and close them with the context. Raises `ConfigError`."""
        ...

    def ready(self) -> None:
        """Called once the gateway takes requests."""
        ...

    async def follow(self, shutdown: Shutdown) -> None:
        """Pass on to `shutdown` what a parent orders, for as long as this process lives."""
        ...


class _Alone:
    """The only process of its gateway."""

    @contextmanager
    def listening(self, serve: ServeConfig) -> Generator[Listeners]:
        passed = take_passed_sockets(os.environ, os.getpid())
        with (
            listening("faces", serve.host, serve.port, passed) as faces,
            listening("admin", serve.admin_host, serve.admin_port, passed) as admin,
        ):
            yield Listeners(faces, admin)

    def ready(self) -> None:
        return

    async def follow(self, shutdown: Shutdown) -> None:
        return


ALONE: Final[ProcessRole] = _Alone()
