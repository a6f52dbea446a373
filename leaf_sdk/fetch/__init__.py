"""A path or an address to a map's verified bytes: all that the SDK opens connections for.

Files are read as they are, a GGUF model as a memory map, so that only its head is touched. Addresses are https, or http
on this machine; a redirect may not leave the origin that was asked for. A hash's form is checked before anything is
fetched, its value right after. Size and time are limited. A map that is named by its hash is fetched once and then read
from the disk (`cache`). Knows nothing of tools.
"""

import hashlib
import json
import mmap
import re
import stat
from collections.abc import Collection, Mapping
from functools import cache as cache_once
from functools import partial
from pathlib import Path

from leaf_sdk.errors import MapHashMismatch, MapUnreachable
from leaf_sdk.vocab import TokenMap, build_map, load_map, map_digest, normalise_hash
from leaf_sdk.vocab.build import is_source
from leaf_sdk.vocab.fields import as_object
from leaf_sdk.vocab.gguf_head import read_head
from leaf_sdk.vocab.pre_tokenizers import PreTokenizer

from .cache import MapCache, default_cache

MAX_BYTES = 64 * 2**20
"""The size limit of a map; the largest published ones are near 20 MB."""
TIMEOUT = 30.0
"""Seconds for a whole download."""

_GGUF = b"GGUF"
_ID_FIRST = re.compile(rb'\s*\{\s*"id"\s*:')


def open_map(source: str | Path, expected_hash: str | None = None, *, cache: MapCache | None = None) -> TokenMap:
    """Open a map: a Codec map's file or address, or a tokenizer's file on this machine, from which one is built.

    Args:
        source: a path, an https address, or http on loopback.
        expected_hash: the hash of the Codec map; for another kind of file, of the map that is built from it. With it, a
            map that is fetched from an address is kept in this user's cache, and read from there the next time.
        cache: where to keep the compiled form, which loads faster, and with `expected_hash` the map too; see
            `leaf_sdk.fetch.cache.MapCache`.

    Raises:
        MapError: see the tree in `leaf_sdk.errors`.
    """
    expected = None if expected_hash is None else normalise_hash(expected_hash)
    if expected is None or not (cache or _is_url(source)):
        data = map_bytes(source, cache=cache)
        return cache.open(map_digest(data), lambda: data) if cache else load_map(data, expected)
    kept = cache or default_cache()
    if _is_url(source):
        data = kept.fetched(expected, lambda: read_source(source, expected_hash=expected))
        return kept.open(expected, lambda: data) if cache else load_map(data, expected)
    return kept.open(expected, lambda: kept.fetched(expected, lambda: _pinned(source, expected)))


def open_published(
    origin: str,
    name: str,
    expected_hash: str | None = None,
    *,
    allow: Collection[str] = (),
    cache: MapCache | None = None,
    max_bytes: int | None = None,
    timeout: float | None = None,
) -> TokenMap:
    """Open a map that an origin publishes under `/.well-known/codec/`; see `discovery.discover`.

    Raises:
        MapError: see the tree in `leaf_sdk.errors`.
    """
    from .discovery import discover

    data = discover(
        origin,
        name,
        cache=cache or default_cache(),
        expected_hash=expected_hash,
        allow=allow,
        max_bytes=max_bytes or MAX_BYTES,
        timeout=timeout or TIMEOUT,
    )
    return load_map(data)


def _pinned(source: str | Path, expected: str) -> bytes:
    data = map_bytes(source)
    if (actual := map_digest(data)) != expected:
        raise MapHashMismatch(expected, actual)
    return data


def map_bytes(source: str | Path, *, cache: MapCache | None = None) -> bytes:
    """Return the bytes of a Codec map, which is built first if the source is a tokenizer's file.

    `cache`: where a map that was built is kept, and found again for the same tokenizer.

    Raises:
        MapError: see the tree in `leaf_sdk.errors`.
    """
    if _is_url(source):
        return read_source(source)
    path = _regular_file(Path(source))
    if is_gguf := _first_bytes(path) == _GGUF:
        data, build = b"", partial(build_from, path)
    else:
        data = read_source(path)
        build = partial(build_map, data)
        if _is_map(data):
            return data
    if cache is None:
        return build()
    return cache.built(lambda: _source_hash(_pairs_of(path) if is_gguf else data), build)


def _pairs_of(path: Path) -> bytes:
    """The part of a GGUF file that says everything about its tokenizer: its pairs, without tensors."""
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return bytes(view[: read_head(view).cursor.at])


def _source_hash(source: bytes) -> str:
    """The hash of a source and of the code that builds a map from it."""
    return map_digest(_builder() + source)


@cache_once
def _builder() -> bytes:
    """The hash of each module that reads and writes tokenizers: another version may build another map."""
    modules = sorted((Path(__file__).parents[1] / "vocab").glob("*.py"))
    return b"".join(hashlib.sha256(each.read_bytes()).digest() for each in modules)


def build_from(
    path: Path,
    *,
    id: str | None = None,  # noqa: A002 - the map's own field name
    cut: PreTokenizer | None = None,
    special_tokens: Mapping[str, int] | None = None,
) -> bytes:
    """Build a Codec map from a tokenizer's file on this machine; for the arguments see `vocab.build_map`.

    Raises:
        MapError: see the tree in `leaf_sdk.errors`.
    """
    if _first_bytes(_regular_file(path)) != _GGUF:
        return build_map(read_source(path), id=id, cut=cut, special_tokens=special_tokens)
    with path.open("rb") as file:
        # It is closed with the last view of it: an error's traceback may still refer to one, so closing it here fails.
        return build_map(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), id=id)


def read_source(
    source: str | Path, *, expected_hash: str | None = None, max_bytes: int = MAX_BYTES, timeout: float = TIMEOUT
) -> bytes:
    """Read a file or an address in full, and compare its hash if one is given.

    Raises:
        MapHashMalformed: the hash is not a sha256; raised before anything is read.
        MapUnreachable: no such file or answer, too large, too slow, or an address that we don't fetch.
        MapHashMismatch: the bytes are not those that the hash names.
    """
    expected = None if expected_hash is None else normalise_hash(expected_hash)
    data = _download(str(source), max_bytes, timeout) if _is_url(source) else _read_file(Path(source), max_bytes)
    if len(data) > max_bytes:
        raise _unreachable(str(source), f"is larger than {max_bytes} bytes; raise max_bytes if it really is a map")
    if expected is not None and (actual := map_digest(data)) != expected:
        raise MapHashMismatch(expected, actual)
    return data


def _is_url(source: str | Path) -> bool:
    return isinstance(source, str) and "://" in source


def _regular_file(path: Path) -> Path:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise _unreachable(str(path), f"can't be read: {_cause(error)}") from error
    if not stat.S_ISREG(mode):
        raise _unreachable(str(path), "is not a regular file, expected a Codec map or a tokenizer's file")
    return path


def _read_file(path: Path, max_bytes: int) -> bytes:
    try:
        with _regular_file(path).open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise _unreachable(str(path), f"can't be read: {_cause(error)}") from error
    return data


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(_GGUF))
    except OSError as error:
        raise _unreachable(str(path), f"can't be read: {_cause(error)}") from error


def _is_map(data: bytes) -> bool:
    # Maps are written with their id first; only a file that begins otherwise is parsed once more to tell.
    if _ID_FIRST.match(data):
        return True
    try:
        document: object = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return not is_source(as_object(document))


def _download(url: str, max_bytes: int, timeout: float) -> bytes:
    # Most leaves open a file: only those that don't import the HTTP client.
    from .download import download

    return download(url, max_bytes=max_bytes, timeout=timeout)


def _cause(error: OSError | ValueError) -> str:
    # Our own sentence already has the file's name.
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _unreachable(source: str, why: str) -> MapUnreachable:
    return MapUnreachable(f"map source {source!r} {why}", source=source)
