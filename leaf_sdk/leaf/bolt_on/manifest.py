"""The published description of a bolt-on tool, from JSON and back, in both dialects that are in use.

The tool kit's dialect (schema "1") lists models with the hash of each one's tokenizer; the engines' dispatcher wants
one `tokenizerHash` and an `endpoint` at the top. A manifest may hold both, so that either can read it. Here every hash
is lower-case hex without a prefix, as published. Reads no files: `files` does. `manifest.schema.json` states the same
rules as JSON Schema, and a test compares the two. Source: Codec's tool-kit manifest and engine dispatcher.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from leaf_sdk.errors import ManifestInvalid

SCHEMA: Final = "1"
MAX_MANIFEST_BYTES: Final = 2**20
_HASH = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True)
class ModelBinding:
    """One tokenizer that a tool has ids for."""

    model_id: str
    """The name by which a call refers to the model; empty in a manifest of the engines' dialect, which has none."""
    tokenizer_hash: str
    """64 lower-case hex digits: of the map's bytes, or of the model's tokenizer.json."""
    cache_file: str | None = None
    """A path relative to the manifest, with `/`; None where nothing is precached."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a tool is called, what it takes, which tokenizers it has ids for and where it answers."""

    name: str
    version: str
    description: str
    arguments_schema: Mapping[str, Any]
    models: tuple[ModelBinding, ...]
    homepage: str | None = None
    endpoint: str | None = None
    """`http(s)://...`, or `unix:/path/to/socket`; None where the reader has to know it already."""
    folder: Path | None = field(default=None, compare=False)
    """Where it was read from, so that cache files are found; not part of what is published."""

    def binding_for_model(self, model_id: str) -> ModelBinding | None:
        """Find the binding of exactly this model."""
        return next((binding for binding in self.models if binding.model_id == model_id), None)

    def binding_for_hashes(self, hashes: Collection[str]) -> ModelBinding | None:
        """Find the first binding whose hash is one of these, in any spelling: the map's or a tokenizer.json's."""
        wanted = {found[1].lower() for each in hashes if (found := _HASH.fullmatch(each))}
        return next((binding for binding in self.models if binding.tokenizer_hash in wanted), None)

    def reads_as_call(self, name: object) -> bool:
        """Return whether an object with this `name` and with `arguments` or `parameters` is a whole call of the tool.

        A gateway may offer the tool under a name with a prefix, and that is what a model writes. So any name is
        accepted, unless the schema lists no arguments, or one that is named like a part of a call.
        """
        if not isinstance(name, str) or name == self.name:
            return name == self.name
        known: object = self.arguments_schema.get("properties")
        own = set(cast("dict[str, object]", known)) if isinstance(known, dict) else set[str]()
        return bool(own) and own.isdisjoint(("name", "arguments", "parameters"))

    def to_fields(self) -> dict[str, Any]:
        """Return the published object in the tool kit's dialect; an endpoint adds the dispatcher's keys."""
        fields: dict[str, Any] = {
            "schema": SCHEMA,
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "argumentsSchema": dict(self.arguments_schema),
            "models": [_published(binding) for binding in self.models],
        }
        if self.homepage is not None:
            fields["homepage"] = self.homepage
        if self.endpoint is not None:
            fields |= {"endpoint": self.endpoint, "tokenizerHash": self.models[0].tokenizer_hash}
        return fields

    def to_json(self) -> str:
        """Return the published text."""
        return json.dumps(self.to_fields(), ensure_ascii=False, indent=2) + "\n"


def parse_manifest(data: bytes, *, source: str = "manifest", folder: Path | None = None) -> Manifest:
    """Read a manifest's bytes.

    Args:
        data: the JSON text.
        source: what to call it in errors.
        folder: where it was read from.

    Raises:
        ManifestInvalid: not a valid manifest; the message names the first fault.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        _refuse(source, f"is {len(data)} bytes, expected at most {MAX_MANIFEST_BYTES}")
    try:
        document: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestInvalid(f"{source!r} is not JSON ({error}), expected a tool's manifest", source=source) from error
    if not isinstance(document, dict):
        _refuse(source, f"is a JSON {type(document).__name__}, expected an object")
    return _Reader(source, cast("dict[str, Any]", document)).manifest(folder)


def _published(binding: ModelBinding) -> dict[str, Any]:
    fields = {"modelId": binding.model_id, "tokenizerHash": binding.tokenizer_hash}
    return fields if binding.cache_file is None else {**fields, "cacheFile": binding.cache_file}


def _refuse(source: str, why: str) -> NoReturn:
    raise ManifestInvalid(f"manifest {source!r} {why}", source=source)


@dataclass(frozen=True, slots=True)
class _Reader:
    """One manifest's object, field by field."""

    source: str
    fields: Mapping[str, Any]

    def manifest(self, folder: Path | None) -> Manifest:
        engine_only = "schema" not in self.fields and "endpoint" in self.fields
        if not engine_only and self.fields.get("schema") != SCHEMA:
            _refuse(self.source, f"has schema {self.fields.get('schema')!r:.60}, expected {SCHEMA!r}")
        return Manifest(
            name=self._text("name"),
            version=self._text("version", "" if engine_only else None),
            description=self._text("description", "" if engine_only else None),
            arguments_schema=self._arguments_schema(optional=engine_only),
            models=self._models(engine_only=engine_only),
            homepage=self._text("homepage", "") or None,
            endpoint=self._text("endpoint", "") or None,
            folder=folder,
        )

    def _text(self, key: str, default: str | None = None) -> str:
        value = self.fields.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            _refuse(self.source, f"has {key} {value!r:.60}, expected a string")
        return value

    def _arguments_schema(self, *, optional: bool) -> dict[str, Any]:
        value: object = self.fields.get("argumentsSchema", {"type": "object"} if optional else None)
        if not isinstance(value, dict):
            _refuse(self.source, f"has argumentsSchema {value!r:.60}, expected a JSON Schema object")
        return cast("dict[str, Any]", value)

    def _models(self, *, engine_only: bool) -> tuple[ModelBinding, ...]:
        listed: object = self.fields.get("models")
        if engine_only and listed is None:
            return (ModelBinding("", self._hash(self.fields.get("tokenizerHash"), "tokenizerHash")),)
        if not isinstance(listed, list) or not listed:
            _refuse(self.source, "has no models, expected a list of at least one")
        return tuple(self._binding(place, each) for place, each in enumerate(cast("list[object]", listed)))

    def _binding(self, place: int, value: object) -> ModelBinding:
        where = f"models[{place}]"
        if not isinstance(value, dict):
            _refuse(self.source, f"has {where} {value!r:.60}, expected an object")
        fields = cast("dict[str, object]", value)
        model_id, cache_file = fields.get("modelId"), fields.get("cacheFile")
        if not isinstance(model_id, str) or not model_id:
            _refuse(self.source, f"has {where}.modelId {model_id!r:.60}, expected a string")
        if cache_file is not None and (not isinstance(cache_file, str) or not cache_file):
            _refuse(self.source, f"has {where}.cacheFile {cache_file!r:.60}, expected a path")
        return ModelBinding(model_id, self._hash(fields.get("tokenizerHash"), f"{where}.tokenizerHash"), cache_file)

    def _hash(self, value: object, where: str) -> str:
        # Published examples write the prefix that their own validator refuses: read, never written.
        found = _HASH.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            _refuse(self.source, f"has {where} {value!r:.90}, expected 64 hex digits")
        return found[1].lower()
