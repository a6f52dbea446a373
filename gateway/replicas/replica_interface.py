"""What a replica does with the others, as the endpoints see it, and a gateway without others.

Kept apart from the implementation (`connected.py`), so that a gateway without replicas loads none of it.
"""

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import NotAnswered, OwnerGone

Purpose = Literal["session", "parked call", "response", "result"]
FORWARDED: Final = "codec.forwarded"
"""Key in the scope of a request that another replica has sent on, so that it is not sent on again."""
Broken = Callable[[NotAnswered], bytes]


def quietly(_: NotAnswered) -> bytes:
    """No last bytes, for MCP clients: when a stream ends early they reconnect, and are told then."""
    return b""


@dataclass(frozen=True, slots=True)
class Replica:
    """One run of one process, and where it listens for the others."""

    address: str
    """HOST:PORT."""
    boot: bytes
    """Identifies the run; empty: any."""


class Replicas(Protocol):
    """This replica's view of the others."""

    def name(self, purpose: Purpose, principal: str) -> str:
        """A new unguessable name for something of this principal that lives here."""
        ...

    def owner(self, purpose: Purpose, name: str, principal: str, scope: Scope) -> Replica | None:
        """The other replica that has what a name stands for; None: the request must be answered here."""
        ...

    def at(self, address: str, scope: Scope) -> Replica | None:
        """The other replica at an address, whichever run of it; None: the request must be answered here."""
        ...

    def shared_keys(self, purpose: str) -> Sequence[bytes]:
        """Keys of 32 bytes that all replicas share for one purpose; the first is used for anything new."""
        ...

    async def forward(
        self, owner: Replica, scope: Scope, receive: Receive, send: Send, broken: Broken = quietly
    ) -> None:
        """Have another replica answer a request. `broken`: returns the last bytes of a stream that breaks off.

        Raises `OwnerGone` or `ReplicaBusy`; nothing has been sent to the client then.
        """
        ...

    def leave(self) -> None:
        """Refuse requests from the others that any replica can answer: this one is about to end."""
        ...

    def stop(self) -> None:
        """End what the others are still answering for this replica, which is about to end."""
        ...

    def listening(self, app: ASGIApp, listener: socket.socket | None = None) -> AbstractAsyncContextManager[None]:
        """Answer the requests of other replicas with `app` while the context lasts. Raises `ConfigError`.

        `listener`: a socket bound to this replica's address; None: one is made.
        """
        ...


class _Alone:
    def name(self, purpose: Purpose, principal: str) -> str:
        return secrets.token_urlsafe(24)

    def owner(self, purpose: Purpose, name: str, principal: str, scope: Scope) -> Replica | None:
        return None

    def at(self, address: str, scope: Scope) -> Replica | None:
        return None

    def shared_keys(self, purpose: str) -> Sequence[bytes]:
        return (secrets.token_bytes(32),)

    async def forward(
        self, owner: Replica, scope: Scope, receive: Receive, send: Send, broken: Broken = quietly
    ) -> None:
        raise OwnerGone("this gateway has no replicas")

    def leave(self) -> None:
        return

    def stop(self) -> None:
        return

    def listening(self, app: ASGIApp, listener: socket.socket | None = None) -> AbstractAsyncContextManager[None]:
        return nullcontext()


ALONE: Final[Replicas] = _Alone()
