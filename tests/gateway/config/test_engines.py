"""`[engines.NAME]`: several engines, each with the keys of `[engine]`."""

import json
from pathlib import Path

import pytest

from gateway.config.engine_tables import copies
from gateway.config.gateway_config import EngineConfig, GatewayConfig
from gateway.config.load import load_config
from gateway.config.show import secrets_of, show_config
from gateway.errors import ConfigError

TWO = '[engines.desk]\nurl = "http://desk:8080/"\napi_key = "hunter22"\n[engines.attic]\nurl = "http://attic:8080"\n'


def read(folder: Path, text: str, **flags: object) -> GatewayConfig:
    (folder / "codec-gateway.toml").write_text(text)
    return load_config(None, {key.replace("__", "."): value for key, value in flags.items()}, environ={}, cwd=folder)


def refused(folder: Path, text: str, **flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, **flags)
    return caught.value.message


def test_each_has_the_keys_of_one(tmp_path: Path) -> None:
    config = read(tmp_path, TWO + 'aliases = ["small", "tiny"]\nidle_timeout = 5.0\n')

    assert list(config.engines) == ["desk", "attic"]
    assert config.engines["desk"].url == "http://desk:8080"
    assert config.engines["attic"] == EngineConfig(
        kind="url", url="http://attic:8080", aliases=("small", "tiny"), idle_timeout=5.0
    )
    assert config.engine == EngineConfig()
    assert config.members == config.engines
    assert config.has_engine
    assert not config.warnings or "nothing to serve" not in config.warnings[0]


def test_one_alone_is_a_pool_of_one(tmp_path: Path) -> None:
    config = read(tmp_path, 'engine = "embedded"\n')

    assert config.engines == {}
    assert config.members == {"engine": config.engine}


@pytest.mark.parametrize("source", ["file", "flag"])
def test_both_at_once_are_refused_with_what_to_do(tmp_path: Path, source: str) -> None:
    text = TWO if source == "flag" else f'[engine]\nkind = "embedded"\n{TWO}'
    said = refused(tmp_path, text, **({"engine": "embedded"} if source == "flag" else {}))

    assert "'engine' and 'engines' are both set" in said
    assert "one more [engines.NAME]" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engines.desk]\nslots = 2\n", "engines.desk: expected a url"),
        ('[engines."a b"]\nurl = "http://a:1"\n', "rename it"),
        ('[engines.a]\nurl = "http://x:1"\n[engines.b]\nurl = "http://x:1/"\n', "engines.b have the same url"),
        ('[engines.a]\nurl = "x"\n', "engines.a: expected 'embedded'"),
        ('[engines.a]\nkind = "embedded"\nmodel = "nowhere.gguf"\n', "engines.a.model"),
        ('[engines.a]\nurl = "http://x:1"\nvolatile = ["("]\n', "engines.a.volatile[0]"),
        ('[engines.a]\nulr = "http://x:1"\n', "did you mean 'url'?"),
        ('[engines]\nurl = "http://x:1"\n', "engines.url"),
    ],
)
def test_what_is_wrong_is_named_with_its_section(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_variables_can_not_name_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set only in a file"):
        load_config(None, environ={"CODEC_GATEWAY_ENGINES__A__URL": "http://x:1"}, cwd=tmp_path)


def test_paths_start_from_the_file_and_keys_are_masked(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    config = read(tmp_path, TWO + 'model = "model.gguf"\n')

    assert config.engines["attic"].model == tmp_path / "model.gguf"
    assert "hunter22" in secrets_of(config)
    assert "hunter22" not in json.dumps(show_config(config))
    assert show_config(config)["engines"]["attic"]["url"] == "http://attic:8080"


def test_copies_of_the_embedded_one_have_files_of_their_own(tmp_path: Path) -> None:
    config = copies(read(tmp_path, f'[engine]\nkind = "embedded"\nslot_files = "{tmp_path}/slots"\ncontext = 512\n'), 2)

    assert {name: (each.context, each.slot_files) for name, each in config.engines.items()} == {
        "engine-1": (512, f"{tmp_path}/slots/engine-1"),
        "engine-2": (512, f"{tmp_path}/slots/engine-2"),
    }
    assert config.engine.kind == "none"


def test_engines_of_others_are_not_copied(tmp_path: Path) -> None:
    for text in (TWO, '[engine]\nurl = "http://x:1"\n'):
        with pytest.raises(ConfigError, match="--engines starts embedded engines"):
            copies(read(tmp_path, text), 2)
