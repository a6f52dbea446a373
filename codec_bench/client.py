"""Sends requests to one server over its connections; returns times, bytes and what the server said.

Connections are kept open as other clients do, and one that ended while idle is opened again. Redirects are not
followed, no proxy is used, and every answer is bounded in time and size. It does not decide when or what is asked.
"""

import asyncio
import json
import ssl
from array import array
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, TypeVar

from codec_bench.answer import AnswerContent, AnswerFault, AnswerReader, fault_of_status
from codec_bench.frames import FramesReader
from codec_bench.sample import Timed
from codec_bench.server import Server
from gateway.config.address import Origin
from gateway.http1.connection import CONNECT_TIME, KEPT_TIME, Connection, LinkLost, NoAnswer, header_lines
from leaf_sdk.errors import BodyInvalid, BodyTooLarge
from leaf_sdk.wire import CODINGS, MEDIA_TYPES, Coding, Decoder, Dictionary, dictionary_for
from leaf_sdk.wire.dictionary import HEADER

_T = TypeVar("_T")

_MOST_BODY: Final = 16 * 2**20
_ERROR_BODY: Final = 64 * 1024
_MOST_DOCUMENT: Final = 1 << 20
_LONGEST_NAME: Final = 300


class _CountingConnection(Connection):
    """A connection that counts the bytes it receives."""

    def __init__(self, origin: Origin, soon: Callable[[Callable[[bytes], None], bytes], object]) -> None:
        super().__init__(origin, soon)
        self.received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)


class Client:
    """The client of one server. Close it with `close`."""

    def __init__(self, server: Server, coding: Coding, timeout: float) -> None:
        """`coding`: what answers may be compressed with, unless the address says. `timeout`: seconds of one request."""
        self.server = server
        self._timeout = timeout
        self._tls = ssl.create_default_context() if server.origin.secure else None
        headers = {
            "host": server.origin.authority,
            "content-type": "application/json",
            "accept": "text/event-stream, application/json" if server.form == "json" else MEDIA_TYPES[server.form],
            "accept-encoding": server.coding or coding,
        }
        if server.key is not None:
            headers["authorization"] = f"Bearer {server.key}"
        self._lines = header_lines(headers)
        self._kept: list[tuple[_CountingConnection, float]] = []
        self._dictionaries: dict[str, Dictionary] = {}

    def close(self) -> None:
        """Close the idle connections."""
        while self._kept:
            self._kept.pop()[0].close()

    async def ask(self, path: str, body: Mapping[str, Any]) -> tuple[Timed, AnswerContent, float]:
        """Send a request and read its answer; also returns the time of sending. Raises `AnswerFault`."""
        return await self._in_time(self._asked(self.server.path + path, json.dumps(body).encode("utf-8", "replace")))

    async def model(self) -> str:
        """The model that the server names first. Raises `AnswerFault`."""
        status, body = await self._in_time(self._got(f"{self.server.path}/models"))
        if status != 200:
            raise fault_of_status(status, body)
        try:
            name: object = json.loads(body)["data"][0]["id"]
        except (ValueError, LookupError, TypeError, RecursionError):
            name = None
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            raise AnswerFault("not an answer", "its /models lists no model")
        return name

    async def _asked(self, path: str, body: bytes) -> tuple[Timed, AnswerContent, float]:
        connection, connect = await self._taken()
        before, sent = connection.received, perf_counter()
        try:
            try:
                await self._send(connection, "POST", path, body)
            except LinkLost:
                if connect is not None:
                    raise
                # It ended while idle: any client would ask again, on a new connection. The time keeps running.
                connection, connect = await self._connected()
                before = connection.received
                await self._send(connection, "POST", path, body)
            timed, content = await self._read(connection, sent, connect, before)
        except BaseException:
            connection.close()
            raise
        self._give(connection)
        return timed, content, sent

    async def _read(
        self, connection: _CountingConnection, sent: float, connect: float | None, before: int
    ) -> tuple[Timed, AnswerContent]:
        if connection.status != 200:
            raise fault_of_status(connection.status, await connection.read(_ERROR_BODY) or b"")
        form, kind = self.server.form, connection.header("content-type")
        reader = AnswerReader(kind) if form == "json" else FramesReader(form, kind)
        decoder = Decoder(_coding_of(connection), _MOST_BODY, await self._dictionary(connection))
        body_bytes = decoded_bytes = 0
        first, last = None, sent
        gaps = array("d")
        while data := await connection.chunk():
            body_bytes += len(data)
            decoded = decoder.feed(data)
            decoded_bytes += len(decoded)
            if came := reader.feed(decoded):
                now = perf_counter()
                if first is None:
                    first = now - sent
                else:
                    gaps.append(now - last)
                gaps.extend([0.0] * (came - 1))
                last = now
        decoder.close()
        reader.close()
        whole = perf_counter() - sent
        timed = Timed(first, whole, gaps, connection.received - before, body_bytes, decoded_bytes, connect)
        return timed, reader.content

    async def _dictionary(self, connection: Connection) -> Dictionary | None:
        """The dictionary that an answer is compressed with: fetched once, and known by its hash."""
        named = connection.header(HEADER.lower())
        if not named:
            return None
        digest = named.removeprefix("sha256:")
        if named not in self._dictionaries and digest.isascii() and digest.isalnum():
            _, data = await self._got(f"/.well-known/codec/dicts/{digest}.zstd")
            # Only the last one is kept: a server may name another each time.
            self._dictionaries = {(found := Dictionary(data)).hash: found}
        return dictionary_for({"content-encoding": "zstd", HEADER: named}, self._dictionaries)

    async def _got(self, path: str) -> tuple[int, bytes]:
        connection, _ = await self._connected()
        try:
            await self._send(connection, "GET", path, b"")
            body = await connection.read(_MOST_DOCUMENT)
        finally:
            connection.close()
        if body is None:
            raise AnswerFault("too large", f"its {path} is longer than {_MOST_DOCUMENT} bytes")
        with suppress(BodyInvalid, BodyTooLarge, NoAnswer):
            body = Decoder(_coding_of(connection), _MOST_DOCUMENT).feed(body)
        return connection.status, body

    async def _send(self, connection: Connection, method: str, path: str, body: bytes) -> None:
        connection.send(method, path, self._lines, body)
        await connection.head()

    async def _taken(self) -> tuple[_CountingConnection, float | None]:
        """A connection, and how long it took to open if it is new."""
        now = perf_counter()
        while self._kept:
            connection, since = self._kept.pop()
            if connection.usable and now - since < KEPT_TIME:
                return connection, None
            connection.close()
        return await self._connected()

    def _give(self, connection: _CountingConnection) -> None:
        if connection.usable:
            self._kept.append((connection, perf_counter()))
        else:
            connection.close()

    async def _connected(self) -> tuple[_CountingConnection, float]:
        origin, began = self.server.origin, perf_counter()
        connection = _CountingConnection(origin, lambda write, data: write(data))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIME):
                await loop.create_connection(lambda: connection, origin.host, origin.port, ssl=self._tls)
        except TimeoutError:
            raise LinkLost(f"no connection within {CONNECT_TIME:g} s", sent=False) from None
        except OSError as error:
            # A TLS error is an OSError, too.
            raise LinkLost(error.strerror or str(error) or repr(error), sent=False) from None
        return connection, perf_counter() - began

    async def _in_time(self, asked: Awaitable[_T]) -> _T:
        """Wait for it in the time of a request. Only here do errors on the way become faults that are counted."""
        try:
            async with asyncio.timeout(self._timeout):
                return await asked
        except TimeoutError:
            raise AnswerFault("timeout", f"no complete answer within {self._timeout:g} s") from None
        except LinkLost as error:
            raise AnswerFault("broke off" if error.sent else "no connection", str(error)) from None
        except BodyTooLarge as error:
            raise AnswerFault("too large", str(error)) from None
        except (NoAnswer, BodyInvalid) as error:
            raise AnswerFault("not an answer", str(error)) from None


def _coding_of(connection: Connection) -> Coding:
    named = connection.header("content-encoding").strip().lower() or "identity"
    if named not in CODINGS:
        raise NoAnswer(f"its body has the coding {named[:40]!r}, which was not asked for")
    return named
