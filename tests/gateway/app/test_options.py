"""What a `serve` command was given, read as settings at the start and whenever the files change."""

from pathlib import Path

import pytest

from gateway.app.options import ServeOptions
from gateway.config.gateway_config import EngineConfig
from gateway.errors import ConfigError


def options(config: Path | None = None, engines: int | None = None, **flags: object) -> ServeOptions:
    return ServeOptions(config, {key.replace("__", "."): value for key, value in flags.items()}, engines, "info")


def test_file_and_flags_make_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "codec-gateway.toml"
    file.write_text('[serve]\nport = 1234\nadmin_port = 1235\n[engine]\nkind = "url"\nurl = "http://there"\n')
    read = options(file, serve__port=7).read()

    assert (read.serve.port, read.serve.admin_port, read.engine.url) == (7, 1235, "http://there")
    assert read.serve.token is None
    assert read.tokens.map == "auto"


def test_gateway_beyond_loopback_has_a_token() -> None:
    first, again = (options(serve__host="0.0.0.0").read().serve.token for _ in range(2))

    assert first is not None
    assert len(first) > 40
    assert again == first
    assert options(serve__host="0.0.0.0", serve__token="chosen-by-me").read().serve.token == "chosen-by-me"


def test_number_of_engines_is_that_many_of_the_embedded_one() -> None:
    assert list(options(engines=2).read().members) == ["engine-1", "engine-2"]
    assert options(engines=2).read().engine == EngineConfig()
    with pytest.raises(ConfigError, match="--engines"):
        options(engines=2, engine__kind="url", engine__url="http://there").read()


def test_map_is_looked_for_where_there_may_be_one_or_it_was_asked_for_by_name() -> None:
    assert options().read().tokens.map is None
    assert options(tokens__map=None).read().tokens.map is None
    assert options(tokens__map="auto").read().tokens.map == "auto"
    assert options(engine__kind="embedded").read().tokens.map == "auto"
    assert not options(tokens__map=None).names_map


def test_options_without_a_file_are_read_back_by_another_process() -> None:
    given = options(engines=3, serve__port=1)

    assert ServeOptions.from_json(given.as_json()) == given
    assert ServeOptions.from_json(options(Path("a.toml")).as_json()).config == Path("a.toml")
