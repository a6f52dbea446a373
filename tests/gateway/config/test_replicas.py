"""What stands in `[replicas]` is a place where the others find this replica, or is refused by its name."""

import hashlib
from pathlib import Path

import pytest

from gateway.app.mcp_services import replicas_of
from gateway.config.load import load_config
from gateway.config.replicas import ReplicasConfig, WorkerConfig, fault_file
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


@pytest.mark.parametrize("key", ["key_file", "address"])
def test_half_of_the_settings_is_refused_with_the_other_half(tmp_path: Path, key: str) -> None:
    path = tmp_path / "codec-gateway.toml"
    path.write_text(f'[replicas]\n{key} = "192.0.2.1"\n')
    other = {"key_file": "address", "address": "key_file"}[key]

    with pytest.raises(ConfigError, match=rf"replicas\.{key} is set, but replicas\.{other} is not"):
        load_config(path, environ={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("address", "named"),
    [("gateway-1.lan", "gateway-1.lan:8602"), ("192.0.2.1", "192.0.2.1:8602"), ("fd00::1", "[fd00::1]:8602")],
)
def test_replica_is_named_as_a_url_names_it(address: str, named: str) -> None:
    assert ReplicasConfig(address).named == named


def test_secrets_are_read_in_order_without_the_blanks_around_them(tmp_path: Path) -> None:
    for name, text in (("new", "n" * 32), ("old", "o" * 64)):
        (tmp_path / name).write_text(f"{text}\n")
    both = ReplicasConfig("a", key_file=tmp_path / "new", previous_key_file=tmp_path / "old")
    one = ReplicasConfig("a", key_file=tmp_path / "new")

    assert both.read_secrets() == [hashlib.sha256(each).digest() for each in (b"n" * 32, b"o" * 64)]
    assert one.read_secrets() == both.read_secrets()[:1]


def test_worker_finds_what_its_parent_offers_and_says(tmp_path: Path) -> None:
    worker = WorkerConfig(0, 2, tmp_path, ("a:1", "b:2"))

    assert worker.servers.parent == tmp_path
    assert worker.engine_fault("desk") is None
    fault_file(tmp_path, "desk").write_text("no memory", encoding="utf-8")
    assert (worker.engine_fault("desk"), worker.engine_fault("attic")) == ("no memory", None)
