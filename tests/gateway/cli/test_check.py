"""`codec-gateway check` and `codec-gateway token`, as a shell sees them."""

import io
import json
import tomllib
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from gateway.cli.check import check, print_sections
from gateway.cli.token import token
from gateway.config import LimitsConfig
from gateway.config.load import load_config
from gateway.config.show import show_config
from gateway.errors import ConfigError

MCP = """
{
  "servers": {
    "far": {"url": "https://far.example/mcp?key=1&token=tok-5555", "headers": {"Authorization": "Bearer hdr-5555"}},
    "near": {"command": "cat", "args": ["--password", "arg-5555", "[bold]x"], "x": 1,
             "env": {"API_KEY": "env-5555"}}
  }
}
"""
OWN = """
[serve]
port = 9000
token = "own-5555"
"""
SECRETS = ("tok-5555", "hdr-5555", "arg-5555", "env-5555", "own-5555")

app = typer.Typer()
app.command()(check)
app.command()(token)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mcp.json").write_text(MCP)
    (tmp_path / "codec-gateway.toml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


@pytest.mark.usefixtures("folder")
def test_pipe_gets_one_line_a_setting_and_the_warnings() -> None:
    result = run("check", "--config", "mcp.json", "--all")

    assert result.exit_code == 0
    assert "serve.port = 9000\n" in result.stdout
    assert 'servers.near.command = "cat"\n' in result.stdout
    assert 'servers.near.args = ["--password", "****", "[bold]x"]\n' in result.stdout
    assert "# warning: " in result.stdout
    assert "'near': 'x'" in result.stdout
    parsed = tomllib.loads("\n".join(line for line in result.stdout.splitlines() if "= null" not in line))
    assert parsed["limits"]["turns"] == LimitsConfig().turns


@pytest.mark.usefixtures("folder")
def test_json_is_one_object_with_the_warnings_in_it() -> None:
    shown = json.loads(run("check", "--config", "mcp.json", "--json").stdout)

    assert shown["serve"]["port"] == 9000
    assert shown["serve"]["token"] == "****"
    assert shown["upstreams"]["near"]["env"] == {"API_KEY": "****"}
    assert shown["upstreams"]["far"]["headers"] == {"Authorization": "****"}
    assert len(shown["warnings"]) == 1


def test_only_what_was_set_or_differs_from_the_default_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "codec-gateway.toml").write_text("[serve]\nport = 9000\nhost = '127.0.0.1'\n[limits]\nturns = 8\n")
    monkeypatch.setenv("CODEC_GATEWAY_LIMITS__DRAIN", "3")

    lines = run("check").stdout.splitlines()

    settings = [line for line in lines if not line.startswith("#")]
    assert settings == [
        "limits.turns = 8",
        "limits.drain = 3.0",
        'serve.host = "127.0.0.1"',
        "serve.port = 9000",
        "upstreams = {}",
    ]
    assert len(run("check", "--all").stdout.splitlines()) > 70


def test_configuration_that_names_nothing_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("check")

    assert result.exit_code == 0
    assert "name a file with --config" in result.stdout


def test_commands_of_servers_are_looked_for_and_each_that_is_missing_is_named(folder: Path) -> None:
    (folder / "notes.txt").write_text("")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    servers = {
        "ok": {"command": "cat"},
        "here": {"command": "./run.sh", "cwd": str(folder)},
        "path": {"command": "run.sh", "env": {"PATH": str(folder)}},
        "none": {"command": "no-such-command"},
        "gone": {"command": "./gone.sh"},
        "dir": {"command": "/tmp"},
        "text": {"command": str(folder / "notes.txt")},
        "web": {"url": "ftp://x/"},
        "cwd": {"command": "cat", "cwd": "/no/such/folder"},
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    result = run("check", "--config", "mcp.json")
    shown = json.loads(run("check", "--config", "mcp.json", "--json").stdout)

    problems = [line for line in result.stdout.splitlines() if line.startswith("# problem: ")]
    assert [f"# problem: {each}" for each in shown["problems"]] == problems
    names = [next(name for name in servers if f"server {name!r}: " in line) for line in problems]
    assert names == ["web", "cwd", "none", "gone", "dir", "text"]
    words = ["expected http://", "is not a folder", "not on PATH", "does not exist", "is a folder", "not executable"]
    assert [word for word, line in zip(words, problems, strict=True) if word not in line] == []
    assert result.exit_code == 3
    assert 'mcpServers.ok.command = "cat"\n' in result.stdout

    del servers["web"], servers["cwd"]
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert run("check", "--config", "mcp.json").exit_code == 1


def test_key_that_is_nearly_one_is_named_with_it_and_nothing_else_is_said(folder: Path) -> None:
    (folder / "mcp.json").write_text('{"mcpServers": {"time": {"comand": "codec-plain-time"}}}')

    said = run("check", "--config", "mcp.json").stdout

    assert "'time': 'comand', did you mean 'command'?" in said
    assert "nothing to serve" not in said


def test_program_of_ours_counts_as_found_without_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mcp.json").write_text('{"mcpServers": {"time": {"command": "codec-plain-time"}}}')
    monkeypatch.setenv("PATH", "/no/such/folder")

    assert run("check", "--config", "mcp.json").exit_code == 0


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", '{"mcpServers": {"a": {"command": "cat"}}}', 'mcpServers.a.command = "cat"'),
        ("a.json", '{"servers": {"a": {"command": "cat"}}}', 'servers.a.command = "cat"'),
        ("a.toml", '[upstreams.a]\ncommand = "cat"\n', 'upstreams.a.command = "cat"'),
    ],
)
def test_servers_are_listed_by_the_name_that_their_list_has_in_the_file(
    name: str, text: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)

    assert line in run("check", "--config", str(tmp_path / name)).stdout.splitlines()


@pytest.mark.parametrize(
    ("servers", "last"),
    [
        ({}, "# ok: 0 servers"),
        ({"a": {"command": "cat"}}, "# ok: 1 server"),
        ({"a": {"command": "cat"}, "b": {"command": "cat"}}, "# ok: 2 servers"),
        ({"a": {"command": "cat"}, "b": {"command": "no-such-command"}}, "# problems: 1"),
        ({"a": {"x": 1}, "b": {"command": "no-such-command"}}, "# problems: 2"),
    ],
)
def test_last_line_is_the_result(servers: dict[str, object], last: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"mcpServers": servers}))

    assert run("check", "--config", str(tmp_path / "a.json")).stdout.splitlines()[-1] == last


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("args", [["--config", "mcp.json"], ["--config", "mcp.json", "--json"]])
def test_no_secret_is_printed(args: list[str]) -> None:
    assert not [secret for secret in SECRETS if secret in run("check", *args).stdout]


@pytest.mark.parametrize("width", [80, 40, 20])
def test_terminal_gets_sections_that_fit_its_width(folder: Path, width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None, markup=False, highlight=False)

    print_sections(console, {**show_config(load_config(folder / "mcp.json", environ={})), "problems": []})

    lines = out.getvalue().splitlines()
    text = "".join("".join(line.split()) for line in lines)
    assert max(len(line) for line in lines) <= width
    assert not [secret for secret in SECRETS if secret in text]
    assert "Authorization:****" in text
    assert "API_KEY:****" in text
    assert "cat" in text
    assert "[bold]x" in text
    assert "9000" in text
    assert text.count("!") == 1


@pytest.mark.usefixtures("folder")
def test_own_file_of_the_folder_is_checked_when_none_is_named() -> None:
    result = run("check")

    assert result.exit_code == 0
    assert "serve.port = 9000\n" in result.stdout


def test_wrong_file_ends_in_one_sentence_and_prints_nothing(folder: Path) -> None:
    (folder / "codec-gateway.toml").write_text("[serve]\nprot = 1\n")

    result = run("check", "--config", "codec-gateway.toml")

    assert isinstance(result.exception, ConfigError)
    assert result.exception.message == f"{folder}/codec-gateway.toml:2: unknown key 'serve.prot': did you mean 'port'?"
    assert result.output == ""


def test_text_of_a_file_can_not_move_the_terminal(folder: Path) -> None:
    (folder / "mcp.json").write_text(
        '{"mcpServers": {"a": {"command": "cat", "args": ["x\\u001b[31m\\n"], "k\\u001b[0m": 1, "url": null}}}'
    )

    result = run("check", "--config", "mcp.json")

    assert result.exit_code == 0
    assert "\x1b" not in result.stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("args", [[], ["--config", "mcp.json"], ["--config", "codec-gateway.toml"]])
def test_token_of_the_configuration_is_printed_and_none_is_made(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    assert run("token", *args).stdout == "own-5555\n"
    assert not (tmp_path / "state").exists()


def test_token_is_made_once_and_printed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    first, second = run("token"), run("token")

    assert first.exit_code == 0
    assert first.stdout == second.stdout
    assert first.stdout.strip() == (tmp_path / "codec-gateway" / "token").read_text().strip()


def test_token_of_the_environment_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEC_GATEWAY_TOKEN", "from-outside")

    assert run("token").stdout == "from-outside\n"


def test_token_that_can_not_be_kept_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    result = run("token")

    assert isinstance(result.exception, ConfigError)
    assert "set CODEC_GATEWAY_TOKEN" in result.exception.message
    assert result.stdout == ""
