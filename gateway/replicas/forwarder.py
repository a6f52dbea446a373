"""Sends a request on to the replica that has what it names, and passes its answer back.

Turns an ASGI request into records on a kept connection. A streamed answer is passed on as it arrives. Any other is
collected first, so that the client can be told if the owner dies half-way.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from gateway.deadlines import Deadline, Deadlines
from gateway.errors import NotAnswered, OwnerGone, ReplicaBusy
from gateway.replicas.link import FAULTS, Link, LinkPool, gone
from gateway.replicas.replica_interface import FORWARDED, Broken, Replica, quietly
from gateway.replicas.sealed_records import RecordFault, ReplicaKeys

# Bodies are separate records. Headers that belong to one connection are left out.

REQUEST: Final = b"R"
BODY: Final = b"B"
END: Final = b"E"
"""The last piece of a body."""
ALIVE: Final = b"A"
"""The answer is still being made."""
START: Final = b"S"
"""The answer's status and headers."""
GONE: Final = b"G"
"""What is asked for belonged to an earlier run of this process."""

PIECE: Final = 256 * 1024
"""Bytes of a body in one record."""
_OF_A_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer"})

Headers = Iterable[tuple[bytes, bytes]]


def head_of(scope: Any, boot: bytes) -> bytes:
    """A request without its body. `boot`: the run of the owner that it is meant for."""
    client = scope.get("client")
    return json.dumps(
        {
            "boot": boot.hex(),
            "method": scope["method"],
            "scheme": scope.get("scheme", "http"),
            "path": scope["path"],
            "query": scope.get("query_string", b"").decode("latin-1"),
            "client": list(client) if client is not None else None,
            "headers": _shown(scope["headers"]),
        }
    ).encode()


def scope_of(head: bytes) -> tuple[dict[str, Any], bytes]:
    """The request as an ASGI scope, and the run that it is meant for. Raises `RecordFault`."""
    with _reading("a request"):
        return _scope_of(json.loads(head))


def _scope_of(read: Any) -> tuple[dict[str, Any], bytes]:
    client = read["client"]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": read["method"],
        "scheme": read["scheme"],
        "path": read["path"],
        "raw_path": read["path"].encode("utf-8", "surrogateescape"),
        "root_path": "",
        "query_string": read["query"].encode("latin-1"),
        "headers": _read(read["headers"]),
        "client": None if client is None else (client[0], client[1]),
        "server": None,
        FORWARDED: True,
    }
    return scope, bytes.fromhex(read["boot"])


def start_of(message: Any) -> bytes:
    """The beginning of an answer (`http.response.start`)."""
    return json.dumps({"status": message["status"], "headers": _shown(message.get("headers", ()))}).encode()


def message_of(start: bytes) -> dict[str, Any]:
    """The beginning of an answer as an ASGI message. Raises `RecordFault`."""
    with _reading("an answer"):
        read = json.loads(start)
        return {"type": "http.response.start", "status": int(read["status"]), "headers": _read(read["headers"])}


def streams(headers: Headers) -> bool:
    """Whether an answer with these headers is streamed."""
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


def pieces(body: bytes, *, more: bool) -> list[tuple[bytes, bytes]]:
    """A part of a body as records. `more`: whether other parts follow."""
    records = [(BODY, body[at : at + PIECE]) for at in range(0, len(body), PIECE)]
    if more:
        return records
    return [*records[:-1], (END, records[-1][1] if records else b"")]


def _shown(headers: Headers) -> list[list[str]]:
    kept = (pair for pair in headers if pair[0].lower() not in _OF_A_CONNECTION)
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in kept]


def _read(headers: list[list[str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


@contextmanager
def _reading(what: str) -> Generator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RecordFault(f"{what} that can't be read") from error


_SILENCE: Final = 45.0
"""Seconds without any data from or to an owner after which it counts as dead. A live one sends every 15 s."""
_LOOK: Final = 0.1
"""Seconds that a request may take before we start to watch whether its client is still there."""
_BROKE_OFF: Final = "the connection to the replica that held it broke"
_STOPPING: Final = "the gateway is stopping and could not wait for this answer; try again"


class Forwarder:
    """The requests that this replica sends on to the others."""

    def __init__(self, keys: ReplicaKeys) -> None:
        self._pool = LinkPool(keys)
        self._running: set[_Errand] = set()
        self._deadlines = Deadlines()

    async def forward(
        self, owner: Replica, scope: Scope, receive: Receive, send: Send, broken: Broken = quietly
    ) -> None:
        """Have another replica answer a request. `broken`: returns the last bytes of a stream that breaks off.

        Raises `OwnerGone` or `ReplicaBusy`; nothing has been sent to the client then.
        """
        # The owner closes a connection that stays silent, so we connect only once the client has sent something.
        first = await receive()
        link = await self._pool.link(owner)
        errand = _Errand(owner, link, receive, self._deadlines)
        self._running.add(errand)
        kept = False
        try:
            whole = await errand.ask(scope, first)
            kept = await errand.answer(send, broken) and whole and link.is_idle
        finally:
            self._running.discard(errand)
            errand.over()
            if kept:
                self._pool.keep(owner, link)
            else:
                link.close()

    def stop(self) -> None:
        """End what the others are still answering: this replica is about to end."""
        for errand in self._running:
            errand.give_up(ReplicaBusy(_STOPPING, asked=True))

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()


class _Errand:
    def __init__(self, owner: Replica, link: Link, receive: Receive, deadlines: Deadlines) -> None:
        self._owner = owner
        self._link = link
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._deadlines = deadlines
        self._deadline: Deadline | None = None
        self._watch: asyncio.Task[None] | None = None
        self._since: float | None = None
        """Since when we have been waiting for the owner; None: we are not."""
        self._why: NotAnswered | None = None
        """Why this side ended it; None: it did not."""

    def give_up(self, why: NotAnswered) -> None:
        """End the request. The owner notices that the connection has ended."""
        self._why = self._why or why
        self._link.close()

    def over(self) -> None:
        """Stop watching: the request has been answered, or lost."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._watch is not None:
            self._watch.cancel()
            # A cancelled task keeps its frames, and so this object, until the garbage collector runs.
            self._watch = None

    async def ask(self, scope: Scope, message: Message) -> bool:
        """Send the request. Returns whether all of it was sent before the owner answered.

        Raises `OwnerGone`, `ReplicaBusy`.
        """
        try:
            head = (REQUEST, head_of(scope, self._owner.boot))
            if message["type"] != "http.request" or message.get("more_body", False):
                return await self._ask_in_parts(head, message)
            await self._link.send(head, *pieces(message.get("body", b""), more=False), within=_SILENCE)
        except FAULTS as error:
            raise self._lost(error) from error
        self._deadline = self._deadlines.after(_LOOK, self._look)
        return True

    async def _ask_in_parts(self, head: tuple[bytes, bytes], message: Message) -> bool:
        """Send the body as it arrives. The owner may refuse one that is too large before all of it has arrived."""
        loop = asyncio.get_running_loop()
        sending, hearing = loop.create_task(self._send(head, message)), loop.create_task(self._link.heard())
        try:
            await asyncio.wait((sending, hearing), return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                return sending.done() and sending.exception() is None
            await sending
            return True
        finally:
            sending.cancel()
            hearing.cancel()

    async def _send(self, head: tuple[bytes, bytes], message: Message) -> None:
        records, more = [head], True
        while more:
            if message["type"] != "http.request":
                raise OwnerGone("its client disconnected", asked=True)
            more = message.get("more_body", False)
            records += pieces(message.get("body", b""), more=more)
            await self._link.send(*records, within=_SILENCE)
            records = []
            if more:
                message = await self._receive()

    async def answer(self, send: Send, broken: Broken) -> bool:
        """Pass on the answer. Returns whether it was complete. Raises `OwnerGone`, `ReplicaBusy`."""
        try:
            start = await self._start()
            streamed = streams(start["headers"])
            body = b"" if streamed else b"".join([piece async for piece in self._body()])
        except FAULTS as error:
            raise self._lost(error) from error
        await send(start)
        if streamed:
            return await self._stream(send, broken)
        await send({"type": "http.response.body", "body": body})
        return True

    async def _stream(self, send: Send, broken: Broken) -> bool:
        try:
            async for piece in self._body():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except FAULTS as error:
            await send({"type": "http.response.body", "body": broken(self._lost(error))})
            return False
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _start(self) -> dict[str, Any]:
        kind, data = await self._said()
        if kind == GONE:
            raise OwnerGone("the replica that held it was restarted or has stopped")
        if kind != START:
            raise RecordFault(f"a record of kind {kind!r} where an answer should begin")
        return message_of(data)

    async def _body(self) -> AsyncGenerator[bytes]:
        kind = BODY
        while kind != END:
            kind, data = await self._said()
            if kind not in (BODY, END):
                raise RecordFault(f"a record of kind {kind!r} in the middle of an answer")
            yield data

    async def _said(self) -> tuple[bytes, bytes]:
        self._since = self._loop.time()
        while (record := await self._link.receive()) is not None:
            if record[0] != ALIVE:
                self._since = None
                return record
        raise EOFError("it closed the connection")

    def _lost(self, error: Exception) -> NotAnswered:
        return self._why or gone(self._owner, _BROKE_OFF, error, asked=True)

    def _look(self) -> None:
        """The request takes a while: watch whether the client and the owner are still there."""
        self._watch = self._loop.create_task(self._watch_client())
        self._deadline = self._deadlines.after(_SILENCE - _LOOK, self._listen)

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.give_up(OwnerGone("its client disconnected", asked=True))

    def _listen(self) -> None:
        left = _SILENCE
        if self._since is not None:
            left += max(self._since, self._link.heard_at) - self._loop.time()
        if left > 0:
            self._deadline = self._deadlines.after(left, self._listen)
        else:
            self.give_up(gone(self._owner, _BROKE_OFF, TimeoutError(f"it sent nothing for {_SILENCE:g} s"), asked=True))
