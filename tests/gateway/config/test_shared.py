"""`[shared]`: where the store is, and what of that is not shown."""

import json
from pathlib import Path

import pytest

from gateway.config.load import load_config
from gateway.config.replicas import SharedConfig, build_shared
from gateway.config.show import secrets_of, show_config
from gateway.errors import ConfigError


def test_address_and_password_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "codec-gateway.toml").write_text(
        '[serve]\nworkers = 2\n[shared]\nurl = "rediss://gw:${REDIS_PASSWORD}@redis.lan:6380/1"\nprefix = "{a}:"\n'
    )

    config = load_config(None, environ={"REDIS_PASSWORD": "p%40ssw0rd"}, cwd=tmp_path)

    assert config.shared == SharedConfig("rediss://gw:p%40ssw0rd@redis.lan:6380/1", "{a}:")
    shown = json.dumps(show_config(config))
    assert "redis.lan:6380/1" in shown
    assert "ssw0rd" not in shown
    assert {"p%40ssw0rd", "p@ssw0rd"} <= secrets_of(config)


@pytest.mark.parametrize("url", ["http://redis", "redis.lan:6379", "redis://h:port"])
def test_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"shared\.url"):
        build_shared({"url": url}, alone=False)
    with pytest.raises(ConfigError) as refused:
        build_shared({"url": "http://ann:secretword@redis"}, alone=False)
    assert "secretword" not in refused.value.message


def test_gateway_that_is_alone_shares_nothing(tmp_path: Path) -> None:
    (tmp_path / "codec-gateway.toml").write_text('[shared]\nurl = "redis://redis.lan"\n')

    with pytest.raises(ConfigError, match="no replicas to share the store with"):
        load_config(None, environ={}, cwd=tmp_path)
    assert load_config(None, environ={}, cwd=tmp_path, overrides={"serve.workers": 2}).shared.url == "redis://redis.lan"


@pytest.mark.parametrize("line", ['prefix = ""', 'prefix = "a b"', "timeout = 0", "timeout = 60"])
def test_values_have_bounds(tmp_path: Path, line: str) -> None:
    (tmp_path / "codec-gateway.toml").write_text(f"[shared]\n{line}\n")

    with pytest.raises(ConfigError, match=r"shared\."):
        load_config(None, environ={}, cwd=tmp_path)
