"""What one replica has to do with the others, as the endpoints see it; and a gateway that has no others.

Apart from what does it (`connected.py`): a gateway without replicas loads nothing of that.
"""

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import NotAnswered, OwnerGone

Purpose = Literal["session", "parked call", "response"]
FORWARDED: Final = "codec.forwarded"
"""Key in the scope of a request that another replica has sent on: it is not sent on again."""
Broken = Callable[[NotAnswered], bytes]


def quietly(_: NotAnswered) -> bytes:
    """A client of MCP knows how to go on with a stream that ends early: it comes back, and is told."""
    return b""


@dataclass(frozen=True, slots=True)
class Replica:
    """One process: where it listens for the others, and which start of it this is."""

    address: str
    """HOST:PORT."""
    boot: bytes
    """Empty: any."""


class Replicas(Protocol):
    """This replica among the others."""

    def name(self, purpose: Purpose, principal: str) -> str:
        """A new name, which nobody can guess, for something of this principal's that lives here."""
        ...

    def owner(self, purpose: Purpose, name: str, principal: str, scope: Scope) -> Replica | None:
        """The other replica that has what it names; None: a request is to be answered here, whatever it comes to."""
        ...

    def at(self, address: str, scope: Scope) -> Replica | None:
        """The other replica at an address, whichever start of it; None: a request is to be answered here."""
        ...

    def shared_keys(self, purpose: str) -> Sequence[bytes]:
        """Keys of 32 bytes that all replicas have for one purpose: what is made is made with the first."""
        ...

    async def forward(
        self, owner: Replica, scope: Scope, receive: Receive, send: Send, broken: Broken = quietly
    ) -> None:
        """Have another replica answer. `broken`: what ends a stream that breaks off.

        Raises `OwnerGone`, or `ReplicaBusy`; nothing has been sent to the client then.
        """
        ...

    def leave(self) -> None:
        """Take nothing more from the others that any replica can answer: this one is about to end."""
        ...

    def stop(self) -> None:
        """End what others still answer and what passes through here: this replica is about to end."""
        ...

    def listening(self, app: ASGIApp, listener: socket.socket | None = None) -> AbstractAsyncContextManager[None]:
        """Answer the others' requests with `app`, for as long as the context lasts. Raises `ConfigError`.

        `listener`: a socket at this replica's address; None: one is made.
        """
        ...


class _Alone:
    """There are no others."""

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
