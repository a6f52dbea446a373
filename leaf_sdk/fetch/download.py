"""An address to bytes, within a size and a time limit: https, or http on this machine, with no redirect to elsewhere.

Uses urllib: it is always there, and a map is fetched only once. The time limit is on the whole exchange: when it is
over, the connection is shut down even if the other side is still sending. An answer compressed with gzip is unpacked
under the same size limit. Compares no hashes and knows nothing of maps.
"""

import functools
import http.client
import ipaddress
import socket
import ssl
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage
from threading import Timer
from typing import IO, Protocol, cast
from urllib.parse import SplitResult, urlsplit

from leaf_sdk.errors import MapNotPublished, MapUnreachable

from .public_address import is_public

_CHUNK = 2**16
_GZIP = 16 + zlib.MAX_WBITS


class _Body(Protocol):
    """The part of an HTTP answer that is read here."""

    headers: HTTPMessage

    def read1(self, amount: int, /) -> bytes:
        """Return what has arrived, up to that many bytes; b"" at the end."""
        ...


class _Unpacker(Protocol):
    """The part of zlib's decompressor that is used here."""

    @property
    def unconsumed_tail(self) -> bytes:
        """Input that was not unpacked for lack of room."""
        ...

    def decompress(self, data: bytes, room: int, /) -> bytes:
        """Return what the data unpacks to, up to that many bytes."""
        ...


class _Watch:
    """Shuts the connection down when the time is over."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.is_over = False

    def add(self, connected: socket.socket) -> None:
        """Watch one more connection."""
        self._sockets.append(connected)
        if self.is_over:
            self.end()

    def end(self) -> None:
        """Shut everything down, which wakes whoever is reading."""
        self.is_over = True
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed by the other side, or by us


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follow redirects only within the origin that the caller named: nobody else chooses our addresses."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request that follows a redirect; raise MapUnreachable if it leaves the origin."""
        if origin_of(newurl) != origin_of(req.full_url):
            raise _unreachable(req.full_url, f"redirects to {newurl!r:.200}; give that address if you trust it")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _WatchedHttp(urllib.request.HTTPHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection that the watch can end."""
        return self.do_open(_watched(http.client.HTTPConnection, self._watch), req)


class _WatchedHttps(urllib.request.HTTPSHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection that the watch can end."""
        connect = _watched(http.client.HTTPSConnection, self._watch)
        return self.do_open(functools.partial(connect, context=ssl.create_default_context()), req)


def _watched(kind: type[http.client.HTTPConnection], watch: _Watch) -> Callable[..., http.client.HTTPConnection]:
    class Watched(kind):
        def connect(self) -> None:
            super().connect()
            watch.add(cast("socket.socket", self.sock))

    return Watched


def origin_of(url: str) -> tuple[str, str | None, int]:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443}.get(parts.scheme, 80)


def download(url: str, *, max_bytes: int, timeout: float) -> bytes:
    """Return what an address answers, cut off one byte after `max_bytes` if it is longer.

    Raises:
        MapUnreachable: not https (or http on loopback), no answer, a redirect to another origin, or too slow.
        MapNotPublished: the origin answers, but has nothing there (404, 410).
    """
    local = _check_address(url)
    # A proxy set in the environment is for the outside world, never for an address on this machine.
    proxies = [urllib.request.ProxyHandler({})] if local else []
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})  # noqa: S310 - the scheme is checked
    with _time_limit(timeout) as watch:
        opener = urllib.request.build_opener(_SameOrigin, _WatchedHttp(watch), _WatchedHttps(watch), *proxies)
        try:
            with opener.open(request, timeout=timeout) as answer:
                data = _read_body(answer, url, max_bytes)
        except urllib.error.HTTPError as error:
            error.close()
            kind = MapNotPublished if error.code in (404, 410) else MapUnreachable
            raise kind(f"map source {url!r} answered {error.code}", source=url) from error
        except (OSError, HTTPException, ValueError) as error:
            # The socket's timeout is as long as the watch's, and may be the first to report it.
            slow = watch.is_over or TimeoutError in (type(error), type(getattr(error, "reason", None)))
            why = "sends too slowly" if slow else f"can't be fetched: {error}"
            raise _unreachable(url, why) from error
    if watch.is_over:
        raise _unreachable(url, "sends too slowly")  # a body without a length ends when its connection does
    return data


@contextmanager
def _time_limit(seconds: float) -> Generator[_Watch]:
    watch = _Watch()
    timer = Timer(seconds, watch.end)
    timer.daemon = True
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()


def _read_body(answer: _Body, url: str, max_bytes: int) -> bytes:
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise _unreachable(url, f"is compressed with {encoding!r:.40}, expected gzip or nothing")
    unpacker = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
    data = bytearray()
    while len(data) <= max_bytes and (chunk := answer.read1(_CHUNK)):
        data += _unpack(unpacker, chunk, url, max_bytes + 1 - len(data)) if unpacker else chunk
    if unpacker and len(data) <= max_bytes and not unpacker.eof:
        raise _unreachable(url, "breaks off inside its gzip stream")
    return bytes(data[: max_bytes + 1])


def _unpack(unpacker: _Unpacker, chunk: bytes, url: str, room: int) -> bytes:
    """Return what a chunk unpacks to, up to `room` bytes: a small answer can unpack to gigabytes."""
    try:
        return unpacker.decompress(unpacker.unconsumed_tail + chunk, room)
    except zlib.error as error:
        raise _unreachable(url, f"is not the gzip stream that its header announces ({error})") from error


def _check_address(url: str) -> bool:
    """Return whether an address is on this machine; refuse what is neither that nor https."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise _unreachable(url, f"is not an address: {error}") from error
    local = _is_local(parts)
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        raise _unreachable(url, "is not fetched, expected https://, or http:// on this machine")
    return local


def _is_local(parts: SplitResult) -> bool:
    try:
        return parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def check_public(url: str) -> None:
    """Refuse an address that somebody else chose if any of its host's IP addresses is not public.

    Raises:
        MapUnreachable: the host is on this machine, on a private network, or unknown.
    """
    host = urlsplit(url).hostname or ""
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError) as error:
        raise _unreachable(url, f"can't be fetched: {error}") from error
    if private := sorted(address for address in found if not is_public(address)):
        raise _unreachable(url, f"is at {private[0]}, which is not a public address; name it yourself if you trust it")


def _unreachable(source: str, why: str) -> MapUnreachable:
    return MapUnreachable(f"map source {source!r} {why}", source=source)
