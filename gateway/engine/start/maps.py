"""Which token maps a gateway accepts, and where the first one comes from.

Turns `TokensConfig` into loaded maps. The session map is the one by which the engine's ids are read; the others
describe the same tokenizer in other bytes (published files). Each is proven equal to the engine's tokenizer before its
ids are accepted (`map_proof.py`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.embedded.model_file import model_fault
from gateway.engine.embedded.server import embedded_model
from gateway.errors import ConfigError
from leaf_sdk.errors import CodecError
from leaf_sdk.fetch import MAX_BYTES, MapCache, default_cache, map_bytes, open_map
from leaf_sdk.vocab import TokenMap, load_map, map_digest

_SPECIALS: Final = "control tokens of {}"
"""Name of the note in the cache."""
_SHAPE: Final = TypeAdapter(dict[str, int], config=ConfigDict(defer_build=True))


@dataclass(slots=True)
class MapSet:
    """The maps of one gateway, by map id. It grows as maps become known."""

    session: TokenMap | None = None
    accepted: dict[str, TokenMap] = field(default_factory=dict[str, TokenMap])
    by_hash: dict[str, TokenMap] = field(default_factory=dict[str, TokenMap])
    """The maps by every hash that names them, 64 lower-case hex digits: of the map's bytes, or of the tokenizer.json
    from which it was built, by which published tools may name it."""
    files: dict[str, Path] = field(default_factory=dict[str, Path])
    """The file from which a map was read or built, by map id."""
    left_out: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Control tokens of the engine that a map's bytes do not list as such, by map id."""

    def add(self, token_map: TokenMap, hashes: Iterable[str] = ()) -> None:
        """Accept a map; the first one becomes the session map. `hashes`: those of the files from which it was built."""
        self.accepted[token_map.map_id] = token_map
        self.session = self.session or token_map
        for known in (token_map.map_id, *hashes):
            self.by_hash[known.removeprefix("sha256:")] = token_map

    def replace(self, token_map: TokenMap) -> None:
        """Replace an accepted map by one of the same bytes with more special tokens, which the engine knew."""
        before = self.accepted[token_map.map_id]
        self.left_out[token_map.map_id] = sorted(token_map.special_tokens.keys() - before.special_tokens.keys())
        self.accepted[token_map.map_id] = token_map
        self.by_hash |= {known: token_map for known, each in self.by_hash.items() if each is before}
        self.session = token_map if self.session is before else self.session

    def of_file(self, path: Path) -> TokenMap | None:
        """The map that was read or built from a file; None if it is not accepted."""
        return next((self.accepted[map_id] for map_id, file in self.files.items() if file == path), None)

    def update(self, other: "MapSet") -> None:
        """Accept what another set accepts, and take over maps for which it knows more special tokens."""
        for map_id, token_map in other.accepted.items():
            here = self.accepted.get(map_id)
            if here is None:
                self.add(token_map)
            elif len(token_map.special_tokens) > len(here.special_tokens):
                self.replace(token_map)
        self.by_hash |= {known: self.accepted[each.map_id] for known, each in other.by_hash.items()}
        self.files |= other.files


def resolve_maps(config: GatewayConfig, *, engine_model: str | None = None, known: MapSet | None = None) -> MapSet:
    """Load the maps that the settings name.

    `engine_model`: the path that a running engine's `/props` names, the last place where `auto` looks (the embedded
    model, else `engine.model`, else that path if it can be read). `known`: maps that are open already.

    Raises `ConfigError`.
    """
    maps = MapSet()
    if config.tokens.map is None:
        return maps
    model = _engine_of(config).model
    for path in (_session_source(config, engine_model), *config.tokens.maps):
        token_map = (known.of_file(path) if known is not None else None) or _open(path, config, is_model=path == model)
        maps.add(token_map, _file_hash(path))
        maps.files[token_map.map_id] = path
    return maps


def map_file(maps: MapSet, map_id: str) -> bytes:
    """The bytes of an accepted map, read or built again; slow if it is built from a model file.

    Raises:
        ConfigError: its file is gone, or now holds another map.
    """
    path = maps.files.get(map_id)
    try:
        data = b"" if path is None else map_bytes(path, cache=_cache())
    except (CodecError, OSError) as error:
        raise ConfigError(f"token map {map_id!r}: its file can no longer be read ({error})") from error
    if map_digest(data) != map_id:
        raise ConfigError(f"token map {map_id!r}: its file now holds another map; restart the gateway")
    return data


def noted_specials(map_id: str) -> dict[str, int]:
    """The control tokens that engines had besides a map's own, when the map was last proven. Reads the disk."""
    cache = _cache()
    noted = cache and cache.noted(_SPECIALS.format(map_id))
    try:
        return _SHAPE.validate_json(noted or b"{}")
    except ValidationError:
        return {}


def note_specials(map_id: str, tokens: Mapping[str, int]) -> None:
    """Keep them for the next start."""
    if (cache := _cache()) is not None:
        cache.note(_SPECIALS.format(map_id), json.dumps(tokens).encode())


def has_no_model(config: GatewayConfig) -> bool:
    """Whether `auto`, the default map, has nowhere to look. MCP servers can then still be served, as text."""
    tokens, engine = config.tokens, config.engine
    return tokens.map == "auto" and not tokens.maps and not config.has_engine and engine.model is None


def needs_engine(config: GatewayConfig) -> bool:
    """Whether `auto` can only be resolved by asking a running engine for its model's path."""
    engine = _engine_of(config)
    return config.tokens.map == "auto" and engine.kind == "url" and engine.model is None


def _session_source(config: GatewayConfig, engine_model: str | None) -> Path:
    if config.tokens.map not in (None, "auto"):
        return Path(config.tokens.map)
    engine = _engine_of(config)
    if engine.kind == "embedded" or engine.model is not None:
        return embedded_model(engine)
    # A model is a file, or a folder that contains its tokenizer.
    for found in (Path(engine_model), Path(engine_model, "tokenizer.json")) if engine_model is not None else ():
        if found.is_file():
            return found
    raise ConfigError(
        f"the map can't be found automatically: the engine's model {engine_model!r} is not readable here; "
        "name a map (--map PATH) or the model's GGUF file (--model PATH), or serve text only (--map none)"
    )


def _engine_of(config: GatewayConfig) -> EngineConfig:
    """The engine whose map is the session map: the first of several."""
    return next(iter(config.members.values()))


def _cache() -> MapCache | None:
    """This user's cache, so that a model's map is built once; None for a user without a home."""
    try:
        return default_cache()
    except RuntimeError:
        return None


def _file_hash(path: Path) -> list[str]:
    """The hash of a tokenizer file; empty for a model file, which is too large to be named by its hash."""
    is_small = path.is_file() and path.stat().st_size <= MAX_BYTES
    return [map_digest(path.read_bytes())] if is_small else []


def _open(path: Path, config: GatewayConfig, *, is_model: bool) -> TokenMap:
    cache = _cache()
    try:
        # The proof of an engine's maps encodes at once, so the compiled form, which is fast only to decode, gains
        # nothing there.
        return load_map(map_bytes(path, cache=cache)) if config.has_engine else open_map(path, cache=cache)
    except CodecError as error:
        if is_model:
            raise ConfigError(model_fault(path) or f"model {path.name!r}: {error}") from error
        raise ConfigError(f"token map {str(path)!r}: {error}") from error
