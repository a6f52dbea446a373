"""A bolt-on tool as its author writes it, to the folder that is published, and from there to a tool that answers.

`ToolSource` holds what the manifest says, the texts and the function in one place. Building makes a cache for each map
and a manifest that lists them; nothing is written before every cache is proven. Opening refuses a folder that was built
from other texts.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leaf_sdk.errors import BoltOnError, FragmentCacheInvalid, ManifestInvalid
from leaf_sdk.vocab import TokenMap

from .cache import FragmentCache
from .files import MANIFEST_NAME, load_manifest
from .manifest import Manifest, ModelBinding
from .precaching import precache
from .tool import CodecTool
from .tool_files import load_cache, load_tool


@dataclass(frozen=True, slots=True)
class ToolSource:
    """One tool: what is published about it, what it can say, and the function that chooses what to say."""

    name: str
    version: str
    description: str
    arguments_schema: Mapping[str, Any]
    texts: Mapping[str, str]
    """What the tool can say, by the names that `fill` takes; `{name}` is a slot."""
    function: Callable[[Mapping[str, Any]], Any]
    """Takes the arguments; returns a `str`, what `fill` returns, or an awaitable of either."""
    folder: Path
    """Where the manifest and the caches are."""

    def manifest(self) -> Manifest:
        """Return what is published, with the models that the folder has so far."""
        described = Manifest(self.name, self.version, self.description, self.arguments_schema, ())
        if not (self.folder / MANIFEST_NAME).exists():
            return replace(described, folder=self.folder)
        built = load_manifest(self.folder)
        return replace(
            described, models=built.models, homepage=built.homepage, endpoint=built.endpoint, folder=self.folder
        )


@dataclass(frozen=True, slots=True)
class ModelMap:
    """A model that a tool is to have ids for."""

    model_id: str
    token_map: TokenMap
    tokenizer_hash: str
    """The hash by which the manifest names the tokenizer, 64 hex digits: the map's, or the tokenizer.json's."""


@dataclass(frozen=True, slots=True)
class Build:
    """Everything that belongs in a tool's folder: proven, but not yet written."""

    manifest: Manifest
    caches: Mapping[str, FragmentCache]
    """The caches, by their paths in the folder."""
    dropped: tuple[str, ...]
    """Models that are no longer listed, because their ids in the folder are of other texts."""


def build_tool(manifest: Manifest, texts: Mapping[str, str], models: Sequence[ModelMap]) -> Build:
    """Make a tool's caches under some maps; models that the folder already has for the same texts are kept.

    Args:
        manifest: what is published; its models are those that the folder has so far.
        texts: what the tool can say, by fragment.
        models: the maps.

    Raises:
        SeamUnsafe: for some slot values the ids would not be those of the whole text; its `example` shows it.
    """
    renewed = {model.model_id for model in models}
    others = [binding for binding in manifest.models if binding.model_id not in renewed]
    kept = [binding for binding in others if _cached_texts(manifest, binding) == dict(texts)]
    caches: dict[str, FragmentCache] = {}
    bindings = list(kept)
    for model in models:
        file = _cache_file(manifest, model.model_id, {binding.cache_file for binding in bindings})
        caches[file] = precache(texts, model.token_map, tokenizer_hash=model.tokenizer_hash)
        bindings.append(ModelBinding(model.model_id, caches[file].tokenizer_hash, file))
    dropped = tuple(binding.model_id for binding in others if binding not in kept)
    return Build(replace(manifest, models=tuple(bindings)), caches, dropped)


def write_build(build: Build, folder: Path) -> list[Path]:
    """Write a tool's folder and return its files: the caches, then the manifest that names them.

    Raises:
        BoltOnError: a file can't be written.
    """
    files = {folder / name: cache.to_json() for name, cache in build.caches.items()}
    files[folder / MANIFEST_NAME] = build.manifest.to_json()
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BoltOnError(f"{str(path)!r} can't be written: {error.strerror}") from error
    return list(files)


def texts_of(manifest: Manifest) -> dict[str, str]:
    """Return the texts of a published tool, from the first of its caches that holds them.

    Raises:
        FragmentCacheInvalid: no cache does: the published form holds only ids.
    """
    found = (_cached_texts(manifest, binding) for binding in manifest.models)
    for texts in found:
        if texts is not None:
            return texts
    raise FragmentCacheInvalid(
        f"tool {manifest.name!r:.60} has no cache that holds its texts (x_text); build it from its package"
    )


def open_tools(sources: Iterable[ToolSource], map_paths: Iterable[str | Path]) -> list[CodecTool]:
    """Open tools that have been built, for the models whose maps are given.

    Args:
        sources: the tools as their author writes them.
        map_paths: Codec maps, GGUF files or tokenizer.json files.

    Raises:
        CodecError: a tool is not built yet, or from other texts or without one of the maps; or a map can't be obtained.
    """
    paths = list(map_paths)
    return [_open(source, paths) for source in sources]


def _open(source: ToolSource, paths: Sequence[str | Path]) -> CodecTool:
    if not (source.folder / MANIFEST_NAME).exists():
        raise ManifestInvalid(
            f"tool {source.name!r:.60} has not been built yet: there is no {MANIFEST_NAME!r} in {str(source.folder)!r}"
            "; run codec-leaf precache on its package",
            source=str(source.folder),
        )
    tool = load_tool(source.folder, source.function, paths)
    stale = [name for name in tool.models if not _is_built_from(tool.manifest, name, source.texts)]
    if stale:
        raise FragmentCacheInvalid(
            f"the cache of tool {source.name!r:.60} for {stale[0]!r:.80} was made from other texts than the "
            "package's; run codec-leaf precache again"
        )
    return tool


def _is_built_from(manifest: Manifest, model_id: str, texts: Mapping[str, str]) -> bool:
    binding = manifest.binding_for_model(model_id)
    return binding is not None and _cached_texts(manifest, binding) == dict(texts)


def _cached_texts(manifest: Manifest, binding: ModelBinding) -> dict[str, str] | None:
    try:
        cache = load_cache(manifest, binding)
    except FragmentCacheInvalid:
        return None
    texts = {name: cached.source.text for name, cached in cache.fragments.items() if cached.source is not None}
    return texts if len(texts) == len(cache.fragments) else None


def _cache_file(manifest: Manifest, model_id: str, taken: set[str | None]) -> str:
    """Name a model's cache: its present name, else the last part of the model's id, else all its parts."""
    binding = manifest.binding_for_model(model_id)
    if binding is not None and binding.cache_file is not None and binding.cache_file not in taken:
        return binding.cache_file
    words = [re.sub(r"[^a-z0-9._-]+", "-", word.lower()).strip(".-") for word in model_id.split("/")]
    short, long = (f"caches/{name or 'model'}.json" for name in (words[-1], "-".join(words)))
    return long if short in taken else short
