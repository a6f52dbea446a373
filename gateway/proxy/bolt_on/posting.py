"""One request to a bolt-on's server, or for a manifest: a body out, a bounded body back, over HTTP or a unix socket.

Follows no redirect and takes no compressed answer: both would be somebody else's choice. It knows neither messages nor
manifests.
"""

from importlib.metadata import version
from typing import Final

from gateway.http1.connection import Connection
from gateway.http1.lines import header_lines
from gateway.http1.origin import Address, Origin
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.headers import media_type, status_words
from gateway.proxy.transport.interface import NoAnswer, Unfit
from gateway.proxy.transport.requests import too_long
from leaf_sdk.leaf.bolt_on.messages import MEDIA_TYPE

_REFUSAL: Final = 2048
"""Bytes of a refusal's body that are read."""
_OURS: Final = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "host"})


def call_lines(address: Address, headers: dict[str, str]) -> bytes:
    """The header lines of every call to a place. `headers`: the configuration's, without those of the transport."""
    lines = {**_base(address), "accept": MEDIA_TYPE, "content-type": MEDIA_TYPE}
    return header_lines(lines | {name.lower(): text for name, text in headers.items() if name.lower() not in _OURS})


async def post(client: HttpClient, address: Address, lines: bytes, body: bytes, bound: int) -> bytes:
    """The body of the answer to a call.

    Raises:
        LinkLost: no way there, or the connection broke.
        NoAnswer: another status, another media type. `Unfit`: more than `bound` bytes.
    """
    return await _ask(client, address, "POST", lines, body, bound, MEDIA_TYPE)


async def get(client: HttpClient, address: Address, bound: int) -> bytes:
    """What a URL answers. Raises as `post`."""
    lines = header_lines({**_base(address), "accept": "application/json"})
    return await _ask(client, address, "GET", lines, b"", bound, None)


async def look(client: HttpClient, origin: Origin) -> None:
    """See whether somebody listens there. Raises LinkLost, NoAnswer."""
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
            raise NoAnswer(f"its answer is {connection.header('content-type')[:80]!r}, expected {kind!r}")
        if connection.header("content-encoding") not in ("", "identity"):
            raise NoAnswer("its answer is compressed, which was not asked for")
        answer = await connection.read(bound)
    finally:
        # One that was not read to its end, or whose caller left, is closed by this.
        client.give(connection)
    if answer is None:
        raise Unfit(too_long(bound))
    return answer


async def _words_of_refusal(connection: Connection) -> str:
    words = status_words(connection.status)
    said = await connection.read(_REFUSAL)
    return f"{words}: {said.decode('utf-8', 'replace').strip()}" if said else words


def _base(address: Address) -> dict[str, str]:
    lines = {"host": address.origin.authority, "user-agent": f"codec-gateway/{version('codec-gateway')}"}
    lines["accept-encoding"] = "identity"
    return lines if address.authorization is None else {**lines, "authorization": address.authorization}
