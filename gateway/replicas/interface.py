"""What one replica has to do with the others, as the endpoints see it; and a gateway that has no others.

Apart from what does it (`connected.py`): a gateway without replicas loads nothing of that.
"""

import secrets
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import OwnerGone

Purpose = Literal["session", "parked call", "response"]


@dataclass(frozen=True, slots=True)
class Replica:
    """One process: where it listens for the others, and which start of it this is."""

    address: str
    """HOST:PORT."""
    boot: bytes


class Replicas(Protocol):
    """This replica among the others."""

    def name(self, purpose: Purpose, principal: str) -> str:
        """A new name, which nobody can guess, for something of this principal's that lives here."""
        ...

    def owner(self, purpose: Purpose, name: str, principal: str, scope: Scope) -> Replica | None:
        """The other replica that has what it names; None: a request is to be answered here, whatever it comes to."""
        ...

    async def forward(self, owner: Replica, scope: Scope, receive: Receive, send: Send) -> None:
        """Have another replica answer. Raises `OwnerGone`; nothing has been sent to the client then."""
        ...

    def end_streams(self) -> None:
        """End the streams that others have and that pass through here: this replica is about to end."""
        ...

    def listening(self, app: ASGIApp) -> AbstractAsyncContextManager[None]:
        """Answer the others' requests with `app`, for as long as the context lasts. Raises `ConfigError`."""
        ...


class _Alone:
    """There are no others."""

    def name(self, purpose: Purpose, principal: str) -> str:
        return secrets.token_urlsafe(24)

    def owner(self, purpose: Purpose, name: str, principal: str, scope: Scope) -> Replica | None:
        return None

    async def forward(self, owner: Replica, scope: Scope, receive: Receive, send: Send) -> None:
        raise OwnerGone("this gateway has no replicas")

    def end_streams(self) -> None:
        return

    def listening(self, app: ASGIApp) -> AbstractAsyncContextManager[None]:
        return nullcontext()


ALONE: Final[Replicas] = _Alone()
