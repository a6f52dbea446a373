"""The tools that manifests describe, each with the address that takes its calls.

Turns a file, a folder or a URL into tools; a bad manifest is reported and does not affect the others. Nobody chooses
addresses for us: a manifest on this machine may name an address on this machine, a fetched one only an address on the
host that it came from, and either one a host that the operator listed. The configured credentials are sent only to the
configured endpoint. Calls no tool.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from gateway.config.address import is_http_url, is_loopback
from gateway.config.model import UpstreamConfig
from gateway.config.programs import UNIX, is_listed
from gateway.http1.connection import Connection, header_lines
from gateway.http1.origin import Address, Origin, read_url
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.http_answers import common_headers, media_type, status_words
from gateway.proxy.transport.server_link import LinkLost, NoAnswer, Unfit, too_long
from leaf_sdk.errors import ManifestInvalid
from leaf_sdk.leaf.bolt_on import CALL_PATH, Manifest, load_manifest, load_manifests, parse_manifest
from leaf_sdk.leaf.bolt_on.manifest import MAX_MANIFEST_BYTES
from leaf_sdk.leaf.bolt_on.messages import MEDIA_TYPE

# One request to a bolt-on's server, or for a manifest: a body out, a bounded body back, over HTTP or a Unix socket.
#
# Follows no redirect and accepts no compressed answer: both would let somebody else choose. It knows neither messages
# nor manifests.

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


FETCH_TIME: Final = 10.0
"""Seconds to fetch a manifest from a URL."""
_NAME_BOUND: Final = 128


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool, and the address that takes its calls."""

    manifest: Manifest
    address: Address
    ours: bool
    """Whether the address comes from the configuration: only then are our credentials sent there."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The usable tools, and one sentence on each manifest that is left out."""

    by_name: dict[str, Tool]
    faults: tuple[str, ...]


async def read_tools(config: UpstreamConfig, client: HttpClient) -> Tools:
    """Read the manifests of an upstream whose `manifest` is set.

    Raises:
        LinkLost: none can be used; the message says what is wrong with the first.
    """
    place = config.manifest or ""
    if "://" in place:
        manifests, faults = await _fetched(place, client)
    else:
        manifests, faults = await anyio.to_thread.run_sync(_read, Path(place))
    tools = _placed(manifests, config, faults)
    if not tools.by_name:
        raise LinkLost(tools.faults[0] if tools.faults else f"{place!r} contains no manifest", sent=False)
    return tools


def _read(path: Path) -> tuple[list[Manifest], list[str]]:
    try:
        if path.is_dir():
            found, errors = load_manifests(path)
            return found, [error.message for error in errors]
        return [load_manifest(path)], []
    except ManifestInvalid as error:
        return [], [error.message]


async def _fetched(url: str, client: HttpClient) -> tuple[list[Manifest], list[str]]:
    try:
        with anyio.fail_after(FETCH_TIME):
            data = await get(client, read_url(url), MAX_MANIFEST_BYTES)
        return [parse_manifest(data, source=url)], []
    except TimeoutError:
        return [], [f"manifest {url!r} could not be fetched within {FETCH_TIME:g} s"]
    except (LinkLost, NoAnswer, ManifestInvalid) as error:
        return [], [f"manifest {url!r}: {error}"]


def _placed(manifests: Iterable[Manifest], config: UpstreamConfig, faults: list[str]) -> Tools:
    by_name: dict[str, Tool] = {}
    for manifest in manifests:
        try:
            tool = _tool(manifest, config)
        except ValueError as error:
            faults.append(f"tool {manifest.name[:_NAME_BOUND]!r} is left out: {error}")
            continue
        if manifest.name in by_name or len(manifest.name) > _NAME_BOUND:
            why = "another manifest describes a tool of this name"
            if len(manifest.name) > _NAME_BOUND:
                why = f"its name has more than {_NAME_BOUND} characters"
            faults.append(f"tool {manifest.name[:_NAME_BOUND]!r} is left out: {why}")
            continue
        by_name[manifest.name] = tool
    return Tools(by_name, tuple(faults))


def _tool(manifest: Manifest, config: UpstreamConfig) -> Tool:
    """Raises ValueError if it names no endpoint, or one that it may not name."""
    if config.endpoint is not None:
        return Tool(manifest, _address(config.endpoint), ours=True)
    endpoint = manifest.endpoint
    if endpoint is None:
        raise ValueError("its manifest names no endpoint; set `endpoint`")
    if not _may_name(endpoint, config):
        raise ValueError(
            f"its manifest names the endpoint {endpoint[:200]!r}, which is not allowed: add its host to "
            "registry.allowed_hosts, or set `endpoint`"
        )
    return Tool(manifest, _address(endpoint), ours=False)


def _may_name(endpoint: str, config: UpstreamConfig) -> bool:
    place = config.manifest or ""
    is_url = is_http_url(endpoint)
    if is_url and is_listed(endpoint, config.manifest_hosts):
        return True
    if "://" in place:
        return is_url and read_url(endpoint).origin == read_url(place).origin
    return endpoint.startswith(f"{UNIX}/") or (is_url and is_loopback(read_url(endpoint).origin.host))


def _address(endpoint: str) -> Address:
    """Where calls are posted. A URL without a path gets the protocol's standard path."""
    if endpoint.startswith(UNIX):
        return Address(Origin(False, endpoint.removeprefix(UNIX), 0), CALL_PATH)
    address = read_url(endpoint)
    return address if address.path != "/" else Address(address.origin, CALL_PATH, address.authorization)
