"""One of several replicas: names what lives here, listens for the others, and sends requests on for what does not."""

import asyncio
import hashlib
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.replicas.forwarder import (
    ALIVE,
    BODY,
    END,
    GONE,
    REQUEST,
    START,
    Forwarder,
    pieces,
    scope_of,
    start_of,
    streams,
)
from gateway.replicas.link import Link
from gateway.replicas.replica_interface import FORWARDED, Broken, Purpose, Replica, quietly
from gateway.replicas.sealed_records import RecordFault, ReplicaKeys, derived

# Requests of other replicas go to the same app that clients use, so that each caller is checked again. A connection
# that does not prove in time that it knows the common secret is closed, and only a few may be unproven at once.

_PROOF_TIME: Final = 5.0
"""Seconds within which the first record must arrive."""
_REST_TIME: Final = 10.0
"""Seconds to read the rest of a request that was answered before it was read."""
_STOP_TIME: Final = 5.0
"""Seconds for requests to end when this replica stops."""
_ALIVE: Final = 15.0
"""Seconds between two messages to the other side that an answer is still being made."""
_UNPROVEN: Final = 64
_MOST: Final = 4096
"""Most connections from other replicas."""

log = get_logger("replicas")


class Listener:
    """Answers the requests of other replicas."""

    def __init__(self, keys: ReplicaKeys, boot: bytes, app: ASGIApp) -> None:
        """`boot`: identifies this run of the process; a request for an earlier run is told that it is gone."""
        self._keys = keys
        self._boot = boot
        self._app = app
        self._serving: set[asyncio.Task[None]] = set()
        self._answering: set[Link] = set()
        self._unproven = 0
        self._leaving = False

    def link(self) -> Link:
        """Create the protocol of a new connection."""
        return Link(self._keys, "answers", self._met)

    def _met(self, link: Link) -> None:
        if self._unproven >= _UNPROVEN or len(self._serving) >= _MOST:
            link.refuse()
            return
        self._unproven += 1
        self._begin(link)

    def _begin(self, link: Link, record: tuple[bytes, bytes] | None = None) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(link, record))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def leave(self) -> None:
        """From now on, refuse what any other replica can answer."""
        self._leaving = True

    async def stop(self) -> None:
        """End every connection, and the requests that run on it."""
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving, timeout=_STOP_TIME)

    async def tell_alive(self) -> None:
        """Keep telling replicas that wait for an answer that this one is alive."""
        while True:
            await anyio.sleep(_ALIVE)
            for link in self._answering:
                with suppress(OSError):
                    link.tell((ALIVE, b""))

    async def _serve(self, link: Link, record: tuple[bytes, bytes] | None) -> None:
        """Answer on one connection until it ends or has parted. Raises nothing but a cancellation.

        `record`: the request with which it goes on; None: the connection is new.
        """
        parted = False
        try:
            with suppress(OSError, EOFError):
                parted = await self._serve_proven(link, record or await self._first(link))
        except RecordFault as fault:
            log.warning("a connection from another replica was closed", reason=str(fault))
        finally:
            if not parted:
                link.end()

    async def _first(self, link: Link) -> tuple[bytes, bytes] | None:
        try:
            with anyio.move_on_after(_PROOF_TIME):
                return await link.receive()
            raise RecordFault(f"no request arrived within {_PROOF_TIME:g} s")
        finally:
            self._unproven -= 1

    async def _serve_proven(self, link: Link, record: tuple[bytes, bytes] | None) -> bool:
        """Answer requests one by one. Returns whether the connection has parted (`_Exchange.parted`)."""
        while record is not None:
            kind, head = record
            if kind != REQUEST:
                raise RecordFault(f"a record of kind {kind!r} where a request should begin")
            exchange = _Exchange(link, partial(self._begin, link))
            if not await self._answer(link, head, exchange):
                return exchange.parted
            record = await link.receive()
        return False

    async def _answer(self, link: Link, head: bytes, exchange: "_Exchange") -> bool:
        """Answer one request. Returns whether the connection may be used again."""
        scope, boot = scope_of(head)
        if boot != self._boot and (boot or self._leaving):
            await link.send((GONE, b""))
            return False
        self._answering.add(link)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except (OSError, RecordFault):
            if not exchange.parted:
                raise
        except Exception:
            log.exception("a request from another replica failed", method=scope["method"])
        finally:
            if not exchange.parted:
                self._answering.discard(link)
        return not exchange.parted and exchange.answered and await exchange.ended()


class _Exchange:
    def __init__(self, link: Link, go_on: Callable[[tuple[bytes, bytes]], None]) -> None:
        """`go_on`: takes over the connection with the next request, if that arrives while the app still runs."""
        self._link = link
        self._go_on = go_on
        self.parted = False
        """Whether the connection has gone on to the next request while the app still works on this answered one: its
        client comes back for the rest."""
        self._read = False
        """Whether the whole request was read."""
        self._unsent: list[tuple[bytes, bytes]] = []
        """The beginning of the answer. It is sent together with the first part of the body, unless it is streamed."""
        self.answered = False

    async def ended(self) -> bool:
        """Read the part of the request that the app left unread, since its sender waits for that.

        Returns whether the whole request was read.
        """
        if not self._read:
            with anyio.move_on_after(_REST_TIME):
                while not self._read and (await self.receive())["type"] == "http.request":
                    pass
        return self._read

    async def receive(self) -> Message:
        record = None
        if not self.parted:
            with suppress(OSError):
                record = await self._link.receive()
        if record is not None and self.answered and record[0] == REQUEST:
            self.parted = True
            self._go_on(record)
        if record is None or self._read:
            return {"type": "http.disconnect"}
        kind, data = record
        if kind not in (BODY, END):
            raise RecordFault(f"a record of kind {kind!r} in the middle of a request")
        self._read = kind == END
        return {"type": "http.request", "body": data, "more_body": not self._read}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._unsent = [(START, start_of(message))]
            if streams(message.get("headers", ())):
                await self._flush()
            return
        if message["type"] != "http.response.body":
            return
        more = message.get("more_body", False)
        self._unsent += pieces(message.get("body", b""), more=more)
        self.answered = not more
        await self._flush()

    async def _flush(self) -> None:
        records, self._unsent = self._unsent, []
        await self._link.send(*records)


# A name is sealed (`sealed_records.py`). It says in which process the thing lives, and for whom it was made, so any
# replica can tell from it where a request belongs.

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
