"""Caches and whole tools from files: a manifest, and the maps of the models that it is opened for, to a `CodecTool`.

A cache is inside its manifest's folder, and is compared with what its map gives before it is used for an answer.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from leaf_sdk.errors import FragmentCacheInvalid, ManifestInvalid
from leaf_sdk.fetch import MAX_BYTES, open_map
from leaf_sdk.vocab import map_digest

from .cache import MAX_CACHE_BYTES, FragmentCache, parse_cache
from .files import bytes_inside, load_manifest
from .fragments import Fragments
from .manifest import Manifest, ModelBinding
from .precaching import verify_cache
from .tool import CodecTool


def load_cache(manifest: Manifest, binding: ModelBinding) -> FragmentCache:
    """Read the cache that a manifest names for one of its models.

    Raises:
        FragmentCacheInvalid: none is named, or it is outside the manifest's folder, unreadable, or for another
            tokenizer.
    """
    if manifest.folder is None or binding.cache_file is None:
        raise FragmentCacheInvalid(f"tool {manifest.name!r:.60} names no cache file for {binding.model_id!r:.80}")
    name = PurePosixPath(binding.cache_file)
    if name.is_absolute() or ".." in name.parts:
        raise FragmentCacheInvalid(
            f"cacheFile {binding.cache_file!r:.120} leads out of its folder, expected a path inside it"
        )
    path = manifest.folder.joinpath(*name.parts)
    try:
        cache = parse_cache(bytes_inside(manifest.folder, path, MAX_CACHE_BYTES))
    except OSError as error:
        raise FragmentCacheInvalid(f"cache {str(path)!r} can't be read: {error}; build it with precache") from error
    if cache.tokenizer_hash != binding.tokenizer_hash:
        raise FragmentCacheInvalid(
            f"cache {str(path)!r} is for tokenizer {cache.tokenizer_hash!r}, but the manifest names "
            f"{binding.tokenizer_hash!r}; build it again"
        )
    return cache


def load_tool(
    source: str | Path, function: Callable[[Mapping[str, Any]], Any], map_paths: Iterable[str | Path]
) -> CodecTool:
    """Open a tool whose manifest and caches are in a folder, for the models whose maps are given.

    A map is recognised by its own hash or, if built from a tokenizer.json, by that file's. Every cache is compared with
    what the map gives, so that a stale one is found at the start and not in a conversation.

    Args:
        source: the manifest's file or folder.
        function: takes the arguments; returns what the tool says (see `CodecTool`).
        map_paths: Codec maps, GGUF files or tokenizer.json files.

    Raises:
        ManifestInvalid: no manifest, or one that does not list a given map.
        FragmentCacheInvalid: a cache can't be read or is not what its map gives.
        MapError: a map can't be obtained.
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
    """Return the file's own hash, by which manifests may name the tokenizer; none for model files, which are large."""
    return [map_digest(path.read_bytes())] if path.stat().st_size <= MAX_BYTES else []
