"""The key file: who may read it, two changes at a time, and the gateway that follows it."""

import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.serve.auth.api_keys import KeyFile, KeyRecord, KeyRing, digest_of, load_keys
from gateway.serve.auth.identity import CredentialRefused

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def record(name: str, **more: object) -> KeyRecord:
    return KeyRecord(name, digest_of(f"key of {name}"), NOW, **more)  # type: ignore[arg-type]


def held(ring: KeyRing, name: str) -> bool:
    ring.follow()
    return ring.find(digest_of(f"key of {name}")) is not None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def test_file_is_for_its_owner_alone_from_the_first_moment_on(path: Path) -> None:
    KeyFile(path).add(record("a"))
    KeyFile(path).add(record("b"))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["keys.toml"]


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o620, 0o602, 0o660, 0o601])
def test_file_that_others_can_read_or_change_is_refused(path: Path, mode: int) -> None:
    KeyFile(path).add(record("a"))
    path.chmod(mode)

    with pytest.raises(ConfigError, match=f"mode {mode:04o}"):
        KeyRing(path)
    with pytest.raises(ConfigError, match="chmod 600"):
        KeyFile(path).add(record("b"))


def test_file_that_a_group_may_read_is_taken_as_containers_show_secrets_so(path: Path) -> None:
    KeyFile(path).add(record("a"))
    path.chmod(0o440)

    assert list(load_keys(path)) == ["a"]


def test_name_is_given_once(path: Path) -> None:
    KeyFile(path).add(record("a"))

    with pytest.raises(ConfigError, match="a key 'a' already exists"):
        KeyFile(path).add(KeyRecord("a", digest_of("another"), NOW))
    assert KeyFile(path).read() == {"a": record("a")}


def test_revoking_what_is_not_there_names_what_is(path: Path) -> None:
    KeyFile(path).add(record("a"))

    with pytest.raises(ConfigError, match="there is no key 'b'; the keys are a"):
        KeyFile(path).revoke("b")


def test_changes_at_the_same_time_are_all_kept(path: Path) -> None:
    threads = [threading.Thread(target=KeyFile(path).add, args=(record(f"k{n}"),)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(KeyFile(path).read()) == {f"k{n}" for n in range(16)}


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its folder can't be opened"):
        KeyFile(tmp_path / "none" / "keys.toml").add(record("a"))


def test_ring_without_a_file_asks_nobody_and_takes_the_file_up_when_it_comes(path: Path) -> None:
    ring = KeyRing(path)
    ring.follow()
    assert not ring.in_use

    KeyFile(path).add(record("a"))

    assert held(ring, "a")
    assert ring.in_use


def test_ring_follows_every_change_at_once(path: Path) -> None:
    KeyFile(path).add(record("a"))
    ring = KeyRing(path)
    for _ in range(20):
        KeyFile(path).add(record("b"))
        assert held(ring, "b")
        KeyFile(path).revoke("b")
        assert not held(ring, "b")
        assert held(ring, "a")


def test_last_key_revoked_lets_nobody_in(path: Path) -> None:
    KeyFile(path).add(record("a"))
    ring = KeyRing(path)

    KeyFile(path).revoke("a")

    assert not held(ring, "a")
    assert ring.in_use
    assert KeyRing(path).in_use


def test_file_that_is_removed_lets_nobody_in_and_the_log_says_so_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    KeyFile(path).add(record("a"))
    ring = KeyRing(path)

    path.unlink()

    assert not held(ring, "a")
    assert not held(ring, "a")
    assert ring.in_use
    assert [line.levelname for line in caplog.records if "the key file is gone" in line.getMessage()] == ["WARNING"]


@pytest.mark.parametrize("spoil", ["not TOML", "too open"])
def test_file_that_can_not_be_used_changes_nothing_and_the_log_says_why(
    path: Path, spoil: str, caplog: pytest.LogCaptureFixture
) -> None:
    KeyFile(path).add(record("a"))
    ring = KeyRing(path)
    path.write_text("[keys") if spoil == "not TOML" else path.chmod(0o644)

    for _ in range(3):
        assert held(ring, "a")

    said = [line for line in caplog.records if "can't be used" in line.getMessage()]
    assert len(said) == 1
    assert ("not TOML" if spoil == "not TOML" else "others can read") in said[0].getMessage()


def test_gateway_does_not_start_with_keys_that_it_can_not_read(path: Path) -> None:
    path.write_text("[keys")
    path.chmod(0o600)

    with pytest.raises(ConfigError, match="not TOML"):
        KeyRing(path)


def test_key_whose_time_is_over_is_refused_as_such(path: Path) -> None:
    KeyFile(path).add(record("old", expires=NOW - timedelta(days=300)))
    KeyFile(path).add(record("new", expires=datetime.now(UTC) + timedelta(days=300)))
    ring = KeyRing(path)

    assert held(ring, "new")
    with pytest.raises(CredentialRefused, match="expired"):
        held(ring, "old")


def test_folder_in_place_of_a_key_file_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a folder: name a file for the keys"):
        load_keys(tmp_path)
