"""Where the session map comes from, and what is said when there is none to find."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.start.maps import MapSet, needs_engine, resolve_maps
from gateway.errors import ConfigError
from leaf_sdk.fetch import open_map
from leaf_sdk.testing import tiny_map, tiny_map_bytes

REMOTE = EngineConfig(kind="url", url="http://127.0.0.1:1")


def config_of(map_source: str | None, *maps: Path, engine: EngineConfig = REMOTE) -> GatewayConfig:
    return GatewayConfig(engine=engine, tokens=TokensConfig(map=map_source, maps=maps))


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_bytes(tiny_map_bytes())
    return path


@pytest.fixture
def second_file(tmp_path: Path) -> Path:
    path = tmp_path / "second.json"
    path.write_bytes(json.dumps({**json.loads(tiny_map_bytes()), "published_at": "2026"}).encode())
    return path


def test_named_map_is_the_session_map(tiny_file):
    maps = resolve_maps(config_of(str(tiny_file)))

    assert maps.session is not None
    assert maps.session.map_id == tiny_map().map_id
    assert set(maps.accepted) == {tiny_map().map_id}


def compiled_forms(folder: Path) -> list[str]:
    return [path.stem for path in folder.rglob("*.compiled")]


def test_without_an_engine_the_compiled_form_of_each_map_is_kept_and_read(
    tiny_file, second_file, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = config_of(str(tiny_file), second_file, engine=EngineConfig())

    first, again = resolve_maps(config), resolve_maps(config)

    assert sorted(f"sha256:{stem}" for stem in compiled_forms(tmp_path / "cache")) == sorted(first.accepted)
    assert list(again.accepted) == list(first.accepted)
    for map_id, token_map in again.accepted.items():
        assert token_map.special_ids == first.accepted[map_id].special_ids
        assert token_map.encode("hello <|im_end|>") == first.accepted[map_id].encode("hello <|im_end|>")


def test_with_an_engine_which_has_every_map_encode_at_once_no_compiled_form_is_kept(tiny_file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    resolve_maps(config_of(str(tiny_file)))

    assert compiled_forms(tmp_path) == []


def test_more_maps_are_accepted_beside_it(tiny_file, second_file):
    maps = resolve_maps(config_of(str(tiny_file), second_file))

    assert maps.session is maps.accepted[tiny_map().map_id]
    assert len(maps.accepted) == 2


def test_without_a_map_nothing_is_accepted(second_file):
    assert resolve_maps(config_of(None, second_file)) == MapSet()


def test_auto_reads_the_packaged_model_of_the_embedded_engine(model_map):
    maps = resolve_maps(config_of("auto", engine=EngineConfig(kind="embedded")))

    assert maps.session is not None
    assert maps.session.map_id == model_map.map_id


def test_auto_takes_the_configured_model_of_somebody_elses_engine(tiny_file):
    engine = EngineConfig(kind="url", url=REMOTE.url, model=tiny_file)
    maps = resolve_maps(config_of("auto", engine=engine), engine_model="/elsewhere.gguf")

    assert maps.session is not None
    assert maps.session.map_id == tiny_map().map_id


def test_auto_takes_the_path_that_the_engine_names(model_map):
    maps = resolve_maps(config_of("auto"), engine_model=str(packaged_model()))

    assert maps.session is not None
    assert maps.session.map_id == model_map.map_id


def test_map_is_made_of_the_tokenizer_in_a_served_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tiny_map_bytes())
    maps = resolve_maps(config_of("auto"), engine_model=str(tmp_path))

    assert maps.session is not None
    assert maps.session.map_id == tiny_map().map_id


@pytest.mark.parametrize("named", [None, "/models/elsewhere.gguf"])
def test_auto_that_finds_nothing_names_the_ways_out(named):
    with pytest.raises(ConfigError) as refused:
        resolve_maps(config_of("auto"), engine_model=named)

    assert repr(named) in refused.value.message
    assert all(way in refused.value.message for way in ("--map PATH", "--model PATH", "--map none"))


@pytest.mark.parametrize("kind", ["none", "embedded", "url"])
@pytest.mark.parametrize(("content", "words"), [(bytes(range(128, 255)), "is not a GGUF file"), (b"", "is empty")])
def test_model_that_is_no_model_is_named_as_one(tmp_path, kind, content, words):
    path = tmp_path / "noise.gguf"
    path.write_bytes(content)
    engine = EngineConfig(kind=kind, url=REMOTE.url if kind == "url" else None, model=path)
    with pytest.raises(ConfigError) as refused:
        resolve_maps(config_of("auto", engine=engine))

    assert refused.value.message.startswith(f"model 'noise.gguf' {words}")


def test_model_cut_anywhere_is_named_as_truncated(tmp_path):
    whole = packaged_model().read_bytes()[:2_000_000]
    path = tmp_path / "cut.gguf"
    for length in (4, 9, 24, 100, 4000, 100_000, 900_000, 1_500_000):
        path.write_bytes(whole[:length])
        with pytest.raises(ConfigError) as refused:
            resolve_maps(config_of("auto", engine=EngineConfig(kind="embedded", model=path)))

        assert refused.value.message.startswith("model 'cut.gguf' is truncated"), length


@pytest.mark.parametrize("content", [None, b"", b"{}", b"not a map", b"\xff\xfe"])
def test_file_that_is_no_map_is_refused_by_its_path(tmp_path, content):
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.json"):
        resolve_maps(config_of(str(path)))


def test_broken_map_among_the_accepted_ones_is_refused_too(tiny_file, tmp_path):
    with pytest.raises(ConfigError, match="missing"):
        resolve_maps(config_of(str(tiny_file), tmp_path / "missing.json"))


def test_model_that_is_no_file_is_refused_by_its_path(tmp_path):
    engine = EngineConfig(kind="embedded", model=tmp_path / "gone.gguf")
    with pytest.raises(ConfigError, match=r"gone\.gguf"):
        resolve_maps(config_of("auto", engine=engine))


@pytest.mark.parametrize(
    ("config", "needed"),
    [
        (config_of("auto"), True),
        (config_of("auto", engine=EngineConfig(kind="embedded")), False),
        (config_of("auto", engine=EngineConfig(kind="url", url=REMOTE.url, model=Path("m.gguf"))), False),
        (config_of("map.json"), False),
        (config_of(None), False),
    ],
)
def test_engine_is_asked_for_its_model_only_where_nothing_else_names_one(config, needed):
    assert needs_engine(config) is needed


def test_a_map_is_known_by_its_own_hash_and_by_that_of_the_file_it_was_built_from(tiny_file, model_map_bytes, tmp_path):
    published = tmp_path / "published.json"
    published.write_bytes(model_map_bytes)
    maps = resolve_maps(config_of(str(tiny_file), published))
    for path in (tiny_file, published):
        digest = sha256(path.read_bytes()).hexdigest()
        assert maps.by_hash[digest].map_id == open_map(path).map_id
    later = MapSet()
    later.update(maps)
    assert (later.by_hash, later.accepted, later.session) == (maps.by_hash, maps.accepted, maps.session)


def test_a_map_built_from_a_tokenizer_json_is_known_by_the_hash_of_that_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))
    maps = resolve_maps(config_of(str(path)))
    assert maps.session is not None
    own, files = maps.session.map_id.removeprefix("sha256:"), sha256(path.read_bytes()).hexdigest()
    assert own != files
    assert maps.by_hash == {own: maps.session, files: maps.session}
