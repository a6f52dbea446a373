"""API keys and the text of their file."""

import tomllib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigError
from gateway.serve.auth.api_keys import (
    KEY_PREFIX,
    KeyRecord,
    check_name,
    check_pattern,
    digest_of,
    new_key,
    parse_keys,
    render_keys,
)
from tests.cases import each_of

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HASH = "sha256:" + "ab" * 32

names = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True).filter(
    lambda name: name not in {"operator", "anonymous"}
)
texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=3).map(tuple)
moments = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)).map(
    lambda when: when.replace(microsecond=0, tzinfo=UTC)
)
records = st.builds(
    KeyRecord,
    name=names,
    digest=st.binary(min_size=32, max_size=32),
    created=moments,
    expires=st.none() | moments,
    servers=st.none() | texts,
    tools=st.none() | texts,
    rate=st.integers(0, 10**9),
    concurrency=st.integers(0, 10**9),
)


@given(st.lists(records, max_size=5, unique_by=(lambda r: r.name, lambda r: r.digest)))
def test_what_is_written_is_read_back(written: list[KeyRecord]) -> None:
    assert list(parse_keys(render_keys(written), "keys.toml").values()) == written


@given(st.text())
def test_garbage_is_refused_as_a_wrong_setting_and_never_otherwise(text: str) -> None:
    with suppress(ConfigError):
        parse_keys(text, "keys.toml")


def test_file_holds_no_key() -> None:
    key = new_key()

    text = render_keys([KeyRecord("laptop", digest_of(key), NOW)])

    assert key not in text
    assert key.removeprefix(KEY_PREFIX) not in text
    assert tomllib.loads(text)["keys"]["laptop"]["hash"] == "sha256:" + sha256(key.encode()).hexdigest()


def test_no_two_keys_are_alike_and_each_has_256_random_bits() -> None:
    made = {new_key() for _ in range(100)}

    assert len(made) == 100
    assert all(len(key.removeprefix(KEY_PREFIX)) >= 43 for key in made)


@each_of(
    ("text", "said"),
    [
        ("[keys.a]\nhash = 'x'\ncreated = 2026-01-01T00:00:00Z", "keys.a.hash"),
        (f"[keys.a]\nhash = '{HASH}'", "keys.a.created"),
        (f"[keys.a]\nhash = '{HASH}'\ncreated = 2026-01-01T00:00:00", "keys.a.created"),
        (f"[keys.a]\nhash = '{HASH}'\ncreated = 2026-01-01T00:00:00Z\nrate = '5'", "keys.a.rate"),
        (f"[keys.a]\nhash = '{HASH}'\ncreated = 2026-01-01T00:00:00Z\nrate = -1", "keys.a.rate"),
        (f"[keys.a]\nhash = '{HASH}'\ncreated = 2026-01-01T00:00:00Z\nserver = ['x']", "keys.a.server"),
        (f"[keys.operator]\nhash = '{HASH}'\ncreated = 2026-01-01T00:00:00Z", "'operator' is reserved for the gateway"),
        ("[keys", "not TOML"),
        ("[other]\n", "other"),
    ],
)
def test_bad_file_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        parse_keys(text, "keys.toml")


def test_one_hash_under_two_names_is_refused() -> None:
    entry = f"hash = '{HASH}'\ncreated = 2026-01-01T00:00:00Z\n"

    with pytest.raises(ConfigError, match="'a' and 'b' have the same hash"):
        parse_keys(f"[keys.a]\n{entry}[keys.b]\n{entry}", "keys.toml")


@pytest.mark.parametrize("name", ["", "a b", "oauth:me", "x" * 65, "é", "anonymous", "a\n"])
def test_name_that_could_be_mistaken_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="key name"):
        check_name(name)


@pytest.mark.parametrize("pattern", ["", "a\n", "x" * 129, "\ud800"])
def test_pattern_that_fits_no_name_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="expected a name or a pattern"):
        check_pattern(pattern)


def test_pattern_of_any_printable_name_is_kept() -> None:
    assert [check_pattern(each) for each in ("git__*", "é", "x" * 128)] == ["git__*", "é", "x" * 128]


def test_key_is_over_from_its_last_moment_on() -> None:
    record = KeyRecord("a", b"", NOW, expires=NOW + timedelta(hours=1))

    assert not record.expired(NOW + timedelta(minutes=59))
    assert record.expired(NOW + timedelta(hours=1))
    assert not KeyRecord("a", b"", NOW).expired(NOW + timedelta(days=9999))


def test_record_says_what_its_holder_sees() -> None:
    identity = KeyRecord("a", b"", NOW, servers=("time",), tools=("time__*",), rate=5, concurrency=2).identity()

    assert identity.principal.may_call("time", "time__now")
    assert not identity.principal.may_call("time", "now")
    assert not identity.principal.sees("files")
    assert (identity.allowance.rate, identity.allowance.concurrency) == (5, 2)
    assert KeyRecord("b", b"", NOW).identity().principal.sees("files")
