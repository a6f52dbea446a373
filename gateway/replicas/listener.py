"""Where the other replicas send on requests for what lives here.

Turns records of one connection into ASGI requests of the same app that clients ask, one at a time, so that whoever asks
is looked at anew. A connection that shows no knowledge of the common key in time is closed, and of those there are few.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Message

from gateway.observe.logs import get_logger
from gateway.replicas.keys import ReplicaKeys
from gateway.replicas.link import Link
from gateway.replicas.messages import BODY, END, GONE, REQUEST, START, pieces, scope_of, start_of, streams
from gateway.replicas.records import RecordFault

_PROOF_TIME: Final = 5.0
"""Seconds until the first record must have come."""
_REST_TIME: Final = 10.0
"""Seconds for the rest of a request that was answered before it was read."""
_STOP_TIME: Final = 5.0
"""Seconds for what is still being answered when this replica stops."""
_UNPROVEN: Final = 64
_MOST: Final = 4096
"""Connections of other replicas."""

log = get_logger("replicas")


class Listener:
    """Answers the other replicas."""

    def __init__(self, keys: ReplicaKeys, boot: bytes, app: ASGIApp) -> None:
        """`boot`: of this start; what is asked of another one is gone."""
        self._keys = keys
        self._boot = boot
        self._app = app
        self._serving: dict[asyncio.Task[Any] | None, anyio.CancelScope] = {}
        self._unproven = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer on one connection until it ends; nothing is raised but a cancellation."""
        if self._unproven >= _UNPROVEN or len(self._serving) >= _MOST:
            writer.close()
            return
        task = asyncio.current_task()
        try:
            with anyio.CancelScope() as self._serving[task], suppress(OSError, EOFError):
                await self._serve(reader, writer)
        except RecordFault as fault:
            log.warning("a connection of a replica was closed", reason=str(fault))
        finally:
            del self._serving[task]
            writer.close()

    async def stop(self) -> None:
        """End every connection, and what is still being answered: what answers is about to end."""
        for scope in self._serving.values():
            scope.cancel()
        if running := [task for task in self._serving if task is not None]:
            await asyncio.wait(running, timeout=_STOP_TIME)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._unproven += 1
        link, record = None, None
        try:
            with anyio.move_on_after(_PROOF_TIME) as time:
                link = await Link.open(reader, writer, self._keys, "answers")
                record = await link.receive()
            if time.cancelled_caught:
                raise RecordFault(f"nothing came within {_PROOF_TIME:g} s")
        finally:
            self._unproven -= 1
        while link is not None and record is not None:
            kind, head = record
            if kind != REQUEST:
                raise RecordFault(f"{kind!r} where a request begins")
            if not await self._answer(link, head):
                return
            record = await link.receive()

    async def _answer(self, link: Link, head: bytes) -> bool:
        """Answer one request. Gives whether the connection may be used again."""
        scope, boot = scope_of(head)
        if boot != self._boot:
            await link.send((GONE, b""))
            return False
        exchange = _Exchange(link)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except (OSError, RecordFault):
            raise
        except Exception:
            log.exception("a request of another replica failed", method=scope["method"])
        return exchange.answered and await exchange.ended()


class _Exchange:
    """One request, as its app reads and answers it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._read = False
        """Whether the request was read to its end."""
        self._unsent: list[tuple[bytes, bytes]] = []
        """The answer's beginning, which leaves with the first of its body where that is there soon."""
        self.answered = False

    async def ended(self) -> bool:
        """Read what the app did not want of the request: whoever sends it waits for that. Gives whether it has an
        end."""
        with anyio.move_on_after(_REST_TIME):
            while not self._read:
                if (await self.receive())["type"] != "http.request":
                    return False
        return self._read

    async def receive(self) -> Message:
        record = None
        with suppress(OSError):
            record = await self._link.receive()
        if record is None or self._read:
            return {"type": "http.disconnect"}
        kind, data = record
        if kind not in (BODY, END):
            raise RecordFault(f"{kind!r} in the middle of a request")
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
        self._unsent += [(BODY, piece) for piece in pieces(message.get("body", b""))]
        if not message.get("more_body", False):
            self.answered = True
            self._unsent.append((END, b""))
        await self._flush()

    async def _flush(self) -> None:
        records, self._unsent = self._unsent, []
        await self._link.send(*records)
