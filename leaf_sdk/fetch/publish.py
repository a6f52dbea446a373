"""Maps to the tree of files that an origin serves under `/.well-known/codec/`, so that others find them by name.

A map is stored under the hash of its bytes, its name is a pointer to that, and an index lists all names. A published
file stays: a new version of a map is a new file, to which the pointer then leads. zstd dictionaries are stored beside
the maps, under their own hashes. Serve the folder as it is, over https.

Source: Codec specification 0.5, "Discovery".
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leaf_sdk.errors import CodecError, MapDiscoveryInvalid
from leaf_sdk.vocab import load_map, map_digest
from leaf_sdk.vocab.fields import as_list, as_object

from .discovery import WELL_KNOWN, map_path

CODEC_VERSION = "0.5"
"""The version of the index's format."""


def publish_maps(
    folder: Path, origin: str, maps: Sequence[bytes], *, dictionaries: Sequence[bytes] = (), published_at: str | None
) -> list[Path]:
    """Write maps and dictionaries into a folder, and return the files that were written.

    Args:
        folder: what the origin serves as its root.
        origin: `https://host[:port]`, for the addresses in the pointers.
        maps: the exact bytes of Codec maps.
        dictionaries: the bytes of zstd dictionaries that the maps name.
        published_at: goes into the pointers.

    Raises:
        NotAMap: bytes that are not a map.
        MapDiscoveryInvalid: a map's id is not a path, the origin is not an address, or the index can't be read.
        CodecError: the folder can't be written.
    """
    if not origin.startswith(("https://", "http://localhost", "http://127.0.0.1")):
        raise MapDiscoveryInvalid(
            f"maps can't be fetched from origin {origin!r}, expected an address such as https://host"
        )
    root = origin.rstrip("/")
    files: dict[str, bytes] = {}
    pointers: dict[str, dict[str, Any]] = {}
    for data in maps:
        name, digest = load_map(data, decode_only=True).id, map_digest(data)
        kept_at = f"{WELL_KNOWN}/maps/sha256/{digest.removeprefix('sha256:')}.json"
        pointers[name] = {"id": name, "url": root + kept_at, "hash": digest}
        pointers[name] |= {"published_at": published_at} if published_at else {}
        files |= {kept_at: data, map_path(name): _json(pointers[name])}
    for data in dictionaries:
        files[f"{WELL_KNOWN}/dicts/{map_digest(data).removeprefix('sha256:')}.zstd"] = data
    index = f"{WELL_KNOWN}/index.json"
    files[index] = _json({"codec_version": CODEC_VERSION, "maps": _merged(folder / index.lstrip("/"), pointers)})
    return [_write(folder / path.lstrip("/"), data) for path, data in files.items()]


def _merged(index: Path, new: dict[str, dict[str, Any]]) -> list[object]:
    """Keep what the index already lists under other names."""
    if not index.is_file():
        return [*new.values()]
    try:
        listed = as_list(as_object(json.loads(index.read_bytes())).get("maps"))
    except (OSError, ValueError) as error:
        raise MapDiscoveryInvalid(
            f"{str(index)!r} is not an index ({error}); move it away to start a new one"
        ) from error
    return [*(entry for entry in listed if as_object(entry).get("id") not in new), *new.values()]


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def _write(path: Path, data: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise CodecError(f"{str(path)!r} can't be written: {error.strerror}; name another folder") from error
    return path
