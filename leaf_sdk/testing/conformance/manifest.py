"""A manifest's file or folder to verdicts: it can be read, and its caches are what the maps give.

Only files inside the folder are read. Caches of maps that were not given are reported as not judged.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from leaf_sdk.errors import FragmentCacheInvalid, ManifestInvalid
from leaf_sdk.leaf.bolt_on import Manifest, ModelBinding, load_cache, load_manifest, load_manifests, verify_cache
from leaf_sdk.leaf.bolt_on.files import MANIFEST_NAME
from leaf_sdk.leaf.bolt_on.source import ModelMap

from .verdict import Report, Verdict, verdict_of


def check_manifests(target: str | Path, models: Sequence[ModelMap]) -> Report:
    """Check one manifest, or all manifests of a folder that has no `manifest.json` itself.

    Args:
        target: the file, its folder, or a folder of folders.
        models: the maps that caches can be judged under.
    """
    path = Path(target)
    try:
        if path.is_dir() and not (path / MANIFEST_NAME).exists():
            manifests, errors = load_manifests(path)
        else:
            manifests, errors = [load_manifest(path)], []
    except ManifestInvalid as error:
        return Report("manifest", (Verdict("manifest can be read", "fail", error.message),))
    verdicts = [Verdict("manifest can be read", "fail", error.message) for error in errors]
    if not manifests and not errors:
        verdicts.append(Verdict("manifest can be read", "fail", f"there is no manifest in {str(path)!r:.120}"))
    judged = [each for manifest in manifests for each in judge_manifest(manifest, models)]
    return Report("manifest", (*verdicts, *judged))


def judge_manifest(manifest: Manifest, models: Sequence[ModelMap]) -> list[Verdict]:
    """Judge a manifest that could be read, and the caches beside it."""
    name = manifest.name
    verdicts = [
        Verdict(
            "manifest can be read", "pass", f"version {manifest.version!r:.20}, models: {len(manifest.models)}", name
        )
    ]
    verdicts.append(verdict_of("arguments have a schema", _schema_faults(manifest), "a JSON Schema of an object", name))
    if manifest.folder is not None:
        verdicts += [_cache(manifest, binding, models) for binding in manifest.models if binding.cache_file is not None]
    return verdicts


def _schema_faults(manifest: Manifest) -> list[str]:
    schema = manifest.arguments_schema
    properties: object = schema.get("properties", {})
    required: object = schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        return [f"type {schema.get('type')!r:.40}, expected an object with properties and required"]
    known = cast("dict[str, object]", properties)
    missing = [each for each in cast("list[object]", required) if each not in known]
    return [f"required {missing[0]!r:.60} is not among the properties"] if missing else []


def _cache(manifest: Manifest, binding: ModelBinding, models: Sequence[ModelMap]) -> Verdict:
    rule = "precached ids are the map's"
    where = f"{manifest.name} for {binding.model_id:.60}"
    try:
        cache = load_cache(manifest, binding)
    except FragmentCacheInvalid as error:
        return Verdict(rule, "fail", error.message, where)
    fitting = [model for model in models if binding.tokenizer_hash in _hashes(model)]
    if not fitting:
        return Verdict(rule, "skip", f"give --map for tokenizer {binding.tokenizer_hash[:16]}...", where)
    faults = verify_cache(cache, fitting[0].token_map, also_known_as=_hashes(fitting[0]))
    return verdict_of(rule, faults, f"every id and seam (fragments: {len(cache.fragments)})", where)


def _hashes(model: ModelMap) -> tuple[str, str]:
    return model.token_map.map_id.removeprefix("sha256:"), model.tokenizer_hash
