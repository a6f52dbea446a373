"""Waits on a loopback address for the browser that comes back from a sign-in (RFC 8252, 7.3).

Turns requests for the path of the redirect address into the code of the sign-in that they belong to. Anything else
(another path, another page's guess, a request that never ends) is refused and changes nothing. It answers in plain
text, without a word of what it was sent.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from gateway.config.address import is_loopback
from gateway.proxy.transport.interface import NoAnswer
from gateway.proxy.transport.oauth.code_flow import NotOurs

DEFAULT: Final = "http://127.0.0.1/callback"
_HEAD_BOUND: Final = 16 * 1024
_HEAD_TIME: Final = 5.0
_HEADERS: Final = (
    "content-type: text/plain\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n"
)


class Redirects:
    """One sign-in's way back."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        """The redirect address, with the port that is listened on."""
        self._reader: Callable[[str], str] | None = None
        self._outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def expect(self, reader: Callable[[str], str]) -> None:
        """A sign-in has begun. `reader` reads the code from an address, as `CodeFlow.read_redirect` does."""
        self._reader = reader

    def listen_on(self, host: str, port: int) -> None:
        """Put the port that is listened on into the redirect address."""
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.uri = urlsplit(self.uri)._replace(netloc=authority).geturl()

    async def code(self) -> str:
        """Wait for the code. Raises `NoAnswer`: the authorization server refused."""
        return await asyncio.shield(self._outcome)

    def take(self, address: str) -> bool:
        """Take an address at which a browser ended, or its query. Return whether it settles the sign-in."""
        if self._reader is None or self._outcome.done():
            return False
        try:
            self._outcome.set_result(self._reader(address))
        except NotOurs:
            return False
        except NoAnswer as error:
            self._outcome.set_exception(error)
            # Nobody may be waiting any more.
            self._outcome.exception()
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            async with asyncio.timeout(_HEAD_TIME):
                method, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
                address = urlsplit(target.decode("ascii"))
                ours = method == b"GET" and address.path == urlsplit(self.uri).path and self.take(address.query)
                status, words = ("200 OK", _DONE) if ours else ("404 Not Found", "No sign-in waits for this address.")
                writer.write(f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(words)}\r\n\r\n{words}".encode())
                await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()


_DONE: Final = "codec-gateway has taken note of your sign-in. You can close this page; the terminal says how it went."


@asynccontextmanager
async def open_redirects(configured: str | None, used: str | None) -> AsyncGenerator[Redirects]:
    """Listen where the browser will come back; at an address that is not loopback, nothing listens.

    Args:
        configured: the redirect address of the settings; without a port, one that is free is used.
        used: the redirect address of the last sign-in: its port is used again if it is free, for authorization servers
            that compare it.

    Raises:
        NoAnswer: the configured port is taken.
    """
    wanted = urlsplit(configured or DEFAULT)
    host = wanted.hostname or ""
    if wanted.scheme != "http" or not is_loopback(host):
        yield Redirects(wanted.geturl())
        return
    last = urlsplit(used or "")
    ports = [wanted.port] if wanted.port else [*([last.port] if last.port and last.hostname == host else []), 0]
    redirects = Redirects(wanted.geturl())
    server = await _listen(host, ports, redirects)
    port: int = server.sockets[0].getsockname()[1]
    redirects.listen_on(host, port)
    try:
        yield redirects
    finally:
        server.close()


async def _listen(host: str, ports: list[int], redirects: Redirects) -> asyncio.Server:
    for port in ports:
        try:
            return await asyncio.start_server(redirects.serve, host, port, limit=_HEAD_BOUND)
        except OSError as error:
            if port == ports[-1]:
                raise NoAnswer(
                    f"can't listen on port {port} of {host!r} ({error.strerror}): free it, or set another "
                    "`auth.redirect_url`"
                ) from None
    raise AssertionError
