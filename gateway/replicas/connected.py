"""One of several replicas: names what lives here, and sends on requests for what lives in another replica."""

import asyncio
import hashlib
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.replicas.forwarder import Forwarder
from gateway.replicas.listener import Listener
from gateway.replicas.replica import FORWARDED, Broken, Purpose, Replica, quietly
from gateway.replicas.sealed_records import ReplicaKeys, derived

# Names of what lives in one replica: a session, a call that waits for its client, or a stored response.
#
# A name is sealed (`sealed_records.py`). It says in which process the thing lives, and for whom it was made. From the
# name alone, any replica can tell where a request belongs: here, in another replica, or nowhere. No IO.

_BOOT: Final = 8
_OWNER: Final = 16
_RANDOM: Final = 16
_LONGEST: Final = 1024
"""Characters of the longest name that is read."""


class OwnedNames:
    """Makes this replica's names, and reads those of all replicas."""

    def __init__(self, keys: ReplicaKeys, address: str) -> None:
        """`address`: HOST:PORT at which the others reach this replica."""
        self._keys = keys
        self.me = Replica(address, secrets.token_bytes(_BOOT))
        # Cached because a session's name comes with each of its requests.
        self._owner = lru_cache(maxsize=4096)(self._read)

    def new(self, purpose: Purpose, principal: str) -> str:
        """A new unguessable name for something of this principal that lives here."""
        plain = self.me.boot + _digest(principal) + secrets.token_bytes(_RANDOM) + self.me.address.encode()
        return self._keys.seal(purpose, plain)

    def elsewhere(self, purpose: Purpose, name: str, principal: str) -> Replica | None:
        """The other replica that has what a name stands for; None: this one, or it is not a name of the principal."""
        if len(name) > _LONGEST:
            return None
        owner = self._owner(purpose, name, principal)
        return None if owner is None or owner.address == self.me.address else owner

    def _read(self, purpose: Purpose, name: str, principal: str) -> Replica | None:
        plain = self._keys.opened(purpose, name)
        if plain is None:
            return None
        boot, owner, address = plain[:_BOOT], plain[_BOOT : _BOOT + _OWNER], plain[_BOOT + _OWNER + _RANDOM :]
        if not secrets.compare_digest(owner, _digest(principal)):
            return None
        return Replica(address.decode(), boot)


def _digest(principal: str) -> bytes:
    return hashlib.sha256(principal.encode("utf-8", "surrogatepass")).digest()[:_OWNER]


log = get_logger("replicas")


class Connected:
    """This replica, if there are others."""

    def __init__(self, keys: ReplicaKeys, host: str, port: int) -> None:
        """Nothing listens until `listening`. `host`, `port`: where the others reach this replica."""
        self._host, self._port = host, port
        self._keys = keys
        self._names = OwnedNames(keys, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        self._forwarder = Forwarder(keys)
        self._listener: Listener | None = None

    def name(self, purpose: Purpose, principal: str) -> str:
        """A sealed name, which says which replica made it."""
        return self._names.new(purpose, principal)

    def owner(self, purpose: Purpose, name: str, principal: str, scope: Scope) -> Replica | None:
        """The replica that the name says; None also if another replica has sent the request on."""
        return None if FORWARDED in scope else self._names.elsewhere(purpose, name, principal)

    def at(self, address: str, scope: Scope) -> Replica | None:
        """The replica at the address; None if that is this one, or if another one has sent the request on."""
        return None if FORWARDED in scope or address == self._names.me.address else Replica(address, b"")

    def shared_keys(self, purpose: str) -> Sequence[bytes]:
        """Keys derived from the common secret, and from the one before it."""
        return [derived(secret, f"shared {purpose}") for secret in self._keys.secrets]

    async def forward(
        self, owner: Replica, scope: Scope, receive: Receive, send: Send, broken: Broken = quietly
    ) -> None:
        """Send the request over a kept connection."""
        await self._forwarder.forward(owner, scope, receive, send, broken)

    def leave(self) -> None:
        """Refuse on every connection what any replica can answer."""
        if self._listener is not None:
            self._listener.leave()

    def stop(self) -> None:
        """End on every connection what the others are still answering."""
        self._forwarder.stop()

    @asynccontextmanager
    async def listening(self, app: ASGIApp, listener: socket.socket | None = None) -> AsyncGenerator[None]:
        """Answer the requests of other replicas with `app` while the context lasts. Raises `ConfigError`."""
        answering = self._listener = Listener(self._keys, self._names.me.boot, app)
        where: Any = {"host": self._host, "port": self._port} if listener is None else {"sock": listener}
        try:
            server = await asyncio.get_running_loop().create_server(answering.link, **where)
        except (OSError, UnicodeError) as error:
            # UnicodeError: the host is a name that no host can have.
            raise ConfigError(
                f"replicas: can't listen on {self._names.me.address}: {error}; replicas.address must be an address of "
                "this machine, and replicas.port must be free"
            ) from error
        log.info("listening for the other replicas", address=self._names.me.address)
        alive = asyncio.get_running_loop().create_task(answering.tell_alive())
        try:
            yield
        finally:
            alive.cancel()
            server.close()
            with anyio.CancelScope(shield=True):
                await answering.stop()
            self._forwarder.close()
