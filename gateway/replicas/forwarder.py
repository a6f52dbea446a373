"""Sends a request on to the replica that has what it names, and its answer back.

Turns an ASGI request into records on a kept connection. An owner that is gone, or was started anew, is known at once.
What streams is passed on as it comes; any other answer is gathered first, so that an owner that dies in the middle is
told of as one that is gone. The log says where that was and why; clients learn no address.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import OwnerGone
from gateway.observe.logs import get_logger
from gateway.replicas.interface import Broken, Replica, quietly
from gateway.replicas.keys import ReplicaKeys
from gateway.replicas.link import Link
from gateway.replicas.messages import BODY, END, GONE, REQUEST, START, head_of, message_of, pieces, streams
from gateway.replicas.records import RecordFault

_CONNECT_TIME: Final = 5.0
"""Seconds to reach another replica, and to wait for one's turn to."""
_OPENING: Final = 8
"""Connections to one replica that are opened at a time: a listener has few for those that have shown nothing yet."""
_SILENCE: Final = 45.0
"""Seconds in which an owner must say or take something; one that lives does so every 15 s, however long calls take."""
_KEPT: Final = 64
"""Connections to one replica that rest."""
_LOOK: Final = 0.1
"""Seconds that a request may take before we look whether its client is still there."""

_STOPPING: Final = "the gateway is stopping and could not wait for this answer; ask again"
_BROKE_OFF: Final = "the replica that had it broke off"
_FAULTS = (OSError, EOFError, RecordFault)

log = get_logger("replicas")


class Forwarder:
    """The connections of this replica to the others."""

    def __init__(self, keys: ReplicaKeys) -> None:
        """Nothing is connected yet."""
        self._keys = keys
        self._kept: defaultdict[str, list[Link]] = defaultdict(list)
        self._streaming: set[Link] = set()
        self._opening: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def forward(
        self, owner: Replica, scope: Scope, receive: Receive, send: Send, broken: Broken = quietly
    ) -> None:
        """Have another replica answer a request. `broken`: what ends a stream that breaks off.

        Raises `OwnerGone`; nothing has been sent to the client then.
        """
        # A connection that says nothing is taken for a stranger's: a client that is slow to send is waited for without.
        first = await receive()
        link = await self._link(owner)
        watch = _Watch(link, receive)
        kept = False
        try:
            await _ask(link, owner, scope, first, receive)
            watch.soon()
            kept = await _answer(link, owner, send, self._streaming, broken) and link.rests
        except _FAULTS as error:
            raise _gone(owner, _BROKE_OFF, error) from error
        finally:
            watch.stop()
            if kept and len(self._kept[owner.address]) < _KEPT:
                self._kept[owner.address].append(link)
            else:
                link.close()

    def end_streams(self) -> None:
        """End the streams that are passed on: their clients come back by another way."""
        for link in self._streaming:
            link.close()

    def close(self) -> None:
        """Close the connections that rest."""
        for links in self._kept.values():
            for link in links:
                link.close()
        self._kept.clear()

    async def _link(self, owner: Replica) -> Link:
        if (link := self._resting(owner)) is not None:
            return link
        turn = self._opening.setdefault(owner.address, asyncio.Semaphore(_OPENING))
        try:
            with anyio.fail_after(_CONNECT_TIME):
                async with turn:
                    return self._resting(owner) or await self._opened(owner)
        except _FAULTS as error:
            raise _gone(owner, "the replica that had it can't be reached", error) from error

    def _resting(self, owner: Replica) -> Link | None:
        links = self._kept[owner.address]
        while links:
            link = links.pop()
            if link.rests:
                return link
            link.close()
        return None

    async def _opened(self, owner: Replica) -> Link:
        self._clear()
        host, _, port = owner.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            return await Link.open(reader, writer, self._keys, "asks")
        except BaseException:
            writer.close()
            raise

    def _clear(self) -> None:
        """Close what rests to replicas that have ended: maybe nobody asks for them again."""
        for address, links in list(self._kept.items()):
            for link in [each for each in links if not each.rests]:
                links.remove(link)
                link.close()
            if not links:
                del self._kept[address]


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


def _gone(owner: Replica, what: str, error: Exception) -> OwnerGone:
    log.warning(what, address=owner.address, reason=str(error) or type(error).__name__)
    return OwnerGone(what)


async def _ask(link: Link, owner: Replica, scope: Scope, message: Message, receive: Receive) -> None:
    records = [(REQUEST, head_of(scope, owner.boot))]
    while True:
        if message["type"] != "http.request":
            raise OwnerGone("its client has left")
        more = message.get("more_body", False)
        records += [(BODY, piece) for piece in pieces(message.get("body", b""))]
        with anyio.fail_after(_SILENCE):
            await link.send(*records, *(() if more else ((END, b""),)))
        if not more:
            return
        records, message = [], await receive()


async def _answer(link: Link, owner: Replica, send: Send, streaming: set[Link], broken: Broken) -> bool:
    """Pass on the answer. Gives whether it came to its end. `streaming`: holds the link while a stream is passed on."""
    start = await _start(link)
    if not streams(start["headers"]):
        body = b"".join([piece async for piece in _body(link)])
        await send(start)
        await send({"type": "http.response.body", "body": body})
        return True
    streaming.add(link)
    ending = b""
    try:
        await send(start)
        async for piece in _body(link):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except (OwnerGone, *_FAULTS) as error:
        ending = broken(OwnerGone(_STOPPING) if link.ended else _gone(owner, _BROKE_OFF, error))
        link.close()
    finally:
        streaming.discard(link)
    await send({"type": "http.response.body", "body": ending})
    return True


async def _start(link: Link) -> dict[str, Any]:
    record = await _said(link)
    if record is None or record[0] == GONE:
        raise OwnerGone("the replica that had it was started anew, or has ended")
    if record[0] != START:
        raise RecordFault(f"{record[0]!r} where an answer begins")
    return message_of(record[1])


async def _said(link: Link) -> tuple[bytes, bytes] | None:
    with anyio.fail_after(_SILENCE):
        return await link.receive()


async def _body(link: Link) -> AsyncGenerator[bytes]:
    while (record := await _said(link)) is not None:
        kind, data = record
        if kind == END:
            return
        if kind != BODY:
            raise RecordFault(f"{kind!r} in the middle of an answer")
        yield data
    raise OwnerGone("the replica that had it ended in the middle of an answer")
