"""Where the other replicas send requests for what lives here.

Turns the records of a connection into ASGI requests, one at a time, to the same app that clients use, so that each
caller is checked again. A connection that does not prove in time that it knows the common secret is closed, and only a
few may be unproven at once.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Message

from gateway.observe.logs import get_logger
from gateway.replicas.http_messages import ALIVE, BODY, END, GONE, REQUEST, START, pieces, scope_of, start_of, streams
from gateway.replicas.link import Link
from gateway.replicas.sealed_records import RecordFault, ReplicaKeys

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
                await link.greeted()
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
    """One request, as the app reads and answers it."""

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
