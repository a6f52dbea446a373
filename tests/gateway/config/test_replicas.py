"""What stands in `[replicas]` is a place where the others find this replica, or is refused by its name."""

from pathlib import Path

import pytest

from gateway.app.mcp_services import replicas_of
from gateway.config.load import load_config
from gateway.config.replicas import ReplicasConfig
from gateway.errors import ConfigError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_every_address_of_a_machine_is_none_by_which_the_others_find_it(tmp_path: Path, address: str) -> None:
    path = tmp_path / "codec-gateway.toml"
    path.write_text(f'[replicas]\naddress = "{address}"\nkey_file = "k"\n')

    with pytest.raises(ConfigError, match=r"replicas\.address .* set an address or name of this machine"):
        load_config(path, environ={}, cwd=tmp_path)


@pytest.mark.parametrize("address", ["x" * 64, "a..b", "[::1]", "192.0.2.1"])
async def test_address_that_can_not_be_listened_on_is_refused_by_name(tmp_path: Path, address: str) -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("nobody may be listened to")

    secret = tmp_path / "key"
    secret.write_text("s" * 64)
    with pytest.raises(ConfigError, match=r"replicas\.address must be an address of this machine"):
        async with replicas_of(ReplicasConfig(address, key_file=secret)).listening(app):
            pass


@pytest.mark.parametrize("held", [None, b"", b" " * 40, b"x" * 31])
def test_secret_that_is_missing_or_short_is_refused_and_not_shown(tmp_path: Path, held: bytes | None) -> None:
    secret = tmp_path / "key"
    secret.mkdir() if held is None else secret.write_bytes(held)

    with pytest.raises(ConfigError, match=r"replicas\.key_file") as refused:
        replicas_of(ReplicasConfig("127.0.0.1", key_file=secret))

    assert not held or held.decode() not in refused.value.message
