"""Rebuild the manifests and caches in `tools` from the models' own tokenizers.

    python -m time_leaf.precache SMOLLM2.gguf QWEN3/tokenizer.json LLAMA31/tokenizer.json

A model file is named in the manifest by the hash of its map, a tokenizer.json by its own hash: that file is the same
for everybody, while a map built from it also holds the name that its builder gave it. For maintainers; needs the files.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from leaf_sdk import Manifest, ModelBinding, TokenMap, open_map, precache
from leaf_sdk.vocab import map_digest

from .bolt_on import FOLDER, FRAGMENTS
from .clock import DEFAULT_ZONE

MODELS: Final = ("HuggingFaceTB/SmolLM2-135M-Instruct", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct")

_ZONE = {"type": "string", "description": "IANA timezone name"}
_ZONE_OR_UTC = {**_ZONE, "default": DEFAULT_ZONE}
_ABOUT: dict[str, tuple[str, dict[str, Any]]] = {
    "get_current_time": ("Get the current time in a timezone", {"timezone": _ZONE_OR_UTC}),
    "convert_time": (
        "Convert a time of today, HH:MM, from one timezone to another",
        {"source_timezone": _ZONE, "time": {"type": "string"}, "target_timezone": _ZONE},
    ),
}


def main(paths: Sequence[str]) -> None:
    """Write every manifest and cache.

    Args:
        paths: one tokenizer for each of `MODELS`, in that order.
    """
    if len(paths) != len(MODELS):
        sys.exit(f"expected {len(MODELS)} files, for {', '.join(MODELS)}")
    opened = [(model, open_map(path), _published_hash(Path(path))) for model, path in zip(MODELS, paths, strict=True)]
    for name in FRAGMENTS:
        _write(name, opened)


def _published_hash(path: Path) -> str | None:
    return map_digest(path.read_bytes()) if path.suffix == ".json" else None


def _write(name: str, opened: Sequence[tuple[str, TokenMap, str | None]]) -> None:
    folder = FOLDER / name
    (folder / "caches").mkdir(parents=True, exist_ok=True)
    bindings: list[ModelBinding] = []
    for model, token_map, published in opened:
        cache = precache(FRAGMENTS[name], token_map, tokenizer_hash=published)
        file = f"caches/{model.rsplit('/', 1)[-1].lower()}.json"
        (folder / file).write_text(cache.to_json(), encoding="utf-8")
        bindings.append(ModelBinding(model, cache.tokenizer_hash, file))
    description, properties = _ABOUT[name]
    manifest = Manifest(
        name=name,
        version=version("codec-time-leaf"),
        description=description,
        arguments_schema=_schema(properties),
        models=tuple(bindings),
    )
    (folder / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")


def _schema(properties: dict[str, Any]) -> dict[str, Any]:
    required = [name for name, schema in properties.items() if "default" not in schema]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


if __name__ == "__main__":
    main(sys.argv[1:])
