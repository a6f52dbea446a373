"""`codec-gateway keys`, as a shell sees it."""

import json
import stat
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from gateway.cli.keys import keys, read_span
from gateway.errors import ConfigError
from gateway.serve.auth.api_keys import KeyFile, digest_of
from tests.cases import each_of

app = typer.Typer()
app.add_typer(keys, name="keys")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "codec-gateway.toml").write_text('[upstreams.time]\ncommand = "time"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments])


def test_key_alone_is_printed_on_standard_output_and_its_hash_is_kept_beside_the_configuration(folder: Path) -> None:
    result = run(
        "add", "laptop", "--server", "time", "--tool", "a*", "--tool", "b", "--rate", "5", "--concurrency", "2"
    )

    assert result.exit_code == 0
    key = result.stdout.strip()
    assert "\n" not in key
    assert "shown only this once" in result.stderr
    record = KeyFile(folder / "keys.toml").read()["laptop"]
    assert record.digest == digest_of(key)
    assert (record.servers, record.tools, record.rate, record.concurrency) == (("time",), ("a*", "b"), 5, 2)
    assert record.expires is None
    assert stat.S_IMODE((folder / "keys.toml").stat().st_mode) == 0o600


def test_key_without_options_may_do_everything_for_ever(folder: Path) -> None:
    run("add", "a")

    record = KeyFile(folder / "keys.toml").read()["a"]
    assert (record.servers, record.tools, record.rate, record.concurrency, record.expires) == (None, None, 0, 0, None)


def test_end_of_a_key_is_counted_from_now(folder: Path) -> None:
    run("add", "a", "--expires", "2w")

    record = KeyFile(folder / "keys.toml").read()["a"]
    assert record.expires == record.created + timedelta(weeks=2)


def test_server_that_is_not_configured_is_refused_before_a_key_is_made(folder: Path) -> None:
    result = run("add", "a", "--server", "tiem")

    assert isinstance(result.exception, ConfigError)
    assert "'tiem': the servers are time" in result.exception.message
    assert not (folder / "keys.toml").exists()


def test_list_shows_what_each_key_may_do(folder: Path) -> None:
    run("add", "laptop", "--server", "time", "--rate", "5", "--expires", "30d")
    run("add", "phone")

    shown = json.loads(run("list", "--json").stdout)

    assert set(shown) == {"laptop", "phone"}
    assert shown["laptop"] | {"created": "", "expires": ""} == {
        "created": "",
        "expires": "",
        "expired": False,
        "servers": ["time"],
        "tools": None,
        "rate": 5,
        "concurrency": 0,
    }
    assert datetime.fromisoformat(shown["laptop"]["expires"]) > datetime.fromisoformat(shown["laptop"]["created"])
    table = run("list").stdout
    assert "laptop" in table
    assert "never" in table


def test_list_without_keys_says_so() -> None:
    assert run("list").stdout.strip() == "no keys"
    assert json.loads(run("list", "--json").stdout) == {}


def test_revoked_key_is_gone_and_the_file_stays(folder: Path) -> None:
    run("add", "a")

    assert run("revoke", "a").stdout.strip() == "a is revoked"
    assert KeyFile(folder / "keys.toml").read() == {}
    assert (folder / "keys.toml").exists()
    assert isinstance(run("revoke", "a").exception, ConfigError)


def test_file_may_be_named(folder: Path) -> None:
    run("add", "a", "--keys", "other.toml")

    assert set(KeyFile(folder / "other.toml").read()) == {"a"}
    assert not (folder / "keys.toml").exists()


@pytest.mark.parametrize(("text", "span"), [("12h", timedelta(hours=12)), ("30d", timedelta(days=30))])
def test_span_is_hours_days_or_weeks(text: str, span: timedelta) -> None:
    assert read_span(text) == span


@each_of("text", ["", "0d", "30", "d", "-1d", "1.5d", "30m", "999999d", " 1d"])
def test_other_spans_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="as 12h, 30d or 52w"):
        read_span(text)
