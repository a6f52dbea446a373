"""Manifests and caches from files: a path, a folder or bytes to what they hold.

What lies in a folder of manifests was put there by someone else. So names are taken from the folder alone: a symbolic
link out of it, a path with `..` and anything that is no regular file are refused with their name, and every file has a
bound. Below: `manifest`, `cache`. Above: `codec-leaf`, and the gateway's registry.
"""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from leaf_sdk.errors import FragmentCacheInvalid, ManifestInvalid
from leaf_sdk.fetch import MAX_BYTES, open_map
from leaf_sdk.vocab import map_digest

from .cache import MAX_CACHE_BYTES, FragmentCache, parse_cache
from .fragments import Fragments
from .manifest import MAX_MANIFEST_BYTES, Manifest, ModelBinding, parse_manifest
from .precache import verify_cache
from .tool import CodecTool

MANIFEST_NAME = "manifest.json"
MAX_MANIFESTS = 1000


def load_manifest(source: str | Path | bytes) -> Manifest:
    """Read one manifest: its bytes, its file, or the folder that holds `manifest.json`.

    Raises:
        ManifestInvalid: no such file, a link out of its folder, too large, or no manifest.
    """
    if isinstance(source, bytes):
        return parse_manifest(source)
    path = Path(source)
    if path.is_dir():
        path = path / MANIFEST_NAME
    return parse_manifest(_manifest_bytes(path), source=str(path), folder=path.parent)


def load_manifests(folder: str | Path) -> tuple[list[Manifest], list[ManifestInvalid]]:
    """Read every manifest of a folder: `*.json` in it, and `manifest.json` in the folders of it, by name.

    Files that are no manifests are returned as errors beside the good ones, so that one bad file does not take the
    others down; a fragment cache beside its manifest is not one of them.

    Raises:
        ManifestInvalid: the folder itself can't be read, or holds too many.
    """
    root = Path(folder)
    try:
        names = sorted(root.iterdir())
    except OSError as error:
        raise ManifestInvalid(f"folder {str(root)!r} can't be read: {error}", source=str(root)) from error
    paths = [path for path in names if path.suffix == ".json"]
    paths += [path / MANIFEST_NAME for path in names if (path / MANIFEST_NAME).exists() and path.is_dir()]
    if len(paths) > MAX_MANIFESTS:
        raise ManifestInvalid(
            f"folder {str(root)!r} holds {len(paths)} files, at most {MAX_MANIFESTS}", source=str(root)
        )
    manifests: list[Manifest] = []
    errors: list[ManifestInvalid] = []
    for path in paths:
        try:
            data = _manifest_bytes(path, root)
            if not _is_cache(data):
                manifests.append(parse_manifest(data, source=str(path), folder=path.parent))
        except ManifestInvalid as error:
            errors.append(error)
    return manifests, errors


def load_cache(manifest: Manifest, binding: ModelBinding) -> FragmentCache:
    """Read the cache that a manifest names for one of its models.

    Raises:
        FragmentCacheInvalid: none is named, it lies outside the manifest's folder, or it is no cache of this tokenizer.
    """
    if manifest.folder is None or binding.cache_file is None:
        raise FragmentCacheInvalid(f"tool {manifest.name!r:.60} names no cache file for {binding.model_id!r:.80}")
    name = PurePosixPath(binding.cache_file)
    if name.is_absolute() or ".." in name.parts:
        raise FragmentCacheInvalid(
            f"cacheFile {binding.cache_file!r:.120} leaves its folder, expected a path inside it"
        )
    path = manifest.folder.joinpath(*name.parts)
    try:
        cache = parse_cache(_bytes_inside(manifest.folder, path, MAX_CACHE_BYTES))
    except OSError as error:
        raise FragmentCacheInvalid(f"cache {str(path)!r} can't be read: {error}; build it with precache") from error
    if cache.tokenizer_hash != binding.tokenizer_hash:
        raise FragmentCacheInvalid(
            f"cache {str(path)!r} is for tokenizer {cache.tokenizer_hash!r}, and the manifest says "
            f"{binding.tokenizer_hash!r}; build it anew"
        )
    return cache


def load_tool(
    source: str | Path, function: Callable[[Mapping[str, Any]], Any], map_paths: Iterable[str | Path]
) -> CodecTool:
    """Open a tool whose manifest and caches lie in a folder, for the models whose maps are given.

    A map is recognised by its own hash or, built from a tokenizer.json, by that file's. Every cache is compared with
    what the map gives, so that a stale one stops the start and not a conversation.

    Args:
        source: the manifest's file or folder.
        function: the arguments to what is said.
        map_paths: Codec maps, GGUF files or tokenizer.json files.

    Raises:
        ManifestInvalid: no manifest, or one that does not list a given map.
        FragmentCacheInvalid: a cache can't be read or is not what its map gives.
        MapError: a map can't be had.
    """
    manifest = load_manifest(source)
    opened = (_model(manifest, Path(path)) for path in map_paths)
    return CodecTool(manifest, function, dict(opened))


def _model(manifest: Manifest, path: Path) -> tuple[str, Fragments]:
    token_map = open_map(path)
    known = {token_map.map_id, *_file_hash(path)}
    binding = manifest.binding_for_hashes(known)
    if binding is None:
        raise ManifestInvalid(
            f"tool {manifest.name!r:.60} has no ids for {str(path)!r}, which is {sorted(known)}; "
            "add a model with one of these hashes to the manifest and precache it",
            source=str(manifest.folder),
        )
    cache = load_cache(manifest, binding)
    if faults := verify_cache(cache, token_map, also_known_as=known):
        raise FragmentCacheInvalid(f"the cache for {binding.model_id!r:.80} is stale: {faults[0]}")
    return binding.model_id, Fragments(token_map, cache, also_known_as=known)


def _file_hash(path: Path) -> list[str]:
    """Give the hash of a file from which a map is built, by which manifests may name it; model files are too large."""
    return [map_digest(path.read_bytes())] if path.stat().st_size <= MAX_BYTES else []


def _manifest_bytes(path: Path, folder: Path | None = None) -> bytes:
    try:
        return _bytes_inside(folder or path.parent, path, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise ManifestInvalid(f"manifest {str(path)!r} can't be read: {error}", source=str(path)) from error


def _bytes_inside(folder: Path, path: Path, limit: int) -> bytes:
    """Read a regular file that really lies in a folder; raises OSError where it does not."""
    real = path.resolve(strict=True)
    if not real.is_relative_to(folder.resolve(strict=True)):
        raise OSError(f"it is a link to {str(real)!r}, outside its folder; copy the file instead")
    # Opened without following a link that came in between, and without waiting for a pipe's writer.
    handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is no regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"it is larger than {limit} bytes")
    return data


def _is_cache(data: bytes) -> bool:
    try:
        parse_cache(data)
    except FragmentCacheInvalid:
        return False
    return True
