"""Where one gateway process listens, and who besides signals may end it: by itself, or for a parent.

`process.py` runs the same gateway in both; `gateway/workers` has the other place.
"""

import os
import socket
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.app.signals import Shutdown
from gateway.config.model import ServeConfig
from gateway.serve.http.sockets import listening, take_passed_sockets


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that listen, or will when they are served on."""

    faces: socket.socket
    admin: socket.socket
    replicas: socket.socket | None = None
    """For the other replicas; None: the settings say where."""


class Place(Protocol):
    """Where a process stands."""

    def listening(self, serve: ServeConfig) -> AbstractContextManager[Listeners]:
        """The sockets, closed with the context. Raises `ConfigError`."""
        ...

    def ready(self) -> None:
        """The gateway takes requests from now on."""
        ...

    async def follow(self, shutdown: Shutdown) -> None:
        """Pass on what somebody else asks of this process, for as long as it lives."""
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


ALONE: Final[Place] = _Alone()
