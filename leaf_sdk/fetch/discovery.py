"""An origin and a map's name to the map: what is published under `/.well-known/codec/`.

An origin publishes, for each name, the map itself or a pointer to it: an address and a hash. A pointer is followed
once, never to another pointer. Where it leads is not our choice, so it must stay within the origin, or lead to a public
address or an origin that the caller allows.

Source: Codec specification 0.5, "Discovery".
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from leaf_sdk.errors import MapDiscoveryInvalid, MapHashMalformed, MapHashMismatch, MapUnreachable, NotAMap
from leaf_sdk.vocab import map_digest, normalise_hash
from leaf_sdk.vocab.fields import as_list, as_object, json_object

from .cache import MapCache
from .download import check_public, download, origin_of

WELL_KNOWN = "/.well-known/codec"
_MAX_POINTER = 64 * 2**10
_NAME = re.compile(r"[a-z0-9._-]+(/[a-z0-9._-]+)*")


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a map is, and the hash of its bytes."""

    id: str
    url: str
    hash: str
    published_at: str | None = None


def map_path(name: str) -> str:
    """Return the path under which an origin publishes a map.

    Raises:
        MapDiscoveryInvalid: a name that is not a path.
    """
    if _NAME.fullmatch(name) is None or ".." in name:
        raise MapDiscoveryInvalid(f"map name {name!r} is not of the form 'org/family' in lower case")
    return f"{WELL_KNOWN}/maps/{name}.json"


def read_index(origin: str, *, timeout: float) -> list[Pointer]:
    """Return the maps that an origin lists in its `index.json`.

    Raises:
        MapUnreachable: no answer, or an address that we don't fetch.
        MapDiscoveryInvalid: the answer is not an index.
    """
    url = f"{_bare(origin)}{WELL_KNOWN}/index.json"
    data = download(url, max_bytes=_MAX_POINTER * 16, timeout=timeout)
    fields = _object(data[: _MAX_POINTER * 16], url)
    return [_pointer(as_object(entry), url) for entry in as_list(fields.get("maps"))]


def discover(
    origin: str,
    name: str,
    *,
    cache: MapCache,
    expected_hash: str | None = None,
    allow: Collection[str] = (),
    max_bytes: int,
    timeout: float,
) -> bytes:
    """Return the bytes of a map that an origin publishes.

    Args:
        origin: `https://host[:port]`.
        name: the map's id there.
        cache: asked first if the hash is known; keeps what was published, for when the origin can't be reached.
        expected_hash: the map's hash, if the caller knows it: then nothing that the origin says can change the map.
        allow: other origins to which a pointer may lead.
        max_bytes: the most bytes that the map may have.
        timeout: seconds for each of the two exchanges.

    Raises:
        MapNotPublished: the origin has no such map.
        MapDiscoveryInvalid: what it has is neither a map nor a pointer to that map.
        MapUnreachable: no answer, too large, too slow, or an address that we don't fetch.
        MapHashMismatch: the bytes are not those that the hash names.
    """
    expected = None if expected_hash is None else normalise_hash(expected_hash)
    if expected is not None and (kept := cache.read(expected)) is not None:
        return kept
    url = _bare(origin) + map_path(name)
    data = _published(url, cache, max_bytes, timeout)
    fields = _object(data, url)
    if "vocab" not in fields and "tokens" not in fields:
        pointer = _pointer(fields, url)
        if pointer.id != name:
            raise MapDiscoveryInvalid(f"{url!r} points to map {pointer.id!r:.100}, expected {name!r}")
        if expected not in (None, pointer.hash):
            raise MapHashMismatch(expected or "", pointer.hash)
        data = cache.fetched(pointer.hash, lambda: _follow(pointer, url, allow, max_bytes, timeout))
    if expected is not None and (actual := map_digest(data)) != expected:
        raise MapHashMismatch(expected, actual)
    return data


def _published(url: str, cache: MapCache, max_bytes: int, timeout: float) -> bytes:
    try:
        data = download(url, max_bytes=max_bytes, timeout=timeout)
    except MapUnreachable as error:
        kept = cache.noted(url) if type(error) is MapUnreachable else None
        if kept is None:
            raise
        return kept
    if len(data) > max_bytes:
        raise MapUnreachable(f"map source {url!r} is larger than {max_bytes} bytes", source=url)
    cache.note(url, data)
    return data


def _follow(pointer: Pointer, found_at: str, allow: Collection[str], max_bytes: int, timeout: float) -> bytes:
    target = origin_of(pointer.url)
    if target != origin_of(found_at) and target not in {origin_of(each) for each in allow}:
        check_public(pointer.url)
    data = download(pointer.url, max_bytes=max_bytes, timeout=timeout)
    if len(data) > max_bytes:
        raise MapUnreachable(f"map source {pointer.url!r} is larger than {max_bytes} bytes", source=pointer.url)
    if (actual := map_digest(data)) != pointer.hash:
        raise MapHashMismatch(pointer.hash, actual)
    return data


def _pointer(fields: dict[str, Any], where: str) -> Pointer:
    name, url, published_at = fields.get("id"), fields.get("url"), fields.get("published_at")
    if not isinstance(name, str) or not isinstance(url, str) or not isinstance(published_at, str | None):
        raise MapDiscoveryInvalid(f"{where!r} holds {str(fields)[:100]!r}, expected a map, or {{id, url, hash}}")
    try:
        return Pointer(name, url, normalise_hash(str(fields.get("hash"))), published_at)
    except MapHashMalformed as error:
        raise MapDiscoveryInvalid(f"the pointer at {where!r}: {error.message}") from error


def _object(data: bytes, where: str) -> dict[str, Any]:
    try:
        return json_object(data, "a map or a pointer to one")
    except NotAMap as error:
        raise MapDiscoveryInvalid(f"{where!r}: {error.message}") from error


def _bare(origin: str) -> str:
    return origin.rstrip("/")
