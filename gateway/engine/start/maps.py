"""Which token maps a gateway accepts, where the first one comes from, and the proof that one fits the running engine.

Turns `TokensConfig` into loaded maps. The session map is the one by which the engine's ids are read; the others
describe the same tokenizer in other bytes (published files). Each is proven equal to the engine's tokenizer before its
ids are accepted.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.embedded.engine_process import embedded_model
from gateway.engine.embedded.model_file import model_fault
from gateway.engine.interface import EngineFacts, Provable, Proven
from gateway.errors import ConfigError, EngineUnavailable, MapDiffers
from gateway.observe.logs import get_logger
from leaf_sdk.errors import CodecError
from leaf_sdk.fetch import MAX_BYTES, MapCache, default_cache, map_bytes, open_map
from leaf_sdk.vocab import TokenMap, load_map, map_digest

# Proof that a token map and the running engine use the same tokenizer.
#
# Compares sizes, marker ids and the ids of a battery of strings, chosen where tokenizers differ: digits, blanks, line
# ends, scripts, emoji, combining marks, contractions, code. A map that fails is never used with the engine: its ids
# would mean other words. Control tokens that a map leaves out are found by asking the engine, and count as special;
# they are found before the strings are compared, as a map takes them for text. Many texts go into one request: the
# whole proof belongs on one connection, and llama.cpp's server ends a connection after about a hundred.

BATTERY: tuple[str, ...] = (
    "Hello, world! It's the cat's 3rd life; they'll see, we've said I'm OK.",
    "IT'S THE CAT'S, WE'LL SEE",
    "1234567890 3.14159 0x1F 2026-11-21T14:37:05+01:00",
    "   leading, trailing   ",
    "a  b   c    d\te\t\tf",
    "line\nline\n\nline\r\nline\r\n\r\n\n",
    "def f(x: int) -> dict[str, int]:\n    return {'x': x ** 2}  # square\n",
    '{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}',
    "Zürich, Ærø, Łódź, Αθήνα, Москва, תל אביב, القاهرة, नई दिल्ली, กรุงเทพ",
    "東京は晴れ。北京天气怎么样?서울의 날씨",
    "😀👩‍👩‍👧‍👦🏳️‍🌈🇨🇭 e\u0301 n\u0303 \u212b",
    "\u00a0\u2003\u200b\ufeff\u00ad",
    "\x00\x01\x07\x1b[31m\x7f",
    "<|not_a_token|> <tool_call> </s> [INST]",
    "ſtraße ﬁ ½ ² Ⅷ ١٢٣",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
)


class Tokenizer(Protocol):
    """The part of an engine that a proof needs."""

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        """See `Provable`."""
        ...

    async def tokenize_each(self, texts: Sequence[str], *, specials: bool) -> list[list[int]]:
        """See `Provable`."""
        ...


@dataclass(frozen=True, slots=True)
class PreparedMap:
    """A map and what its proof needs. Make it with `prepared_map`, before anything is asked of the engine."""

    token_map: TokenMap
    candidates: Mapping[str, int]
    """Entries that may be special although the map does not list them as such."""
    expected: TokenMap
    """The map as the proof is expected to leave it, ready to encode: with the control tokens that were found before."""


def prepared_map(token_map: TokenMap, found_before: Mapping[str, int] | None = None) -> PreparedMap:
    """Work out what the proof of a map needs, which takes seconds on a slow machine.

    A llama.cpp server closes a connection on which nothing is asked for five seconds, and the proof needs a single one.

    `found_before`: control tokens that an engine had besides the map's. The proof looks for them anew; if it finds the
    same ones, no second encoder has to be built.
    """
    candidates = _candidates(token_map)
    known = {token: i for token, i in (found_before or {}).items() if candidates.get(token) == i}
    expected = replace(token_map, special_tokens={**token_map.special_tokens, **known}) if known else token_map
    for sample in BATTERY:
        expected.encode(sample)
    return PreparedMap(token_map, candidates, expected)


async def proven_map(engine: Tokenizer, facts: EngineFacts, own: PreparedMap) -> TokenMap:
    """Return the map with every control token of the engine among its special tokens, if it fits the engine.

    Raises `MapDiffers`, with the first text that differs and both id lists, if it does not.
    """
    token_map = own.token_map
    if facts.vocabulary is not None and facts.vocabulary < len(token_map):
        raise _differs(facts, token_map, f"<vocabulary of {len(token_map)} ids>", [len(token_map)], [facts.vocabulary])
    markers = sorted(token_map.special_texts.items(), key=lambda item: item[1])
    if await engine.tokenize("".join(text for text, _ in markers), specials=True) != [i for _, i in markers]:
        await _compare(engine, facts, token_map, {text: [i] for text, i in markers}, specials=True)
    whole = await with_all_specials(engine, own, plain=facts.can.plain_tokenize)
    # The engine finds user-defined tokens in any text; to us text is always ordinary.
    samples = [sample for sample in BATTERY if not any(marker in sample for marker in whole.special_texts)]
    # Control tokens that are found change nothing in texts without them, and a `whole` that is new has no encoder yet.
    encoder = whole if whole is own.expected else token_map
    await _compare(engine, facts, token_map, {sample: encoder.encode(sample) for sample in samples}, specials=False)
    return whole


async def with_all_specials(engine: Tokenizer, own: PreparedMap, *, plain: bool = True) -> TokenMap:
    """The map with every control token of the engine among its special tokens, whatever the map says.

    A control token is one that a marker in a template gives and ordinary text does not. One request shows the
    candidates, and a second one confirms all of them at once. `plain`: whether the engine's tokenizer can leave special
    tokens off.
    """
    token_map, candidates = own.token_map, own.candidates
    if not candidates:
        return token_map
    reached = set(await engine.tokenize("\n".join(candidates), specials=True))
    suspects = {token: i for token, i in candidates.items() if i in reached}
    if not suspects:
        return token_map
    if await engine.tokenize("".join(suspects), specials=True) != [*suspects.values()]:
        alone = await engine.tokenize_each([*suspects], specials=True)
        suspects = {token: i for (token, i), ids in zip(suspects.items(), alone, strict=True) if ids == [i]}
    # Text can't give a token that the map's own encoder does not make of it; of those that are expected, it may.
    expected = own.expected
    doubtful = {t: i for t, i in suspects.items() if t in expected.special_tokens or expected.encode(t) == [i]}
    text = await (_plain_text if plain else _text_among_text)(engine, token_map, doubtful)
    found = {token: i for token, i in suspects.items() if token not in text}
    tokens = {**token_map.special_tokens, **found}
    if tokens == expected.special_tokens:
        return expected
    return replace(token_map, special_tokens=tokens) if found else token_map


async def _plain_text(engine: Tokenizer, token_map: TokenMap, tokens: Mapping[str, int]) -> set[str]:
    """The tokens that ordinary text gives too, for a tokenizer that can leave special tokens off."""
    del token_map
    given = await engine.tokenize_each([*tokens], specials=False)
    return {token for (token, i), ids in zip(tokens.items(), given, strict=True) if ids == [i]}


async def _text_among_text(engine: Tokenizer, token_map: TokenMap, tokens: Mapping[str, int]) -> set[str]:
    """The same for a tokenizer that can't: unlike text, a special token stays one token next to any neighbours."""
    around = {t: [f"{left}{t}{right}" for left in ("a", t[0]) for right in ("a", t[-1])] for t in tokens}
    texts = [text for several in around.values() for text in several]
    ids = dict(zip(texts, await engine.tokenize_each(texts, specials=True), strict=True))
    return {token for token, several in around.items() if all(ids[text] == token_map.encode(text) for text in several)}


def _candidates(token_map: TokenMap) -> dict[str, int]:
    """Return the candidates of `PreparedMap`.

    A merge never makes a control token. An entry that a merge makes is a candidate only if it has the form of a marker,
    in case the map is wrong.
    """
    made = {left + right for left, right in token_map.merges}
    special = token_map.special_ids
    return {
        token: i
        for token, i in token_map.vocab.items()
        if len(token) > 1 and i not in special and (token not in made or (token[0] in "<[" and token[-1] in ">]"))
    }


async def _compare(
    engine: Tokenizer, facts: EngineFacts, token_map: TokenMap, expected: Mapping[str, list[int]], *, specials: bool
) -> None:
    given = await engine.tokenize_each([*expected], specials=specials)
    for (text, own), ids in zip(expected.items(), given, strict=True):
        if ids != own:
            raise _differs(facts, token_map, text, own, ids)


def _differs(facts: EngineFacts, token_map: TokenMap, sample: str, own: list[int], theirs: list[int]) -> MapDiffers:
    return MapDiffers(
        f"map {token_map.id!r} ({token_map.map_id}) does not fit the tokenizer of the engine's model {facts.model!r}: "
        f"{sample!r} is {own} in the map and {theirs} in the engine; build the map from the model itself (--map auto)",
        sample=sample,
        map_ids=own,
        engine_ids=theirs,
    )


_SPECIALS: Final = "control tokens of {}"
"""Name of the note in the cache."""
_SHAPE: Final = TypeAdapter(dict[str, int], config=ConfigDict(defer_build=True))

log = get_logger("engine")


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


class MapProofs:
    """The proofs of all accepted maps of one engine."""

    def __init__(self, maps: MapSet, config: GatewayConfig, known: MapSet | None) -> None:
        """Prove nothing yet. `config`, `known`: see `resolve_maps`, for a map that the engine's own answers lead to."""
        self._maps = maps
        self._config = config
        self._known = known
        self._prepared: dict[str, PreparedMap] = {}

    def prepare(self) -> list[PreparedMap]:
        """Return the accepted maps, each ready for its proof, which may take seconds."""
        accepted = self._maps.accepted
        kept = {key: each for key, each in self._prepared.items() if accepted.get(key) is each.token_map}
        self._prepared = {
            key: kept.get(key) or prepared_map(each, noted_specials(key)) for key, each in accepted.items()
        }
        return list(self._prepared.values())

    async def prove(self, questions: Provable) -> Proven:
        """Prove every accepted map against the engine that answers these questions. Raises `MapDiffers`."""
        facts = await questions.facts()
        if self._maps.session is None:
            self._maps.update(resolve_maps(self._config, engine_model=facts.model_path, known=self._known))
        for candidate in self.prepare():
            whole = await proven_map(questions, facts, candidate)
            if whole is not candidate.token_map:
                self._maps.replace(whole)
                left_out = self._maps.left_out[whole.map_id]
                log.warning("the map does not list some control tokens", map=whole.map_id, tokens=left_out)
            if whole is candidate.expected:
                self._prepared[whole.map_id] = replace(candidate, token_map=whole)
            else:
                known = candidate.token_map.special_tokens
                note_specials(whole.map_id, {t: i for t, i in whole.special_tokens.items() if t not in known})
        if self._maps.session is None:
            raise EngineUnavailable("the engine needs a token map; start the gateway with --map auto or --map PATH")
        return Proven(facts, self._maps.session)


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
