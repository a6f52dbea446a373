"""One request to a bolt-on's server, or for a manifest: a body out, a bounded body back, over HTTP or a Unix socket.

Follows no redirect and accepts no compressed answer: both would let somebody else choose. It knows neither messages
nor manifests.
"""

from typing import Final

from gateway.http1.connection import Connection
from gateway.http1.lines import header_lines
from gateway.http1.origin import Address, Origin
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.headers import common_headers, media_type, status_words
from gateway.proxy.transport.interface import NoAnswer, Unfit
from gateway.proxy.transport.requests import too_long
from leaf_sdk.leaf.bolt_on.messages import MEDIA_TYPE

_REFUSAL: Final = 2048
"""Bytes that are read of the body of a refusal."""
_OURS: Final = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "host"})


def call_lines(address: Address, headers: dict[str, str]) -> bytes:
    """The header lines of every call to an address. `headers`: the configured ones; those that we set are skipped."""
    lines = {**common_headers(address), "accept": MEDIA_TYPE, "content-type": MEDIA_TYPE}
    return header_lines(lines | {name.lower(): text for name, text in headers.items() if name.lower() not in _OURS})


async def post(client: HttpClient, address: Address, lines: bytes, body: bytes, bound: int) -> bytes:
    """Post a call, and return the body of the answer.

    Raises:
        LinkLost: the server can't be reached, or the connection broke.
        NoAnswer: its status is not 200, its media type is another, or it is compressed.
        Unfit: it is longer than `bound` bytes.
    """
    return await _ask(client, address, "POST", lines, body, bound, MEDIA_TYPE)


async def get(client: HttpClient, address: Address, bound: int) -> bytes:
    """Fetch a URL, and return the body of the answer. Raises what `post` raises."""
    lines = header_lines({**common_headers(address), "accept": "application/json"})
    return await _ask(client, address, "GET", lines, b"", bound, None)


async def look(client: HttpClient, origin: Origin) -> None:
    """Check that something listens there. Raises LinkLost or NoAnswer if not."""
    client.give(await client.take(origin))


async def _ask(
    client: HttpClient, address: Address, method: str, lines: bytes, body: bytes, bound: int, kind: str | None
) -> bytes:
    connection = await client.take(address.origin)
    try:
        connection.send(method, address.path, lines, body)
        await connection.head()
        if connection.status != 200:
            raise NoAnswer(await _words_of_refusal(connection))
        if kind is not None and media_type(connection.header("content-type")) != kind:
            raise NoAnswer(f"its answer is of type {connection.header('content-type')[:80]!r}; expected {kind!r}")
        connection.decode()
        answer = await connection.read(bound)
    finally:
        # This closes a connection whose answer was not read to its end, be it because the caller was cancelled.
        client.give(connection)
    if answer is None:
        raise Unfit(too_long(bound))
    return answer


async def _words_of_refusal(connection: Connection) -> str:
    words = status_words(connection.status)
    said = await connection.read(_REFUSAL)
    return f"{words}: {said.decode('utf-8', 'replace').strip()}" if said else words
