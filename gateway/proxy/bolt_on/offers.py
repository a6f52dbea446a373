"""Manifests, read, and for each tool the place that takes its calls.

Turns a file, a folder or a URL into offers; one bad manifest is named and takes no other down. Nobody chooses addresses
for us: a manifest may name a place on this machine if it lies on this machine, else one on the host that it came from
or on a host that the operator listed. The credentials of the configuration go only where the configuration says. It
calls no tool.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from gateway.config.address import is_http_url, is_loopback
from gateway.config.manifests import UNIX, is_listed
from gateway.config.model import UpstreamConfig
from gateway.http1.origin import Address, Origin, read_url
from gateway.proxy.bolt_on.posting import get
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.interface import LinkLost, NoAnswer
from leaf_sdk.errors import ManifestInvalid
from leaf_sdk.leaf.bolt_on import CALL_PATH, Manifest, load_manifest, load_manifests, parse_manifest
from leaf_sdk.leaf.bolt_on.manifest import MAX_MANIFEST_BYTES

FETCH_TIME: Final = 10.0
"""Seconds for a manifest from a URL."""
_NAME_BOUND: Final = 128


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool and where it takes calls."""

    manifest: Manifest
    address: Address
    ours: bool
    """The place stands in the configuration: our credentials may go there."""


@dataclass(frozen=True, slots=True)
class Offers:
    """What was found, and what was wrong with the rest, one sentence each."""

    by_name: dict[str, Offer]
    faults: tuple[str, ...]


async def read_offers(config: UpstreamConfig, client: HttpClient) -> Offers:
    """Read the manifests of an upstream whose `manifest` is set.

    Raises:
        LinkLost: there is none that can be used; the message says what is wrong with the first.
    """
    place = config.manifest or ""
    if "://" in place:
        manifests, faults = await _fetched(place, client)
    else:
        manifests, faults = await anyio.to_thread.run_sync(_read, Path(place))
    offers = _placed(manifests, config, faults)
    if not offers.by_name:
        raise LinkLost(offers.faults[0] if offers.faults else f"{place!r} holds no manifest", sent=False)
    return offers


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
        return [], [f"manifest {url!r} did not come within {FETCH_TIME:g} s"]
    except (LinkLost, NoAnswer, ManifestInvalid) as error:
        return [], [f"manifest {url!r}: {error}"]


def _placed(manifests: Iterable[Manifest], config: UpstreamConfig, faults: list[str]) -> Offers:
    by_name: dict[str, Offer] = {}
    for manifest in manifests:
        try:
            offer = _offer(manifest, config)
        except ValueError as error:
            faults.append(f"tool {manifest.name[:_NAME_BOUND]!r} is left out: {error}")
            continue
        if manifest.name in by_name or len(manifest.name) > _NAME_BOUND:
            faults.append(f"tool {manifest.name[:_NAME_BOUND]!r} is left out: its name is there already, or too long")
            continue
        by_name[manifest.name] = offer
    return Offers(by_name, tuple(faults))


def _offer(manifest: Manifest, config: UpstreamConfig) -> Offer:
    """Raises ValueError: it has no place, or one that it may not name."""
    if config.endpoint is not None:
        return Offer(manifest, _address(config.endpoint), ours=True)
    endpoint = manifest.endpoint
    if endpoint is None:
        raise ValueError("its manifest names no endpoint; set `endpoint`")
    if not _may_name(endpoint, config):
        raise ValueError(
            f"its manifest names the endpoint {endpoint[:200]!r}, which nobody allowed: list its host in "
            "registry.allowed_hosts, or set `endpoint`"
        )
    return Offer(manifest, _address(endpoint), ours=False)


def _may_name(endpoint: str, config: UpstreamConfig) -> bool:
    place = config.manifest or ""
    is_url = is_http_url(endpoint)
    if is_url and is_listed(endpoint, config.manifest_hosts):
        return True
    if "://" in place:
        return is_url and read_url(endpoint).origin == read_url(place).origin
    return endpoint.startswith(f"{UNIX}/") or (is_url and is_loopback(read_url(endpoint).origin.host))


def _address(endpoint: str) -> Address:
    """Where calls are posted. A URL without a path names the server; the protocol's own path is then meant."""
    if endpoint.startswith(UNIX):
        return Address(Origin(False, endpoint.removeprefix(UNIX), 0), CALL_PATH)
    address = read_url(endpoint)
    return address if address.path != "/" else Address(address.origin, CALL_PATH, address.authorization)
