"""Sends a request on to the replica that has what it names, and its answer back.

Turns an ASGI request into records on a kept connection. An owner that is gone, or was started anew, is known at once.
What streams is passed on as it comes; any other answer is gathered first, so that an owner that dies in the middle is
told of as one that is gone.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final

import anyio
from starlette.types import Receive, Scope, Send

from gateway.errors import OwnerGone
from gateway.replicas.keys import ReplicaKeys
from gateway.replicas.link import Link
from gateway.replicas.messages import BODY, END, GONE, REQUEST, START, head_of, message_of, pieces, streams
from gateway.replicas.owners import Replica
from gateway.replicas.records import RecordFault

_CONNECT_TIME: Final = 2.0
"""Seconds to reach another replica."""
_KEPT: Final = 64
"""Connections to one replica that rest."""
_LOOK: Final = 0.1
"""Seconds that a request may take before we look whether its client is still there."""

_FAULTS = (OSError, EOFError, RecordFault)


class Forwarder:
    """The connections of this replica to the others."""

    def __init__(self, keys: ReplicaKeys) -> None:
        """Nothing is connected yet."""
        self._keys = keys
        self._kept: defaultdict[str, list[Link]] = defaultdict(list)

    async def forward(self, owner: Replica, scope: Scope, receive: Receive, send: Send) -> None:
        """Have another replica answer a request. Raises `OwnerGone`; nothing has been sent to the client then."""
        link = await self._link(owner)
        watch = _Watch(link, receive)
        kept = False
        try:
            await _ask(link, owner, scope, receive)
            watch.soon()
            await _answer(link, send)
            kept = link.rests
        except _FAULTS as error:
            raise OwnerGone(f"the replica at {owner.address} broke off: {error}") from error
        finally:
            watch.stop()
            if kept and len(self._kept[owner.address]) < _KEPT:
                self._kept[owner.address].append(link)
            else:
                link.close()

    def close(self) -> None:
        """Close the connections that rest."""
        for links in self._kept.values():
            for link in links:
                link.close()
        self._kept.clear()

    async def _link(self, owner: Replica) -> Link:
        links = self._kept[owner.address]
        while links:
            link = links.pop()
            if link.rests:
                return link
            link.close()
        host, _, port = owner.address.rpartition(":")
        try:
            with anyio.fail_after(_CONNECT_TIME):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                try:
                    return await Link.open(reader, writer, self._keys, "asks")
                except BaseException:
                    writer.close()
                    raise
        except (*_FAULTS, TimeoutError) as error:
            raise OwnerGone(f"the replica at {owner.address} can't be reached: {error}") from error


class _Watch:
    """Looks whether the client is still there, once a request takes longer; the connection's end tells the owner."""

    def __init__(self, link: Link, receive: Receive) -> None:
        self._link = link
        self._receive = receive
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK, self._begin)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._link.close()


async def _ask(link: Link, owner: Replica, scope: Scope, receive: Receive) -> None:
    records = [(REQUEST, head_of(scope, owner.boot))]
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise OwnerGone("its client has left")
        more = message.get("more_body", False)
        records += [(BODY, piece) for piece in pieces(message.get("body", b""))]
        await link.send(*records, *(() if more else ((END, b""),)))
        records = []


async def _answer(link: Link, send: Send) -> None:
    start = await _start(link)
    if streams(start["headers"]):
        await send(start)
        # The client knows how to go on with a stream that ends early: it comes back, and is told.
        with suppress(OwnerGone):
            async for piece in _body(link):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    else:
        body = b"".join([piece async for piece in _body(link)])
        await send(start)
        await send({"type": "http.response.body", "body": body})


async def _start(link: Link) -> dict[str, Any]:
    record = await link.receive()
    if record is None or record[0] == GONE:
        raise OwnerGone("the replica that had it was started anew, or has ended")
    if record[0] != START:
        raise RecordFault(f"{record[0]!r} where an answer begins")
    return message_of(record[1])


async def _body(link: Link) -> AsyncGenerator[bytes]:
    while (record := await link.receive()) is not None:
        kind, data = record
        if kind == END:
            return
        if kind != BODY:
            raise RecordFault(f"{kind!r} in the middle of an answer")
        yield data
    raise OwnerGone("the replica that had it ended in the middle of an answer")
